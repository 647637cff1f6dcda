"""`dugnad rehearse`: what a team would take for a board's open tasks, or for a plan, before anything is paid."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadInput, BoardUnreachable, ModelMisconfigured
from .base import board_option, board_url, examples, file_of, here, json_option, opened, show, show_json, shown_url
from .parameters import Parameter

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..models import Price
    from ..sim.findings import Findings, Range, Size
    from ..sim.learning import Assumed
    from ..sim.planned import Plan
    from ..team.project import Project
    from ..view.shapes import Shape

_AGENTS = (1, 2, 4, 8)
_SIZES_MAX = 20
_SEEDS_MAX = 10_000
_STEPS_SHOWN = 14
# What a turn is taken for where nothing is known: so many tokens in, most of them read from the cache, and out.
_TOKENS_IN, _TOKENS_CACHED, _TOKENS_OUT = 8_000, 6_000, 500


class Sizes(Parameter):
    """4, or several with commas between: 1,2,4,8."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        from ..sim.planned import AGENTS_MAX

        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in value.split(",")]
        if not all(part.isascii() and part.isdecimal() and 1 <= int(part[:9]) <= AGENTS_MAX for part in parts):
            self.fail(f"{value!r} is no list of team sizes from 1 to {AGENTS_MAX:,}; write 1,2,4,8.", param, ctx)
        if len(parts) > _SIZES_MAX:
            self.fail(f"{len(parts)} team sizes are too many; {_SIZES_MAX} are the most.", param, ctx)
        return tuple(map(int, parts))


