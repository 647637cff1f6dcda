"""dugnad: a team of LLM agents that finds its own work."""

from .board import Board, open_board
from .types import Budget, Done, Failed, Need, NewTask, Released, Task, Waiting

__all__ = [
    "Board",
    "Budget",
    "Done",
    "Failed",
    "Need",
    "NewTask",
    "Released",
    "Task",
    "Waiting",
    "__version__",
    "open_board",
]
__version__ = "0.1.0"
