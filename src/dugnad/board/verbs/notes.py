"""The team's scratchpad."""

from __future__ import annotations

from ...prompts import tell
from ...text import shorten
from ...types import Claim, Note
from .. import records
from ..store.seam import TryAgain, Tx, event, wake
from .fence import fence
from .messages import notice


async def write_note(
    tx: Tx, *, author: str, title: str, text: str, claim: Claim | None, everyone: bool, key: str
) -> Note:
    """With `everyone`, the note belongs to no goal: tasks of all goals show it, and teammates at work get a notice."""
    if there := await tx.fetch("note_by_key", key=key):
        return records.note(there[0])
    if claim:
        await fence(tx, claim)
    rows = await tx.fetch(
        "insert_note", key=key, author=author, title=title, text=text, folded=f"{title}\n{text}".casefold(),
        task=claim and claim.task.id, root=claim.task.root if claim and not everyone else None,
    )  # fmt: skip
    if not rows:  # Another process has just used the key.
        raise TryAgain
    note = records.note(rows[0])
    event(
        tx, "noted", author, task=note.task, root=note.root, note=note.id, title=note.title, text=note.text,
        epoch=claim and claim.epoch,
    )  # fmt: skip
    wake(tx, "notes")
    for row in await tx.fetch("recipients_at_work", sender=author) if everyone else ():
        told = f"{tell('results.note_for_everyone', title=title)}\n{shorten(text, 8_000, tell('packet.shortened'))}"
        await notice(tx, f"note:{note.id}", told, note.task, to=row["name"], by=author)
    return note
