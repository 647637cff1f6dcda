"""The account of a root: reserve before a call, settle after it. If the cost is not known, the reservation counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import BadInput, BudgetSpent, DugnadError, UnknownTask
from ...types import Amount, Pace, Spending
from .. import records, rules
from ..roots import budget_id, root_name
from ..store.seam import Noting, Row, TryAgain, Tx, as_json, event, ids_json, wake, wake_for
from . import rate_limits
from .fence import hold_tasks, refused
from .idempotency import once

_COLUMNS = {suffix: tuple(f"{name}{suffix}" for name in records.AMOUNTS) for suffix in ("", "_reserved")}


def plain(amount: Amount, suffix: str = "", sign: int = 1) -> dict[str, int]:
    """An amount by its columns."""
    tokens, microdollars, milliseconds = _COLUMNS[suffix]
    return {
        tokens: sign * amount.tokens, microdollars: sign * amount.microdollars,
        milliseconds: sign * amount.milliseconds,
    }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    task: int
    epoch: int
    root: int
    teammate: str
    amount: Amount
    pace: Pace | None  # Of the provider key the call goes through.
    key: str
    may_repeat: bool  # The caller chose the key, so this may be a repeated call.

    @property
    def label(self) -> str | None:
        return None if self.pace is None else self.pace.key

    @property
    def row(self) -> dict[str, Any]:
        place = {"key": self.key, "root": self.root, "task": self.task, "epoch": self.epoch, "pace": self.label}
        return place | plain(self.amount)


async def reserve(tx: Tx, calls: Sequence[Reserve]) -> list[str | DugnadError]:
    rows = await hold_tasks(tx, [call.task for call in calls])
    answers: list[str | DugnadError] = [call.key for call in calls]
    before = await _reserved_before(tx, calls)
    fresh: dict[str, int] = {}
    again = []
    for place, call in enumerate(calls):
        if call.key in before:
            if before[call.key] != (call.task, call.epoch, call.amount, call.label):
                answers[place] = BadInput(f"The key {call.key!r} belongs to another reservation; choose another key.")
            elif call.key in fresh:
                again.append(place)
            continue
        if stale := refused(call.task, call.epoch, rows):
            answers[place] = stale
        else:
            fresh[call.key] = place
            before[call.key] = (call.task, call.epoch, call.amount, call.label)
    budgets = await hold(tx, {calls[place].root for place in fresh.values()}) if fresh else {}
    paces = await rate_limits.look(tx, [calls[place].pace for place in fresh.values()])
    made = []
    for place in fresh.values():
        call = calls[place]
        # Check the budget first: there is no point waiting for a rate limit if the call cannot be paid for.
        if refusal := _over_budget(budgets[call.root], call) or paces.refused(call.pace, call.amount.tokens):
            answers[place] = refusal
            continue
        for column, more in plain(call.amount, "_reserved").items():
            budgets[call.root][column] += more
        made.append(call)
    await _write(tx, made)
    for place in again:  # The same call twice in one batch gets the same answer.
        answers[place] = answers[fresh[calls[place].key]]
    return answers


def _over_budget(budget: dict[str, Any], call: Reserve) -> BudgetSpent | None:
    if (reason := rules.too_much(budget, call.amount)) is None:
        return None
    kind, sentence, may_free_up = reason
    told = f"{sentence} Raise it with `dugnad budget {budget_id(call.root)}`."
    return BudgetSpent(told, kind=kind, may_free_up=may_free_up)


async def _write(tx: Tx, made: Sequence[Reserve]) -> None:
    if not made:
        return
    rows = [call.row for call in made]
    await tx.fetch("insert_reservations", reservations=rows)
    await move(tx, [(call.root, plain(call.amount, "_reserved")) for call in made])
    for call in made:
        event(tx, "reserved", call.teammate, **call.row)


async def _reserved_before(tx: Tx, calls: Sequence[Reserve]) -> dict[str, tuple[int, int, Amount, str | None]]:
    if not tx.repeated and not any(call.may_repeat for call in calls):
        return {}
    keys = as_json([{"key": call.key} for call in calls])
    rows = await tx.fetch("reservations_by_key", keys=keys)
    return {row["key"]: (row["task_id"], row["epoch"], records.amount(row), row["pace"]) for row in rows}


async def hold(tx: Tx, roots: Iterable[int]) -> dict[int, dict[str, Any]]:
    """The accounts of these roots, locked in ascending order."""
    rows = await tx.fetch("hold_budgets", ids=ids_json(sorted(roots)))
    return {row["root_id"]: dict(row) for row in rows}


def summed(moves: Iterable[tuple[int, dict[str, int]]]) -> list[dict[str, int]]:
    """All that is added to each root, in their order."""
    sums: dict[int, dict[str, int]] = {}
    for root, columns in moves:
        into = sums.setdefault(root, plain(Amount()) | plain(Amount(), "_reserved"))
        for column, more in columns.items():
            into[column] = into.get(column, 0) + more
    return [{"root": root, **columns} for root, columns in sorted(sums.items())]


async def move(tx: Tx, moves: Iterable[tuple[int, dict[str, int]]]) -> Sequence[Row]:
    """Add to what each root has spent and reserved: (root, columns)."""
    rows = summed(moves)
    return await tx.fetch("move_amounts", roots=rows) if rows else []


async def close_reservations(tx: Tx, closed: Sequence[tuple[Row, Amount, str, str]]) -> None:
    """Replace reservations by the amounts that were spent: (row, spent, state, actor)."""
    if not closed:
        return
    given = [{"key": row["key"], "state": state, "tokens": spent.tokens} for row, spent, state, _ in closed]
    await tx.fetch("close_reservations", reservations=given)
    moves = []
    for row, spent, state, actor in closed:
        held = records.amount(row)
        moves.append((row["root_id"], plain(spent) | plain(held, "_reserved", -1)))
        kind = "spent" if state == "settled" else "forfeited"
        note_spent(tx, kind, actor, (row["key"], row["task_id"], row["root_id"]), held, spent)
    for account in await move(tx, moves):
        if account["parked"] and account["held"] in (None, "tasks"):  # Begun work needs no further run.
            await tx.fetch("none_parked", root=account["root_id"])
            await _unpark(tx, account["root_id"])


def note_spent(tx: Noting, kind: str, actor: str, of: tuple[str, int, int], held: Amount, spent: Amount) -> None:
    """`of`: the reservation's key, task and root."""
    key, task, root = of
    over = {name: max(0, used - getattr(held, name)) for name, used in plain(spent).items()}
    more = {"over": over} if any(over.values()) else {}
    event(tx, kind, actor, task=task, root=root, key=key, **plain(spent), **more)
    wake(tx, f"budget:{root}")


