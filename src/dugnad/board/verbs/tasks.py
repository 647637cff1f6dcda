"""Putting tasks on the board, and changing them by hand: cancel, retry, release, assign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import BadInput, LimitReached, NotReady, UnknownTask
from ...types import ENDED, GIVEN, Claim, Need, NewTask, Task
from .. import records, rules
from ..roots import root_name
from ..store.seam import Row, TryAgain, Tx, event, ids_json, wake, wake_for
from .budgets import hold
from .fence import fence, hold_task, hold_tasks, known
from .followed import tell_of_ends
from .idempotency import once
from .messages import member
from .needs import after_end, lift_chains
from .settle import close_by_hand


@dataclass(slots=True)
class _PutPlan:
    """The tasks of a put, and the plan for them: the entries that exist, and the rows of the new ones."""

    tasks: Sequence[NewTask]  # Each has a key.
    by: str
    claim: Claim | None  # If set, these are follow-ups of its task.
    ids: list[int] = field(default_factory=list)
    new: list[dict[str, Any]] = field(default_factory=list)
    entries: dict[int, NewTask] = field(default_factory=dict)  # The new ones, by their ids.
    needs: list[dict[str, Any]] = field(default_factory=list)
    broken: dict[int, tuple[str, str | None]] = field(default_factory=dict)  # Ended tasks that break a need.


async def put(tx: Tx, *, tasks: Sequence[NewTask], by: str, claim: Claim | None, key: str) -> list[Task]:
    """Put all tasks or none. An entry whose key exists under its root is that task."""
    if claim:
        ids = await follow_up(tx, tasks=tasks, by=by, claim=claim, key=key)
    else:
        ids = await _put(tx, _PutPlan(tasks, by, None))
    rows = {row["id"]: row for row in await tx.fetch("tasks_by_id", ids=ids_json(ids))}
    return [records.task(rows[each]) for each in ids]


@once
async def follow_up(tx: Tx, *, tasks: Sequence[NewTask], by: str, claim: Claim, key: str) -> list[int]:
    """A repeated request for an equal follow-up is counted; a repeated call is not."""
    return await _put(tx, _PutPlan(tasks, by, claim))


async def _put(tx: Tx, plan: _PutPlan) -> list[int]:
    holder = await fence(tx, plan.claim) if plan.claim else None
    parents = await _parents(tx, plan)
    existing = await _existing(tx, plan, parents)
    await _place(tx, parents, existing, plan)
    if plan.claim and existing:
        await _count_repeats(tx, plan, list(existing.values()))
    if plan.new:
        budgets = await _count_tasks(tx, plan, holder)
        await _needs_of_new(tx, plan)
        await _insert(tx, plan, budgets)
        if plan.broken:
            await after_end(tx, plan.broken)
    return plan.ids


async def _parents(tx: Tx, plan: _PutPlan) -> dict[int, Row]:
    wanted = {task.parent for task in plan.tasks if task.parent is not None and task.parent > 0}
    rows = {row["id"]: row for row in await tx.fetch("tasks_by_id", ids=ids_json(wanted))} if wanted else {}
    for each in wanted - rows.keys():
        raise UnknownTask(f"The parent #{each} does not exist; `dugnad tasks` lists the tasks.")
    return rows


async def _existing(tx: Tx, plan: _PutPlan, parents: Mapping[int, Row]) -> dict[tuple[int, str], Row]:
    """The existing tasks with these keys, for entries whose root is on the board already."""
    asked = [
        {"scope": parents[task.parent]["root_id"] if task.parent else task.account or 0, "key": task.key}
        for task in plan.tasks if task.parent is None or task.parent > 0
    ]  # fmt: skip
    rows = await tx.fetch("find_keys", keys=asked) if asked else []
    return {(row["scope"], row["key"]): row for row in rows}


async def _place(tx: Tx, parents: Mapping[int, Row], existing: dict[tuple[int, str], Row], plan: _PutPlan) -> None:
    """Give every entry its id, its root and its depth."""
    fresh = iter([row["id"] for row in await tx.fetch("new_task_ids", places=[0] * len(plan.tasks))])
    known: dict[int, tuple[int, int, int | None]] = {}  # id: root, depth, and the message it follows from.
    seen: dict[tuple[int, str], int] = {}
    for task in plan.tasks:
        parent = None if task.parent is None else task.parent if task.parent > 0 else plan.ids[-task.parent - 1]
        if parent is None:
            root, depth, asked_in = task.account, 0, None
        elif parent in known:
            root, depth, asked_in = known[parent][0], known[parent][1] + 1, known[parent][2]
        else:
            row = parents.get(parent) or next(row for row in existing.values() if row["id"] == parent)
            root, depth = row["root_id"], row["depth"] + 1
            asked_in = parent if row["kind"] == "human_message" else row["asked_in"]
        assert task.key is not None
        place = (root or 0, task.key)
        if task.parent is not None and task.parent < 0 and root not in known:
            # Its parent is an entry of the batch but its root is not, so the task may exist already.
            for row in await tx.fetch("find_keys", keys=[{"scope": root, "key": task.key}]):
                existing[place] = row
        if place in existing or place in seen:
            plan.ids.append(existing[place]["id"] if place in existing else seen[place])
            continue
        if depth > tx.limits.depth_max:
            told = f"{task.title!r} would be follow-up number {depth} in a row; {tx.limits.depth_max} are allowed."
            raise LimitReached(told, guard="depth")
        own = next(fresh)
        seen[place] = own
        known[own] = (root or own, depth, own if task.kind == "human_message" else asked_in)
        plan.ids.append(own)
        plan.entries[own] = task
        plan.new.append(
            {
                **{name: int(given) if isinstance(given := getattr(task, name), bool) else given for name in GIVEN},
                "id": own, "root": root or own, "scope": root or 0, "parent": parent, "depth": depth, "chain": 0,
                "asked_in": asked_in, "open_needs": 0, "lane": rules.lane(task.role, task.assignee),
                "not_before": task.not_before, "delay": rules.quantity("A delay", task.delay_seconds, scale=1000),
            }
        )  # fmt: skip


async def _count_repeats(tx: Tx, plan: _PutPlan, repeated: Sequence[Row]) -> None:
    """An equal follow-up is answered with the existing task, up to a limit."""
    for row in await tx.fetch("count_repeats", tasks=ids_json(row["id"] for row in repeated)):
        if row["repeats"] > tx.limits.repeats_max:
            told = f"The same follow-up (#{row['id']}) was asked for more than {tx.limits.repeats_max} times."
            raise LimitReached(told, guard="repeats")
        event(tx, "repeated", plan.by, task=row["id"], root=row["root_id"], repeats=row["repeats"])


async def _count_tasks(tx: Tx, plan: _PutPlan, holder: Row | None) -> Mapping[int, Row]:
    """Count the new tasks under their roots, within the guards. Returns the roots' accounts."""
    if holder:
        if holder["children"] + len(plan.new) > tx.limits.children_max:
            told = f"#{holder['id']} has {holder['children']} follow-ups; at most {tx.limits.children_max} are allowed."
            raise LimitReached(told, guard="children")
        await tx.fetch("count_children", id=holder["id"], count=len(plan.new))
    roots = [row for row in plan.new if row["root"] == row["id"]]
    if roots:
        caps = [{"root": row["id"], **rules.caps(plan.entries[row["id"]].budget)} for row in roots]
        await tx.fetch("insert_budgets", budgets=caps)
    counts = Counter(row["root"] for row in plan.new)
    budgets = await hold(tx, counts)
    for root in counts.keys() - budgets.keys():
        raise UnknownTask(f"There is no budget {root_name(root)} to draw on.")
    for root, count in counts.items():
        if budgets[root]["tasks"] + count > tx.limits.tasks_per_root_max:
            name, most = root_name(root), tx.limits.tasks_per_root_max
            told = f"Goal {name} has {budgets[root]['tasks']} tasks; at most {most} are allowed."
            raise LimitReached(told, guard="tasks")
    await tx.fetch("count_tasks_of_roots", roots=[{"root": root, "n": n} for root, n in counts.items()])
    return budgets


