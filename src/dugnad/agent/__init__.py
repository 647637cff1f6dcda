"""One mind: the loop, the request, compaction, identity."""

from .agent import Agent
from .drain import drain
from .external.agent import ExternalAgent
from .external.command import ExternalCommand
from .mind import Mind, Stop

__all__ = ["Agent", "ExternalAgent", "ExternalCommand", "Mind", "Stop", "drain"]