class Amount(click.FloatRange):
    """A number within bounds; what is no number lies within none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found


@click.command(
    "rehearse",
    epilog=examples("""
    dugnad rehearse
    dugnad rehearse plan.toml --agents 1,2,4,8 --svg plan.svg
    """),
)
@click.argument("plan", required=False, type=click.Path(path_type=Path))
@click.option("--agents", type=Sizes(), help="Team sizes to rehearse, with commas between.  [default: 1,2,4,8]")
@click.option("--turn-seconds", type=Amount(0.001, 86_400), help="Of a turn, where nothing is known: 20.")
@click.option("--turns", type=Amount(1, 10_000), help="Of a task, where nothing is known: 8.")
@click.option("--seeds", type=click.IntRange(1, _SEEDS_MAX), default=100, show_default=True, help="Runs of each team.")
@click.option("--model", metavar="NAME", help="Whose price is taken: provider:model.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Write a picture of the median run there.")
@board_option
@json_option
def rehearse(
    plan: Path | None,
    agents: tuple[int, ...] | None,
    turn_seconds: float | None,
    turns: float | None,
    seeds: int,
    model: str | None,
    svg: Path | None,
    board: str | None,
    as_json: bool,
) -> None:
    """What a team would take, before you pay for it: time, cost, what it waits for, how many hands are enough.

    Rehearses the board's open tasks, or a plan in a file, many times over in virtual time. Asks no model, and only
    reads the board. Durations and costs are learned from earlier attempts on the board; what is not known is assumed,
    and said.
    """
    import asyncio

    from ..sim.findings import find

    project = here()
    price, priced = _price(model, project)
    options = {"turn_seconds": turn_seconds, "turns": turns}
    made = asyncio.run(_plan(plan, board, project, options, price, priced))
    findings = find(made, agents or _sizes(made), seeds=seeds)  # Outside of the loop, so that Ctrl-C ends it at once.
    if svg is not None:
        _draw(svg, made, findings)
    if as_json:
        show_json(_shape(made, findings))
    else:
        show(_picture(made, findings, svg))


def _sizes(plan: Plan) -> tuple[int, ...]:
    if plan.size is None:
        return _AGENTS
    return tuple(sorted({max(1, plan.size // 2), plan.size, plan.size * 2}))


# What there is to rehearse.


async def _plan(
    path: Path | None, board: str | None, project: Project, options: Mapping[str, float | None], price: Price | None,
    priced: str,
) -> Plan:  # fmt: skip
    from dataclasses import replace

    from ..sim.learning import NOTHING, experience_of, plan_of
    from ..sim.planfile import read_plan

    def assumed(given: Mapping[str, Any]) -> Assumed:
        return _assumed({**given, **{key: value for key, value in options.items() if value is not None}}, price)

    if path is None:
        async with opened(board) as there:
            name = shown_url(board_url(board, project))
            members = [member.name for member in project.members]
            made = await plan_of(there, name, assumed=assumed({}), members=members)
    else:
        experience = NOTHING
        if board is not None or _is_there(board_url(None, project)):
            async with opened(board) as there:
                experience = await experience_of(there)
        made = read_plan(path, environment=os.environ, limits=project.limits, assumed=assumed, experience=experience)
    return replace(made, basis=(*made.basis, priced))


def _is_there(url: str) -> bool:
    """Whether a plan has a board to learn from. One that was named has to be there."""
    path = file_of(url)
    context = click.get_current_context(silent=True)
    named = context is not None and context.find_root().params.get("board") is not None
    if path is None or named or os.environ.get("DUGNAD_BOARD"):
        return True
    try:
        return path.exists()
    except OSError as trouble:
        raise BoardUnreachable(f"Cannot look for a board at {path}: {trouble.strerror}.") from None


def _assumed(given: Mapping[str, Any], price: Price | None) -> Assumed:
    from ..models.talk import Usage
    from ..sim.learning import Assumed

    dollars = given.get("turn_dollars")
    if dollars is None and price is not None:
        usage = Usage(input_tokens=_TOKENS_IN, cache_read_tokens=_TOKENS_CACHED, output_tokens=_TOKENS_OUT)
        dollars = price.microdollars(usage) / 1_000_000
    return Assumed(
        turn_seconds=given.get("turn_seconds", Assumed().turn_seconds),
        turns=given.get("turns", Assumed().turns),
        turn_tokens=float(_TOKENS_IN + _TOKENS_OUT),
        turn_dollars=dollars,
    )


def _price(given: str | None, project: Project) -> tuple[Price | None, str]:
    """The price of the model that would be asked, and what to say of it."""
    from ..models.opening import default_model
    from ..models.prices import facts_of
    from ..team.userfile import read_user

    user = read_user()
    try:
        name = project.model_name(given, os.environ) or user.model or default_model()
    except ModelMisconfigured:
        return None, "No model is set, so costs are counted in tokens unless they are known; --model names one."
    provider, _, model = name.partition(":")
    if given is not None and not model:
        raise BadInput(f"{given!r} names no model; write provider:model.")
    price = user.endpoint(name).price or (facts_of(provider, model).price if provider != "scripted" else None)
    if price is None:
        return None, f"The price of {name} is not known, so costs are counted in tokens unless they are known."
    return price, (
        f"Where no cost is known, a turn is {_TOKENS_IN:,} tokens in, {_TOKENS_CACHED:,} of them cached, and "
        f"{_TOKENS_OUT:,} out, at the price of {name}."
    )


# What people see.


def _picture(plan: Plan, findings: Findings, svg: Path | None) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from ..view.figures import counted
    from ..view.plain import line
    from ..view.tables import Indented

    shown = findings.shown
    head = Text(f"A rehearsal of {counted(len(plan.tasks), 'task')}: {line(plan.name, 200)}", style="bold")
    head.append(f"\nEach team {counted(findings.seeds, 'time')}. Nothing was asked, written or paid.", "not bold dim")
    parts: list[RenderableType] = [head, Text(), _table(findings), Text(), Text(_enough(findings))]
    for warning in findings.warnings:
        parts.append(Text(line(warning, 400), style="yellow"))
    parts += [Text(f"\nThe critical path of {counted(shown.agents, 'teammate')} (the median run)", style="dim")]
    parts += [_path(shown)]
    if shown.idle:
        parts.append(Text(f"\nWhere {counted(shown.agents, 'teammate')} would idle, in all", style="dim"))
        parts += [
            Text(f"  {length(idle.milliseconds):>8}  {line(idle.who, 40)} waits for {line(idle.waits_for, 80)}")
            for idle in shown.idle
        ]
    parts.append(Text("\nWhat this rests on", style="dim"))
    parts += [Indented(line(each, 400)) for each in plan.basis]
    if plan.agents is None:
        parts.append(Indented("Each teammate takes work of any role, as in a team that grows with its work."))
    parts.append(
        Indented("A lost host: half the team is gone at a random moment and comes back when the lease has run out.")
    )
    parts.append(Indented("It is a rehearsal under these assumptions, not a promise."))
    if svg is not None:
        parts.append(Text(f"\nThe median run of {counted(shown.agents, 'teammate')} is drawn in {svg}."))
    return Group(*parts)


def _table(findings: Findings) -> RenderableType:
    from rich.table import Table

    priced = any(size.dollars is not None for size in findings.sizes)
    partly = any(size.finished < 1 or size.failed for size in findings.sizes)
    columns = ["agents", "takes", "p10 to p90", "costs" if priced else "tokens", "p90", "busy", "a lost host adds"]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns + (["all ends", "fails"] if partly else []):
        table.add_column(column, no_wrap=True, justify="right" if column in ("agents", "busy") else "left")
    for size in findings.sizes:
        row = [
            f"{size.agents:,}", length(size.makespan.middle),
            f"{length(size.makespan.low)} to {length(size.makespan.high)}",
            *_cost(size), f"{size.busy:.0%}", _loss(size),
        ]  # fmt: skip
        if partly:
            row += [f"{size.finished:.0%}", f"{size.failed:.1f}"]
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
    from ..sim.findings import WORTH
    from ..view.figures import counted

    return (
        f"Beyond {counted(findings.enough, 'teammate')} nothing gets faster by {WORTH:.0%}. "
        f"The longest chain of needs alone takes {length(findings.shortest)}."
    )


def _path(size: Size) -> RenderableType:
    from rich.table import Table

    from ..view.plain import line

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="dim")
    steps = list(size.path)
    cut = len(steps) - _STEPS_SHOWN
    for number, step in enumerate(steps):
        if cut > 0 and _STEPS_SHOWN // 2 <= number < _STEPS_SHOWN // 2 + cut:
            if number == _STEPS_SHOWN // 2:
                table.add_row("", "", f"... {cut:,} more ...", "", "")
            continue
        why = f"waited for {step.why}" if step.why else ""
        took = length(step.end - step.start)
        table.add_row(f"  at {length(step.start)}", took, line(step.task, 60), line(step.mate, 20), why)
    return table


def length(milliseconds: float) -> str:
    """How long, in the two units that matter: 4m 10s, 2h 14m."""
    seconds = round(milliseconds / 1000)
    parts = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        if seconds >= size:
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
        elif parts:
            break
    return " ".join(parts[:2]) or "0s"


def _draw(path: Path, plan: Plan, findings: Findings) -> None:
    from ..sim.gantt import Drawn, gantt
    from ..view.figures import counted
    from ..view.plain import line

    shown = findings.shown
    critical = {(step.task, step.start) for step in shown.path}
    bars = [
        Drawn(
            row=bar.mate, start=bar.start, end=bar.end, label=line(plan.tasks[bar.task].name, 120),
            colour=plan.tasks[bar.task].role or "", critical=(plan.tasks[bar.task].name, bar.start) in critical,
            again=bar.ended_as != "done",
        )
        for bar in shown.bars
    ]  # fmt: skip
    rows = [mate.name if mate.label == "anyone" else f"{mate.name} ({mate.label})" for mate in shown.mates]
    title = f"{counted(len(plan.tasks), 'task')} of {line(plan.name, 80)}, {counted(shown.agents, 'teammate')}"
    subtitle = (
        f"The median of {counted(findings.seeds, 'rehearsal')}: {length(shown.makespan.middle)}. "
        "The critical path is outlined in red; a pale bar was tried again. Colours are roles."
    )
    try:
        path.write_text(gantt(title, subtitle, rows, bars), encoding="utf-8")
    except OSError as trouble:
        raise BadInput(f"The picture cannot be written to {path}: {trouble.strerror}.") from None


# What programs see.


def _shape(plan: Plan, findings: Findings) -> Shape:
    return {
        "plan": plan.name,
        "tasks": len(plan.tasks),
        "seeds": findings.seeds,
        "enough": findings.enough,
        "chain_seconds": findings.shortest / 1000,
        "teams": [_team_shape(size) for size in findings.sizes],
        "warnings": list(findings.warnings),
        "basis": list(plan.basis),
    }


def _team_shape(size: Size) -> Shape:
    lost = size.lost_host
    return {
        "agents": size.agents,
        "seconds": _range(size.makespan, 1000),
        "dollars": None if size.dollars is None else _range(size.dollars),
        "tokens": _range(size.tokens),
        "busy": round(size.busy, 4),
        "finished": round(size.finished, 4),
        "failed": round(size.failed, 4),
        "skipped": round(size.skipped, 4),
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
