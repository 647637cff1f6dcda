"""How a run ended, for people and for programs."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ..board.roots import root_name
from ..team.growth import one_chain
from ..team.report import Report
from ..text import clean, one_line
from ..tools.task_tools import budget_line, whole_result
from .json import Shape, amount_shape, message_shape, shape_of, spending_shape
from .numbers import money
from .tables import STATE_STYLES

_HEADS = {0: "All done.", 1: "Some work is not done.", 3: "The budget ran out with work left.", 130: "Interrupted."}


def report_shape(end: Report) -> Shape:
    deliveries = end.deliveries
    return {
        "exit": end.exit_code,
        "tasks": [*map(shape_of, end.tasks)],
        "budgets": [*map(spending_shape, end.accounts.values())],
        "spent": amount_shape(end.spent),
        "by": {name: amount_shape(used) for name, used in end.cost.items()},
        "requests": [*map(message_shape, end.requests)],
        "failed_teammates": dict(end.trouble),
        "interrupted": end.interrupted,
        "deliveries": deliveries
        and {
            "target": deliveries.target,
            "commits": deliveries.commits,
            "kept": deliveries.kept,
            "runs": {clean(path): kind for path, kind in deliveries.runs.items()},
        },
        "others_waiting": end.others,
        "preflight": end.preflight,
        "says": end.says or _HEADS[end.exit_code],
        "next": end.next_steps(),
    }


def others_line(count: int) -> str:
    """The tasks that a run with a goal does not touch, and how to work on them."""
    tasks = "1 other task waits" if count == 1 else f"{count} other tasks wait"
    return f"{tasks} on this board; --all or `dugnad work` works on them too."


def report_page(end: Report) -> RenderableType:
    """What was done and by whom, the cost, what failed and why, and what to do next."""
    parts: list[RenderableType] = [
        Text(f"\n{end.says or _HEADS[end.exit_code]}", style="bold green" if not end.exit_code else "bold")
    ]
    for task in end.tasks:
        said = Text(f"{task.state:>9}  ", style=STATE_STYLES.get(task.state, ""))
        said.append(f"#{task.id} {one_line(task.title, 70)}", style="default")
        if task.teammate and task.state in ("done", "failed", "claimed", "waiting"):
            said.append(f"  {one_line(task.teammate, 20)}", style="dim")
        parts.append(said)
        if text := whole_result(task) if task.state == "done" else task.reason:
            parts.append(Text(f"{'':>11}{one_line(text, 100)}", style="dim"))
        parts += [Text(f"{'':>11}kept on branch {one_line(branch, 100)}", style="dim") for branch in end.kept(task)]
    for root, account in end.capped.items():
        parts.append(Text(f"{'budget':>9}  {root_name(root)}: {budget_line(account)}"))
    for name, used in end.cost.items():
        price = f", {money(used.microdollars)}" if used.microdollars else ""
        parts.append(Text(f"{one_line(name, 20):>9}  {used.tokens:,} tokens{price}", style="dim"))
    for name, why in end.trouble.items():
        parts.append(Text(f"{'failed':>9}  {one_line(name, 20)}: {one_line(why, 160)}", style="red"))
    parts += [Text(f"{'careful':>9}  {one_line(end.runs, 3_000)}", style="bold yellow")] if end.runs else []
    if chain := one_chain(end.tasks):
        parts.append(
            Text(f"{'note':>9}  The {chain} tasks left are one chain: one teammate is as fast as more (--agents 1).")
        )
    if end.others:
        parts.append(Text(f"{'note':>9}  {others_line(end.others)}"))
    parts += [Text(f"{'next':>9}  {_step(step)}", style="green") for step in end.next_steps()]
    return Group(*parts)


def _step(step: str) -> str:
    """The command, then after a gap what it is for."""
    command, _, why = step.partition("    ")
    return f"{one_line(command, 400)}    {one_line(why, 100)}".rstrip()