async def _needs_of_new(tx: Tx, plan: _PutPlan) -> None:
    """Resolve and judge the needs of the new tasks; lift the chains they make."""
    edges: dict[int, list[int]] = {}
    wanted: list[tuple[int, Need]] = []
    for row in plan.new:
        given = rules.needs(plan.entries[row["id"]])
        resolved = [need if need.task > 0 else Need(plan.ids[-need.task - 1], need.outcome) for need in given]
        edges[row["id"]] = [need.task for need in resolved]
        if len(set(edges[row["id"]])) < len(resolved):
            raise BadInput(f"{row['title']!r} needs the same task twice, by its number and by its place in the list.")
        wanted += [(row["id"], need) for need in resolved]
    if not wanted:
        return
    if way := rules.circle(edges):
        rules.refuse_circle([repr(plan.entries[each].title) for each in way])
    outside = {need.task for _, need in wanted} - edges.keys()
    found = await hold_tasks(tx, outside) if outside else {}
    for each in outside - found.keys():
        raise UnknownTask(f"The needed task #{each} does not exist; `dugnad tasks` lists the tasks.")
    for other in found.values():
        if other["state"] == "ready":  # Others skipped this row while it was locked; wake them to look again.
            wake_for(tx, other)
    chains = rules.chains(edges, tx.limits.chain_max)
    for row in plan.new:
        row["chain"] = chains[row["id"]]
    rows = {row["id"]: row for row in plan.new}
    for own, need in wanted:
        verdict = "open"
        if need.task in found:
            verdict = rules.judge(need.outcome, found[need.task]["state"], found[need.task]["outcome"])
        if verdict == "broken":  # Stored as open, then skipped in the same way as any other task.
            plan.broken[need.task] = (found[need.task]["state"], found[need.task]["outcome"])
            verdict = "open"
        rows[own]["open_needs"] += verdict == "open"
        plan.needs.append({"task": own, "needs": need.task, "outcome": need.outcome, "state": verdict})
    await lift_chains(tx, {each: chains[each] for each in outside})


