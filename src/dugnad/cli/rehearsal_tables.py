"""The findings of `dugnad rehearse` as tables that fit the terminal, as a picture, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ..errors import BadInput
from ..rehearsal.findings import WORTH, Findings, PathStep, Range, Size
from ..rehearsal.gantt import Drawn, gantt
from ..rehearsal.plan import RehearsalPlan
from ..text import counted, length, one_line
from ..view.json import Shape
from ..view.tables import Indented

_STEPS_SHOWN = 14
_GAP = 2  # Between two columns.
_TITLE_LEAST = 16  # The fewest columns in which titles can be told apart.

_ANY_ROLE = (
    "Each teammate is assumed to take tasks of any role. In a real team that grows, a teammate has one role at a time: "
    "with several roles and a full team it may take up to a quarter longer."
)


def picture(plan: RehearsalPlan, findings: Findings, svg: Path | None) -> RenderableType:
    """All findings, for a person."""
    shown = findings.shown
    head = Text(f"A rehearsal of {counted(len(plan.tasks), 'task')}: {one_line(plan.name, 200)}", style="bold")
    head.append(f"\n{counted(findings.seeds, 'rehearsal')} of each team. No model was asked.", "not bold dim")
    parts: list[RenderableType] = [head, Text(), _Figures(findings.sizes), Text(), Text(_enough(findings))]
    for warning in findings.warnings:
        parts.append(Text(one_line(warning, 400), style="yellow"))
    if shown.path:
        parts.append(Text(f"\nThe critical path with {counted(shown.agents, 'teammate')} (median)", style="dim"))
        parts.append(_Path(shown.path))
    if shown.idle:
        parts.append(Text(f"\nTotal idle time with {counted(shown.agents, 'teammate')}", style="dim"))
        parts.append(_idle(shown))
    parts.append(Text("\nAssumptions", style="dim"))
    parts += [Indented(one_line(each, 400)) for each in plan.basis]
    if plan.agents is None:
        parts.append(Indented(_ANY_ROLE))
    parts.append(
        Indented("A lost host: half of the team is lost at a random moment and is back when the lease has run out.")
    )
    parts.append(Indented("This is an estimate under these assumptions, not a promise."))
    if svg is not None:
        parts.append(Text(f"\nThe median run with {counted(shown.agents, 'teammate')} is drawn in {svg}."))
    return Group(*parts)


class _Figures:
    """One row for each team size. Columns that do not fit come in a second table below."""

    def __init__(self, sizes: Sequence[Size]) -> None:
        priced = any(size.dollars is not None for size in sizes)
        partly = any(size.finished < 1 or size.failed for size in sizes)
        self._agents = ["agents", *(f"{size.agents:,}" for size in sizes)]
        self._columns = [
            ["takes", *(length(size.makespan.middle) for size in sizes)],
            ["p10 to p90", *(f"{length(size.makespan.low)} to {length(size.makespan.high)}" for size in sizes)],
            ["costs" if priced else "tokens", *(_cost(size)[0] for size in sizes)],
            ["p90", *(_cost(size)[1] for size in sizes)],
            ["busy", *(f"{size.busy:.0%}" for size in sizes)],
            ["a lost host adds", *(_loss(size) for size in sizes)],
        ]
        if partly:
            self._columns.append(["all ends", *(f"{size.finished:.0%}" for size in sizes)])
            self._columns.append(["fails", *(f"{size.failed:.2g}" for size in sizes)])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rest = self._columns
        while rest:
            left, taken = options.max_width - _width(self._agents), 0
            for column in rest:
                left -= _GAP + _width(column)
                if left < 0 and taken:
                    break
                taken += 1
            if rest is not self._columns:
                yield Text()
            yield _table([self._agents, *rest[:taken]])
            rest = rest[taken:]


def _width(column: Sequence[str]) -> int:
    return max(map(cell_len, column))


def _table(columns: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for head, *_ in columns:
        table.add_column(head, no_wrap=True, justify="right" if head in ("agents", "busy") else "left")
    for row in zip(*(cells for _, *cells in columns), strict=True):
        table.add_row(*row)
    return table


def _cost(size: Size) -> list[str]:
    if size.dollars is not None:
        return [f"${size.dollars.middle:,.2f}", f"${size.dollars.high:,.2f}"]
    return [f"{size.tokens.middle:,.0f}", f"{size.tokens.high:,.0f}"]


def _loss(size: Size) -> str:
    if size.lost_host is None:
        return ""
    added, again = size.lost_host.makespan, size.lost_host.dollars
    cost = f", ${again.middle:,.2f} again" if size.dollars is not None else ""
    return f"{length(added.middle)} (p90 {length(added.high)}){cost}"


def _enough(findings: Findings) -> str:
    return (
        f"More than {counted(findings.enough, 'teammate')} would save less than {WORTH:.0%} of the time. "
        f"The longest chain of needs takes {length(findings.shortest)}."
    )


class _Path:
    """One row for each step; a long path is shown without its middle. Without room for titles, one sentence a step."""

    def __init__(self, steps: Sequence[PathStep]) -> None:
        half = _STEPS_SHOWN // 2
        self._left_out = max(0, len(steps) - _STEPS_SHOWN)
        kept = [*steps[:half], *steps[len(steps) - half :]] if self._left_out else steps
        self._rows = [
            [f"  at {length(each.start)}", length(each.end - each.start), one_line(each.task, 60),
             one_line(each.mate, 20), f"waited for {each.why}" if each.why else ""]
            for each in kept
        ]  # fmt: skip
        if self._left_out:
            self._rows.insert(half, ["", "", f"... {self._left_out:,} more ...", "", ""])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [_width(column) for column in zip(*self._rows, strict=True)]
        room = options.max_width - sum(widths) + widths[2] - _GAP * (len(widths) - 1)
        if room < min(widths[2], _TITLE_LEAST):
            for at, took, task, mate, why in self._rows:
                said = f"{at.strip()} for {took}: {task} ({mate})" if at else task
                yield Indented(", ".join(filter(None, (said, why))))
            return
        table = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
        for number, style in enumerate(("", "", "", "", "dim")):
            table.add_column(no_wrap=True, overflow="ellipsis", style=style, justify="right" if number < 2 else "left")
        table.columns[2].max_width = room
        for row in self._rows:
            table.add_row(*map(Text, row))
        yield table


def _idle(size: Size) -> Table:
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(justify="right", no_wrap=True, min_width=10)
    table.add_column()
    for idle in size.idle:
        table.add_row(
            length(idle.milliseconds), Text(f"{one_line(idle.who, 40)} waits for {one_line(idle.waits_for, 80)}")
        )
    return table


def draw(path: Path, plan: RehearsalPlan, findings: Findings) -> None:
    """Write the picture of the chosen team."""
    shown = findings.shown
    critical = {(step.task, step.start) for step in shown.path}
    bars = [
        Drawn(
            row=bar.mate, start=bar.start, end=bar.end, label=one_line(plan.tasks[bar.task].name, 120),
            colour=plan.tasks[bar.task].role or "", critical=(plan.tasks[bar.task].name, bar.start) in critical,
            again=bar.ended_as != "done",
        )
        for bar in shown.bars
    ]  # fmt: skip
    rows = [mate.name if mate.label == "anyone" else f"{mate.name} ({mate.label})" for mate in shown.mates]
    title = f"{counted(len(plan.tasks), 'task')} of {one_line(plan.name, 80)}, {counted(shown.agents, 'teammate')}"
    subtitle = (
        f"The median of {counted(findings.seeds, 'rehearsal')}: {length(shown.makespan.middle)}. "
        "The critical path is outlined in red. A pale bar is an attempt that was repeated. Colours are roles."
    )
    try:
        path.write_text(gantt(title, subtitle, rows, bars), encoding="utf-8")
    except OSError as trouble:
        raise BadInput(f"The picture cannot be written to {path}: {trouble.strerror}; name another file.") from None


# What programs see.


def shape(plan: RehearsalPlan, findings: Findings) -> Shape:
    return {
        "plan": plan.name, "tasks": len(plan.tasks), "seeds": findings.seeds, "enough": findings.enough,
        "chain_seconds": findings.shortest / 1000, "teams": [_team_shape(size) for size in findings.sizes],
        "warnings": list(findings.warnings), "basis": list(plan.basis),
    }  # fmt: skip


def _team_shape(size: Size) -> Shape:
    lost = size.lost_host
    return {
        "agents": size.agents, "seconds": _range(size.makespan, 1000), "tokens": _range(size.tokens),
        "dollars": None if size.dollars is None else _range(size.dollars),
        **{name: round(getattr(size, name), 4) for name in ("busy", "finished", "failed", "skipped")},
        "critical_path": [
            {
                "task": step.task, "teammate": step.mate, "start_seconds": step.start / 1000,
                "seconds": (step.end - step.start) / 1000, "waited_for": step.why or None,
            }
            for step in size.path
        ],
        "idle": [
            {"who": each.who, "waits_for": each.waits_for, "seconds": each.milliseconds / 1000} for each in size.idle
        ],
        "lost_host": lost and {"seconds": _range(lost.makespan, 1000), "dollars": _range(lost.dollars)},
    }  # fmt: skip


def _range(found: Range, scale: float = 1) -> Shape:
    return {
        name: round(value / scale, 6)
        for name, value in (("p10", found.low), ("p50", found.middle), ("p90", found.high))
    }
