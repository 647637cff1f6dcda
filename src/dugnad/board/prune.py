"""Pruning: old events are folded into the snapshot; old transcripts, stored answers and hosts are deleted.

The transactions are short, so that running hosts hardly notice. The events to fold are read before the transaction,
since an event never changes. If two processes fold at once, the slower one begins again with the rest. A page of events
is folded with the entities that it is about, so the memory does not depend on the size of the board.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..types import Event
from . import records, replay
from .log import Fetch
from .store.seam import Tx, as_json, event, ids_json
from .verbs.idempotency import once

KEPT_MS_MIN = 24 * 3_600_000  # A caller may repeat a call for this long, so its answer is always kept.
_EVENTS, _TASKS, _ANSWERS = 1_000, 20, 2_000  # Of one transaction.
# The entities that an event names: the fields of its data with one id of them, or a list.
_NAMED = {"task": ("followup_of", "tasks", "needs"), "reservation": ("key",), "cooldown": ("pace",), "note": ("note",),
    "message": ("message", "messages"), "teammate": ("name",), "host": ("host", "hosts")}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was deleted from a board, or would be."""

    events: int
    turns: int
    answers: int
    hosts: int
    size: int = 0  # Of what would be deleted, in characters. A part of the events stays in the snapshot.


@once
async def _prune(
    tx: Tx, *, first: str, given: dict[str, Any], then: tuple[tuple[str, dict[str, Any]], ...], key: str
) -> int:
    """One short transaction: a statement, and others that follow if it found rows. Returns how many it found."""
    rows = await tx.fetch(first, **given)
    for name, also_given in then if rows else ():
        await tx.fetch(name, **also_given)
    if rows and first == "prune_hosts":
        event(tx, "hosts_forgotten", "board", hosts=sorted(row["id"] for row in rows))
    return len(rows)


async def prunable(fetch: Fetch, age: int) -> Pruned:
    cut = (await fetch("last_seq_before", age=age))[0]["seq"]
    row = (await fetch("prunable", age=age, repeat_age=max(age, KEPT_MS_MIN), seq=cut))[0]
    return Pruned(**{name: int(row[name]) for name in Pruned.__slots__})


async def prune(fetch: Fetch, do: Callable[..., Awaitable[Any]], age: int, key: str) -> Pruned:
    numbers = itertools.count()

    async def take(first: str, *then: tuple[str, dict[str, Any]], **given: Any) -> int:
        return int(await do(_prune, first=first, given=given, then=then, key=f"{key}.{next(numbers)}"))

    turns, last = 0, {"ended_at": 0, "id": 0}
    while old := await fetch("old_transcripts", age=age, page=_TASKS, **last):
        turns += await take("prune_turns", age=age, ids=ids_json(row["id"] for row in old))
        last = {"ended_at": old[-1]["ended_at"], "id": old[-1]["id"]}
    await take("set_pruned_to", age=age)
    answers, gone = 0, _ANSWERS
    while gone == _ANSWERS:
        answers += (gone := await take("prune_calls", age=max(age, KEPT_MS_MIN), most=_ANSWERS))
    hosts = await take("prune_hosts", age=age)
    return Pruned(events=await _fold(fetch, take, age), turns=turns, answers=answers, hosts=hosts)


async def _fold(fetch: Fetch, take: Callable[..., Awaitable[int]], age: int) -> int:
    """Fold old events into the snapshot and delete them. Replaying the rest from there gives the same state."""
    folded, beaten = 0, True
    while beaten:
        after = (await fetch("snapshot_seq"))[0]["snapshot_seq"]
        cut = (await fetch("last_seq_before", age=age))[0]["seq"]
        beaten = False
        while after < cut and not beaten:
            rows = await fetch("read_events", after=after, task=None, page=min(_EVENTS, cut - after))
            if not rows or rows[0]["seq"] != after + 1:  # There are no gaps: another process folded the next ones.
                beaten = True
                break
            up_to, changed = rows[-1]["seq"], as_json(await _folded(fetch, [records.event(row) for row in rows]))
            beaten = not await take(
                "set_snapshot_seq", ("forget_in_snapshot", {"rows": changed}), ("write_snapshot", {"rows": changed}),
                ("prune_events", {"seq": up_to}), seq=up_to, expected=after,
            )  # fmt: skip
            folded, after = folded + (0 if beaten else len(rows)), up_to
    return folded


async def _folded(fetch: Fetch, events: Sequence[Event]) -> list[dict[str, str | None]]:
    """The rows of the snapshot that these events change."""
    tasks = ids_json({each.task for each in events if each.task is not None})
    behind = [("task", str(row["task_id"])) for row in await fetch("dependents", ids=tasks)]
    named = {*behind, *(about for each in events for about in _about(each))}
    asked = as_json([{"entity": entity, "id": id} for entity, id in sorted(named)])
    state = replay.load(await fetch("read_snapshot_of", rows=asked))
    for each in events:
        replay.apply(state, each)
    found = [(kind, id, dict.get(each, id)) for kind, each in state.items() for id in sorted(each.touched)]
    return [{"entity": kind, "id": id, "state": as_json(facts) if facts else None} for kind, id, facts in found]


def _about(told: Event) -> Iterator[tuple[str, str]]:
    """The entities that an event may change or look at, but for the tasks that wait for its own."""
    data = told.data
    yield from (("task", str(told.task)), ("budget", str(told.root)), ("attempt", f"{told.task}.{data.get('epoch')}"))
    for entity, given in ((entity, data.get(field)) for entity, fields in _NAMED.items() for field in fields):
        for each in given if isinstance(given, list) else [given]:
            yield entity, str(each[0] if isinstance(each, list) else each)
