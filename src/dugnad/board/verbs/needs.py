"""Needs between tasks: what happens to dependents when a task ends, and adding a need by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import NotReady
from ...types import Need
from .. import rules
from ..store.seam import Row, Tx, event, ids_json, made_ready, wake
from .budgets import forfeit
from .fence import hold_tasks, known
from .followed import tell_of_ends
from .idempotency import once


async def after_end(tx: Tx, ended: Mapping[int, tuple[str, str | None]]) -> None:
    """Count down the dependents of these tasks (id: state, outcome), and skip those whose need is broken.

    A skipped task has ended too, so this goes on until nothing more ends. A task that is reached twice is skipped once,
    since only a blocked row can become skipped.
    """
    skipped: list[Row] = []
    while ended:
        for each in ended:
            wake(tx, f"task:{each}")
        edges = await tx.fetch("needs_behind", ids=ids_json(sorted(ended)))
        if not edges:
            break
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
        await tx.fetch("mark_needs", needs=judged)
        await count_down(tx, met)
        now = await _skip(tx, broken)
        skipped += now
        ended = {row["id"]: ("skipped", None) for row in now}
    await tell_of_ends(tx, skipped)


async def count_down(tx: Tx, met: Mapping[int, int]) -> None:
    if not met:
        return
    for row in await tx.fetch("count_down", tasks=[{"id": task, "n": n} for task, n in sorted(met.items())]):
        if row["open_needs"] == 0 and row["state"] in ("ready", "scheduled"):
            made_ready(tx, row)


async def _skip(tx: Tx, broken: Mapping[int, str]) -> Sequence[Row]:
    if not broken:
        return ()
    rows = await tx.fetch("skip_tasks", tasks=[{"id": task, "reason": why} for task, why in sorted(broken.items())])
    for row in rows:
        event(tx, "skipped", "board", task=row["id"], root=row["root_id"], reason=row["reason"])
    return rows


@once
async def add_need(tx: Tx, *, task: int, need: Need, by: str, key: str) -> None:
    await tx.fetch("lock_needs")
    rows = await hold_tasks(tx, (task, need.task))
    own, needed = known(rows, task), known(rows, need.task)
    if own["state"] not in ("blocked", "ready", "scheduled"):
        raise NotReady(f"#{task} is {own['state']}; a need can only be added before it is claimed.")
    if (there := await tx.fetch("need_of", task=task, needs=need.task)) and there[0]["state"] == "open":
        if there[0]["outcome"] == need.outcome:
            return
        outcome = there[0]["outcome"] or "done"
        raise NotReady(f"#{task} already waits for #{need.task} to end as {outcome}.")
    await refuse_circle(tx, task, need.task)
    verdict = rules.judge(need.outcome, needed["state"], needed["outcome"])
    edge = {"needs": need.task, "outcome": need.outcome, "state": verdict}
    await tx.fetch("insert_need", task=task, **edge)
    event(tx, "need_added", by, task=task, root=own["root_id"], **edge)
    if verdict == "met":
        return
    await tx.fetch("block_task", id=task)
    wake(tx, f"task:{task}")
    await forfeit(tx, [task], "board")  # Of a late holder, which this fences off.
    await lift_chains(tx, {need.task: own["chain"] + 1})
    if verdict == "broken":
        reason = rules.broken_reason(need.task, need.outcome, needed["state"], needed["outcome"])
        skipped = await _skip(tx, {task: reason})
        await after_end(tx, {row["id"]: ("skipped", None) for row in skipped})
        await tell_of_ends(tx, skipped)


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
        await tx.fetch("raise_chains", tasks=lifted, chain_max=tx.limits.chain_max)
