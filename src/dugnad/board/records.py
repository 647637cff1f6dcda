"""From rows to records: the only module that knows both the names of columns and the fields of records.

A field has the value of the column of its name, or of the name in `_COLUMNS`; derived fields are given separately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from functools import cache, partial
from operator import itemgetter
from typing import Any, TypeVar

import orjson

from .. import types
from ..errors import BoardUnreachable
from .store.seam import Row

T = TypeVar("T")

AMOUNTS = types.Amount.__slots__
HEALTH = ("count_tasks", "oldest_ready", "human_requests", "sum_budgets", "last_seq", "held_roots", "running_cooldowns")
_COLUMNS = {"task": "task_id", "root": "root_id", "parent": "parent_id", "host": "host_id", "check": "check_command"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The state of a board at one moment; all of it is from one snapshot."""

    team: Sequence[types.Teammate]
    ready: Mapping[str, int]  # By lane, as `Board.ready_work` returns it.
    counts: Mapping[int, Mapping[str, int]]  # By root, how many tasks are in each state.
    accounts: Mapping[int, types.Spending]  # By root.
    begun: Set[int]  # Roots with a task that was begun before and is ready, or soon will be; it needs no further run.


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The numbers of a board that an operator watches; all of it is from one snapshot."""

    now: int  # By the board's clock.
    schema: int
    last_event: int
    tasks: dict[str, int]  # In each open state, and ended.
    ready: dict[str, int]  # By lane, as `Board.ready_work` returns it.
    ready_since: int | None  # When the oldest ready task became ready.
    requests: int  # That wait for a person,
    asked_at: int | None  # and since when.
    hosts: dict[str, int]  # alive and lost.
    team: dict[str, int]  # By status.
    held: tuple[int, ...]  # Roots at a cap that have open tasks.
    spent: types.Amount  # Of all roots together.
    reserved: types.Amount
    cooldowns: tuple[types.Cooldown, ...]
    merging: dict[str, int]  # By target: attempts that merge over a remote, or wait for their turn.


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """An attempt that merges, or waits for its turn."""

    target: str
    task: int
    epoch: int
    teammate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAttempt:
    """What an ended attempt took, to estimate the next one."""

    task: int
    role: str | None
    outcome: str | None  # Of the task, if it is done.
    ended_as: str
    seconds: float
    replies: int  # Turns of the model.
    used: types.Amount  # Its milliseconds are those of the whole attempt.
    kind: str = ""
    teammate: str = ""
    fresh: bool = True  # It did not go on with the conversation of an earlier attempt.
    claimed_at: int = 0
    first: types.Amount = field(default_factory=types.Amount)  # Of the first reply, with all the time before it.
    after_ms: int = 0  # From its last turn to its end: the check and the merge.


def facts(row: Row, names: Iterable[str]) -> dict[str, Any]:
    """These fields of a row."""
    return {name: row[_COLUMNS.get(name, name)] for name in names}


@cache
def _columns(kind: Any, derived: frozenset[str]) -> tuple[tuple[str, ...], Callable[[Row], tuple[Any, ...]], list[str]]:
    """The fields of a record that are read from a row, what reads them, and which are true or false: their columns
    hold 1 or 0."""
    read = [each for each in fields(kind) if each.name not in derived]
    columns = itemgetter(*(_COLUMNS.get(each.name, each.name) for each in read))
    return tuple(each.name for each in read), columns, [each.name for each in read if str(each.type).startswith("bool")]


def _made(kind: Callable[..., T], row: Row, **derived: object) -> T:
    """A record of a row. `derived`: fields whose value is not in a column."""
    names, columns, bools = _columns(kind, frozenset(derived))
    values = dict(zip(names, columns(row), strict=True))
    for name in bools:
        if values[name] is not None:
            values[name] = bool(values[name])
    return kind(**values, **derived)


task = partial(_made, types.Task)
attempt = partial(_made, types.Attempt)
message = partial(_made, types.Message)
note = partial(_made, types.Note)
host = partial(_made, types.HostInfo)


def kept_json(text: str) -> Any:
    """What is kept as JSON."""
    try:
        return orjson.loads(text)
    except (ValueError, TypeError):
        raise BoardUnreachable(
            "The board is damaged: something in it should be JSON, and is not; restore a back-up or make a new board."
        ) from None


def past_attempt(row: Row) -> PastAttempt:
    began, ended, last = row["claimed_at"], row["ended_at"], row["last_at"]
    used = types.Amount(tokens=row["tokens"], microdollars=row["microdollars"], milliseconds=ended - began)
    first = types.Amount(
        tokens=row["first_tokens"] or 0, microdollars=row["first_microdollars"] or 0,
        milliseconds=max(0, (row["first_at"] or began) - began),
    )  # fmt: skip
    after = max(0, ended - last) if last is not None else 0
    return _made(PastAttempt, row, seconds=(ended - began) / 1000, used=used, first=first, after_ms=after)


def amount(row: Row, suffix: str = "") -> types.Amount:
    return types.Amount(**{name: row[f"{name}{suffix}"] for name in AMOUNTS})


def turn(row: Row) -> types.Turn:
    covers = None if row["covers_from"] is None else (row["covers_from"], row["covers_to"])
    return _made(types.Turn, row, used=amount(row), covers=covers)


def spending(row: Row) -> types.Spending:
    return _made(types.Spending, row, spent=amount(row), reserved=amount(row, "_reserved"))


def cooldown(row: Row) -> types.Cooldown:
    return _made(types.Cooldown, row, seconds=row["milliseconds"] / 1000)


def shutdown_request(row: Row) -> types.ShutdownRequest:
    return _made(types.ShutdownRequest, row, teammate=row["recipient"], why=row["text"])


def teammate(row: Row) -> types.Teammate:
    """From a row of `list_teammates`, which also says whether the host is alive and what the teammate holds."""
    status: Any = row["state"]
    if status == "seated":
        if row["left_in_order"]:
            status = "wanted"  # Its host stopped in order; the next host takes it.
        elif not row["alive"]:
            status = "lost"
        elif row["task_id"]:
            status = "working"
        else:
            status = "waiting" if row["waiting"] else "idle"
    roles = tuple(kept_json(row["roles"]))
    return _made(types.Teammate, row, roles=roles, status=status)


def event(row: Row) -> types.Event:
    return _made(types.Event, row, data=kept_json(row["data"]))


def by_lane(rows: Sequence[Row], most: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        if row["n"]:
            found[row["lane"]] = min(most, found.get(row["lane"], 0) + row["n"])
    return found


def health(found: Sequence[Sequence[Row]], schema: int) -> Health:
    """From the rows of ready work, the answers to `HEALTH`, and the rows of teammates, hosts and those that merge."""
    ready, counts, (oldest,), (asked,), (sums,), (last,), held, cooling, members, hosts, merges = found
    tasks = Counter(dict.fromkeys(types.OPEN, 0) | {row["state"]: row["n"] for row in counts})
    tasks["ended"] = sum(tasks.pop(state, 0) for state in types.ENDED)
    alive = sum(row["alive"] for row in hosts)
    return Health(
        now=oldest["now"], schema=schema, last_event=last["seq"], ready=by_lane(ready, 1_000), ready_since=oldest["at"],
        requests=asked["n"], asked_at=asked["at"], hosts={"alive": alive, "lost": len(hosts) - alive},
        team=dict(Counter(teammate(row).status for row in members)), held=tuple(row["root_id"] for row in held),
        spent=amount(sums), reserved=amount(sums, "_reserved"), cooldowns=tuple(map(cooldown, cooling)),
        tasks=dict(tasks), merging=dict(Counter(row["target"] for row in merges)),
    )  # fmt: skip
