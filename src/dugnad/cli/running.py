"""The commands that run a team: run, work, chat, demo. Heavy modules are imported when one of them runs."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadInput
from .command import board_option, board_url, examples, here, json_option, log_option, start_log, working_folder
from .parameters import BoundedNumber, budget_options

if TYPE_CHECKING:
    from ..config.project import Project
    from ..config.user import UserSettings
    from ..settings import AgentLimits, Limits
    from ..team import RunPlan
    from ..types import Budget
    from .conduct import Run


_FOREVER = click.option(
    "--forever", is_flag=True, help="Wait for new tasks without end, instead of leaving after a minute without work."
)
_RED_BASE = click.option(
    "--red-base", is_flag=True,
    help="Begin although the project's check fails now. Every teammate is told that it failed before.",
)  # fmt: skip
_CAPS = budget_options(click.IntRange(1), BoundedNumber(0, min_open=True))
_PLACE = (
    click.option(
        "--in-place", is_flag=True,
        help="All teammates work in this folder, not in git worktrees of their own. Your files are then not "
        "protected: teammates overwrite yours and each other's, nothing is checked before it is changed, and files "
        "that they leave may run when you next open or build the project.",
    ),
    click.option(
        "--unsafe-no-sandbox", "unsafe", is_flag=True,
        help="If there is no sandbox, run commands without one, with all your rights. You must type it each time.",
    ),
    click.option(
        "--allow-host", "hosts", multiple=True, metavar="NAME",
        help="A host that commands of tasks with --network may reach. May be repeated.",
    ),
    click.option(
        "--into", metavar="BRANCH",
        help="The branch that finished work is merged into. [default: dugnad/ and the name of yours]",
    ),
)  # fmt: skip
_TEAM = (
    *_PLACE,
    click.option(
        "--remote", metavar="URL",
        help="The git remote through which hosts on several machines share the work: a bare repository's folder, or an "
        "address of ssh or https. [default: that of this project in your config.toml]",
    ),
    click.option(
        "--model", metavar="NAME",
        help="provider:model. [default: the project's model, or that of the first provider whose key is set]",
    ),
    click.option(
        "--wait-for-quota", "quota_hours", type=BoundedNumber(0, 168, min_open=True), metavar="HOURS",
        help="If a provider's quota is spent and it says when it is reset, wait at most this long for that, and go on.",
    ),
    click.option("--agents", type=click.IntRange(1, 1_000), metavar="N", help="The most teammates. [default: 3]"),
    log_option(), json_option, board_option,
)  # fmt: skip


def team_options(command: Any) -> Any:
    for option in _TEAM:
        command = option(command)
    return command


def place_options(command: Any) -> Any:
    """Where the team works, without who works."""
    for option in _PLACE:
        command = option(command)
    return command


@click.command("run", epilog=examples('dugnad run "Write a slugify() with tests" --tasks 20 --dollars 2\ndugnad run'))
@click.argument("words", metavar="[GOAL]", nargs=-1)
@click.option("--all", "others", is_flag=True, help="With a goal: also work on the other tasks on the board.")
@_RED_BASE
@_CAPS
@team_options
@_FOREVER
def run(words: tuple[str, ...], others: bool, forever: bool, as_json: bool, **typed: Any) -> int:
    """Give the team a goal and watch it work. Without a goal, the team goes on with the open tasks on the board.

    With a goal, the team works only on the tasks under it, and the caps cover all of them. The run ends when all tasks
    have ended, when the budget is spent, or when only you can help. Ctrl-C stops the run in order: turns under way are
    recorded, tasks are given back, and the next `dugnad run` goes on. A second Ctrl-C ends the run at once.
    """
    if len(words) > 1:
        raise BadInput(f"Put the goal in quotes: dugnad run {shlex.quote(' '.join(words))}")
    if words and not words[0].strip():
        raise BadInput("The goal is empty; say what the team should do.")
    import asyncio

    from .conduct import conduct

    goal = words[0] if words else None
    found = read_run(here(), typed, forever=forever, as_json=as_json)
    start_log(draws=True, keeps=forever, quiet=as_json)
    return asyncio.run(conduct(found, goal=goal, budget=typed_budget(typed), forever=forever, others=others))


@click.command("work", epilog=examples("dugnad work --agents 4 --roles coder,tester --forever"))
@click.option(
    "--roles", default="", help="Roles of these teammates, separated by commas. They also take tasks for anyone."
)
@_RED_BASE
@team_options
@_FOREVER
def work(roles: str, forever: bool, as_json: bool, **typed: Any) -> int:
    """Run teammates for the tasks on the board. Start this on as many machines as you like.

    The teammates claim what is ready. They leave after a minute without work, unless you give --forever.
    """
    import asyncio

    from ..board import rules
    from .conduct import attend

    project = here()
    wanted = tuple(rules.name("role", role.strip(), project.limits) for role in roles.split(",") if role.strip())
    found = read_run(project, typed, forever=forever, as_json=as_json, roles=wanted)
    start_log(draws=True, keeps=True, quiet=as_json)
    return asyncio.run(attend(found, forever=forever))


@click.command("chat", epilog=examples("dugnad chat\ndugnad chat --dollars 2"))
@click.option("--all", "others", is_flag=True, help="With a cap: also work on the other tasks on the board.")
@_CAPS
@team_options
def chat(others: bool, as_json: bool, **typed: Any) -> int:
    """Talk to the lead while the team works. In the chat, /help lists what you can type.

    Caps cover the whole chat: all that you say and add in it is paid from one budget.
    """
    if as_json:
        raise BadInput("A chat has no JSON; `dugnad log --follow --json` prints everything that happens.")
    import asyncio

    from ..types import Budget
    from .conduct import converse

    found = read_run(here(), typed, forever=True)
    start_log(draws=True)
    caps = typed_budget(typed)
    account = None if caps == Budget() else caps.over(found.plan.budget)
    return asyncio.run(converse(found, account=account, others=others))


@click.command("demo", epilog=examples("dugnad demo\ndugnad demo --web"))
@click.option("--keep", type=click.Path(file_okay=False), metavar="FOLDER", help="Build in this folder, and keep it.")
@click.option("--web", is_flag=True, help="Watch it in a browser. On a terminal, the page stays until Ctrl-C.")
@json_option
def demo(keep: str | None, web: bool, as_json: bool) -> int:
    """Watch a team work for a minute, offline: a scripted model takes the place of a real one.

    Three teammates build a small program in a git project. One of their hosts is killed while they work.
    """
    from .demo import play

    if web and as_json:
        raise BadInput("--web is for people, and --json for programs; use one of them.")
    start_log(draws=True, quiet=as_json)
    working_folder()  # Programs that the demo starts cannot begin in a folder that is gone.
    return play(keep, as_json=as_json, web=web)


def _at_most(project: Project, agents: int | None) -> Project:
    """With no more members besides the lead than the user typed."""
    from dataclasses import replace

    leads, others = ([each for each in project.members if each.lead is lead] for lead in (True, False))
    if agents is None or len(others) <= agents:
        return project
    count = len(others) - agents
    click.echo(f"--agents {agents}: {count} of the {len(others)} members in dugnad.toml do not join.", err=True)
    return replace(project, members=(*leads, *others[:agents]))


def _waiting_for_quota(project: Project, hours: float | None) -> tuple[AgentLimits, Limits]:
    """The project's limits with the longest wait for a quota. The board must allow such a pause of a key."""
    from dataclasses import replace

    agent = project.agent_limits if hours is None else replace(project.agent_limits, quota_seconds_max=hours * 3_600)
    longest = max(project.limits.retry_after_seconds_max, agent.quota_seconds_max)
    return agent, replace(project.limits, retry_after_seconds_max=longest)


