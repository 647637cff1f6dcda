"""What is known of a board at one point of its log, as the oracle has gathered it event by event. No rules here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dugnad.settings import Limits
from dugnad.types import Event

from .promises import Fault


@dataclass
class TaskHistory:
    root: int
    needs: dict[int, str | None]
    depth: int = 0
    key: str = ""
    kind: str = ""
    epoch: int = 0  # The newest claim's.
    holder: str | None = None
    holders: set[str] = field(default_factory=set)  # All who ever held it.
    host: str | None = None
    live: bool = False  # The newest claim may still write: nobody settled it, cancelled it or took it over.
    held: bool = False  # ... and was not taken back either.
    ended: str | None = None
    outcome: str | None = None
    due_at: int | None = None
    tries: int = 0
    claims: int = 0
    children: int = 0
    goes_on_from: int | None = None  # The epoch that was lost, or put down, and has to be gone on from.
    replies: int = 0  # Of the newest claim.
    waits: bool = False  # For somebody, or for something.
    role: str = ""
    lane: str = ""  # Who may take it, as pushes name them.
    not_for: str = ""
    lines: dict[int, int] = field(default_factory=dict)  # Of each claim: the first of those it goes on from.
    said: Counter[int] = field(default_factory=Counter)  # Replies in each such line,
    results: Counter[tuple[int, int]] = field(default_factory=Counter)  # and of tools, by the line and its reply.
    turned: dict[str, int] | None = None  # What a turn used whose reservation is about to be closed.
    met: set[int] = field(default_factory=set)  # Needs that were met once; a retry of them takes nothing back.

    def give(self, assignee: str | None) -> None:
        self.lane = f"@{assignee}" if assignee else self.role

    def heard_from(self, who: str, epoch: int | None) -> bool:
        """The fence of what is said out of a task. Its holder says it, for itself or for one who held it before."""
        if epoch is None:  # Boards of earlier versions do not say under which claim it was said.
            return self.live and who == self.holder
        return self.live and epoch == self.epoch and who in self.holders


@dataclass
class Account:
    caps: dict[str, int | None]
    runs: int = 0
    tasks: int = 0
    used: Counter[str] = field(default_factory=Counter)  # Spent and reserved together.
    held: str | None = None  # Which cap was reached.


@dataclass
class History:
    """What is known of the board at one point of the log."""

    limits: Limits | None = None  # Given: the loop guards are judged too.
    turns_max: int | None = None
    tasks: dict[int, TaskHistory] = field(default_factory=dict)
    accounts: dict[int, Account] = field(default_factory=dict)
    reservations: dict[str, tuple[int, int, dict[str, int]]] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    teammates: dict[str, str] = field(default_factory=dict)
    seats: dict[str, str] = field(default_factory=dict)  # Of each teammate: the host it was seated at last.
    sent_away: set[str] = field(default_factory=set)  # Who was shut down by another, and not by its own rest.
    asked_to_go: set[str] = field(default_factory=set)  # Who was asked to shut down, since it was spawned last.
    owed: set[int] = field(default_factory=set)  # Tasks a guard ended, of which no person was told yet.
    messages: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    shown: set[int] = field(default_factory=set)
    found: list[Fault] = field(default_factory=list)
    seen: set[tuple[object, ...]] = field(default_factory=set)  # What happened, to look acknowledgements up in.
    counts: Counter[str] = field(default_factory=Counter)  # How often each kind of event was seen.
    last: int = 0

    def fault(self, event: Event, what: str, promise: int) -> None:
        who = f"{event.kind} of #{event.task} by {event.actor}"
        self.found.append(Fault(promise, f"event {event.seq} ({who}): {what}"))

    def happens(self, event: Event, *what: object, promise: int = 4) -> None:
        if what in self.seen:
            self.fault(event, f"{what} happened a second time", promise)
        self.seen.add(what)
