"""The fence: a holder whose epoch is old can write nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import StaleClaim, UnknownTask
from ...types import Claim
from ..store.seam import Row, Tx, ids_json


async def fence(tx: Tx, claim: Claim) -> Row:
    """The row of the held task, locked; StaleClaim if it has a newer epoch."""
    rows = await tx.fetch("hold_tasks", ids=ids_json([claim.task.id]))
    if refusal := refused(claim.task.id, claim.epoch, {row["id"]: row for row in rows}):
        raise refusal
    return rows[0]


async def fence_all(tx: Tx, claims: Sequence[tuple[int, int]]) -> dict[int, Row]:
    """The rows of these (task, epoch) pairs, locked in ascending order; `refused` has the stale ones."""
    return {row["id"]: row for row in await tx.fetch("hold_tasks", ids=ids_json(sorted({task for task, _ in claims})))}


def refused(task: int, epoch: int, rows: Mapping[int, Row]) -> StaleClaim | UnknownTask | None:
    if task not in rows:
        return UnknownTask(f"There is no task #{task}; `dugnad tasks` lists them.")
    if rows[task]["epoch"] == epoch:
        return None
    row = rows[task]
    now = f"held by {row['teammate']}" if row["state"] == "claimed" else row["state"]
    return StaleClaim(
        f"The claim on #{task} (epoch {epoch}) is over: the task is at epoch {row['epoch']}, {now}. Stop working on it."
    )
