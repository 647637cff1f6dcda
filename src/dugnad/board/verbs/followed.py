"""Telling a teammate that work has ended: a task that it added and works on beside, and all that follows from a
person's message to it.

The end tells it, in its own transaction, so that no crash can lose the notice or repeat it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...prompts import tell
from ...text import Told, joined
from ...types import ENDED
from ..store.seam import Row, Tx, ids_json
from .fence import hold_tasks
from .messages import notice

ADDED = "added-"  # Begins the key of a notice that a task has ended which the one who reads it added.
_TASKS_MAX = 50  # In one notice.


async def tell_of_ends(tx: Tx, ended: Sequence[Row]) -> None:
    """These tasks have ended, and with them perhaps all that follows from a message."""
    if work := [row["id"] for row in ended if row["kind"] == "work"]:
        await _tell_who_added(tx, work)
    asked = {row["id"] if row["kind"] == "human_message" else row["asked_in"] for row in ended} - {None}
    # Of two tasks that end at once, the second waits here and then sees the end of the first.
    for number, row in (await hold_tasks(tx, asked)).items() if asked else ():
        if row["state"] in ENDED and not await tx.fetch("open_followers", asked=number):
            await _tell(tx, row)


async def _tell_who_added(tx: Tx, ended: Iterable[int]) -> None:
    """A teammate that still has the task for which it added one of these is told, unless it waits for that one."""
    for row in await tx.fetch("ended_beside", ids=ids_json(ended)):
        words = str((row["result"] if row["state"] == "done" else row["reason"]) or "").strip().partition("\n")[0]
        how = f"{row['state']} ({row['teammate']})" if row["teammate"] else row["state"]
        text = (
            tell("delivery.added_ended_with", id=row["id"], title=row["title"], how=how, words=words) if words
            else tell("delivery.added_ended", id=row["id"], title=row["title"], how=how)
        )  # fmt: skip
        await notice(tx, f"{ADDED}{row['id']}-{row['epoch']}", text, row["parent_id"], to=row["put_by"])


async def _tell(tx: Tx, asked: Row) -> None:
    """A notice costs nothing: it is read with the next turn. If something failed, it is a message to be answered."""
    found = await tx.fetch("followers", asked=asked["id"])
    if not found:
        return
    told = joined(map(_ended, found[:_TASKS_MAX]), "; ")
    words = (await tx.fetch("task_body", id=asked["id"]))[0]["body"]
    text = tell("delivery.followed", words=words, tasks=told, more="" if len(found) <= _TASKS_MAX else " …")
    key, to_do = f"followed-{asked['id']}", any(row["state"] in ("failed", "skipped") for row in found)
    await notice(tx, key, text, asked["id"])
    if asked["assignee"] is not None:
        await notice(tx, key, text, asked["id"], to=asked["assignee"], kind="text" if to_do else "notice")


def _ended(row: Row) -> Told:
    if row["state"] == "done":
        return tell("delivery.followed_done", id=row["id"], title=row["title"], who=row["teammate"])
    return tell(
        "delivery.followed_not_done", id=row["id"], title=row["title"], state=row["state"], why=row["reason"] or "-"
    )
