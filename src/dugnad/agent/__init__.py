"""One mind: the loop, the request, compaction, identity."""

from .agent import Agent
from .command import Command
from .drain import drain
from .mind import Mind
from .outside import Outside

__all__ = ["Agent", "Command", "Mind", "Outside", "drain"]