async def _insert(tx: Tx, plan: _PutPlan, budgets: Mapping[int, Row]) -> None:
    for row in plan.new:
        row["shelved"] = int(budgets[row["root"]]["held"] is not None)
    inserted = {row["id"]: row for row in await tx.fetch("insert_tasks", tasks=plan.new, put_by=plan.by)}
    if len(inserted) < len(plan.new):
        raise TryAgain  # Another process has just used one of the keys; the next try finds its task.
    if plan.needs:
        await tx.fetch("insert_needs", needs=plan.needs)
    needs: dict[int, list[list[object]]] = {}
    for need in plan.needs:
        needs.setdefault(need["task"], []).append([need["needs"], need["outcome"], need["state"]])
    for row in plan.new:
        stored, task = inserted[row["id"]], plan.entries[row["id"]]
        event(
            tx, "put", plan.by, task=row["id"], root=row["root"], depth=row["depth"],
            **{name: None if getattr(task, name) is False else row[name] for name in GIVEN},
            state=stored["state"], due_at=stored["due_at"], put_at=stored["put_at"],
            followup_of=plan.claim and plan.claim.task.id, followup_epoch=plan.claim and plan.claim.epoch,
            needs=needs.get(row["id"], []),
            caps=rules.caps(task.budget) if row["root"] == row["id"] else None,
        )  # fmt: skip
        if stored["state"] == "ready" and not row["shelved"]:
            wake_for(tx, row)
        elif stored["state"] == "scheduled":
            wake(tx, "due")


@once
async def cancel(tx: Tx, *, task: int, by: str, why: str, dependents: bool, key: str) -> list[int]:
    """Cancel a task, and with `dependents` the tasks that wait for it; otherwise those that need it done are skipped,
    with the reason."""
    tasks, behind = [task], [task]
    while dependents and behind:
        edges = await tx.fetch("needs_behind", ids=ids_json(behind))
        behind = sorted({edge["task_id"] for edge in edges} - set(tasks))
        tasks += behind
    rows = await hold_tasks(tx, tasks)
    state = known(rows, task)["state"]
    if state == "cancelled":
        return []
    if state in ENDED:
        raise NotReady(f"#{task} has already ended as {state}.")
    ended = [row for row in rows.values() if row["state"] not in ENDED]
    for row in ended:
        await tx.fetch("cancel_task", id=row["id"], reason=why or f"cancelled by {by}")
        event(tx, "cancelled", by, task=row["id"], root=row["root_id"], reason=why, epoch=row["epoch"])
    await close_by_hand(tx, ended, "cancelled", why)
    await after_end(tx, {row["id"]: ("cancelled", None) for row in ended})
    await tell_of_ends(tx, ended)
    return [row["id"] for row in ended]


