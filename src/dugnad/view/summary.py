"""How a run ended, for people and for programs."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ..team.report import Report
from ..text import clean
from .json import Shape, amount_shape, message_shape, shape_of, spending_shape
from .tables import STATE_STYLES

_HEADS = {0: "All done.", 1: "Some work is not done.", 3: "The budget ran out with work left.", 130: "Interrupted."}
_STYLES = {"detail": "dim", "note": "", "trouble": "red", "careful": "bold yellow", "next": "green"}


def report_shape(end: Report) -> Shape:
    deliveries = end.deliveries
    return {
        "exit": end.exit_code,
        "tasks": [*map(shape_of, end.tasks)],
        "budgets": [*map(spending_shape, end.accounts.values())],
        "spent": amount_shape(end.spent),
        "took": end.took and {"teammates": end.teammates, **amount_shape(end.took)},
        "alone": end.alone and amount_shape(end.alone),
        "saved": {name: less / 1_000_000 for name, less in end.saved.items()},
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


def report_page(end: Report) -> RenderableType:
    """What was done and by whom, the cost, what failed and why, and what to do next."""
    parts: list[RenderableType] = [
        Text(f"\n{end.says or _HEADS[end.exit_code]}", style="bold green" if not end.exit_code else "bold")
    ]
    for kind, label, text in end.lines():
        if kind == "task":
            parts.append(Text(f"{label:>9}  ", style=STATE_STYLES.get(label, "")).append(text, style="default"))
        else:
            parts.append(Text(f"{label:>9}  {text}", style=_STYLES[kind]))
    return Group(*parts)
