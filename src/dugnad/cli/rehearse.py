"""`dugnad rehearse`: estimates what a team would take for the open tasks of a board, or for a plan."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadInput, ModelMisconfigured
from .command import (
    answer,
    board_option,
    board_url,
    examples,
    exists,
    file_of,
    here,
    json_option,
    opened,
    shown_url,
    typed_board,
)  # fmt: skip
from .parameters import BoundedNumber, Parameter

if TYPE_CHECKING:
    from ..config.project import Project
    from ..config.user import UserSettings
    from ..models import Price
    from ..rehearsal.learn import Assumed
    from ..rehearsal.plan import RehearsalPlan

_AGENTS = (1, 2, 4, 8)
_SIZES_MAX = 20
_SEEDS_MAX = 10_000
# The assumed tokens of a turn if nothing is known: input, how many of them from the cache, and output.
_TOKENS_IN, _TOKENS_CACHED, _TOKENS_OUT = 8_000, 6_000, 500


class Sizes(Parameter):
    """4, or several, separated by commas: 1,2,4,8."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        from ..rehearsal.plan import AGENTS_MAX

        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in value.split(",")]
        # Very long digits are refused by their length, since converting them could take very long.
        if not all(re.fullmatch("[0-9]{1,9}", part) and 1 <= int(part) <= AGENTS_MAX for part in parts):
            self.fail(f"{value!r} is not a list of team sizes from 1 to {AGENTS_MAX:,}; write 1,2,4,8.", param, ctx)
        if len(parts) > _SIZES_MAX:
            self.fail(f"{len(parts)} team sizes are too many; give at most {_SIZES_MAX}.", param, ctx)
        return tuple(map(int, parts))


@click.command("rehearse", epilog=examples("""
    dugnad rehearse
    dugnad rehearse plan.toml --agents 1,2,4,8 --svg plan.svg
    """))  # fmt: skip
@click.argument("plan", required=False, type=click.Path(path_type=Path))
@click.option("--agents", type=Sizes(), help="Team sizes to rehearse, separated by commas.  [default: 1,2,4,8]")
@click.option("--turn-seconds", type=BoundedNumber(0.001, 86_400), help="Assumed length of a turn.  [default: 20]")
@click.option("--turns", type=BoundedNumber(1, 10_000), help="Assumed turns of a task.  [default: 8]")
@click.option("--seeds", type=click.IntRange(1, _SEEDS_MAX), default=100, show_default=True, help="Rehearsals to play.")
@click.option("--model", metavar="NAME", help="The model whose price counts: provider:model.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Draw the median run into this file.")
@board_option
@json_option
def rehearse(
    plan: Path | None, agents: tuple[int, ...] | None, seeds: int, model: str | None, svg: Path | None, as_json: bool,
    **assumed: float | None,
) -> None:  # fmt: skip
    """Estimate what a team would take, before you pay: time, cost, what it waits for, and how many teammates help.

    It rehearses the open tasks of the board, or a plan in a file, many times in virtual time. It asks no model and only
    reads the board. It learns durations and costs from earlier attempts on the board. It lists what it had to assume.
    """
    import asyncio

    from ..config.user import read_user
    from ..rehearsal.findings import find
    from ..web.rehearsed import keep
    from .rehearsal_tables import draw, picture, shape

    if svg is not None and not svg.parent.is_dir():  # Checked before the long part.
        raise BadInput(f"The picture cannot be written to {svg}: there is no folder {svg.parent}; make it first.")
    if svg is not None and svg.exists() and not svg.is_file():  # Writing to a pipe would wait for a reader.
        raise BadInput(f"The picture cannot be written to {svg}, which is not a file; name another.")
    project = here()
    user = read_user()
    price, priced = _price(model, project, user)
    made = asyncio.run(_plan(plan, project, board_url(project, user), assumed, price, priced))
    findings = find(made, agents or _sizes(made), seeds=seeds)  # Not in the event loop, so that Ctrl-C works at once.
    if svg is not None:
        draw(svg, made, findings)
    if made.board:
        keep(os.environ, made, findings)
    answer(as_json, shape(made, findings), lambda: picture(made, findings, svg))


def _sizes(plan: RehearsalPlan) -> tuple[int, ...]:
    if plan.size is None:
        return _AGENTS
    return tuple(sorted({max(1, plan.size // 2), plan.size, plan.size * 2}))


# The plan to rehearse.


async def _plan(
    path: Path | None, project: Project, url: str, options: Mapping[str, float | None], price: Price | None,
    priced: str,
) -> RehearsalPlan:  # fmt: skip
    from dataclasses import replace

    from ..rehearsal.learn import NOTHING, experience_of, plan_of
    from ..rehearsal.planfile import read_plan

    def assumed(given: Mapping[str, Any]) -> Assumed:
        return _assumed({**given, **{key: value for key, value in options.items() if value is not None}}, price)

    if path is None:
        async with opened(project, url) as there:
            members = [member.name for member in project.members]
            made = await plan_of(there, shown_url(url), assumed=assumed({}), members=members, reviewer=project.reviewer)
    else:
        experience, file = NOTHING, file_of(url)
        if file is None or typed_board() or exists(file):  # A board that the user named must exist.
            async with opened(project, url) as there:
                experience = await experience_of(there)
        made = read_plan(path, environment=os.environ, limits=project.limits, assumed=assumed, experience=experience)
    return replace(made, basis=(*made.basis, priced))


def _assumed(given: Mapping[str, Any], price: Price | None) -> Assumed:
    from ..models.port import Usage
    from ..rehearsal.learn import Assumed

    dollars = given.get("turn_dollars")
    if dollars is None and price is not None:
        usage = Usage(input_tokens=_TOKENS_IN, cache_read_tokens=_TOKENS_CACHED, output_tokens=_TOKENS_OUT)
        dollars = price.microdollars(usage) / 1_000_000
    known = {name: given[name] for name in ("turn_seconds", "turns") if name in given}
    return Assumed(**known, turn_tokens=float(_TOKENS_IN + _TOKENS_OUT), turn_dollars=dollars)


def _price(given: str | None, project: Project, user: UserSettings) -> tuple[Price | None, str]:
    """The price of the model, and a sentence about it."""
    from ..models.open import default_model
    from ..models.prices import facts_of

    try:
        name = project.model_name(given, os.environ) or user.model or default_model()
    except ModelMisconfigured:
        return None, "No model is set, so unknown costs are counted in tokens; --model names a model."
    provider, _, model = name.partition(":")
    if given is not None and not model:
        raise BadInput(f"{given!r} is not a model; write provider:model.")
    price = user.endpoint(name).price or (facts_of(provider, model).price if provider != "scripted" else None)
    if price is None:
        return None, f"The price of {name} is not known, so unknown costs are counted in tokens."
    return price, (
        f"A turn of unknown cost counts as {_TOKENS_IN:,} input tokens, {_TOKENS_CACHED:,} of them cached, and "
        f"{_TOKENS_OUT:,} output tokens, at the price of {name}."
    )
