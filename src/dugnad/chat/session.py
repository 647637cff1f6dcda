"""What one chat has at hand: the board, the lead, where to print, and who was spoken to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..board import Board
from .screen import Screen
from .status import BoardStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatLimits:
    """How long the chat waits, and how much it shows."""

    refresh_seconds: float = 1.0  # Between two looks at the board for the status bar, at least.
    prompt_seconds: float = 0.3  # A command that takes longer gives the prompt back and prints when it is done.
    leave_seconds: float = 5.0  # For what is under way when the person leaves.
    trouble_seconds: float = 5.0  # Before a board that was in trouble is asked again.
    pickup_seconds: float = 60.0  # Piped: for somebody to read what was said.
    answer_seconds: float = 1_800.0  # Piped: for the answers to all that was said.
    history_bytes_max: int = 1024 * 1024
    tasks_shown: int = 100
    messages_shown: int = 20
    events_shown: int = 20
    events_shown_max: int = 1_000


@dataclass(slots=True, kw_only=True)
class Session:
    """One person's chat. It lives in memory only: all that matters is on the board."""

    board: Board
    lead: str
    screen: Screen
    account: int | None = None  # The root that pays for all that is put in this chat; None: each its own.
    limits: ChatLimits = field(default_factory=ChatLimits)
    standing: BoardStatus = field(default_factory=BoardStatus)
    spoken_to: dict[str, int] = field(default_factory=dict)  # Whose answers a pipe waits for: name, last message.
    leaving: bool = False  # Asked for; what is under way ends first.
    left: asyncio.Event = field(default_factory=asyncio.Event)


Run = Callable[[Session, str], Awaitable[None]]
Takes = Literal["task", "ended", "teammate", "request", "state", "cap", "command"]


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One row of the table that help, completion and dispatch are made from."""

    name: str
    usage: str  # What follows the name.
    says: str
    run: Run
    takes: tuple[Takes, ...] = ()  # What its words are, for completion.

    @property
    def line(self) -> str:
        """The command as one writes it."""
        return f"/{self.name} {self.usage}".strip()


def history_file(state_home: str | None, home: Path) -> Path:
    """Where typed lines are kept: the user's state folder, as the XDG rules name it."""
    folder = Path(state_home) if state_home and Path(state_home).is_absolute() else home / ".local" / "state"
    return folder / "dugnad" / "chat_history"
