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


# The keys of each shape, in the order in which they are written. A key is the name of the record's field.
_ATTEMPT = (
    "number", "epoch", "teammate", "continues", "claimed_at", "ended_at", "ended_as", "reason", "handover",
)  # fmt: skip
_TEAMMATE = (
    "name", "roles", "lead", "plan", "prompt", "model", "status", "reason", "host", "spawned_at",
)  # fmt: skip
_MESSAGE = ("id", "sender", "recipient", "kind", "text", "accepted", "task", "sent_at", "shown_at")


def _fields(record: object, *names: str) -> Shape:
    return {name: getattr(record, name) for name in names}


def task_shape(task: Task) -> Shape:
    return {each: getattr(task, each) for each in Task.__slots__ if each not in _INTERNAL}


def need_shape(need: Need, state: str) -> Shape:
    return {**_fields(need, "task", "outcome"), "state": state}


def attempt_shape(attempt: Attempt) -> Shape:
    return _fields(attempt, *_ATTEMPT)


def turn_shape(turn: Turn) -> Shape:
    shape = _fields(turn, "epoch", "number", "kind", "at")
    return {**shape, "used": amount_shape(turn.used), "body": json.loads(turn.body)}


def teammate_shape(teammate: Teammate) -> Shape:
    return {**_fields(teammate, *_TEAMMATE), "roles": list(teammate.roles)}


def host_shape(host: HostInfo) -> Shape:
    return _fields(host, "id", "label", "alive", "started_at")


def message_shape(message: Message) -> Shape:
    return {**_fields(message, *_MESSAGE), "id": f"m{message.id}"}


def note_shape(note: Note) -> Shape:
    return _fields(note, "id", "author", "title", "text", "task", "root", "at")


def event_shape(event: Event) -> Shape:
    return _fields(event, "seq", "at", "kind", "task", "root", "actor", "data")


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
