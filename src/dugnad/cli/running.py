"""The verbs that run a team: run, work, chat, demo. Everything heavy is imported when one of them is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadInput
from .command import board_option, board_url, examples, here, json_option, log_option, start_log

if TYPE_CHECKING:
    from ..config.project import Project
    from ..types import Budget
    from .conduct import Run


def forever_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--forever", is_flag=True, help="Rest without end instead of leaving after a quiet minute.")(
        command
    )


def red_base_option(command: Callable[..., Any]) -> Callable[..., Any]:
    words = "Begin although the project's check is red already; every teammate is told so."
    return click.option("--red-base", is_flag=True, help=words)(command)


def team_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--in-place",
            is_flag=True,
            help="Work in this very folder, all together, instead of in git trees of their own. It gives up that your "
            "files stay as they are: teammates overwrite yours and one another's, nothing is checked first, and what "
            "they leave there may run when you next open or build the project.",
        ),
        click.option(
            "--unsafe-no-sandbox",
            "unsafe",
            is_flag=True,
            help="Where there is no sandbox, run commands all the same, with all your rights. Typed each time.",
        ),
        click.option(
            "--allow-host",
            "hosts",
            multiple=True,
            metavar="NAME",
            help="A host that tasks put with --network may reach. Repeatable.",
        ),
        click.option("--into", metavar="BRANCH", help="Where finished work is merged. [default: dugnad/ and yours]"),
        click.option(
            "--model", metavar="NAME", help="provider:model, instead of the project's or the first with a key."
        ),
        click.option("--agents", type=click.IntRange(1, 1_000), metavar="N", help="Teammates at most. [default: 3]"),
    ):
        command = option(command)
    return board_option(json_option(log_option()(command)))


def budget_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--minutes",
            type=click.FloatRange(0, min_open=True),
            metavar="M",
            help="Minutes of model, tools and checks.",
        ),
        click.option("--tokens", type=click.IntRange(1), metavar="N", help="Tokens, in and out."),
        click.option("--dollars", type=click.FloatRange(0, min_open=True), metavar="X", help="Dollars."),
        click.option(
            "--tasks", type=click.IntRange(1), metavar="N", help="Task runs: each time a task is begun is one."
        ),
    ):
        command = option(command)
    return command


@click.command("run", epilog=examples('dugnad run "Write a slugify() with tests" --tasks 20 --dollars 2\ndugnad run'))
@click.argument("goal", required=False)
@click.option("--all", "others", is_flag=True, help="With a goal: work what else is on the board too.")
@red_base_option
@budget_options
@team_options
@forever_option
def run(
    goal: str | None,
    others: bool,
    agents: int | None,
    model: str | None,
    forever: bool,
    board: str | None,
    as_json: bool,
    **typed: Any,
) -> int:
    """Give the team a goal and watch it work; or, without one, go on with what is on the board.

    With a goal, only what is under it is worked, and the caps are for all of that. It ends when all is done, when the
    budget is spent, or when only you can help. Ctrl-C stops in order: turns under way are recorded, tasks given back,
    and the next `dugnad run` goes on. A second Ctrl-C ends at once.
    """
    if goal is not None and not goal.strip():
        raise BadInput("The goal is empty; say what is to be done.")
    import asyncio

    from .conduct import conduct

    found = read_run(here(), typed, board=board, model=model, agents=agents, forever=forever, as_json=as_json)
    start_log(draws=True, keeps=forever, quiet=as_json)
    return asyncio.run(conduct(found, goal=goal, budget=typed_budget(typed), forever=forever, others=others))


@click.command("work", epilog=examples("dugnad work --agents 4 --roles coder,tester --forever"))
@click.option("--roles", default="", metavar="R,…", help="What these teammates take, besides work for anyone.")
@red_base_option
@team_options
@forever_option
def work(
    roles: str, agents: int | None, model: str | None, forever: bool, board: str | None, as_json: bool, **typed: Any
) -> int:  # fmt: skip
    """Run teammates only: on as many machines as you like, over one board.

    They take what is ready, and leave after a quiet minute unless told to stay for ever.
    """
    import asyncio

    from ..board import rules
    from .conduct import attend

    project = here()
    wanted = tuple(rules.name("role", role.strip(), project.limits) for role in roles.split(",") if role.strip())
    options: dict[str, Any] = {"board": board, "model": model, "agents": agents, "as_json": as_json, "roles": wanted}
    found = read_run(project, typed, forever=forever, **options)
    start_log(draws=True, keeps=True, quiet=as_json)
    return asyncio.run(attend(found, forever=forever))


@click.command("chat", epilog=examples("dugnad chat\ndugnad chat --dollars 2"))
@click.option("--all", "others", is_flag=True, help="With a cap: work what else is on the board too.")
@budget_options
@team_options
def chat(
    others: bool, agents: int | None, model: str | None, board: str | None, as_json: bool, **typed: Any
) -> int:  # fmt: skip
    """Talk to the lead while the team works. /help lists what else can be said.

    Caps are for the whole chat: all that is said and put in it is paid from one account.
    """
    if as_json:
        raise BadInput("A conversation has no JSON; `dugnad log --follow --json` has all that happens.")
    import asyncio

    from ..types import Budget
    from .conduct import converse

    found = read_run(here(), typed, board=board, model=model, agents=agents, forever=True)
    start_log(draws=True)
    caps = typed_budget(typed)
    account = None if caps == Budget() else caps.over(found.plan.budget)
    return asyncio.run(converse(found, account=account, others=others))


@click.command("demo", epilog=examples("dugnad demo"))
@click.option("--keep", type=click.Path(file_okay=False), metavar="FOLDER", help="Build it there, and keep it.")
@json_option
def demo(keep: str | None, as_json: bool) -> int:
    """The whole idea in under a minute: offline, with a scripted model in place of a real one.

    Three teammates build a small program in a git project of their own. One host is killed on the way.
    """
    from .demo import play

    start_log(draws=True, quiet=as_json)
    return play(keep, as_json=as_json)


def _at_most(project: Project, agents: int | None) -> Project:
    """With no more members besides the lead than the user typed."""
    from dataclasses import replace

    leads, others = ([each for each in project.members if each.lead is lead] for lead in (True, False))
    if agents is None or len(others) <= agents:
        return project
    count = len(others) - agents
    click.echo(f"--agents {agents}: {count} of the {len(others)} members in dugnad.toml do not join.", err=True)
    return replace(project, members=(*leads, *others[:agents]))


def read_run(
    project: Project, typed: dict[str, Any], *, board: str | None, model: str | None, agents: int | None,
    forever: bool, as_json: bool = False, roles: tuple[str, ...] | None = None,
) -> Run:  # fmt: skip
    """What the files and the options say, read once. A model that cannot be asked is refused here."""
    import math
    from dataclasses import replace
    from functools import partial

    from ..config.user import open_named_model, read_user
    from ..team import RunPlan
    from ..team.minds import Models
    from .conduct import Run
    from .trust import require_trust
    from .workspaces import Wishes

    url = board_url(board, project)
    user = read_user(os.environ)
    name = project.model_name(model, os.environ)
    limits = replace(project.team_limits, idle_seconds=math.inf) if forever else project.team_limits
    plan = RunPlan(
        url=url, model=name, name=project.team, project=project.root, roles=project.roles, only_roles=roles or None,
        agents=agents or limits.agents_max, budget=project.budget, limits=limits, agent_limits=project.agent_limits,
        board_limits=project.limits,
        open_named=partial(open_named_model, user=user),
        policies=project.policy(user),
        rates=lambda each: (user.endpoint(each).requests_per_minute, user.endpoint(each).tokens_per_minute),
    )  # fmt: skip
    models = Models(plan)
    models.named()
    require_trust(board, makes=True, asks=not as_json, runs=True)
    project = _at_most(project, agents) if roles is None else project  # `work` has no members join.
    return Run(
        plan=plan, models=models, user=user, project=project, wishes=Wishes.typed(typed), as_json=as_json
    )  # fmt: skip


def typed_budget(caps: dict[str, Any]) -> Budget:
    """The caps that were typed; those of the project are the team's, for goals that are given none."""
    from ..board import rules
    from ..config.kinds import BudgetTable

    budget = BudgetTable(**caps).caps()
    rules.caps(budget)  # What is wrong with it is said before anything begins.
    return budget
