"""The board: the durable state of a team, on SQLite or PostgreSQL."""

from .board import Board
from .open import open_board

__all__ = ["Board", "open_board"]
