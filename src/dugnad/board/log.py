"""The log: remarks in it, and the state by the log and by the tables, which must agree."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence

from ..types import Done
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
        state["task"][str(row["id"])] = {
            **replay.given({**dict(row), "parent": row["parent_id"], "check": row["check_command"]}),
            **{name: row[name] for name in _TASK},
            "root": row["root_id"],
            "host": row["host_id"],
            "needs": {},
        }
    for row in await fetch("dump_needs"):
        state["task"][str(row["task_id"])]["needs"][str(row["needs_id"])] = [row["outcome"], row["state"]]
    for row in await fetch("dump_attempts"):
        facts = {name: row[name] for name in ("number", "teammate", "continues", "ended_as", "handover")}
        state["attempt"][f"{row['task_id']}.{row['epoch']}"] = {**facts, "host": row["host_id"]}
    for row in await fetch("dump_budgets"):
        state["budget"][str(row["root_id"])] = {name: row[name] for name in _BUDGET}
    for row in await fetch("dump_reservations"):
        # Only a call with a provider key has these two; older boards have neither.
        paced = ("pace", "tokens_used") if row["pace"] is not None else ()
        facts = {name: row[name] for name in ("epoch", "state", *replay.COLUMNS, *paced)}
        state["reservation"][row["key"]] = {**facts, "root": row["root_id"], "task": row["task_id"]}
    for row in await fetch("dump_cooldowns"):
        state["cooldown"][row["key"]] = {name: row[name] for name in ("until", "milliseconds", "strikes", "reason")}
    for row in await fetch("dump_messages"):
        facts = {name: row[name] for name in ("sender", "recipient", "kind", "text", "request", "key")}
        accepted = None if row["accepted"] is None else bool(row["accepted"])
        state["message"][str(row["id"])] = {
            **facts, "accepted": accepted, "task": row["task_id"], "shown": row["shown_at"] is not None,
        }  # fmt: skip
    for row in await fetch("dump_notes"):
        facts = {name: row[name] for name in ("author", "title", "text")}
        state["note"][str(row["id"])] = {**facts, "task": row["task_id"], "root": row["root_id"]}
    await _observe_members(fetch, state)
    return state


async def _observe_members(fetch: Fetch, state: replay.State) -> None:
    for row in await fetch("dump_teammates"):
        facts = {name: row[name] for name in ("prompt", "model", "state", "seat", "reason")}
        state["teammate"][row["name"]] = {
            **facts, "roles": json.loads(row["roles"]), "lead": bool(row["lead"]), "host": row["host_id"],
            **({"plan": True} if row["plan"] else {}),
        }  # fmt: skip
    for row in await fetch("dump_hosts"):
        up = "stopped" if row["stopped_at"] is not None else "lost" if row["lost_at"] is not None else "up"
        scope = json.loads(row["scope"]) if row["scope"] else []
        state["host"][row["id"]] = {"state": up, **({"scope": [each["id"] for each in scope]} if scope else {})}


_TASK = (
    "depth", "state", "due_at", "put_by", "epoch", "claims", "tries", "children", "repeats", "teammate", "continues",
    "waiting_for", "request", *Done.__slots__, "reason", "open_needs",
)  # fmt: skip
_BUDGET = (
    "tasks_max", "tokens_max", "microdollars_max", "milliseconds_max", "runs", "tasks", "held",
    *(f"{column}{suffix}" for column in replay.COLUMNS for suffix in ("", "_reserved")),
)  # fmt: skip
