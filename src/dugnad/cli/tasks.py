"""The commands about tasks: add, list, show, retry, cancel, release, and budgets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Group
from rich.text import Text

from ..errors import BadInput
from ..safe_open import read_named
from ..text import one_line
from ..types import ENDED, OPEN, Budget, NewTask, Spending, Task, Turn
from ..view.json import shape_of, spending_shape, turn_shape
from .command import CommandContext, read_stdin, text_or_stdin, utf8, verb
from .parameters import BudgetId, Cap, Needs, Span, TaskId, TeammateName, budget_options

if TYPE_CHECKING:
    from ..board import Board

T = TypeVar("T")
_SHOWN = 50
_ENDED_SHOWN = 10  # The newest ended tasks that a plain `dugnad tasks` shows.
_STATES = ("ready", "blocked", "scheduled", "claimed", "waiting")


def _capped(caps: dict[str, Any], before: Budget | None = None) -> Budget:
    """The caps before, changed by those that were given."""
    from ..config.kinds import BudgetTable

    removed = {"seconds" if name == "minutes" else name: None for name, value in caps.items() if value == "none"}
    given = BudgetTable(**{name: value for name, value in caps.items() if value != "none"}).caps()
    return replace(given.over(before or Budget()), **removed)


def _changes(given: dict[str, Any]) -> bool:
    return any(given[name] is not None for name in ("tasks", "tokens", "dollars", "minutes"))


# Putting.


def _titles(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """Read titles, one a line. This happens before the event loop runs, so that Ctrl-C works."""
    if value is None or context.resilient_parsing:
        return None
    data = read_stdin() if value == "-" else read_named(Path(value), value, pipes=True)[0]
    found = [each.strip() for each in utf8(data, "The file with the titles").splitlines() if each.strip()]
    if not found:
        raise BadInput("The file has no titles; write one on each line.")
    return found


@verb("add", makes_board=True, example="""
    dugnad add "Write slugify() with tests" --role coder --dollars 2
    dugnad add "Review slugify()" --needs 1 --role reviewer --dollars 0.50
    dugnad add "Write parse_date()" --role coder --review reviewer
    """)  # fmt: skip
@click.argument("title", required=False)
@click.option(
    "--file", "titles", metavar="FILE", callback=_titles, help="Add one task for each line; - reads standard input."
)
@click.option("--body", default="", callback=text_or_stdin, help="The instructions; - reads standard input.")
@click.option(
    "--needs", type=Needs(), multiple=True, metavar="ID[:OUTCOME]", help="Wait for this task. May be repeated."
)
@click.option("--under", type=TaskId(*OPEN), metavar="ID", help="Put it under this task.")
@click.option("--role", help="Only teammates of this role may claim it.")
@click.option("--to", "assignee", type=TeammateName(), metavar="NAME", help="Only this teammate may claim it.")
@click.option("--priority", type=int, default=0, help="Higher priorities are claimed first; the default is 0.")
@click.option("--check", metavar="CMD", help="A command that must succeed before the task counts as done.")
@click.option("--plan", is_flag=True, help="The teammate may only read until its plan is approved.")
@click.option("--network", is_flag=True, help="Its commands may reach the hosts you allow (--allow-host, config.toml).")
@click.option("--review", metavar="ROLE", help="Another teammate of this role must approve the work first.")
@click.option("--delay", "delay_seconds", type=Span(), default=0.0, metavar="TIME", help="Wait first: 90s, 10m, 2h.")
@click.option("--key", help="Adding a task with the same key again returns the same task.")
@budget_options(Cap(int), Cap(float))
async def add(
    call: CommandContext, *, title: str | None, titles: list[str] | None, under: int | None, needs: Any, **given: Any
) -> None:
    """Put a task on the board; with --file, one task for each line.

    The budget (--tasks, --tokens, --dollars, --minutes) covers the task and its follow-ups.
    """
    caps = {name: given.pop(name) for name in ("tasks", "tokens", "dollars", "minutes")}
    budget = _capped(caps) if any(value is not None for value in caps.values()) else None
    if (title is None) == (titles is None):
        raise BadInput("Give either a title, or --file with one title on each line.")
    if titles is not None and given["key"] is not None:
        raise BadInput("--key names one task, so it cannot be used with --file.")
    fields = {**given, "needs": tuple(need for group in needs for need in group), "parent": under, "budget": budget}
    lines = [title] if title is not None else titles or []
    put = await call.board.put_many([NewTask(title=each, **fields) for each in lines])
    said = "\n".join(f"#{task.id} {task.state}: {one_line(task.title, 80)}" for task in put)
    call.answer({"tasks": [*map(shape_of, put)]} if titles is not None else {"task": shape_of(put[0])}, said)


# Looking.


@verb("tasks", only_reads=True, example="""
    dugnad tasks
    dugnad tasks --ready --role coder
    dugnad tasks --ended --by alice --limit 200 --json
    """)  # fmt: skip
@click.option("--ready", is_flag=True, help="Tasks that can be claimed now.")
@click.option("--blocked", is_flag=True, help="Tasks that wait for other tasks.")
@click.option("--scheduled", is_flag=True, help="Tasks that are not due yet.")
@click.option("--claimed", is_flag=True, help="Tasks that a teammate works on.")
@click.option("--waiting", is_flag=True, help="Tasks that wait for a human, a plan, other tasks or a budget.")
@click.option("--ended", is_flag=True, help="Tasks that are done, failed, cancelled or skipped.")
@click.option("--all", "everything", is_flag=True, help="Tasks in any state.")
@click.option("--root", type=TaskId(), metavar="ID", help="Tasks under this goal.")
@click.option("--role", help="Tasks for this role.")
@click.option("--by", "teammate", type=TeammateName(), metavar="NAME", help="Tasks it holds or held last.")
@click.option("--after", type=TaskId(), default=0, metavar="ID", help="Tasks with a higher number than this one.")
@click.option("--limit", type=click.IntRange(min=1), default=_SHOWN, show_default=True, help="The most tasks to show.")
async def tasks(call: CommandContext, *, after: int, limit: int, ended: bool, everything: bool, **given: Any) -> None:
    """List tasks. By default: all open tasks, and the newest that ended."""
    wanted = [state for state in _STATES if given.pop(state)] + (sorted(ENDED) if ended else [])
    states: Any = None if everything else wanted or sorted(OPEN)
    found = await collect(call.board, limit + 1, after=after, states=states, **given)
    more = found[limit - 1].id if len(found) > limit else None
    found = found[:limit]
    counts = await call.board.count_tasks()
    if not wanted and not everything and not after:
        late = await call.board.ended_last(page=min(_ENDED_SHOWN, limit), **given)
        found += sorted(late, key=lambda task: task.ended_at or 0)

    def picture() -> Any:
        from ..view.tables import tasks_table

        below = ", ".join(f"{counts[state]:,} {state}" for state in (*_STATES, *sorted(ENDED)) if counts.get(state))
        if more is not None:
            below += f"\nThere are more tasks: add --after {more} to the same command."
        if not found:
            return Text(f"No task matches. On the board: {below}." if below else "The board is empty.")
        return Group(tasks_table(found, now_ms=call.board.sources.now_ms()), Text(f"\n{below}", style="dim"))

    call.answer({"tasks": [*map(shape_of, found)], "counts": counts, "more_after": more}, picture)


async def all_pages(read: Callable[..., Awaitable[Sequence[T]]], key: str, after: int = 0) -> list[T]:
    """Everything behind `after`, page by page. `key` is the field by which the pages are in order."""
    found: list[T] = []
    while page := await read(after=after):
        found += page
        after = getattr(page[-1], key)
    return found


async def collect(board: Board, most: int, *, after: int = 0, **filters: Any) -> list[Task]:
    """Read up to `most` tasks, page by page."""
    found: list[Task] = []
    while len(found) < most:
        page = await board.list_tasks(after=after, page=min(most - len(found), board.limits.page_max), **filters)
        if not page:
            break
        found += page
        after = page[-1].id
    return found


@verb("show", only_reads=True, example="""
    dugnad show 12
    dugnad show 12 --transcript
    dugnad show 12 --trouble
    """)  # fmt: skip
@click.argument("task_id", metavar="ID", type=TaskId())
@click.option("--transcript", is_flag=True, help="Also show every turn: texts, tool calls and results.")
@click.option("--trouble", is_flag=True, help="Also show the tracebacks of attempts that a bug ended.")
async def show(call: CommandContext, *, task_id: int, transcript: bool, trouble: bool) -> None:
    """Show one task: its needs, attempts, follow-ups, result, and why it failed."""
    board = call.board
    task = await board.find(task_id)
    needs, attempts = await board.needs_of(task_id), await board.attempts(task_id)
    children = await all_pages(partial(board.children, task_id), "id")
    turns: list[Turn] = []
    for attempt in attempts if transcript else ():
        turns += await all_pages(partial(board.transcript, task_id, attempt.epoch), "number")
    tracebacks = await board.tracebacks(task_id)
    needed = await board.find_all(need.task for need, _ in needs[:_SHOWN])
    titles = {each.id: each.title for each in needed.values()}

    def picture() -> Any:
        from ..view.tables import task_page
        from ..view.transcript import transcript_page, trouble_page

        pages = [task_page(task, needs, attempts, children, titles=titles)]
        pages += [transcript_page(attempts, turns)] if transcript else []
        return Group(*pages, *trouble_page(task_id, tracebacks, whole=trouble))

    shape = {
        "task": shape_of(task), "needs": [{**shape_of(need), "state": state} for need, state in needs],
        "attempts": [*map(shape_of, attempts)], "children": [*map(shape_of, children)],
    }  # fmt: skip
    shape |= {"transcript": [*map(turn_shape, turns)]} if transcript else {}
    shape |= {"tracebacks": {str(at): text for at, text in tracebacks.items()}} if trouble else {}
    call.answer(shape, picture)


# Moving by hand.


@verb("retry", example="dugnad retry 12")
@click.argument("task_id", metavar="ID", type=TaskId("failed", "cancelled"))
async def retry(call: CommandContext, *, task_id: int) -> None:
    """Open a failed or cancelled task again, and the tasks that were skipped because of it."""
    reopened = await call.board.retry(task_id)
    call.answer({"reopened": reopened}, f"Opened again: {_ids(reopened)}.")


@verb("cancel", example="""
    dugnad cancel 12 --why "no longer needed"
    dugnad cancel 12 --dependents
    """)  # fmt: skip
@click.argument("task_id", metavar="ID", type=TaskId(*OPEN))
@click.option(
    "--dependents", is_flag=True,
    help="Also cancel every task that waits for it; otherwise those that need it done are skipped.",
)  # fmt: skip
@click.option("--why", default="", help="The reason; it is kept with the task.")
async def cancel(call: CommandContext, *, task_id: int, dependents: bool, why: str) -> None:
    """End a task as cancelled. A teammate that works on it stops."""
    cancelled = await call.board.cancel(task_id, why=why, dependents=dependents)
    said = f"Cancelled: {_ids(cancelled)}." if cancelled else f"#{task_id} was cancelled already."
    call.answer({"cancelled": cancelled}, said)


@verb("release", example='dugnad release 12 --why "alice is stuck" --delay 10m')
@click.argument("task_id", metavar="ID", type=TaskId("claimed", "waiting"))
@click.option("--why", default="", help="The reason; the next attempt is told.")
@click.option("--delay", type=Span(), default=0.0, metavar="TIME", help="Wait this long: 90s, 10m, 2h, 1d.")
async def release(call: CommandContext, *, task_id: int, why: str, delay: float) -> None:
    """Take a claimed or waiting task from its holder, so that anyone may claim it."""
    await call.board.release(task_id, why=why, delay_seconds=delay)
    task = await call.board.find(task_id)
    call.answer({"task": shape_of(task)}, f"#{task_id} is {task.state}.")


# Budgets.


@verb("budget", only_reads=lambda given: not _changes(given), example="""
    dugnad budget
    dugnad budget 1 --dollars 5 --minutes none
    dugnad budget 1 --add --tasks 10
    """)  # fmt: skip
@click.argument("task_id", metavar="[ID]", required=False, type=BudgetId())
@budget_options(Cap(int), Cap(float))
@click.option("--add", "adds", is_flag=True, help="Add to the present caps instead of replacing them.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="The most goals to show.")
async def budget(call: CommandContext, *, task_id: int | None, adds: bool, limit: int, **caps: Any) -> None:
    """Show what a goal has spent of its budget; with numbers, change its caps. `none` removes a cap.

    Work that was held at a cap goes on when the cap is raised.
    """
    below = ""
    if task_id is not None:
        shown = [await _changed_budget(call.board, task_id, caps, adds=adds)]
    elif _changes(caps) or adds:
        raise BadInput("Name the goal whose budget to change: dugnad budget ID --tasks 10.")
    else:  # The newest goals first; most boards have few.
        found = await call.board.budgets(page=limit + 1)
        goals = await call.board.find_all(each.root for each in found[:limit] if each.root > 0)
        shown = [(each, goals.get(each.root)) for each in found[:limit]]
        below = "There are older goals; --limit shows more." if len(found) > limit else ""

    def picture() -> Any:
        from ..view.tables import budget_text

        texts = [budget_text(spending, goal) for spending, goal in shown] or [Text("The board is empty.")]
        return Group(*texts, *([Text(below, style="dim")] if below else []))

    shapes = [spending_shape(spending) for spending, _ in shown]
    call.answer({"budgets": shapes} if task_id is None else {"budget": shapes[0]}, picture)


async def _changed_budget(
    board: Board, task_id: int, caps: dict[str, Any], *, adds: bool
) -> tuple[Spending, Task | None]:
    """What the goal of a task has spent, after its caps are changed; and the goal, unless several tasks share it."""
    root = (await board.find(task_id)).root if task_id > 0 else task_id
    spending, changes = await board.budget(root), _changes(caps)
    if adds:
        if not changes or "none" in caps.values():
            raise BadInput("Say with a number how much to add: dugnad budget ID --add --tasks 10.")
        spending = await board.raise_budget(root, _capped(caps))
    elif changes:
        spending = await board.set_budget(root, _capped(caps, spending.caps))
    return spending, await board.find(root) if root > 0 else None


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(f"#{task}" for task in ids)
