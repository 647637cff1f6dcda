"""One mind: the loop, the request, compaction, identity."""

from .agent import Agent
from .drain import drain

__all__ = ["Agent", "drain"]
