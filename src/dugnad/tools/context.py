"""What a tool is handed besides its arguments, and the two ways it can answer that are not text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..board import Board
from ..settings import AgentLimits
from ..text import Told
from ..types import Claim, Outcome, Teammate

if TYPE_CHECKING:
    from .skills import Skill


@dataclass(frozen=True, slots=True)
class Ends:
    """The tool ends the attempt: with an end, or with a wait after which it is asked again."""

    outcome: Outcome
    say: str = ""


@dataclass(slots=True)
class Desk:
    """What one attempt has on its desk. The list and the wish for room are folded from the recorded calls."""

    todo: list[str] = field(default_factory=list)
    todo_turn: int = 0  # When the list was touched last.
    compaction_wanted: bool = False
    claims: list[Claim] = field(default_factory=list)  # Claimed by name; worked when this attempt is over.


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an output, from the character that was asked for."""

    text: str
    more: bool  # There is more behind it.


class Keeper(Protocol):
    """What stands behind tools of one attempt whose words or work outlive a call."""

    def piece(self, output: str, start: int, most: int) -> Piece | None:
        """Of an output that is kept under this name; None: there is none. Called in a thread."""

    def unfinished(self) -> Told:
        """What still goes on and would be ended with the attempt, told once; or nothing."""


Consult = Callable[[str, str | None], Awaitable[str]]
ReadOutput = Callable[[str, int, int], Awaitable[Piece]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who calls, for which task, and what the call may use."""

    board: Board
    claim: Claim
    teammate: Teammate
    limits: AgentLimits
    key: str  # Names this very call, also when it is run again after a crash.
    desk: Desk
    skills: tuple[Skill, ...] = ()
    since: int | None = None  # The epoch in which this call put the task down to wait, if it did.
    shown: list[int] = field(default_factory=list)  # Messages the model is shown by this call; filled in by it.
    consult: Consult | None = None
    read_output: ReadOutput | None = None
    seconds: float | None = None  # After so many the call is stopped; None: it takes as long as it takes.
    say: Callable[[str], None] = lambda text: None  # What goes on in the call right now, for whoever watches.
