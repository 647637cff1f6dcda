"""Ending a claim: the holder settles it, it is taken back from a lost host, or a person ends it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import BadInput, DugnadError, StaleClaim, UnknownTask
from ...settings import Limits
from ...types import HUMAN, Done, Failed, Outcome, Released, Waiting
from .. import rules
from ..store.seam import Noting, Row, Tx, event, ids_json, wake, wake_for
from .budgets import forfeit, park
from .fence import hold_tasks, refused
from .followed import tell_of_ends
from .idempotency import once
from .members import end_outsiders
from .messages import ask_for, notice
from .needs import after_end, lift_chains, refuse_circle


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    task: int
    epoch: int
    root: int
    teammate: str
    outcome: Outcome
    handover: str | None
    awaited: bool = True  # Something waits for the task, as far as the holder knows.
    told: bool = True  # Somebody may have to be told of its end.

    @property
    def fingerprint(self) -> str:
        """A fingerprint of an outcome: a repeated settle counts as the same only if this is equal."""
        return hashlib.sha256(repr((self.outcome, self.handover)).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The new state of a task when its claim ends."""

    state: str
    ended_as: str  # Of the attempt.
    tried: int = 0
    back: int = 0  # 1: the claim does not count.
    done: Done | None = None
    reason: str | None = None
    continues: int | None = None
    waiting_for: str | None = None
    request: str | None = None
    open_needs: int = 0
    delay: int = 0
    lane: str | None = None  # The teammate that must continue it; None: the task's own assignee.
    guard: str | None = None  # The guard that stopped it; the human gets a notice.

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed")

    @property
    def delivery(self) -> dict[str, str]:
        """What a task that is done says, and who did it; nothing of any other."""
        return _said(self.done) if self.done else {}


def check_outcome(outcome: Outcome, limits: Limits) -> Outcome:
    """The outcome itself, if it is well formed."""
    if isinstance(outcome, Done):
        rules.text("result", outcome.result, bytes_max=limits.body_bytes_max)
        rules.outcome_word(outcome.outcome, limits)
        for said in (outcome.merged_into, outcome.merged_as, outcome.files_in, outcome.triggers, outcome.by):
            rules.text("delivery", said or "", bytes_max=limits.body_bytes_max)
    elif isinstance(outcome, Failed):
        rules.text("reason", outcome.reason, bytes_max=limits.body_bytes_max)
    elif isinstance(outcome, Released):
        rules.text("reason", outcome.why, bytes_max=limits.body_bytes_max)
        rules.quantity("A delay", outcome.delay_seconds, scale=1000)
    else:
        rules.text("question", outcome.question, bytes_max=limits.body_bytes_max)
        rules.amount(outcome.amount)
        if outcome.on == "tasks" and not outcome.tasks:
            raise BadInput("To wait for tasks, name at least one.")
        if outcome.on in ("human", "plan") and not outcome.question.strip():
            raise BadInput("To wait for an answer, give the question.")
    return outcome


def if_worn_out(row: Row, outcome: Outcome, limits: Limits) -> Outcome:
    """The outcome itself, or a question to a person if the work was put off too often.

    The work may be finished and right, so the guard does not fail it but asks once.
    """
    put_off = isinstance(outcome, Released) and outcome.resume and outcome.delay_seconds
    if not put_off or row["claims"] < limits.claims_max:
        return outcome
    assert isinstance(outcome, Released)
    what = f"#{row['id']} was put off {row['claims']} times, the last time because {outcome.why}"
    return Waiting(on="human", question=f"{what.rstrip('.')}. Fix that, then answer; or cancel the task.")


def is_free(outcome: Outcome) -> bool:
    """Whether the claim does not count, because it waits for a person or a budget, or was only put down."""
    if isinstance(outcome, Waiting):
        return outcome.on == "budget" or (outcome.on != "tasks" and outcome.ask == HUMAN)
    return isinstance(outcome, Released) and outcome.resume and not outcome.delay_seconds