@once
async def release(tx: Tx, *, task: int, by: str, why: str, delay_ms: int, key: str) -> None:
    row = await hold_task(tx, task)
    if row["state"] not in ("claimed", "waiting"):
        raise NotReady(f"#{task} is {row['state']}; only a claimed or waiting task can be released.")
    if row["open_needs"] > 0:
        raise NotReady(f"#{task} waits for {row['open_needs']} tasks; cancel them, or let them end.")
    after = (await tx.fetch("release_task", id=task, delay=delay_ms, reason=why or None))[0]
    event(
        tx, "released", by, task=task, root=row["root_id"], epoch=row["epoch"], reason=why,
        state=after["state"], due_at=after["due_at"],
    )  # fmt: skip
    if row["state"] == "claimed":
        await close_by_hand(tx, [row], "released", why)
    wake(tx, f"task:{task}")
    wake_for(tx, {**row, "lane": rules.lane(row["role"], row["assignee"])}, after["state"])


@once
async def assign(tx: Tx, *, task: int, assignee: str | None, by: str, key: str) -> None:
    row = await hold_task(tx, task)
    if row["state"] not in ("blocked", "scheduled", "ready"):
        raise NotReady(f"#{task} is {row['state']}; only a task that is not claimed can be assigned.")
    if assignee is not None:
        await member(tx, assignee)
        if assignee in rules.shut_out(row["not_for"]):
            raise NotReady(f"#{task} is not for {assignee}; assign it to another teammate.")
    lane = rules.lane(row["role"], assignee)
    if (assignee, lane) == (row["assignee"], row["lane"]):
        return
    await tx.fetch("assign_task", id=task, assignee=assignee, lane=lane)
    event(tx, "assigned", by, task=task, root=row["root_id"], assignee=assignee)
    if row["state"] == "ready":
        wake_for(tx, {**row, "lane": lane})


@once
async def retry(tx: Tx, *, task: int, by: str, key: str) -> list[int]:
    """Open a failed or cancelled task again, and the tasks that were skipped because of it."""
    await tx.fetch("lock_needs")  # Two retries could lock the same rows in different order.
    row = await _hold_with_needs(tx, task)
    if row["state"] == "skipped":
        raise NotReady(f"#{task} was skipped because it {row['reason']}; retry that one.")
    if row["state"] not in ("failed", "cancelled"):
        raise NotReady(f"#{task} is {row['state']}; only a failed or cancelled task can be retried.")
    if broken := [need for need in await tx.fetch("needs_of", task=task) if need["state"] == "broken"]:
        raise NotReady(f"#{task} needs #{broken[0]['needs_id']}, which ended in another way; retry that one.")
    opened, waiting = [], [row]
    while waiting:
        row = waiting.pop()
        opened.append(row["id"])
        await _reopen(tx, by, row)
        edges = await tx.fetch("broken_behind", id=row["id"])
        behind = [await _hold_with_needs(tx, edge["task_id"]) for edge in edges]
        marks = [{"task": each["id"], "needs": row["id"], "state": "open"} for each in behind]
        await tx.fetch("mark_needs", needs=marks)
        for each in behind:
            states = {need["state"] for need in await tx.fetch("needs_of", task=each["id"])}
            if each["state"] == "skipped" and "broken" not in states and each["id"] not in opened:
                waiting.append(each)
    return opened


async def _reopen(tx: Tx, by: str, row: Row) -> None:
    needs = await tx.fetch("needs_of", task=row["id"])
    still_open = sum(need["state"] == "open" for need in needs)
    state = "blocked" if still_open else "ready"
    after = await tx.fetch("reopen_task", id=row["id"], state=state, open_needs=still_open)
    event(tx, "retried", by, task=row["id"], root=row["root_id"], state=state, epoch=after[0]["epoch"])
    wake(tx, f"task:{row['id']}")
    if state == "ready":
        wake_for(tx, {**row, "lane": rules.lane(row["role"], row["assignee"])})


async def _hold_with_needs(tx: Tx, task: int) -> Row:
    """The task's row, locked together with those of its needs, so that none of them ends meanwhile."""
    edges = await tx.fetch("needs_of", task=task)
    return known(await hold_tasks(tx, [task, *(edge["needs_id"] for edge in edges)]), task)
