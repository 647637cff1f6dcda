"""dugnad: a team of LLM agents that finds its own work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .agent.agent import Agent
    from .agent.drain import drain
    from .board import Board, open_board
    from .errors import DugnadError
    from .models import ScriptedModel, open_model
    from .team import Report, Team
    from .tools.context import Context
    from .tools.tool import tool
    from .types import Budget, Done, Failed, Need, NewTask, Released, Task, Waiting

__all__ = [
    "Agent", "Board", "Budget", "Context", "Done", "DugnadError", "Failed", "Need", "NewTask", "Released", "Report",
    "ScriptedModel", "Task", "Team", "Waiting", "__version__", "drain", "open_board", "open_model", "tool",
]  # fmt: skip
__version__ = "0.3.0"


def __getattr__(name: str) -> object:
    """Import a name where it is first used: `dugnad --help` needs none of them."""
    from importlib import import_module

    homes = {"Agent": "agent.agent", "drain": "agent.drain", "Board": "board", "open_board": "board",
             "ScriptedModel": "models", "open_model": "models", "Report": "team", "Team": "team",
             "Context": "tools.context", "tool": "tools.tool", "DugnadError": "errors"}  # fmt: skip
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{homes.get(name, 'types')}", __name__), name)