def decide(row: Row, outcome: Outcome, limits: Limits, chance: float) -> Move:
    """The next state of the task. Every way back to ready is bounded, by a guard or by a person who must act."""
    worn_out = row["claims"] >= limits.claims_max
    if isinstance(outcome, Done):
        return Move(state="done", ended_as="done", done=outcome)
    if isinstance(outcome, Failed):
        tried = int(row["state"] == "claimed")  # A lost attempt was counted already.
        tries = row["tries"] + tried
        if outcome.retry and tries < limits.attempts_max and not worn_out:
            delay = rules.backoff_ms(tries - 1, limits, chance)
            return Move(state="scheduled", ended_as="retry", tried=tried, reason=outcome.reason, delay=delay)
        guard = f"{tries} attempts failed, the last with: {outcome.reason}" if outcome.retry else None
        return Move(state="failed", ended_as="failed", tried=tried, reason=outcome.reason, guard=guard)
    free = is_free(outcome)
    back = int(free and row["state"] == "claimed")  # A lost attempt was also counted as a try.
    if worn_out and not free:
        guard = f"it was claimed {row['claims']} times without a result"
        return Move(state="failed", ended_as="failed", reason=f"guard: {guard}", guard=guard)
    if isinstance(outcome, Released):
        delay = rules.quantity("A delay", outcome.delay_seconds, scale=1000)
        return Move(
            state="scheduled" if delay else "ready", ended_as="released", reason=outcome.why or None, delay=delay,
            back=back, continues=row["epoch"] if outcome.resume else None,
        )  # fmt: skip
    return Move(
        state="waiting", ended_as="waiting", waiting_for=outcome.on, continues=row["epoch"], back=back,
        reason=outcome.question or None, open_needs=len(outcome.tasks),
        request=f"task-{row['id']}-{row['epoch']}" if outcome.on in ("human", "plan") else None,
    )  # fmt: skip


def when_lost(row: Row, limits: Limits, chance: float) -> tuple[str, int]:
    """The next state of a task whose host was lost, and the delay.

    After the first loss the task is ready at once. A task that loses several hosts may be the cause, so it waits.
    """
    if row["tries"] + 1 >= limits.attempts_max or row["claims"] >= limits.claims_max:
        return "failed", 0
    delay = rules.backoff_ms(row["tries"] - 1, limits, chance) if row["tries"] else 0
    return "scheduled" if delay else "ready", delay


async def settle(tx: Tx, calls: Sequence[Settle]) -> list[str | DugnadError]:
    rows = await hold_tasks(tx, [call.task for call in calls])
    answers: dict[int, str | DugnadError] = {}
    moves: dict[int, Move] = {}
    seen: set[int] = set()
    for place, call in enumerate(calls):
        stale = refused(call.task, call.epoch, rows) or (StaleClaim() if call.task in seen else None)
        if stale:
            answers[place] = stale
            continue
        seen.add(call.task)
        row = rows[call.task]
        outcome = if_worn_out(row, call.outcome, tx.limits)
        move = decide(row, outcome, tx.limits, tx.sources.chance())
        try:
            moves[place] = await _wait(tx, call, outcome, move, row["chain"]) if move.waiting_for else move
        except DugnadError as refusal:
            answers[place] = refusal
    if moves:
        await _write(tx, {calls[place].task: (calls[place], move) for place, move in moves.items()}, rows)
    answers.update({place: move.ended_as for place, move in moves.items()})
    if stale_places := [place for place, answer in answers.items() if isinstance(answer, StaleClaim)]:
        answers.update(await _said_before(tx, calls, stale_places))
    return [answers[place] for place in range(len(calls))]


async def _said_before(tx: Tx, calls: Sequence[Settle], places: Sequence[int]) -> dict[int, str]:
    """The answers of calls that settled the same before, and whose answer was lost."""
    asked = [{"task": calls[place].task, "epoch": calls[place].epoch} for place in places]
    rows = await tx.fetch("attempts_settled", claims=asked)
    found = {(row["task_id"], row["epoch"]): row for row in rows}
    told = {}
    for place in places:
        row = found.get((calls[place].task, calls[place].epoch))
        if row and row["settled_as"] == calls[place].fingerprint:
            told[place] = str(row["ended_as"])
    return told