async def _unpark(tx: Tx, root: int) -> None:
    """Make the tasks ready that wait for this budget."""
    for row in await tx.fetch("unpark_tasks", root=root):
        event(tx, "ready", "board", task=row["id"], root=root, state="ready")
        wake_for(tx, row)


async def forfeit(tx: Tx, tasks: Sequence[int], actor: str) -> None:
    """Count the open reservations of these tasks as spent, since the outcome of their calls is not known."""
    if tasks:
        rows = await tx.fetch("open_reservations_of", ids=ids_json(sorted(tasks)))
        await close_reservations(tx, [(row, records.amount(row), "forfeited", actor) for row in rows])


async def park(tx: Tx, root: int, ask: Amount) -> bool:
    """Whether a task must wait because this does not fit. If it can never fit under the cap, the whole root is held
    until a person raises the cap. If other reservations may be given back, only this task waits."""
    budget = (await hold(tx, [root]))[root]
    reason = rules.too_much(budget, ask)
    if reason is None:
        return False
    kind, _, may_free_up = reason
    if may_free_up:
        await tx.fetch("park_task", root=root)
    elif budget["held"] is None:
        await hold_root(tx, budget, kind)
    return True


async def hold_root(tx: Tx, budget: dict[str, Any], kind: str) -> None:
    """Hold the root: no task under it can be claimed, and the log says why."""
    root = budget["root_id"]
    budget["held"] = kind
    await tx.fetch("hold_root", root=root, held=kind)
    event(tx, "budget_reached", "board", root=root, task=root if root > 0 else None, held=kind)
    wake(tx, f"budget:{root}")


@once
async def open_budget(tx: Tx, *, caps: Mapping[str, int | None], by: str, key: str) -> int:
    """Make a budget for tasks that are put on it."""
    rows = await tx.fetch("open_budget", **caps)
    if not rows:
        raise TryAgain  # Another process has just taken the number.
    root = int(rows[0]["root_id"])
    event(tx, "budget_opened", by, root=root, caps=caps)
    return root


async def set_budget(tx: Tx, *, root: int, caps: Mapping[str, int | None], add: bool, by: str, key: str) -> Spending:
    """Change a root's caps, and let held work go on. With `add`, the caps are added to those it has."""
    await set_caps(tx, root, caps, add, by, key=key)
    return records.spending((await tx.fetch("read_budget", root=root))[0])


@once
async def set_caps(tx: Tx, root: int, caps: Mapping[str, int | None], add: bool, by: str, *, key: str) -> None:
    budgets = await hold(tx, [root])
    if root not in budgets:
        raise UnknownTask(f"{root_name(root)} has no budget of its own; name a goal. `dugnad budget` lists them.")
    now = budgets[root]
    if add:
        caps = {
            name: now[name] if more is None or now[name] is None else now[name] + more for name, more in caps.items()
        }
    await tx.fetch("set_caps", root=root, **caps)
    event(tx, "budget_set", by, root=root, task=root if root > 0 else None, caps=caps)
    wake(tx, f"budget:{root}")
    for row in await tx.fetch("unshelve_tasks", root=root):
        if row["state"] == "ready":
            wake_for(tx, row)
    await _unpark(tx, root)
