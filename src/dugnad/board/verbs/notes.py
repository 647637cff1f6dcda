"""The team's scratchpad."""

from __future__ import annotations

from dataclasses import dataclass

from ...types import Claim, Note
from .. import records
from ..store.seam import TryAgain, Tx, event, wake
from .fence import fence


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteNote:
    author: str
    title: str
    text: str
    key: str
    claim: Claim | None


async def write_note(tx: Tx, call: WriteNote) -> Note:
    if there := await tx.fetch("note_by_key", key=call.key):
        return records.note(there[0])
    if call.claim:
        await fence(tx, call.claim)
    task = call.claim.task if call.claim else None
    rows = await tx.fetch(
        "insert_note",
        key=call.key,
        author=call.author,
        title=call.title,
        text=call.text,
        folded=f"{call.title}\n{call.text}".casefold(),
        task=task and task.id,
        root=task and task.root,
    )
    if not rows:  # Another process has just used the key.
        raise TryAgain
    note = records.note(rows[0])
    event(
        tx, "noted", call.author, task=note.task, root=note.root, note=note.id, title=note.title, text=note.text,
        epoch=call.claim and call.claim.epoch,
    )  # fmt: skip
    wake(tx, "notes")
    return note
