"""The fence: a holder whose epoch is old can write nothing. And the rows of tasks, locked until the commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...errors import StaleClaim, UnknownTask
from ...types import Claim
from .. import rules
from ..store.seam import Row, Tx, ids_json


async def hold_tasks(tx: Tx, tasks: Iterable[int]) -> dict[int, Row]:
    """The rows of these tasks, locked in ascending order."""
    return {row["id"]: row for row in await tx.fetch("hold_tasks", ids=ids_json(sorted(set(tasks))))}


async def hold_task(tx: Tx, task: int) -> Row:
    return known(await hold_tasks(tx, [task]), task)


def known(rows: Mapping[int, Row], task: int) -> Row:
    if task not in rows:
        raise rules.unknown_task(task)
    return rows[task]


async def fence(tx: Tx, claim: Claim) -> Row:
    """The row of the held task, locked; StaleClaim if it has a newer epoch."""
    rows = await hold_tasks(tx, [claim.task.id])
    if refusal := refused(claim.task.id, claim.epoch, rows):
        raise refusal
    return rows[claim.task.id]


def refused(task: int, epoch: int, rows: Mapping[int, Row]) -> StaleClaim | UnknownTask | None:
    if task not in rows:
        return rules.unknown_task(task)
    row = rows[task]
    if row["epoch"] == epoch:
        return None
    now = f"held by {row['teammate']}" if row["state"] == "claimed" else row["state"]
    return StaleClaim(
        f"The claim on #{task} (epoch {epoch}) is over: the task is at epoch {row['epoch']}, {now}. Stop working on it."
    )
