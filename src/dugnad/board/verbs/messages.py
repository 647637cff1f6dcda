"""Inboxes: telling, taking, showing, and the requests that wait for a reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import BadInput, NotReady, StoppedTeammate, UnknownRequest, UnknownTeammate
from ...types import HUMAN, Claim, Message, MessageKind, Waiting
from .. import records, rules
from ..store.seam import Row, Tx, as_json, event, ids_json, wake
from .fence import fence
from .needs import made_ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    sender: str
    recipient: str | None  # None: everyone that was not shut down, except the sender.
    text: str
    kind: MessageKind
    key: str
    request: str | None = None
    task: int | None = None
    claim: Claim | None = None


async def tell(tx: Tx, call: Tell) -> list[Message]:
    """Put a message into one inbox, or into all. A repeated key returns the messages of the first call."""
    if there := await tx.fetch("messages_by_key", key=call.key):
        return [records.message(row) for row in there]
    if call.claim:
        await fence(tx, call.claim)
    sender = await _member(tx, call.sender)
    if call.kind in rules.REPLY_TO and await tx.fetch("request_messages", request=call.request):
        raise BadInput(f"The request id {call.request!r} is already used; leave it out, or choose another.")
    if call.recipient is None:
        recipients: Sequence[Row] = await tx.fetch("recipients_of_all", sender=call.sender)
    else:
        recipients = [_reachable(await _member(tx, call.recipient))]
    for recipient in recipients:
        await _insert(tx, call, recipient["name"], rules.rank(call.kind, call.sender, bool(sender["lead"])))
    return [records.message(row) for row in await tx.fetch("messages_by_key", key=call.key)]


async def _member(tx: Tx, name: str) -> Row:
    rows = await tx.fetch("recipient", name=name)
    if not rows:
        raise UnknownTeammate(f"There is no teammate {name!r}; `dugnad team` lists them.")
    return rows[0]


def _reachable(row: Row) -> Row:
    if row["state"] in ("stopped", "failed"):
        raise StoppedTeammate(
            f"{row['name']} was shut down and reads no messages; spawn it again, or tell another teammate."
        )
    return row


async def _insert(tx: Tx, call: Tell, recipient: str, rank: int, accepted: bool | None = None) -> None:
    rows = await tx.fetch(
        "insert_message",
        key=call.key,
        sender=call.sender,
        recipient=recipient,
        kind=call.kind,
        text=call.text,
        request=call.request,
        accepted=None if accepted is None else int(accepted),
        task=call.task,
        rank=rank,
    )
    for row in rows:
        event(
            tx, "told", call.sender, task=call.task, message=row["id"], to=recipient, message_kind=call.kind,
            text=call.text, request=call.request, accepted=accepted, key=call.key,
            epoch=call.claim and call.claim.epoch,
        )  # fmt: skip
        wake(tx, f"inbox:{recipient}")
        if call.kind == "shutdown":
            wake(tx, "team")  # The host enforces the shutdown, whatever the teammate is doing.


async def ask_for(tx: Tx, task: int, root: int, asker: str, outcome: Waiting, request: str) -> None:
    """Send the question that a task is about to wait for."""
    recipient = _reachable(await _member(tx, outcome.ask))
    sender = await _member(tx, asker)
    kind: MessageKind = "plan" if outcome.on == "plan" else "question"
    call = Tell(
        sender=asker, recipient=recipient["name"], text=outcome.question, kind=kind, key=request, request=request,
        task=task,
    )  # fmt: skip
    await _insert(tx, call, recipient["name"], rules.rank(kind, asker, bool(sender["lead"])))


async def notice(tx: Tx, key: str, text: str, task: int) -> None:
    """Send the human a notice about what the board decided."""
    call = Tell(sender="board", recipient=HUMAN, text=text, kind="notice", key=key, task=task)
    await _insert(tx, call, HUMAN, rules.rank("notice", "board", from_lead=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReply:
    request: str
    sender: str
    text: str
    accepted: bool | None


async def reply(tx: Tx, call: SendReply) -> Message:
    """Answer a request. The first reply counts; repeating it returns it."""
    await tx.fetch("lock_request", request=call.request)
    rows = await tx.fetch("request_messages", request=call.request)
    asked = next((row for row in rows if row["kind"] in rules.REPLY_TO), None)
    if asked is None:
        raise UnknownRequest(f"There is no request {call.request!r}; `dugnad inbox` lists the open ones.")
    kind = rules.REPLY_TO[asked["kind"]]
    if kind != "answer" and call.accepted is None:
        raise BadInput(f"A {asked['kind']} request must be accepted or refused; say which.")
    if there := next((row for row in rows if row["kind"] == kind), None):
        given = records.message(there)
        if (given.sender, given.text, given.accepted) == (call.sender, call.text, call.accepted):
            return given
        raise NotReady(f"{there['sender']} has already answered this: {there['text'] or 'accepted'!r}.")
    if call.sender not in (asked["recipient"], HUMAN):
        raise NotReady(f"This was asked of {asked['recipient']}; only {asked['recipient']} or the human can answer.")
    sender = await _member(tx, call.sender)
    # Accepted even if the asker was shut down: another teammate continues its task with the answer.
    answer = Tell(
        sender=call.sender, recipient=asked["sender"], text=call.text, kind=kind, key=f"reply:{call.request}",
        request=call.request, task=asked["task_id"],
    )  # fmt: skip
    await _insert(
        tx, answer, asked["sender"], rules.rank(kind, call.sender, bool(sender["lead"])), accepted=call.accepted
    )
    for row in await tx.fetch("answered_task", request=call.request):
        made_ready(tx, {**row, "state": "ready"})
        # The task itself gets the answer; in the inbox, another conversation would read it.
        sent = await tx.fetch("messages_by_key", key=answer.key)
        await show(tx, Show(recipient=asked["sender"], messages=tuple(each["id"] for each in sent)))
    return records.message((await tx.fetch("messages_by_key", key=answer.key))[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    recipient: str
    key: str
    count: int


async def take(tx: Tx, call: Take) -> list[Message]:
    """The unread messages of an inbox, in reading order.

    The same key returns the same messages. They leave the inbox when a turn shows them, so that a crash in between
    loses none.
    """
    await _member(tx, call.recipient)
    rows = await tx.fetch("taken_messages", recipient=call.recipient, key=call.key)
    if not rows:
        rows = await tx.fetch("take_messages", recipient=call.recipient, key=call.key, count=call.count)
    return [records.message(row) for row in sorted(rows, key=lambda row: (row["rank"], row["id"]))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    recipient: str
    messages: tuple[int, ...]


async def show(tx: Tx, call: Show) -> None:
    """Mark messages as shown, once."""
    if not call.messages:
        return
    rows = await tx.fetch("show_messages", ids=ids_json(call.messages), recipient=call.recipient)
    if rows:
        event(tx, "shown", call.recipient, messages=sorted(row["id"] for row in rows))


def words(query: str) -> str:
    """The words of a search, each ready for LIKE."""
    escaped = [word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") for word in query.casefold().split()]
    return as_json([{"like": word} for word in escaped])
