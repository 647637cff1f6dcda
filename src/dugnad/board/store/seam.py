"""The seam to a database: transaction, fetch, push. The verbs know nothing else of it.

A verb is an async function that gets a `Tx`. On PostgreSQL its awaits go over the wire; on SQLite they never
suspend, so a writer thread (or, in simulation, the loop itself) drives the same function to its end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import orjson

from ...clock import Sources
from ...errors import BadInput
from ...settings import Limits, Patience
from .. import rules

Row = Mapping[str, Any]
# What changed, and for how many: {"ready:coder": 3, "inbox:alice": 1, "log": 1}. "ready:coder!bob" is not for Bob.
Topics = dict[str, int]
Work = Callable[["Tx"], Awaitable[None]]
_WHOLE_MAX = 2**63 - 1
_NUMBERS, _LISTS = (int, float), (tuple, list)  # Made once: every value of every call is looked at.
# In the order in which rows are locked.
STEPS = (
    "seated", "no_task_due", "holds", "take_tasks", "open_attempts", "charge_accounts", "no_cooldown", "insert_turns",
    "show_taken", "settle_tasks", "close_attempts", "settle_reservations", "insert_reservations", "move_accounts",
    "no_open_reservation", "meet_needs", "count_down_seen", "no_dependent", "no_parent_at_work",
)  # fmt: skip


def as_json(value: object) -> str:
    return orjson.dumps(value).decode()


def storable(what: str, value: Any) -> None:
    """Refuse a value that a database cannot hold, at any depth of a call."""
    if isinstance(value, str):
        if not (value.isascii() and value.isprintable()):  # Most texts of most calls are one plain line.
            rules.text(what, value)
    elif isinstance(value, _NUMBERS):
        if not -_WHOLE_MAX <= value <= _WHOLE_MAX:  # Also refuses nan.
            raise BadInput(f"The {what} cannot be {rules.said(value)}: no board holds such a number.")
    elif isinstance(value, _LISTS):
        for each in value:
            storable(what, each)
    elif isinstance(value, dict):
        for name, each in value.items():
            storable(name, each)
    elif value is not None:
        for name in getattr(value, "__dataclass_fields__", ()):
            if (each := getattr(value, name)) is not None and each is not False:
                storable(name, each)


def ids_json(ids: Iterable[int]) -> str:
    rows = [{"id": each} for each in ids]
    storable("id", rows)
    return as_json(rows)


class TryAgain(Exception):
    """Another process committed in between; the whole transaction is rolled back and runs again."""


Asked = tuple[str, Mapping[str, object]]  # The name of a statement, and its arguments.


class Noting:
    """What a transaction notes: its events and wake-ups are written with its last statement."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.topics: Topics = {}


class Script(Noting):
    """A transaction as a list of steps, each a statement with what it is given (see `sql/scripts.sql`). If a step does
    not find what it must, nothing is written."""

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, list[dict[str, Any]]] = {}
        self.answers: list[Any] = []
        self.tells: tuple[str, ...] = ()  # Steps whose rows are told when it has run.

    def step(self, name: str, /, **given: Any) -> None:
        self.given.setdefault(name, []).append(given)

    def told(self, found: Mapping[str, Sequence[Row]]) -> None:
        """It has run, and these are the rows of the steps in `tells`."""

    @property
    def steps(self) -> list[tuple[str, list[dict[str, Any]], int]]:
        """Each step, what it is given, and how many rows it must find."""
        found = [(name, self.given[name]) for name in STEPS if name in self.given]
        return [(name, given, 0 if name.startswith("no_") else len(given)) for name, given in found]


