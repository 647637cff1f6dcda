"""What a tool gets besides its arguments, and how it can answer other than with a text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..board import Board
from ..settings import AgentLimits
from ..text import NOTHING, Told
from ..types import Claim, Outcome, Teammate

if TYPE_CHECKING:
    from .skills import Skill


@dataclass(frozen=True, slots=True)
class Ends:
    """The tool ends the attempt, or lets it wait; after a wait the tool is called again."""

    outcome: Outcome
    say: str = ""


@dataclass(slots=True)
class Desk:
    """What tools of one attempt leave for the agent. `follows` and `joins` are set by the agent; all but these and
    the claims is folded from the recorded calls."""

    follows: Told = NOTHING  # What the runtime does after `finish`; empty: nothing more is expected of the end.
    joins: Callable[[str], bool] = lambda role: False  # Whether one joins for work of a role that nobody has.
    todo: list[str] = field(default_factory=list)
    todo_turn: int = 0  # The turn of the last change of the list.
    compaction_wanted: bool = False
    labels: dict[str, int] = field(default_factory=dict)  # Of tasks added in this conversation, with their numbers.
    claims: list[Claim] = field(default_factory=list)  # Tasks claimed by number; worked when this attempt is over.


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    more: bool  # There is more after it.


class Keeper(Protocol):
    """Keeps the outputs and the jobs of one attempt beyond a single call."""

    def piece(self, output: str, start: int, most: int) -> Piece | None:
        """A part of the output with this name; None: there is none. Called in a thread."""

    def unfinished(self) -> Told:
        """What still runs and would end with the attempt. Each job is named once."""


Consult = Callable[[str, str | None], Awaitable[str]]
ReadOutput = Callable[[str, int, int], Awaitable[Piece]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who calls, for which task, and what the call may use."""

    board: Board
    claim: Claim
    teammate: Teammate
    limits: AgentLimits
    key: str  # The name of this call; the same when the call is run again after a crash.
    desk: Desk
    skills: tuple[Skill, ...] = ()
    since: int | None = None  # The epoch in which this call let the task wait, if it did.
    shown: list[int] = field(default_factory=list)  # The call adds the messages that it shows to the model.
    consult: Consult | None = None
    read_output: ReadOutput | None = None
    seconds: float | None = None  # After this time the call is stopped. None: no limit.
    say: Callable[[str], None] = lambda text: None  # Shows people what the call is doing.
