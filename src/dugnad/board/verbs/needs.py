"""Needs between tasks: what happens to dependents when a task ends, and adding a need by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import NotReady, UnknownTask
from ...types import Need
from .. import rules
from ..store.seam import Row, Tx, as_json, event, ids_json, wake, wake_for
from .budgets import forfeit
from .idempotency import once


async def after_end(tx: Tx, ended: Mapping[int, tuple[str, str | None]]) -> None:
    """Count down the dependents of these tasks (id: state, outcome), and skip those whose need is broken.

    A skipped task has ended too, so this goes on until nothing more ends. A task that is reached twice is skipped once,
    since only a blocked row can become skipped.
    """
    while ended:
        for each in ended:
            wake(tx, f"task:{each}")
        edges = await tx.fetch("needs_behind", ids=ids_json(sorted(ended)))
        if not edges:
            return
        met: dict[int, int] = {}
        broken: dict[int, str] = {}
        judged = []
        for edge in edges:
            state, outcome = ended[edge["needs_id"]]
            verdict = rules.judge(edge["outcome"], state, outcome)
            judged.append({"task": edge["task_id"], "needs": edge["needs_id"], "state": verdict})
            if verdict == "met":
                met[edge["task_id"]] = met.get(edge["task_id"], 0) + 1
            else:
                reason = rules.broken_reason(edge["needs_id"], edge["outcome"], state, outcome)
                broken.setdefault(edge["task_id"], reason)
        await tx.fetch("mark_needs", needs=as_json(judged))
        await count_down(tx, met)
        ended = await _skip(tx, broken)


async def count_down(tx: Tx, met: Mapping[int, int]) -> None:
    if not met:
        return
    counts = as_json([{"id": task, "n": n} for task, n in sorted(met.items())])
    for row in await tx.fetch("count_down", tasks=counts):
        if row["open_needs"] == 0 and row["state"] in ("ready", "scheduled"):
            made_ready(tx, row)


def made_ready(tx: Tx, row: Row) -> None:
    """Log that a task is ready, or scheduled until it is due."""
    event(tx, "ready", "board", task=row["id"], root=row["root_id"], state=row["state"])
    wake_for(tx, row, row["state"])


async def _skip(tx: Tx, broken: Mapping[int, str]) -> dict[int, tuple[str, str | None]]:
    if not broken:
        return {}
    rows = await tx.fetch(
        "skip_tasks", tasks=as_json([{"id": task, "reason": why} for task, why in sorted(broken.items())])
    )
    for row in rows:
        event(tx, "skipped", "board", task=row["id"], root=row["root_id"], reason=row["reason"])
    return {row["id"]: ("skipped", None) for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNeed:
    task: int
    need: Need
    by: str
    key: str


async def add_need(tx: Tx, call: AddNeed) -> None:
    async def add() -> None:
        await tx.fetch("lock_needs")
        rows = {row["id"]: row for row in await tx.fetch("hold_tasks", ids=ids_json((call.task, call.need.task)))}
        for wanted in (call.task, call.need.task):
            if wanted not in rows:
                raise UnknownTask(f"There is no task #{wanted}; `dugnad tasks` lists them.")
        task, needed = rows[call.task], rows[call.need.task]
        if task["state"] not in ("blocked", "ready", "scheduled"):
            raise NotReady(f"#{call.task} is {task['state']}; a need can only be added before it is claimed.")
        if (there := await tx.fetch("need_of", task=call.task, needs=call.need.task)) and there[0]["state"] == "open":
            if there[0]["outcome"] == call.need.outcome:
                return
            outcome = there[0]["outcome"] or "done"
            raise NotReady(f"#{call.task} already waits for #{call.need.task} to end as {outcome}.")
        await refuse_circle(tx, call.task, call.need.task)
        await _join(tx, call, task, needed)

    await once(tx, call.key, "add_need", add)


async def _join(tx: Tx, call: AddNeed, task: Row, needed: Row) -> None:
    verdict = rules.judge(call.need.outcome, needed["state"], needed["outcome"])
    await tx.fetch("insert_need", task=call.task, needs=call.need.task, outcome=call.need.outcome, state=verdict)
    event(
        tx, "need_added", call.by, task=call.task, root=task["root_id"],
        needs=call.need.task, outcome=call.need.outcome, state=verdict,
    )  # fmt: skip
    if verdict == "met":
        return
    await tx.fetch("block_task", id=call.task)
    wake(tx, f"task:{call.task}")
    await forfeit(tx, [call.task], "board")  # Of a late holder, which this fences off.
    await lift_chains(tx, {call.need.task: task["chain"] + 1})
    if verdict == "broken":
        reason = rules.broken_reason(call.need.task, call.need.outcome, needed["state"], needed["outcome"])
        await after_end(tx, await _skip(tx, {call.task: reason}))


async def refuse_circle(tx: Tx, task: int, needed: int) -> None:
    """Raise Cycle, naming the circle, if `needed` already waits for `task`."""
    if task == needed:
        rules.refuse_circle((f"#{task}", f"#{task}"))
    via = {row["id"]: row["via"] for row in await tx.fetch("path_of_needs", from_id=needed)}
    if task in via:
        way = [task]
        while way[-1] != needed:
            way.append(via[way[-1]])
        rules.refuse_circle([f"#{each}" for each in (task, *reversed(way))])


async def lift_chains(tx: Tx, chains: Mapping[int, int]) -> None:
    """Raise the chain of these tasks, and of those they wait for, to at least this. It is derived, so not logged."""
    if chains:
        lifted = [{"id": task, "chain": min(chain, tx.limits.chain_max)} for task, chain in sorted(chains.items())]
        await tx.fetch("raise_chains", tasks=as_json(lifted), chain_max=tx.limits.chain_max)