async def _wait(tx: Tx, call: Settle, outcome: Outcome, move: Move, chain: int) -> Move:
    """Prepare a wait: add needs for the tasks, send the question, or make sure that the budget is spent."""
    assert isinstance(outcome, Waiting)
    ready = Move(state="ready", ended_as="waiting", continues=move.continues, back=move.back)
    if outcome.on == "tasks":
        await tx.fetch("lock_needs")
        needed = await hold_tasks(tx, outcome.tasks)
        for task in outcome.tasks:
            if task not in needed:
                raise UnknownTask(f"There is no task #{task} to wait for; `dugnad tasks` lists them.")
            await refuse_circle(tx, call.task, task)
        still_open = [task for task, row in needed.items() if rules.judge("ended", row["state"], None) == "open"]
        for task in still_open:
            await tx.fetch("insert_need", task=call.task, needs=task, outcome="ended", state="open")
        await lift_chains(tx, dict.fromkeys(still_open, chain + 1))
        # A teammate that waits for a review of its own work continues the task itself.
        own = any(call.teammate in rules.shut_out(needed[task]["not_for"]) for task in outcome.tasks)
        lane = f"@{call.teammate}" if own else None
        return replace(move, open_needs=len(still_open), lane=lane) if still_open else replace(ready, lane=lane)
    if outcome.on == "budget":
        return move if await park(tx, call.root, outcome.amount) else ready
    assert move.request is not None
    await ask_for(tx, call.task, call.teammate, outcome, move.request)
    return move


async def _write(tx: Tx, moves: Mapping[int, tuple[Settle, Move]], rows: Mapping[int, Row]) -> None:
    settled = [settled_row(task, move) for task, (_, move) in sorted(moves.items())]
    due = {row["id"]: row["due_at"] for row in await tx.fetch("settle_tasks", tasks=settled)}
    await _close(tx, [settled_attempt(call, move) for call, move in moves.values()])
    # Waits come first: one may be for a task that ends in this batch.
    for task, (call, move) in sorted(moves.items(), key=lambda each: each[1][1].ended):
        row = rows[task]
        note_settled(tx, call, move, due[task])
        _tell(tx, {**row, "lane": move.lane or rules.lane(row["role"], row["assignee"])}, move.state)
        if move.guard:
            await notice(tx, f"guard-{task}-{call.epoch}", f"A guard stopped #{task}: {move.guard}.", task)
    # After the settles: reservations that are given back may let a task go on that has just begun to wait.
    await forfeit(tx, list(moves), "board")
    ended = {task: (move.state, move.delivery.get("outcome")) for task, (_, move) in moves.items() if move.ended}
    # The chain is 0 for a task without dependents.
    awaited = {task for call, _ in moves.values() if isinstance(call.outcome, Waiting) for task in call.outcome.tasks}
    await after_end(tx, {task: how for task, how in ended.items() if rows[task]["chain"] > 0 or task in awaited})
    await tell_of_ends(tx, [rows[task] for task in ended])


def settled_row(task: int, move: Move) -> dict[str, Any]:
    """What is missing in an entry is NULL in its statement."""
    row = {**_said(move), **move.delivery, "id": task}
    row.pop("done", None)
    return row


def settled_attempt(call: Settle, move: Move) -> dict[str, Any]:
    row = _closed({"id": call.task, "epoch": call.epoch}, move.ended_as, move.reason)
    return {**row, "settled_as": call.fingerprint, "handover": call.handover}


def _said(record: Any) -> dict[str, Any]:
    return {name: value for name in record.__slots__ if (value := getattr(record, name)) is not None}


