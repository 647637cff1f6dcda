"""Records as JSON: the stable shapes that scripts rely on. `docs/commands.md` lists every key.

Times are milliseconds since 1970, as on the board. Money is in dollars and durations are in seconds.
"""

from __future__ import annotations

import json
from typing import Any

from ..types import Amount, Attempt, Event, HostInfo, Message, Need, Note, Spending, Task, Teammate, Turn

Shape = dict[str, Any]
_INTERNAL = frozenset({"chain", "epoch", "host", "request"})  # Of a task: what only the board needs.


def as_line(shape: Shape) -> str:
    """One line of JSON, in ASCII only, so that no text in it can control a terminal."""
    return json.dumps(shape, ensure_ascii=True)


def task_shape(task: Task) -> Shape:
    return {each: getattr(task, each) for each in Task.__slots__ if each not in _INTERNAL}


def need_shape(need: Need, state: str) -> Shape:
    return {"task": need.task, "outcome": need.outcome, "state": state}


def attempt_shape(attempt: Attempt) -> Shape:
    return {
        "number": attempt.number,
        "epoch": attempt.epoch,
        "teammate": attempt.teammate,
        "continues": attempt.continues,
        "claimed_at": attempt.claimed_at,
        "ended_at": attempt.ended_at,
        "ended_as": attempt.ended_as,
        "reason": attempt.reason,
        "handover": attempt.handover,
    }


def turn_shape(turn: Turn) -> Shape:
    return {
        "epoch": turn.epoch,
        "number": turn.number,
        "kind": turn.kind,
        "at": turn.at,
        "used": amount_shape(turn.used),
        "body": json.loads(turn.body),
    }


def teammate_shape(teammate: Teammate) -> Shape:
    return {
        "name": teammate.name,
        "roles": list(teammate.roles),
        "lead": teammate.lead,
        "plan": teammate.plan,
        "prompt": teammate.prompt,
        "model": teammate.model,
        "status": teammate.status,
        "reason": teammate.reason,
        "host": teammate.host,
        "spawned_at": teammate.spawned_at,
    }


def host_shape(host: HostInfo) -> Shape:
    return {"id": host.id, "label": host.label, "alive": host.alive, "started_at": host.started_at}


def message_shape(message: Message) -> Shape:
    return {
        "id": f"m{message.id}",
        "sender": message.sender,
        "recipient": message.recipient,
        "kind": message.kind,
        "text": message.text,
        "accepted": message.accepted,
        "task": message.task,
        "sent_at": message.sent_at,
        "shown_at": message.shown_at,
    }


def note_shape(note: Note) -> Shape:
    return {
        "id": note.id,
        "author": note.author,
        "title": note.title,
        "text": note.text,
        "task": note.task,
        "root": note.root,
        "at": note.at,
    }


def event_shape(event: Event) -> Shape:
    return {
        "seq": event.seq,
        "at": event.at,
        "kind": event.kind,
        "task": event.task,
        "root": event.root,
        "actor": event.actor,
        "data": event.data,
    }


def amount_shape(amount: Amount) -> Shape:
    return {
        "tokens": amount.tokens,
        "dollars": amount.microdollars / 1_000_000,
        "seconds": amount.milliseconds / 1000,
    }


def spending_shape(spending: Spending) -> Shape:
    dollars, seconds = spending.microdollars_max, spending.milliseconds_max
    return {
        "root": spending.root,
        "tasks_max": spending.tasks_max,
        "tokens_max": spending.tokens_max,
        "dollars_max": None if dollars is None else dollars / 1_000_000,
        "seconds_max": None if seconds is None else seconds / 1000,
        "runs": spending.runs,
        "spent": amount_shape(spending.spent),
        "reserved": amount_shape(spending.reserved),
        "tasks": spending.tasks,
        "held": spending.held,
    }


def error_shape(kind: str, message: str, exit_code: int) -> Shape:
    return {"error": {"kind": kind, "message": message, "exit": exit_code}}