class Tx(Noting, ABC):
    """One open transaction."""

    def __init__(self, limits: Limits, sources: Sources, *, repeated: bool = False) -> None:
        super().__init__()
        self.limits = limits
        self.sources = sources
        self.repeated = repeated  # The work was tried before and its fate is unknown: look for answers by key.

    @abstractmethod
    async def fetch(self, name: str, /, **arguments: object) -> Sequence[Row]:
        """Run the statement of that name. A list is given as it is; the database gets it as JSON or as parameters."""

    @abstractmethod
    async def execute(self, *statements: str) -> None:
        """Run statements that answer nothing."""

    @abstractmethod
    def is_lost(self, trouble: BaseException) -> bool:
        """Whether this trouble has ended the whole transaction."""

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """Roll back what happened inside, and only that, if it raises."""
        events, topics = len(self.events), dict(self.topics)
        await self.execute("SAVEPOINT one_call")
        try:
            yield
        except BaseException as trouble:
            if not self.is_lost(trouble):
                await self.execute("ROLLBACK TO one_call", "RELEASE one_call")
                del self.events[events:]
                self.topics = topics
            raise
        await self.execute("RELEASE one_call")


class BaseStore(ABC):
    """What both databases have in common."""

    def __init__(self, limits: Limits, patience: Patience, sources: Sources) -> None:
        self.limits, self.sources, self._patience = limits, sources, patience
        self._listeners: list[Callable[[Topics], None]] = []

    @abstractmethod
    async def snapshot(self, asks: Sequence[Asked]) -> Sequence[Sequence[Row]]: ...

    async def read(self, name: str, /, **arguments: object) -> Sequence[Row]:
        return (await self.snapshot([(name, arguments)]))[0]

    def on_push(self, listener: Callable[[Topics], None]) -> None:
        self._listeners.append(listener)

    def tell(self, topics: Topics) -> None:
        if topics:
            for listener in self._listeners:
                listener(topics)


class Store(Protocol):
    """A database that holds one board."""

    # Each statement takes a round trip: look first, then write all at once; and claims beside the rest.
    over_a_wire: bool

    async def write(self, work: Work, *, alone: bool = False, script: Script | None = None) -> bool:
        """Run `work` in a transaction, append its events, commit, push. Run it again if its fate is unknown.

        `alone`: it is one small call, and no other call waits. `script` does the same where nothing stands in the way,
        and is tried first. Returns whether it was enough.
        """

    async def read(self, name: str, /, **arguments: object) -> Sequence[Row]:
        """Run one reading statement, beside the writer."""

    async def snapshot(self, asks: Sequence[Asked]) -> Sequence[Sequence[Row]]:
        """Run several reading statements that all see the board at one moment."""

    def get_ready(self) -> None:
        """Begin to prepare what many calls at once will need."""

    async def shrink(self, *, whole: bool) -> bool:
        """Give unused space back to the disk, if that is possible. `whole`: nobody else would have to wait."""

    def on_push(self, listener: Callable[[Topics], None]) -> None:
        """Call `listener` after every commit, of this process and of others."""

    async def close(self) -> None: ...


def event(
    tx: Noting, kind: str, actor: str, /, *, task: int | None = None, root: int | None = None, **data: object
) -> None:
    # Readers take a missing field for None.
    said = {name: value for name, value in data.items() if value is not None}
    tx.events.append({"kind": kind, "task": task, "root": root, "actor": actor, "data": said})


def wake(tx: Noting, topic: str, count: int = 1) -> None:
    tx.topics[topic] = tx.topics.get(topic, 0) + count


def wake_for(tx: Noting, task: Row, state: str = "ready") -> None:
    """Wake those who may claim a task; or, if it is not due yet, the sweep that waits for it."""
    but = f"!{task['not_for']}" if task["not_for"] is not None else ""
    wake(tx, f"ready:{task['lane']}{but}" if state == "ready" else "due")


def made_ready(tx: Noting, row: Row) -> None:
    """Log that a task is ready, or scheduled until it is due."""
    event(tx, "ready", "board", task=row["id"], root=row["root_id"], state=row["state"])
    wake_for(tx, row, row["state"])


def urgent(topics: Topics) -> str | None:
    """What a transaction tells others as it commits; None: that can wait, as nobody begins to work because of it."""
    return None if all(topic.startswith(("log", "task:", "budget:")) for topic in topics) else topics_json(topics)


def topics_json(topics: Topics) -> str:
    """The topics as a push carries them. PostgreSQL carries 8,000 bytes; if they are longer, everyone is woken."""
    text = as_json({**topics, "log": 1})
    return text if len(text) < 7_500 else '{"*":1}'
