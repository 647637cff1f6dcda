"""Records as JSON: the stable shapes that scripts rely on. `docs/commands.md` lists every key.

Times are milliseconds since 1970, as on the board. Money is in dollars and durations are in seconds.
"""

from __future__ import annotations

import json
from typing import Any

from ..types import Amount, Attempt, HostInfo, Message, Spending, Task, Teammate, Turn

Shape = dict[str, Any]
# What only the board needs of a record. Every other field is printed, under its own name.
_INTERNAL: dict[type, tuple[str, ...]] = {
    Task: ("chain", "epoch", "host", "request"), Attempt: ("task", "host"), Turn: ("task", "covers"),
    Teammate: ("seat",), HostInfo: ("lease_until",), Message: ("key", "request"),
    Spending: ("microdollars_max", "milliseconds_max"),
}  # fmt: skip


def as_line(shape: Shape) -> str:
    """One line of JSON, in ASCII only, so that no text in it can control a terminal."""
    return json.dumps(shape, ensure_ascii=True)


def shape_of(record: Any) -> Shape:
    return {each: getattr(record, each) for each in record.__slots__ if each not in _INTERNAL.get(type(record), ())}


def turn_shape(turn: Turn) -> Shape:
    return {**shape_of(turn), "used": amount_shape(turn.used), "body": json.loads(turn.body)}


def message_shape(message: Message) -> Shape:
    return {**shape_of(message), "id": f"m{message.id}"}


def amount_shape(amount: Amount) -> Shape:
    return {"tokens": amount.tokens, "dollars": amount.microdollars / 1_000_000, "seconds": amount.milliseconds / 1000}


def spending_shape(spending: Spending) -> Shape:
    dollars, seconds = spending.microdollars_max, spending.milliseconds_max
    return {
        **shape_of(spending),
        "dollars_max": None if dollars is None else dollars / 1_000_000,
        "seconds_max": None if seconds is None else seconds / 1000,
        "spent": amount_shape(spending.spent),
        "reserved": amount_shape(spending.reserved),
    }


def error_shape(kind: str, message: str, exit_code: int) -> Shape:
    return {"error": {"kind": kind, "message": message, "exit": exit_code}}
