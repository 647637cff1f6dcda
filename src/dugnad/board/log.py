"""The log: remarks in it, and the state by the log and by the tables, which must agree."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence

from ..types import DELIVERY, GIVEN
from . import records, replay
from .store.seam import Row, Tx, event
from .verbs.idempotency import once

Fetch = Callable[..., Awaitable[Sequence[Row]]]
_PAGE = 5_000


@once
async def remark(tx: Tx, *, actor: str, kind: str, data: dict[str, str], key: str) -> bool:
    """Append an event that changes nothing else."""
    event(tx, kind, actor, task=None, root=None, **data)
    return True


async def replayed(fetch: Fetch) -> replay.State:
    """The state by the log: the snapshot of pruned events, and every event since."""
    state, after = replay.load(await fetch("read_snapshot")), 0
    while rows := await fetch("read_events", after=after, task=None, page=_PAGE):
        for row in rows:
            replay.apply(state, records.event(row))
        after = rows[-1]["seq"]
    return state


async def observed(fetch: Fetch) -> replay.State:
    """The state by the tables."""
    state = replay.load()
    for row in await fetch("dump_tasks"):
        how = replay.given(records.facts(row, GIVEN))
        state["task"][str(row["id"])] = {**how, **records.facts(row, _TASK), "needs": {}}
    for row in await fetch("dump_needs"):
        state["task"][str(row["task_id"])]["needs"][str(row["needs_id"])] = [row["outcome"], row["state"]]
    for row in await fetch("dump_attempts"):
        state["attempt"][f"{row['task_id']}.{row['epoch']}"] = records.facts(row, _ATTEMPT)
    for row in await fetch("dump_budgets"):
        state["budget"][str(row["root_id"])] = records.facts(row, _BUDGET)
    for row in await fetch("dump_reservations"):
        # Only a call with a provider key has these two; older boards have neither.
        paced = ("pace", "tokens_used") if row["pace"] is not None else ()
        state["reservation"][row["key"]] = records.facts(row, (*_RESERVATION, *paced))
    for row in await fetch("dump_cooldowns"):
        state["cooldown"][row["key"]] = records.facts(row, ("until", "milliseconds", "strikes", "reason"))
    for row in await fetch("dump_messages"):
        accepted = None if row["accepted"] is None else bool(row["accepted"])
        shown = row["shown_at"] is not None
        state["message"][str(row["id"])] = {**records.facts(row, _MESSAGE), "accepted": accepted, "shown": shown}
    for row in await fetch("dump_notes"):
        state["note"][str(row["id"])] = records.facts(row, ("author", "title", "text", "task", "root"))
    for row in await fetch("dump_teammates"):
        derived = {"roles": json.loads(row["roles"]), "lead": bool(row["lead"])}
        flags = {name: True for name in ("plan", "keep_context", "named") if row[name]}
        state["teammate"][row["name"]] = {**records.facts(row, _TEAMMATE), **derived, **flags}
    for row in await fetch("dump_hosts"):
        up = "stopped" if row["stopped_at"] is not None else "lost" if row["lost_at"] is not None else "up"
        scope = [each["id"] for each in json.loads(row["scope"] or "[]")]
        state["host"][row["id"]] = {"state": up, **({"scope": scope} if scope else {})}
    return state


_TASK = (
    "root", "depth", "state", "due_at", "put_by", "epoch", "claims", "tries", "children", "repeats", "teammate", "host",
    "continues", "waiting_for", "request", *DELIVERY, "reason", "open_needs",
)  # fmt: skip
_ATTEMPT = ("number", "teammate", "host", "continues", "ended_as", "handover", "merges_into")
_RESERVATION = ("root", "task", "epoch", "state", *replay.COLUMNS)
_BUDGET = (
    "tasks_max", "tokens_max", "microdollars_max", "milliseconds_max", "runs", "tasks", "held",
    *(f"{column}{suffix}" for column in replay.COLUMNS for suffix in ("", "_reserved")),
)  # fmt: skip
_MESSAGE = ("sender", "recipient", "kind", "text", "request", "key", "task")
_TEAMMATE = ("prompt", "model", "state", "seat", "reason", "host")
