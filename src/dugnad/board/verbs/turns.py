"""Recording an attempt: its turns, their cost, and the messages that they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import BadInput, DugnadError, UnknownReservation
from ...types import Amount, Claim, NewTurn
from ..store.seam import Noting, Row, Tx, event, wake
from .budgets import close_reservations, forfeit, move, plain
from .fence import fence, hold_tasks, refused
from .messages import show


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    task: int
    epoch: int
    root: int
    teammate: str
    turn: NewTurn
    reserved: Amount | None = None  # The amount of its reservation, if this process made it.


async def record(tx: Tx, calls: Sequence[Record]) -> list[int | DugnadError]:
    """Append turns. A turn that exists is accepted again if it is the same."""
    rows = await hold_tasks(tx, [call.task for call in calls])
    reservations = await _reservations(tx, calls)
    answers: list[int | DugnadError] = [call.turn.number for call in calls]
    sound: dict[tuple[int, int, int], Record] = {}
    for place, call in enumerate(calls):
        own = reservations.get(call.turn.reservation or "")
        first = sound.get(_place(call), call)
        if stale := refused(call.task, call.epoch, rows):
            # A stale holder may repeat a turn that was recorded before, if only the answer was lost.
            if not tx.repeated or await _clash(tx, call):
                answers[place] = stale
        elif call.turn.reservation and (own is None or own["task_id"] != call.task):
            answers[place] = UnknownReservation(f"#{call.task} has no reservation {call.turn.reservation!r}.")
        elif (first.turn.kind, first.turn.body) != (call.turn.kind, call.turn.body):
            answers[place] = _says_otherwise(call)
        else:
            sound[_place(call)] = first
    fresh = await _append(tx, list(sound.values())) if sound else set()
    for place, call in enumerate(calls):
        if _place(call) in sound.keys() - fresh and not isinstance(answers[place], DugnadError):
            answers[place] = await _clash(tx, call) or call.turn.number
    await _account(tx, [call for key, call in sound.items() if key in fresh], reservations)
    return answers


def _place(call: Record) -> tuple[int, int, int]:
    return call.task, call.epoch, call.turn.number


def _says_otherwise(call: Record) -> BadInput:
    return BadInput(f"Turn {call.turn.number} of #{call.task} is already recorded with another content.")


async def _reservations(tx: Tx, calls: Sequence[Record]) -> dict[str, Row]:
    keys = [call.turn.reservation for call in calls if call.turn.reservation]
    if not keys:
        return {}
    rows = await tx.fetch("reservations_by_key", keys=[{"key": key} for key in keys])
    return {row["key"]: row for row in rows}


def new_row(call: Record) -> dict[str, Any]:
    covers = dict(zip(("covers_from", "covers_to"), call.turn.covers or (None, None), strict=True))
    return {
        "task": call.task, "epoch": call.epoch, "number": call.turn.number, "kind": call.turn.kind,
        "body": call.turn.body, **plain(call.turn.used), **covers,
    }  # fmt: skip


def note_turn(tx: Noting, call: Record, *, unreserved: bool) -> None:
    turn = call.turn
    event(
        tx, "turn", call.teammate, task=call.task, root=call.root, epoch=call.epoch, number=turn.number,
        turn_kind=turn.kind, unreserved=unreserved, **plain(turn.used),
    )  # fmt: skip


async def _append(tx: Tx, calls: Sequence[Record]) -> set[tuple[int, int, int]]:
    rows = await tx.fetch("insert_turns", turns=[new_row(call) for call in calls])
    return {(row["task_id"], row["epoch"], row["number"]) for row in rows}


async def _clash(tx: Tx, call: Record) -> BadInput | None:
    there = await tx.fetch("read_turn", task=call.task, epoch=call.epoch, number=call.turn.number)
    if there and (there[0]["kind"], there[0]["body"]) == (call.turn.kind, call.turn.body):
        return None
    return _says_otherwise(call)


async def _account(tx: Tx, calls: Sequence[Record], reservations: dict[str, Row]) -> None:
    """Write the events, costs and shown messages of the new turns."""
    closed: dict[str, tuple[Row, Amount, str, str]] = {}
    unreserved = []
    for call in calls:
        turn = call.turn
        row = reservations.get(turn.reservation or "")
        if row is not None and row["state"] == "open":
            closed.setdefault(row["key"], (row, turn.used, "settled", call.teammate))
        elif row is None and turn.used != Amount():
            unreserved.append((call.root, plain(turn.used)))
        note_turn(tx, call, unreserved=row is None)
        await show(tx, recipient=call.teammate, messages=turn.shown)
    await move(tx, unreserved)
    await close_reservations(tx, list(closed.values()))


async def spend(tx: Tx, *, claim: Claim, reservation: str, used: Amount) -> None:
    """Settle a reservation outside a turn."""
    await fence(tx, claim)
    rows = await tx.fetch("reservations_by_key", keys=[{"key": reservation}])
    if not rows or rows[0]["task_id"] != claim.task.id:
        raise UnknownReservation(f"#{claim.task.id} has no reservation {reservation!r}.")
    if rows[0]["state"] == "open":
        await close_reservations(tx, [(rows[0], used, "settled", claim.teammate)])


async def forfeit_own(tx: Tx, *, claim: Claim) -> None:
    """Count the holder's open reservations as spent, since it does not know what they cost. Idempotent."""
    await fence(tx, claim)
    await forfeit(tx, [claim.task.id], claim.teammate)


async def hand_over(tx: Tx, *, claim: Claim, handover: str) -> None:
    """Leave a handover for later attempts, before the attempt ends."""
    await fence(tx, claim)
    task, epoch = claim.task, claim.epoch
    if await tx.fetch("set_handover", task=task.id, epoch=epoch, handover=handover):
        event(tx, "handover", claim.teammate, task=task.id, root=task.root, epoch=epoch, handover=handover)


async def merge_into(tx: Tx, *, claim: Claim, target: str) -> None:
    """Take the last place of those who merge into a target; empty: leave them. The end of the claim does so, too."""
    await fence(tx, claim)
    await tx.fetch("lock_key", key="merging")  # Places are given one at a time.
    task, epoch = claim.task, claim.epoch
    if await tx.fetch("set_merging", task=task.id, epoch=epoch, target=target):
        event(tx, "merging", claim.teammate, task=task.id, root=task.root, epoch=epoch, merges_into=target or None)
        wake(tx, f"task:{task.id}")
