"""What holders write when nothing stands in the way, as a script: one round trip instead of one for each statement.

A script decides nothing. Its steps say what must be so for the verbs to accept all of its calls; if one of them finds
it otherwise, nothing is written, and the verbs decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...types import Amount, Done
from .. import rules
from ..store.seam import Row, Script, Store, event, ids_json, made_ready, wake
from .budgets import Reserve, note_spent, plain, reserve, summed
from .claim_scripts import ClaimScripts
from .claims import claim
from .settle import Move, Settle, note_settled, settle, settled_attempt, settled_row
from .turns import Record, new_row, note_turn, record


class _Draft(Script):
    """A script that is being written, one call after another."""

    def __init__(self) -> None:
        super().__init__()
        self._epochs: dict[int, int] = {}  # Of the tasks that the calls hold.
        self.moves: list[tuple[int, dict[str, int]]] = []
        self.spent: list[tuple[Record, Amount, Amount]] = []  # Turns, what was reserved for them, and what they used.
        self.reserved: list[Reserve] = []

    def holds(self, call: Any) -> bool:
        """Whether the epochs of all calls of this task are the same."""
        if call.task not in self._epochs:
            self._epochs[call.task] = call.epoch
            self.step("holds", id=call.task, epoch=call.epoch)
        return bool(self._epochs[call.task] == call.epoch)


class Scripts:
    """Makes the scripts of one process."""

    def __init__(self, store: Store, lease_max: int) -> None:
        self._store = store
        self._claims = ClaimScripts(store, lease_max)

    async def of(self, calls: Sequence[tuple[Any, Any]]) -> Script | None:
        """The script of these calls, each a verb and its argument; None: the verbs must decide."""
        if calls[0][0] is claim:
            return await self._claims.of([call for _, call in calls])
        draft = _Draft()
        if not all(verb in _WRITE and _WRITE[verb](draft, call) for verb, call in calls):
            return None
        ends = [call for verb, call in calls if verb is settle]
        held = {call.task for call in ends}
        if ends and len(calls) > len(held) + sum(call.task not in held for _, call in calls):
            return None  # More is written to a task that ends here.
        for turned, reserved, spent in draft.spent:
            of = turned.turn.reservation or "", turned.task, turned.root
            note_spent(draft, "spent", turned.teammate, of, reserved, spent)
        for call in draft.reserved:  # After what was given back, as the verbs do: no event of the log passes the cap.
            event(draft, "reserved", call.teammate, **call.row)
        if draft.moves:
            draft.given["move_accounts"] = summed(draft.moves)
        awaited = [call for call in ends if call.awaited]
        return draft if not awaited or await self._meet(draft, awaited) else None

    async def _meet(self, draft: _Draft, ended: Sequence[Settle]) -> bool:
        """Meet the needs for these tasks, if none is broken by their ends."""
        if not self._store.over_a_wire:
            return False
        outcomes = {call.task: getattr(call.outcome, "outcome", None) for call in ended}
        edges = await self._store.read("view_dependents", ids=ids_json(outcomes))
        met: dict[int, list[Row]] = {}
        for edge in edges:
            if rules.judge(edge["outcome"], "done", outcomes[edge["needs_id"]]) != "met" or edge["due_at"] is not None:
                return False
            draft.step("meet_needs", task=edge["task_id"], needs=edge["needs_id"], outcome=edge["outcome"])
            met.setdefault(edge["task_id"], []).append(edge)
        for task, own in met.items():
            row, left = {**own[0], "id": task}, own[0]["open_needs"] - len(own)
            then = "ready" if left == 0 and row["state"] in ("blocked", "waiting") else row["state"]
            seen = {"open_needs": row["open_needs"], "state": row["state"]}
            draft.step("count_down_seen", id=task, n=len(own), then_state=then, **seen)
            if left == 0 and then == "ready":
                made_ready(draft, {**row, "state": then})
        return True


def _record(draft: _Draft, call: Record) -> bool:
    turn, held = call.turn, call.reserved
    if not draft.holds(call) or (turn.reservation is not None and held is None):
        return False
    draft.step("insert_turns", **new_row(call))
    note_turn(draft, call, unreserved=held is None)
    if shown := sorted(set(turn.shown)):
        for each in shown:
            draft.step("show_taken", id=each, recipient=call.teammate)
        event(draft, "shown", call.teammate, messages=shown)
    if held is not None:
        draft.step("settle_reservations", key=turn.reservation, task=call.task, used=turn.used.tokens, **plain(held))
        spent = turn.used
        draft.moves.append((call.root, plain(spent) | plain(held, "_reserved", -1) | {"asks": 0, "frees": 1}))
        draft.spent.append((call, held, spent))
    elif turn.used != Amount():
        draft.moves.append((call.root, plain(turn.used) | {"asks": 0, "frees": 0}))
    draft.answers.append(turn.number)
    return True


def _reserve(draft: _Draft, call: Reserve) -> bool:
    pace = call.pace
    counted = pace is not None and (pace.requests_per_minute or pace.tokens_per_minute)
    if not draft.holds(call) or call.may_repeat or counted:
        return False
    if pace is not None and {"key": pace.key} not in draft.given.get("no_cooldown", ()):
        draft.step("no_cooldown", key=pace.key)
    draft.step("insert_reservations", **call.row)
    draft.moves.append((call.root, plain(call.amount, "_reserved") | {"asks": 1, "frees": 0}))
    draft.reserved.append(call)
    draft.answers.append(call.key)
    return True


def _settle(draft: _Draft, call: Settle) -> bool:
    if not draft.holds(call) or call.told or not isinstance(call.outcome, Done):
        return False
    move = Move(state="done", ended_as="done", done=call.outcome)
    draft.step("settle_tasks", **settled_row(call.task, move))
    draft.step("close_attempts", **settled_attempt(call, move))
    for name in ("no_open_reservation", "no_dependent", "no_parent_at_work"):
        draft.step(name, id=call.task)
    note_settled(draft, call, move)
    wake(draft, f"task:{call.task}")
    draft.answers.append(move.ended_as)
    return True


_WRITE: dict[Any, Callable[[_Draft, Any], bool]] = {record: _record, reserve: _reserve, settle: _settle}
