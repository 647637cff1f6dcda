"""Inboxes: telling, taking, showing, and the requests that wait for a reply; and the team's scratchpad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import BadInput, NotReady, StoppedTeammate
from ...text import shorten
from ...types import BOARD, HUMAN, Claim, Message, MessageKind, Note, Waiting
from .. import records, rules
from ..store.seam import Row, TryAgain, Tx, as_json, event, ids_json, made_ready, wake
from .fence import fence


@dataclass(frozen=True, slots=True, kw_only=True)
class _Letter:
    """A message before it has a recipient."""

    sender: str
    text: str
    kind: MessageKind
    key: str
    from_lead: bool
    request: str | None = None
    accepted: bool | None = None
    task: int | None = None
    epoch: int | None = None  # Of the claim under which it is sent.


async def tell(
    tx: Tx, *, sender: str, recipient: str | None, text: str, kind: MessageKind, request: str | None, task: int | None,
    claim: Claim | None, key: str,
) -> list[Message]:  # fmt: skip
    """Put a message into one inbox, or with None into those of all that were not shut down, except the sender's.

    A repeated key returns the messages of the first call.
    """
    if there := await tx.fetch("messages_by_key", key=key):
        return [records.message(row) for row in there]
    if claim:
        await fence(tx, claim)
    from_lead = bool((await member(tx, sender))["lead"])
    if kind in rules.REPLY_TO and await tx.fetch("request_messages", request=request):
        raise BadInput(f"The request id {request!r} is already used; leave it out, or choose another.")
    if recipient is None:
        names = [row["name"] for row in await tx.fetch("recipients_of_all", sender=sender)]
    else:
        names = [await _reachable(tx, recipient)]
    letter = _Letter(
        sender=sender, text=text, kind=kind, key=key, from_lead=from_lead, request=request, task=task,
        epoch=claim.epoch if claim else None,
    )  # fmt: skip
    for name in names:
        await _send(tx, letter, name)
    return [records.message(row) for row in await tx.fetch("messages_by_key", key=key)]


async def member(tx: Tx, name: str, *, statement: str = "recipient") -> Row:
    rows = await tx.fetch(statement, name=name)
    if not rows:
        raise rules.unknown_teammate(name)
    return rows[0]


async def _reachable(tx: Tx, name: str) -> str:
    if (await member(tx, name))["state"] in ("stopped", "failed"):
        raise StoppedTeammate(f"{name} was shut down and reads no messages; spawn it again, or tell another teammate.")
    return name


async def _send(tx: Tx, letter: _Letter, recipient: str) -> None:
    rows = await tx.fetch(
        "insert_message", key=letter.key, sender=letter.sender, recipient=recipient, kind=letter.kind,
        text=letter.text, request=letter.request, task=letter.task,
        accepted=None if letter.accepted is None else int(letter.accepted),
        rank=rules.rank(letter.kind, letter.sender, letter.from_lead),
    )  # fmt: skip
    for row in rows:
        event(
            tx, "told", letter.sender, task=letter.task, message=row["id"], to=recipient, message_kind=letter.kind,
            text=letter.text, request=letter.request, accepted=letter.accepted, key=letter.key, epoch=letter.epoch,
        )  # fmt: skip
        wake(tx, f"inbox:{recipient}")
        if letter.kind == "shutdown":
            wake(tx, "team")  # The host enforces the shutdown, whatever the teammate is doing.


async def ask_for(tx: Tx, task: int, asker: str, outcome: Waiting, request: str) -> None:
    """Send the question that a task is about to wait for."""
    recipient = await _reachable(tx, outcome.ask)
    letter = _Letter(
        sender=asker, text=outcome.question, kind="plan" if outcome.on == "plan" else "question", key=request,
        from_lead=bool((await member(tx, asker))["lead"]), request=request, task=task,
    )  # fmt: skip
    await _send(tx, letter, recipient)


async def notice(
    tx: Tx, key: str, text: str, task: int | None, *, to: str = HUMAN, kind: MessageKind = "notice", by: str = BOARD
) -> None:  # fmt: skip
    """Tell the human, or a teammate, what the board decided or saw. The same key tells it once."""
    await _send(tx, _Letter(sender=by, text=text, kind=kind, key=key, from_lead=False, task=task), to)


async def reply(tx: Tx, *, request: str, sender: str, text: str, accepted: bool | None) -> Message:
    """Answer a request. The first reply counts; repeating it returns it."""
    await tx.fetch("lock_request", request=request)
    rows = await tx.fetch("request_messages", request=request)
    asked = next((row for row in rows if row["kind"] in rules.REPLY_TO), None)
    if asked is None:
        raise rules.unknown_request(request)
    kind = rules.REPLY_TO[asked["kind"]]
    if kind != "answer" and accepted is None:
        raise BadInput(f"A {asked['kind']} request must be accepted or refused; say which.")
    if there := next((row for row in rows if row["kind"] == kind), None):
        given = records.message(there)
        if (given.sender, given.text, given.accepted) == (sender, text, accepted):
            return given
        raise NotReady(f"{given.sender} has already answered this: {given.text or 'accepted'!r}.")
    if sender not in (asked["recipient"], HUMAN):
        raise NotReady(f"This was asked of {asked['recipient']}; only {asked['recipient']} or the human can answer.")
    letter = _Letter(
        sender=sender, text=text, kind=kind, key=f"reply:{request}", request=request, accepted=accepted,
        from_lead=bool((await member(tx, sender))["lead"]), task=asked["task_id"],
    )  # fmt: skip
    # Accepted even if the asker was shut down: another teammate continues its task with the answer.
    await _send(tx, letter, asked["sender"])
    sent = (await tx.fetch("messages_by_key", key=letter.key))[0]
    for row in await tx.fetch("answered_task", request=request):
        made_ready(tx, {**row, "state": "ready"})
        # The task itself gets the answer; in the inbox, another conversation would read it.
        await show(tx, recipient=asked["sender"], messages=[sent["id"]])
    return records.message((await tx.fetch("messages_by_key", key=letter.key))[0])


async def take(tx: Tx, *, recipient: str, key: str, count: int) -> list[Message]:
    """The unread messages of an inbox, in reading order.

    The same key returns the same messages. They leave the inbox when a turn shows them, so that a crash in between
    loses none.
    """
    await member(tx, recipient)
    rows = await tx.fetch("taken_messages", recipient=recipient, key=key)
    if not rows:
        rows = await tx.fetch("take_messages", recipient=recipient, key=key, count=count)
    return [records.message(row) for row in sorted(rows, key=lambda row: (row["rank"], row["id"]))]


async def show(tx: Tx, *, recipient: str, messages: Sequence[int]) -> None:
    """Mark messages as shown, once."""
    if not messages:
        return
    if rows := await tx.fetch("show_messages", ids=ids_json(messages), recipient=recipient):
        event(tx, "shown", recipient, messages=sorted(row["id"] for row in rows))


def words(query: str) -> str:
    """The words of a search, each ready for LIKE."""
    escaped = [word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") for word in query.casefold().split()]
    return as_json([{"like": word} for word in escaped])


async def write_note(
    tx: Tx, *, author: str, title: str, text: str, claim: Claim | None, everyone: bool, key: str
) -> Note:
    """With `everyone`, the note belongs to no goal: tasks of all goals show it, and teammates at work get a notice."""
    from ...prompts import tell  # In this module, `tell` is a verb.

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
        words = shorten(text, 8_000, tell("packet.shortened"))
        told = f"{tell('results.note_for_everyone', title=title)}\n{words}"
        await notice(tx, f"note:{note.id}", told, note.task, to=row["name"], by=author)
    return note
