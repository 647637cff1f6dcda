"""Putting tasks on the board, looking at them, and moving them by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadInput
from ..safe_open import read_named
from ..types import ENDED, OPEN, Budget, NewTask, Spending, Task
from .command import CommandContext, read_stdin, text_or_stdin, utf8, verb
from .parameters import Cap, Needs, Span, TaskId, TeammateName

if TYPE_CHECKING:
    from ..board import Board

_SHOWN = 50
_ENDED_SHOWN = 10  # Of the newest, when nothing was asked for in particular.
_WINDOW = 256  # Ids looked through at first, from the end, for the newest ended tasks.
_STATES = ("ready", "blocked", "scheduled", "claimed", "waiting")


def budget_options(command: Any) -> Any:
    """--tasks, --tokens, --dollars and --minutes: what a root may spend in all."""
    for name, number, what in (
        ("--minutes", float, "Minutes of model and tool calls."),
        ("--dollars", float, "Dollars."),
        ("--tokens", int, "Tokens, in and out."),
        ("--tasks", int, "Task runs; every attempt is one."),
    ):
        command = click.option(name, type=Cap(number), metavar="N", help=what)(command)
    return command


def _capped(caps: dict[str, Any], before: Budget | None = None) -> Budget:
    """The caps that were given, over those there were."""
    names = {"tasks": "tasks", "tokens": "tokens", "dollars": "dollars", "minutes": "seconds"}
    given = {}
    for name, field in names.items():
        value = caps.get(name)
        if value is None:
            given[field] = getattr(before, field) if before is not None else None
        else:
            given[field] = None if value == "none" else value * (60 if name == "minutes" else 1)
    return Budget(**given)


def _changes(given: dict[str, Any]) -> bool:
    return any(given[name] is not None for name in ("tasks", "tokens", "dollars", "minutes"))


# Putting.


def _titles(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """The lines of a file. Read before the event loop runs, so that Ctrl-C works."""
    if value is None or context.resilient_parsing:
        return None
    data = read_stdin() if value == "-" else read_named(value, value, pipes=True)[0]
    found = [each.strip() for each in utf8(data, "The file with the titles").splitlines() if each.strip()]
    if not found:
        raise BadInput("The file holds no title; write one on each line.")
    return found


@verb("add", makes_board=True, example="""
    dugnad add "Write slugify() with tests" --role coder --dollars 2
    dugnad add "Review slugify()" --needs 1 --role reviewer --dollars 0.50
    dugnad add "Write parse_date()" --role coder --review reviewer
    """)  # fmt: skip
@click.argument("title", required=False)
@click.option("--file", "titles", metavar="FILE", callback=_titles, help="One title per line; - is standard input.")
@click.option("--body", default="", callback=text_or_stdin, help="What is to be done; - reads standard input.")
@click.option("--needs", type=Needs(), multiple=True, metavar="ID[:OUTCOME]", help="Wait for this task. Repeatable.")
@click.option("--under", type=TaskId(*OPEN), metavar="ID", help="Make it a part of this task.")
@click.option("--role", help="Only for teammates of this role.")
@click.option("--to", "assignee", type=TeammateName(), metavar="NAME", help="Only for this teammate.")
@click.option("--priority", type=int, default=0, help="Higher is taken first; 0 is usual.")
@click.option("--check", metavar="CMD", help="A command that must succeed before it counts as done.")
@click.option("--plan", is_flag=True, help="Its plan has to be approved before anything is changed.")
@click.option("--network", is_flag=True, help="Its commands may reach the hosts you allow: --allow-host, config.toml.")
@click.option(
    "--review", metavar="ROLE", help="Somebody else of this role has to approve of it before it counts as done."
)
@click.option(
    "--delay", "delay_seconds", type=Span(), default=0.0, metavar="TIME", help="Not before: 90s, 10m, 2h, 1d."
)
@click.option("--key", help="The same key again gives the same task.")
@budget_options
async def add(
    call: CommandContext, *, title: str | None, titles: list[str] | None, under: int | None, needs: Any, **given: Any
) -> None:
    """Put a task on the board, or with --file one for every line.

    The budget (--tasks, --tokens, --dollars, --minutes) covers the task and all that follows from it.
    """
    caps = {name: given.pop(name) for name in ("tasks", "tokens", "dollars", "minutes")}
    budget = _capped(caps) if any(value is not None for value in caps.values()) else None
    if (title is None) == (titles is None):
        raise BadInput("Give a title, or --file with one title per line.")
    if titles is not None and given["key"] is not None:
        raise BadInput("--key stands for one task; it does not go with --file.")
    fields = {**given, "needs": tuple(need for group in needs for need in group), "parent": under, "budget": budget}
    lines = [title] if title is not None else titles or []
    put = await call.board.put_many([NewTask(title=each, **fields) for each in lines])
    said = "\n".join(f"#{task.id} {task.state}: {_line(task.title)}" for task in put)
    if titles is not None:
        call.answer({"tasks": [_shape(task) for task in put]}, said)
    else:
        call.answer({"task": _shape(put[0])}, said)


# Looking.


@verb("tasks", only_reads=True, example="""
    dugnad tasks
    dugnad tasks --ready --role coder
    dugnad tasks --ended --by alice --limit 200 --json
    """)  # fmt: skip
@click.option("--ready", is_flag=True, help="May be claimed now.")
@click.option("--blocked", is_flag=True, help="Wait for other tasks.")
@click.option("--scheduled", is_flag=True, help="Not due yet.")
@click.option("--claimed", is_flag=True, help="Somebody works on them.")
@click.option("--waiting", is_flag=True, help="For a human, a plan, other tasks or a budget.")
@click.option("--ended", is_flag=True, help="Done, failed, cancelled or skipped.")
@click.option("--all", "everything", is_flag=True, help="In whatever state.")
@click.option("--root", type=TaskId(), metavar="ID", help="All under this goal.")
@click.option("--role", help="For teammates of this role.")
@click.option("--by", "teammate", type=TeammateName(), metavar="NAME", help="Held by this teammate, now or last.")
@click.option("--after", type=TaskId(), default=0, metavar="ID", help="Go on after this one.")
@click.option("--limit", type=click.IntRange(min=1), default=_SHOWN, show_default=True, help="How many to show.")
async def tasks(call: CommandContext, *, after: int, limit: int, ended: bool, everything: bool, **given: Any) -> None:
    """What is on the board: by default all that is open, and the last that ended."""
    wanted = [state for state in _STATES if given.pop(state)] + (sorted(ENDED) if ended else [])
    states: Any = None if everything else wanted or sorted(OPEN)
    found = await collect(call.board, limit + 1, after=after, states=states, **given)
    more = found[limit - 1].id if len(found) > limit else None
    found = found[:limit]
    counts = await call.board.count_tasks()
    if not wanted and not everything and not after:
        late = await newest(call.board, min(_ENDED_SHOWN, limit), lambda task: task.ended, **given)
        found += sorted(late, key=lambda task: task.ended_at or 0)

    def picture() -> Any:
        from rich.console import Group
        from rich.text import Text

        from ..view.tables import tasks_table

        below = ", ".join(f"{counts[state]:,} {state}" for state in (*_STATES, *sorted(ENDED)) if counts.get(state))
        if more is not None:
            below += f"\nThere are more: dugnad tasks --after {more}, with the same options."
        if not found:
            return Text(f"Nothing to show. {f'On the board: {below}.' if below else 'The board is empty.'}")
        return Group(tasks_table(found, now_ms=call.board.sources.now_ms()), Text(f"\n{below}", style="dim"))

    call.answer({"tasks": [_shape(task) for task in found], "counts": counts, "more_after": more}, picture)


async def collect(board: Board, most: int, *, after: int = 0, **filters: Any) -> list[Task]:
    """Up to so many tasks, page by page."""
    found: list[Task] = []
    while len(found) < most:
        page = await board.list_tasks(after=after, page=min(most - len(found), board.limits.page_max), **filters)
        if not page:
            break
        found += page
        after = page[-1].id
    return found


async def newest(board: Board, count: int, keep: Callable[[Task], bool], **filters: Any) -> list[Task]:
    """The last so many tasks of a kind. A listing goes upwards only, so ever larger ends of it are looked at."""
    total, window = sum((await board.count_tasks()).values()), _WINDOW
    while True:
        start = max(0, total - window)  # Ids may have gaps, but there are never fewer of them than tasks.
        found = [task for task in await collect(board, 10**9, after=start, **filters) if keep(task)]
        if len(found) >= count or start == 0:
            return found[-count:]
        window *= 8


@verb("show", only_reads=True, example="""
    dugnad show 12
    dugnad show 12 --transcript
    """)  # fmt: skip
@click.argument("task_id", metavar="ID", type=TaskId())
@click.option("--transcript", is_flag=True, help="Also every turn: what was said, called and answered.")
async def show(call: CommandContext, *, task_id: int, transcript: bool) -> None:
    """All about one task: its needs, attempts, follow-ups, result, and why it failed."""
    from ..view.json import attempt_shape, need_shape, turn_shape

    board = call.board
    task = await board.find(task_id)
    needs, attempts = await board.needs_of(task_id), await board.attempts(task_id)
    under = await collect(board, board.limits.tasks_per_root_max, root=task.root)
    children = [each for each in under if each.parent == task_id]
    turns = await _turns(board, task_id, [attempt.epoch for attempt in attempts]) if transcript else []
    titles = {each.id: each.title for each in under}
    for need, _ in needs[:_SHOWN]:
        if need.task not in titles:
            titles[need.task] = (await board.find(need.task)).title

    def picture() -> Any:
        from rich.console import Group

        from ..view.tables import task_page
        from ..view.transcript import transcript_page

        page = task_page(task, needs, attempts, children, titles=titles)
        return Group(page, transcript_page(attempts, turns)) if transcript else page

    shape = {
        "task": _shape(task),
        "needs": [need_shape(need, state) for need, state in needs],
        "attempts": [attempt_shape(attempt) for attempt in attempts],
        "children": [_shape(child) for child in children],
    }
    call.answer(shape | ({"transcript": [turn_shape(turn) for turn in turns]} if transcript else {}), picture)


async def _turns(board: Board, task: int, epochs: Sequence[int]) -> list[Any]:
    found: list[Any] = []
    for epoch in epochs:
        after = 0
        while page := await board.transcript(task, epoch, after=after):
            found += page
            after = page[-1].number
    return found


# Moving by hand.


@verb("retry", example="dugnad retry 12")
@click.argument("task_id", metavar="ID", type=TaskId("failed", "cancelled"))
async def retry(call: CommandContext, *, task_id: int) -> None:
    """Open a failed or cancelled task again, and what was skipped because of it."""
    reopened = await call.board.retry(task_id)
    call.answer({"reopened": reopened}, f"Open again: {_ids(reopened)}.")


@verb("cancel", example="""
    dugnad cancel 12 --why "no longer wanted"
    dugnad cancel 12 --dependents
    """)  # fmt: skip
@click.argument("task_id", metavar="ID", type=TaskId(*OPEN))
@click.option("--dependents", is_flag=True, help="Also everything that waits behind it; otherwise that is skipped.")
@click.option("--why", default="", help="The reason, for the record.")
async def cancel(call: CommandContext, *, task_id: int, dependents: bool, why: str) -> None:
    """End a task. Whoever works on it is stopped."""
    cancelled = await call.board.cancel(task_id, why=why, dependents=dependents)
    said = f"Cancelled: {_ids(cancelled)}." if cancelled else f"#{task_id} was cancelled already."
    call.answer({"cancelled": cancelled}, said)


@verb("release", example='dugnad release 12 --why "alice is stuck" --delay 10m')
@click.argument("task_id", metavar="ID", type=TaskId("claimed", "waiting"))
@click.option("--why", default="", help="The reason; the next to try is told.")
@click.option("--delay", type=Span(), default=0.0, metavar="TIME", help="Not before: 90s, 10m, 2h, 1d.")
async def release(call: CommandContext, *, task_id: int, why: str, delay: float) -> None:
    """Take a claimed or waiting task from its holder and give it back to everyone."""
    await call.board.release(task_id, why=why, delay_seconds=delay)
    task = await call.board.find(task_id)
    call.answer({"task": _shape(task)}, f"#{task_id} is {task.state}.")


# Budgets.


@verb("budget", only_reads=lambda given: not _changes(given), example="""
    dugnad budget
    dugnad budget 1 --dollars 5 --minutes none
    dugnad budget 1 --add --tasks 10
    """)  # fmt: skip
@click.argument("task_id", metavar="[ID]", required=False, type=TaskId())
@budget_options
@click.option("--add", "adds", is_flag=True, help="Add to the caps there are, instead of putting these in their place.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many goals to show.")
async def budget(call: CommandContext, *, task_id: int | None, adds: bool, limit: int, **caps: Any) -> None:
    """What a goal has used of what it may; with numbers, change that. `none` takes a cap away.

    Work that was held for want of budget goes on when the cap is raised.
    """
    from ..view.json import spending_shape

    board = call.board
    changes = _changes(caps)
    if task_id is None:
        if changes or adds:
            raise BadInput("Say whose budget is to change: dugnad budget ID --tasks 10.")
        await _all_budgets(call, limit)
        return
    root = await board.find((await board.find(task_id)).root)
    spending = await board.budget(root.id)
    if adds:
        if not changes or "none" in caps.values():
            raise BadInput("Say with numbers how much is to be added: dugnad budget ID --add --tasks 10.")
        spending = await board.raise_budget(root.id, _capped(caps))
    elif changes:
        spending = await board.set_budget(root.id, _capped(caps, spending.caps))
    call.answer({"budget": spending_shape(spending)}, lambda: _budget_text(spending, root))


async def _all_budgets(call: CommandContext, limit: int) -> None:
    """The newest goals first; most boards have few."""
    from ..view.json import spending_shape

    roots = await newest(call.board, limit + 1, lambda task: task.id == task.root)
    shown = [(await call.board.budget(root.id), root) for root in reversed(roots[-limit:])]

    def picture() -> Any:
        from rich.console import Group
        from rich.text import Text

        if not shown:
            return Text("Nothing to show. The board is empty.")
        below = [Text("There are older goals; see --limit.", style="dim")] if len(roots) > limit else []
        return Group(*(_budget_text(spending, root) for spending, root in shown), *below)

    call.answer({"budgets": [spending_shape(spending) for spending, _ in shown]}, picture)


def _budget_text(spending: Spending, root: Task) -> Any:
    from ..view.tables import budget_text

    return budget_text(spending, root)


def _shape(task: Task) -> dict[str, Any]:
    from ..view.json import task_shape

    return task_shape(task)


def _line(text: str) -> str:
    from ..text import one_line

    return one_line(text, 80)


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(f"#{task}" for task in ids)