def note_settled(tx: Noting, call: Settle, move: Move, due_at: int | None = None) -> None:
    event(
        tx, _EVENTS[move.ended_as], call.teammate, task=call.task, root=call.root, epoch=call.epoch,
        state=move.state, tried=move.tried, back=move.back or None, **move.delivery,
        reason=move.reason, handover=call.handover,
        resume=(move.ended_as == "released" and move.continues is not None) or None,
        waiting_for=move.waiting_for, request=move.request, due_at=due_at, own=bool(move.lane) or None,
        tasks=sorted(set(call.outcome.tasks)) if isinstance(call.outcome, Waiting) and move.open_needs else [],
    )  # fmt: skip


_EVENTS = {"done": "done", "failed": "failed", "retry": "retrying", "waiting": "waiting", "released": "released"}


def _tell(tx: Tx, row: Row, state: str) -> None:
    wake(tx, f"task:{row['id']}")
    if state in ("ready", "scheduled"):
        wake_for(tx, row, state)


def _closed(row: Row, ended_as: str, reason: str | None) -> dict[str, Any]:
    return {"task": row["id"], "epoch": row["epoch"], "ended_as": ended_as, "reason": reason}


async def _close(tx: Tx, attempts: Sequence[Mapping[str, object]]) -> None:
    if attempts:
        await tx.fetch("close_attempts", attempts=attempts)


async def close_by_hand(tx: Tx, rows: Sequence[Row], ended_as: str, why: str) -> None:
    """Close the attempts of fenced holders, and count their open reservations as spent."""
    await _close(tx, [_closed(row, ended_as, why or None) for row in rows if row["state"] == "claimed"])
    for row in rows:
        wake(tx, f"task:{row['id']}")
    await forfeit(tx, [row["id"] for row in rows], "board")


@once
async def take_back(tx: Tx, *, count: int, silent: str | None, key: str) -> list[int]:
    """Mark hosts as lost whose lease ran out, and free their tasks: with back-off, or failed after too many losses.

    `silent`: only these hosts may be lost, with the lease that was seen; None: any.
    """
    lease_max = int(tx.limits.lease_seconds_max * 1000)
    for host in await tx.fetch("lose_hosts", lease_max=lease_max, silent=silent):
        event(tx, "host_lost", "board", host=host["id"], label=host["label"])
        await end_outsiders(tx, host["id"])
        wake(tx, "team")
    held = ids_json(row["id"] for row in await tx.fetch("hold_claims", count=count))
    rows = {row["id"]: row for row in await tx.fetch("lost_claims", ids=held)}
    if not rows:
        return []
    given: list[dict[str, Any]] = []
    for task, row in rows.items():
        reason = f"attempt {row['tries'] + 1}: the host of {row['teammate']} was lost"
        state, delay = when_lost(row, tx.limits, tx.sources.chance())
        if state == "failed":
            reason = f"guard: lost {row['tries'] + 1} times, last with {row['teammate']}"
        given.append({"id": task, "state": state, "delay": delay, "reason": reason})
    due = {row["id"]: row["due_at"] for row in await tx.fetch("take_back_tasks", tasks=given)}
    await _close(tx, [_closed(row, "lost", f"host {row['host_id']} was lost") for row in rows.values()])
    await forfeit(tx, list(rows), "board")
    for each in given:
        task, state, reason = int(each["id"]), each["state"], each["reason"]
        row = rows[task]
        event(
            tx, "taken_back", "board", task=task, root=row["root_id"], epoch=row["epoch"], state=state,
            reason=reason, due_at=due[task], host=row["host_id"], teammate=row["teammate"],
        )  # fmt: skip
        _tell(tx, row, state)
        if state == "failed":
            await notice(tx, f"guard-{task}-{row['epoch']}", f"A guard stopped #{task}: {reason}.", task)
    failed = [each["id"] for each in given if each["state"] == "failed"]
    await after_end(tx, dict.fromkeys(failed, ("failed", None)))
    await tell_of_ends(tx, [rows[each] for each in failed])
    return sorted(rows)
