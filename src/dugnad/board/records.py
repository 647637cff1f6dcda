"""From rows to records. The one place that knows both the columns' names and the records' fields."""

from __future__ import annotations

from typing import Any

import orjson

from ..types import (
    Amount,
    Attempt,
    Cooldown,
    Event,
    Host,
    Message,
    Note,
    PastAttempt,
    ShutdownRequest,
    Spending,
    Task,
    Teammate,
    Turn,
)
from .store import Row


def task(row: Row) -> Task:
    return Task(
        id=row["id"],
        root=row["root_id"],
        parent=row["parent_id"],
        depth=row["depth"],
        key=row["key"],
        title=row["title"],
        body=row["body"],
        role=row["role"],
        assignee=row["assignee"],
        priority=row["priority"],
        chain=row["chain"],
        check=row["check_command"],
        plan=bool(row["plan"]),
        review=row["review"],
        network=bool(row["network"]),
        not_for=row["not_for"],
        state=row["state"],
        open_needs=row["open_needs"],
        due_at=row["due_at"],
        epoch=row["epoch"],
        claims=row["claims"],
        tries=row["tries"],
        teammate=row["teammate"],
        host=row["host_id"],
        waiting_for=row["waiting_for"],
        request=row["request"],
        outcome=row["outcome"],
        result=row["result"],
        reason=row["reason"],
        put_by=row["put_by"],
        put_at=row["put_at"],
        ended_at=row["ended_at"],
    )


def attempt(row: Row) -> Attempt:
    return Attempt(
        task=row["task_id"],
        epoch=row["epoch"],
        number=row["number"],
        teammate=row["teammate"],
        host=row["host_id"],
        continues=row["continues"],
        claimed_at=row["claimed_at"],
        ended_at=row["ended_at"],
        ended_as=row["ended_as"],
        handover=row["handover"],
        reason=row["reason"],
    )


def past_attempt(row: Row) -> PastAttempt:
    return PastAttempt(
        task=row["task_id"],
        role=row["role"],
        outcome=row["outcome"],
        ended_as=row["ended_as"],
        seconds=(row["ended_at"] - row["claimed_at"]) / 1000,
        replies=row["replies"],
        used=Amount(tokens=int(row["tokens"] or 0), microdollars=int(row["microdollars"] or 0)),
    )


def amount(row: Row, suffix: str = "") -> Amount:
    return Amount(
        tokens=row[f"tokens{suffix}"],
        microdollars=row[f"microdollars{suffix}"],
        milliseconds=row[f"milliseconds{suffix}"],
    )


def turn(row: Row) -> Turn:
    covers = None if row["covers_from"] is None else (row["covers_from"], row["covers_to"])
    return Turn(
        task=row["task_id"],
        epoch=row["epoch"],
        number=row["number"],
        kind=row["kind"],
        body=row["body"],
        used=amount(row),
        covers=covers,
        at=row["at"],
    )


def spending(row: Row) -> Spending:
    return Spending(
        root=row["root_id"],
        tasks_max=row["tasks_max"],
        tokens_max=row["tokens_max"],
        microdollars_max=row["microdollars_max"],
        milliseconds_max=row["milliseconds_max"],
        runs=row["runs"],
        spent=amount(row),
        reserved=amount(row, "_reserved"),
        tasks=row["tasks"],
        held=row["held"],
    )


def cooldown(row: Row) -> Cooldown:
    return Cooldown(
        key=row["key"],
        until=row["until"],
        seconds=row["milliseconds"] / 1000,
        strikes=row["strikes"],
        reason=row["reason"],
    )


def message(row: Row) -> Message:
    return Message(
        id=row["id"],
        key=row["key"],
        sender=row["sender"],
        recipient=row["recipient"],
        kind=row["kind"],
        text=row["text"],
        request=row["request"],
        accepted=None if row["accepted"] is None else bool(row["accepted"]),
        task=row["task_id"],
        sent_at=row["sent_at"],
        shown_at=row["shown_at"],
    )


def shutdown_request(row: Row) -> ShutdownRequest:
    return ShutdownRequest(
        teammate=row["recipient"],
        sender=row["sender"],
        request=row["request"],
        why=row["text"],
        accepted=None if row["accepted"] is None else bool(row["accepted"]),
    )


def note(row: Row) -> Note:
    return Note(
        id=row["id"],
        author=row["author"],
        title=row["title"],
        text=row["text"],
        task=row["task_id"],
        root=row["root_id"],
        at=row["at"],
    )


def teammate(row: Row) -> Teammate:
    """From a row of `list_teammates`, which says what is derived: whether its host lives and what it holds."""
    status: Any = row["state"]
    if status == "seated":
        if row["left_in_order"]:
            status = "wanted"  # Its host ended in an orderly way; the next one takes it.
        elif not row["alive"]:
            status = "lost"
        elif row["holding"]:
            status = "working"
        else:
            status = "waiting" if row["waiting"] else "idle"
    return Teammate(
        name=row["name"],
        roles=tuple(orjson.loads(row["roles"])),
        lead=bool(row["lead"]),
        prompt=row["prompt"],
        model=row["model"],
        plan=bool(row["plan"]),
        status=status,
        host=row["host_id"],
        seat=row["seat"],
        reason=row["reason"],
        spawned_at=row["spawned_at"],
    )


def host(row: Row) -> Host:
    return Host(
        id=row["id"],
        label=row["label"],
        alive=bool(row["alive"]),
        started_at=row["started_at"],
        lease_until=row["lease_until"],
    )


def event(row: Row) -> Event:
    return Event(
        seq=row["seq"],
        at=row["at"],
        kind=row["kind"],
        task=row["task_id"],
        root=row["root_id"],
        actor=row["actor"],
        data=orjson.loads(row["data"]),
    )
