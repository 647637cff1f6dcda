"""One mind: dugnad's own agent, or an external one."""

from .agent import Agent
from .drain import drain
from .external.agent import ExternalAgent
from .external.command import ExternalCommand
from .stop import Stop

Mind = Agent | ExternalAgent  # What works on a claimed task until it has an outcome. Its caller settles the outcome.

__all__ = ["Agent", "ExternalAgent", "ExternalCommand", "Mind", "Stop", "drain"]
