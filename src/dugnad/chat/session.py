"""One chat: its state, its table of commands, and what runs beside it until the person leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.console import RenderableType

from ..board import Board
from .screen import Screen
from .spoken import Spoken
from .status import BoardStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatLimits:
    """How long the chat waits, and how much it shows."""

    refresh_seconds: float = 1.0  # Between two looks at the board for the status bar, at least.
    prompt_seconds: float = 0.3  # After this the prompt comes back, and a slow command prints when it is done.
    leave_seconds: float = 5.0  # For what is under way when the person leaves.
    trouble_seconds: float = 5.0  # Before the board is asked again after an error.
    pickup_seconds: float = 60.0  # Piped: for a teammate to read a message.
    answer_seconds: float = 1_800.0  # Piped: for the answers to all messages.
    history_bytes_max: int = 1024 * 1024
    tasks_shown: int = 100
    messages_shown: int = 20
    events_shown: int = 20
    events_shown_max: int = 1_000


@dataclass(slots=True, kw_only=True)
class Session:
    """One person's chat. It is kept in memory only: everything that matters is on the board."""

    board: Board
    lead: str
    screen: Screen
    spoken: Spoken = field(default_factory=Spoken)  # What the lead is writing.
    account: int | None = None  # The goal whose budget pays for this chat; None: each task has its own.
    limits: ChatLimits = field(default_factory=ChatLimits)
    standing: BoardStatus = field(default_factory=BoardStatus)
    spoken_to: dict[str, int] = field(default_factory=dict)  # The last message to each teammate.
    # Lines are done in the order they were typed. What a line prints comes before an answer to it.
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    leaving: bool = False  # The person wants to leave; running commands end first.
    left: asyncio.Event = field(default_factory=asyncio.Event)


Look = Callable[[], Awaitable[float]]  # Returns the seconds to wait before the next look.
Shown = RenderableType | None  # What a command has to say; a text is the chat's own.
Run = Callable[[Session, str], Awaitable[Shown]]
Takes = Literal["task", "ended", "teammate", "request", "state", "cap", "command"]


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One row of the table of commands, from which help, completion and dispatch are made."""

    name: str
    usage: str  # What follows the name.
    says: str
    run: Run
    takes: tuple[Takes, ...] = ()  # The kinds of its arguments, for completion.

    @property
    def line(self) -> str:
        """The command as it is typed."""
        return f"/{self.name} {self.usage}".strip()


# Looking at the board whenever it has changed, until the person has left.


async def follow(session: Session, topics: Iterable[str], look: Look, *, seconds: float) -> None:
    """Look now, after each commit that touches one of the topics, and at least once within `seconds`.

    Only a wait is ever cancelled. A cancelled read would leave its connection to an event loop that is about to close.
    """
    while not session.left.is_set():
        with session.board.watch(topics) as watch:
            pause = await look()
            await _unless_left(session, asyncio.sleep(pause))
            await _unless_left(session, watch.wait(seconds))


async def _unless_left(session: Session, rest: Coroutine[Any, Any, object]) -> None:
    waits = (asyncio.ensure_future(rest), asyncio.ensure_future(session.left.wait()))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


@asynccontextmanager
async def alongside(session: Session, *work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the work while the block lasts. At its end the person has left, and the work may end too."""
    running = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        session.left.set()
        await asyncio.wait(running, timeout=session.limits.leave_seconds)
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
