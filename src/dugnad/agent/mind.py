"""The minds: each works on a claimed task until it has an outcome, and its caller settles the outcome."""

from __future__ import annotations

from .agent import Agent
from .external.agent import ExternalAgent
from .outside.mind import OutsideMind

__all__ = ["Agent", "ExternalAgent", "Mind", "OutsideMind"]

Mind = Agent | ExternalAgent | OutsideMind
