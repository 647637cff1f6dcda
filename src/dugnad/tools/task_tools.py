"""Tools to add tasks, to look at them, and to wait for them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..board import Board
from ..board.rules import content_key
from ..board.verbs.followed import ADDED
from ..errors import ToolError
from ..prompts import tell
from ..text import Told, counted, one_line
from ..types import DELIVERY, MESSAGES, Done, Need, NewTask, Spending, Task, TaskState, Waiting
from .context import Context, Ends
from .message_tools import GONE, may_come_back
from .tool import own_tool

_LABEL = r"(?!\d+(?::|$))[\w-]{1,40}"  # Not only digits, which are a number.
_NEED = re.compile(rf"(?:#?(\d{{1,18}})|({_LABEL}))(?::([\w-]+))?")
_LABELLED = re.compile(r"^([\w-]{1,40}): #(\d{1,18}) ", re.MULTILINE)
_LOOK_MAX = 500
_PAGE = 50
_STILL_OPEN: tuple[TaskState, ...] = ("blocked", "scheduled", "ready", "claimed", "waiting")
_WAITED = {"human": "a person", "plan": "approval of its plan", "budget": "its budget"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskToAdd:
    """One entry of `add_tasks`."""

    __pydantic_config__ = {"extra": "forbid", "coerce_numbers_to_str": True}  # noqa: RUF012 (not a field)

    title: str
    body: str = ""
    label: str = ""
    needs: Sequence[str] = ()
    role: str | None = None
    assignee: str | None = None
    priority: int = 0
    check: str | None = None
    review: str | None = None
    network: bool = False
    for_me: bool = False
    delay_minutes: float = 0


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
    facts = said if isinstance(said, Mapping) else {name: getattr(said, name) for name in DELIVERY}
    words, into, commit = facts.get("result") or "", facts.get("merged_into"), facts.get("merged_as")
    notes = [f"[merged into {into}{f' as {commit[:12]}' if commit else ' before'}]"] if into else []
    notes += [f"[its files are in {folder}]"] if (folder := facts.get("files_in")) else []
    notes += [f"[it changes what other programs run: {runs}]"] if (runs := facts.get("triggers")) else []
    return "\n\n".join([words, "\n".join(notes)]).lstrip() if notes else words


@own_tool()
async def add_tasks(context: Context, tasks: Sequence[TaskToAdd]) -> str:
    return await add(context, tasks)


async def add(context: Context, tasks: Sequence[TaskToAdd]) -> str:
    """Put all of them on the board or none, and say what is there now."""
    there = [task_line(task) for task in await put(context, tasks)]
    lines = [f"{new.label}: {line}" if new.label else line for new, line in zip(tasks, there, strict=True)]
    lines += await _who_comes(context, {each.role: None for each in tasks if each.role and not each.assignee})
    spending = await context.board.budget(context.claim.task.root)
    return "\n".join([*lines, tell("results.added", budget=budget_line(spending))])


async def _who_comes(context: Context, roles: Collection[str]) -> list[Told]:
    """For which of these roles one joins or comes back, because nobody who is there has it."""
    team = await context.board.team() if roles else ()
    there = {role for each in team if each.status not in GONE for role in each.roles}
    rest = {role for each in team if may_come_back(each) for role in each.roles}
    comes = [each for each in roles if each not in there and (each in rest or context.desk.joins(each))]
    return [tell("results.role_joins", role=each) for each in comes]


async def put(context: Context, tasks: Sequence[TaskToAdd]) -> list[Task]:
    """All of them or none. A call that is run again finds what it put."""
    if not tasks:
        raise ToolError(tell("results.no_task_named"))
    labels = {each.label: -place for place, each in enumerate(tasks, 1) if each.label}
    _check_labels([each.label for each in tasks if each.label])
    known = {**context.desk.labels, **labels}
    new = [_new_task(context, each, known) for each in tasks]
    if len({content_key(each) for each in new}) < len(new):
        raise ToolError(tell("results.equal_tasks"))
    return await context.board.follow_ups(context.claim, new, by=context.teammate.name, key=context.key)


def _check_labels(labels: Sequence[str]) -> None:
    for label in labels:
        if not re.fullmatch(_LABEL, label):
            raise ToolError(tell("results.not_a_label", label=label))
        if labels.count(label) > 1:
            raise ToolError(tell("results.label_twice", label=label))


def _new_task(context: Context, given: TaskToAdd, known: Mapping[str, int]) -> NewTask:
    return NewTask(
        title=given.title, body=given.body, needs=tuple(_need(each, known) for each in given.needs),
        role=given.role or None, assignee=context.teammate.name if given.for_me else given.assignee or None,
        priority=given.priority, check=given.check or None, review=given.review or None, network=given.network,
        delay_seconds=given.delay_minutes * 60,
    )  # fmt: skip


def _need(given: str, known: Mapping[str, int]) -> Need:
    """A number stays as it is; a label of this call is a place in its list, which is below zero."""
    found = _NEED.fullmatch(str(given).strip())
    task = found and (int(found[1]) if found[1] else known.get(found[2]))
    if not found or task is None:
        raise ToolError(tell("results.names_no_task", need=given, labels=", ".join(known) or "none"))
    return Need(task, found[3])


def need_of(given: str) -> Need:
    """A need as a caller writes it, by the number of a task."""
    return _need(given, {})


def labels_in(text: str) -> dict[str, int]:
    """The labels that a result of `add_tasks` gives, and the numbers they stand for."""
    return {label: int(number) for label, number in _LABELLED.findall(text)}


@own_tool()
async def wait_for(context: Context, tasks: Sequence[str | int]) -> str | Ends:
    if not tasks:
        raise ToolError(tell("results.no_task_named"))
    numbers = list(dict.fromkeys(_need(str(each), context.desk.labels).task for each in tasks))
    found = await context.board.find_all(numbers)
    for each in numbers:
        if each not in found:
            await context.board.find(each)  # It says that there is no such task.
    return await until_ended(context, [found[each] for each in numbers])


async def until_ended(context: Context, tasks: Sequence[Task]) -> str | Ends:
    """Put the task down until these have ended, or say how they ended."""
    still_open = [each for each in tasks if not each.ended]
    if not still_open:
        keys = tuple(f"{ADDED}{each.id}-" for each in tasks)
        unread = await context.board.inbox(context.teammate.name)
        context.shown.extend(each.id for each in unread if each.key.startswith(keys))  # This says it, and more.
        return "\n".join(map(result_text, tasks))
    await check_roles(context, [each.role for each in still_open if each.assignee is None])
    for each in still_open:
        if await _waits_for(context, each.id, context.claim.task.id):
            raise ToolError(tell("results.waits_for_this", id=each.id, title=each.title))
    return Ends(Waiting(on="tasks", tasks=tuple(each.id for each in still_open)))


async def check_roles(context: Context, wanted: Sequence[str | None]) -> None:
    """Refuse to wait for tasks that nobody takes: nobody has the role, and nobody comes back or joins with it."""
    team = await context.board.team()
    roles = {role for each in team if each.status not in GONE or may_come_back(each) for role in each.roles}
    for role in wanted:
        if role is not None and role not in roles and not context.desk.joins(role):
            there = ", ".join(sorted(roles)) or "none"
            raise ToolError(tell("results.nobody_has_role", role=role, roles=there))


async def _waits_for(context: Context, task: int, other: int) -> bool:
    """Whether a task needs another to end first, directly or through others."""
    seen: set[int] = set()
    ahead = [task]
    while ahead and len(seen) < _LOOK_MAX:
        each = ahead.pop()
        if each == other:
            return True
        if each not in seen:
            seen.add(each)
            ahead += [need.task for need, state in await context.board.needs_of(each) if state == "open"]
    return False


def result_text(task: Task) -> Told:
    """How a task ended, in the words of its teammate."""
    how = task.state + (f", {task.outcome}" if task.outcome else "")
    if not (words := whole_result(task) or task.reason):
        return tell("results.ended", id=task.id, title=task.title, how=how)
    how += f" ({task.teammate})" if task.teammate else ""
    return tell("results.ended_with", id=task.id, title=task.title, how=how, words=words)


def task_line(task: Task, waits: str = "") -> str:
    who = f", {task.teammate}" if task.state == "claimed" and task.teammate else ""
    who = f", by {task.teammate}" if task.state in ("done", "failed") and task.teammate else who
    lane = f", for {task.assignee or task.role}" if (task.assignee or task.role) and not task.ended else ""
    outcome = f", {task.outcome}" if task.outcome else ""
    needs = f", waits for {waits}" if waits else ""
    return f"#{task.id} {one_line(task.title)!r} ({task.state}{outcome}{who}{lane}{needs})"


async def waits_for(board: Board, task: Task) -> str:
    """What it waits for: a person or a budget, or the tasks, each with the outcome that it needs."""
    if task.waiting_for in _WAITED:
        return _WAITED[task.waiting_for]
    needs = await board.needs_of(task.id) if task.open_needs else ()
    return ", ".join(_named(need) for need, state in needs if state == "open")


def _named(need: Need) -> str:
    return f"#{need.task}:{need.outcome}" if need.outcome not in (None, "ended") else f"#{need.task}"


@own_tool(safe=True)
async def list_tasks(context: Context, state: TaskState | None = None, everywhere: bool = False, after: int = 0) -> str:
    answers = context.claim.task.kind in MESSAGES  # Its own goal is only the answer.
    root = None if everywhere or answers else context.claim.task.root
    states: Sequence[TaskState] | None = [state] if state else _STILL_OPEN if answers and not everywhere else None
    lines, last = await task_lines(context.board, states=states, root=root, after=after)
    return "\n".join([*lines, *([tell("results.more_tasks", after=last)] if last else ())])


async def task_lines(
    board: Board, *, states: Sequence[TaskState] | None, root: int | None, after: int
) -> tuple[list[str], int | None]:
    """A page of tasks, one on a line; and the number of the last of them, if there may be more."""
    found = await board.list_tasks(states=states, root=root, after=after, page=_PAGE)
    waits = await asyncio.gather(*(waits_for(board, each) for each in found))
    lines = list(map(task_line, found, waits)) or [tell("results.no_tasks")]
    return lines, found[-1].id if len(found) == _PAGE else None


@own_tool(safe=True)
async def show_task(context: Context, task: int) -> str:
    return await task_text(context.board, task)


async def task_text(board: Board, task: int) -> str:
    """Everything about one task."""
    found = await board.find(task)
    lines = [task_line(found), tell("results.put_by", who=found.put_by, at=_at(found.put_at))]
    if found.check:
        lines.append(tell("results.check", check=found.check))
    if found.review:
        lines.append(tell("results.needs_approval", role=found.review))
    if found.not_for:
        lines.append(tell("results.not_for", who=found.not_for.replace(",", ", ")))
    if found.body:
        lines.append(tell("results.body", words=found.body))
    for need, state in await board.needs_of(task):
        lines.append(tell("results.need", need=_named(need), state=state))
    if result := whole_result(found):
        lines.append(tell("results.result", who=found.teammate, words=result))
    if found.reason:
        lines.append(tell("results.reason", words=found.reason))
    for attempt in await board.attempts(task):
        ended = tell("results.until", at=_at(attempt.ended_at), how=attempt.ended_as) if attempt.ended_at else None
        how = ended or tell("results.running")
        at = _at(attempt.claimed_at)
        lines.append(tell("results.attempt", number=attempt.number, who=attempt.teammate, at=at, how=how))
    return "\n".join(lines)


def _at(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