def read_run(
    project: Project, typed: dict[str, Any], *, forever: bool, as_json: bool = False,
    roles: tuple[str, ...] | None = None,
) -> Run:  # fmt: skip
    """What the files and the options say, read once. Only the caps are left in `typed`. A model that cannot be asked is
    refused here."""
    import math
    from dataclasses import replace
    from functools import partial

    from ..config.user import open_named_model, read_user
    from ..team.minds import Models
    from .conduct import Run
    from .trust import require_trust
    from .workspaces import Wishes

    agents, user = typed.pop("agents"), read_user(os.environ)
    limits = replace(project.team_limits, idle_seconds=math.inf) if forever else project.team_limits
    agent_limits, board_limits = _waiting_for_quota(project, typed.pop("quota_hours", None))
    plan = replace(
        plan_of(project, user), model=project.model_name(typed.pop("model"), os.environ), only_roles=roles or None,
        agents=agents or limits.agents_max,
        agents_asked=agents is not None or "agents" in project.given.get("team", {}),
        limits=limits, agent_limits=agent_limits, board_limits=board_limits,
        open_named=partial(open_named_model, user=user), summary_model=project.summary_model,
        rates=lambda each: (user.endpoint(each).requests_per_minute, user.endpoint(each).tokens_per_minute),
    )  # fmt: skip
    models = Models(plan)
    models.named()
    models.named(project.summary_model)
    require_trust(project, plan.url, makes=True, asks=not as_json, runs=True)
    project = _at_most(project, agents) if roles is None else project  # `work` has no members join.
    return Run(plan=plan, models=models, user=user, project=project, wishes=Wishes.typed(typed), as_json=as_json)


def plan_of(project: Project, user: UserSettings) -> RunPlan:
    """What the files say of any team of the project, without who works in it."""
    from ..team import RunPlan

    return RunPlan(
        url=board_url(project, user), name=project.team, project=project.root, roles=project.roles,
        budget=project.budget, limits=project.team_limits, agent_limits=project.agent_limits,
        board_limits=project.limits, policies=project.policy(user), review=project.review,
    )  # fmt: skip


def typed_budget(caps: dict[str, Any]) -> Budget:
    """The caps that were typed. Those of the project are the team's, for goals that are given none."""
    from ..board import rules
    from ..config.kinds import BudgetTable

    budget = BudgetTable(**caps).caps()
    rules.caps(budget)  # A wrong cap is refused before anything begins.
    return budget
