"""Tools to put tasks, to look at them, and to keep a private list."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import ToolError
from ..prompts import tell
from ..text import Told, counted, joined, one_line
from ..types import Done, Need, Spending, Task, TaskState
from .context import Context
from .tool import own_tool

_NEED = re.compile(r"^#?(\d+)(?::([\w-]+))?$")


def _needs(given: list[str]) -> tuple[Need, ...]:
    needs = []
    for each in given:
        if not (found := _NEED.match(str(each).strip())) or len(found[1]) > 18:
            raise ToolError(tell("results.not_a_need", need=each))
        needs.append(Need(int(found[1]), found[2]))
    return tuple(needs)


def budget_line(spending: Spending) -> str:
    """The used part of the budget, as people and models read it."""
    parts = []
    if spending.tasks_max is not None:
        parts.append(f"{spending.runs} of {spending.tasks_max} task runs used")
    if spending.tokens_max is not None:
        parts.append(f"{spending.spent.tokens:,} of {spending.tokens_max:,} tokens")
    if spending.microdollars_max is not None:
        parts.append(f"${spending.spent.microdollars / 1e6:.2f} of ${spending.microdollars_max / 1e6:.2f}")
    if spending.milliseconds_max is not None:
        parts.append(f"{spending.spent.milliseconds // 1000} of {spending.milliseconds_max // 1000} seconds")
    return ", ".join(parts) or f"no cap, {counted(spending.runs, 'task run')} used"


def whole_result(said: Task | Done | Mapping[str, Any]) -> str:
    """The result of a task, followed by where its work went in brackets, as people and models read it."""
    facts = said if isinstance(said, Mapping) else {name: getattr(said, name) for name in Done.__slots__}
    words, into, commit = facts.get("result") or "", facts.get("merged_into"), facts.get("merged_as")
    notes = [f"[merged into {into}{f' as {commit[:12]}' if commit else ' before'}]"] if into else []
    notes += [f"[its files are in {folder}]"] if (folder := facts.get("files_in")) else []
    notes += [f"[it changes what other programs run: {runs}]"] if (runs := facts.get("triggers")) else []
    return "\n\n".join([words, "\n".join(notes)]).lstrip() if notes else words


async def _put(context: Context, title: str, **fields: Any) -> str:
    put = await context.board.follow_up(context.claim, title, by=context.teammate.name, **fields)
    spending = await context.board.budget(put.root)
    return joined((put_text(put), tell("results.budget", budget=budget_line(spending))), " ")


def put_text(put: Task) -> Told:
    return tell("results.put", id=put.id, title=put.title, state=put.state)


@own_tool()
async def schedule_followup(
    context: Context, title: str, body: str = "", for_me: bool = False, delay_minutes: float = 0
) -> str:
    teammate = context.teammate
    role = None if for_me else next(iter(teammate.roles), None)
    assignee, delay = teammate.name if for_me else None, delay_minutes * 60
    return await _put(context, title, body=body, role=role, assignee=assignee, delay_seconds=delay)


@own_tool()
async def add_task(
    context: Context, title: str, body: str = "", needs: list[str] | None = None, role: str | None = None,
    assignee: str | None = None, priority: int = 0, check: str | None = None, review: str = "", network: bool = False,
) -> str:  # fmt: skip
    return await _put(
        context, title, body=body, needs=_needs(needs or []), role=role, assignee=assignee, priority=priority,
        check=check, review=review or None, network=network,
    )  # fmt: skip


def task_line(task: Task) -> str:
    who = f", {task.teammate}" if task.state == "claimed" and task.teammate else ""
    role = f", for {task.role}" if task.role else ""
    outcome = f", {task.outcome}" if task.outcome else ""
    return f"#{task.id} {one_line(task.title)!r} ({task.state}{outcome}{who}{role})"


@own_tool(safe=True)
async def list_tasks(context: Context, state: TaskState | None = None, everywhere: bool = False, after: int = 0) -> str:
    root = None if everywhere else context.claim.task.root
    found = await context.board.list_tasks(states=[state] if state else None, root=root, after=after, page=50)
    if not found:
        return tell("results.no_tasks")
    more = [tell("results.more_tasks", after=found[-1].id)] if len(found) == 50 else []
    return "\n".join([*map(task_line, found), *more])


@own_tool(safe=True)
async def show_task(context: Context, task: int) -> str:
    found = await context.board.find(task)
    lines = [task_line(found), tell("results.put_by", who=found.put_by)]
    if found.review:
        lines.append(tell("results.needs_approval", role=found.review))
    if found.not_for:
        lines.append(tell("results.not_for", who=found.not_for))
    if found.body:
        lines.append(tell("results.body", words=found.body))
    for need, state in await context.board.needs_of(task):
        needed = f"{need.task}:{need.outcome}" if need.outcome else need.task
        lines.append(tell("results.need", need=needed, state=state))
    if result := whole_result(found):
        lines.append(tell("results.result", who=found.teammate, words=result))
    if found.reason:
        lines.append(tell("results.reason", words=found.reason))
    for attempt in await context.board.attempts(task):
        how = attempt.ended_as or "running"
        lines.append(tell("results.attempt", number=attempt.number, who=attempt.teammate, how=how))
    return "\n".join(lines)


@own_tool(early=True)
async def todo(context: Context, items: list[str]) -> str:
    """The conversation folds the list from these calls."""
    return "\n".join(items) or tell("results.no_todo")
