"""Where a team works that a person runs: in a git tree for each attempt, a folder for each task, or this very one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..errors import BadInput, ToolError
from ..team import Report, Team
from ..team.folders import folders
from ..team.places import Workshop, shared
from ..team.project import Project
from ..team.userfile import read_user
from ..team.worktrees import Worktrees
from ..workspace.git import Git
from ..workspace.hosts import parse_hosts
from ..workspace.merging import prepare_target
from ..workspace.tree import BRANCHES
from ..workspace.trees import Trees
from .base import is_no_project, make_folder
from .sandboxing import find_sandbox

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a person typed about where to work."""

    in_place: bool = False
    into: str | None = None  # The branch that finished work goes to.
    unsafe: bool = False  # Commands run bare where there is no sandbox.
    hosts: tuple[str, ...] = ()  # That commands of tasks can reach which ask for the network.

    @classmethod
    def typed(cls, options: dict[str, Any]) -> Wishes:
        """Those among the options of a command, which are taken out of them."""
        return cls(**{each.name: options.pop(each.name) for each in fields(cls)})


@asynccontextmanager
async def workplaces(team: Team, project: Project, wishes: Wishes, say: Say) -> AsyncIterator[list[str]]:
    """Give the team its places; what there is to say of them. Nothing is run without a sandbox. `say` hears at once
    whom this waits for."""
    root = project.root
    told: list[str] = []
    if is_no_project(root):
        yield ["This is your home folder, so the team sees no files of it; run dugnad in a project's own folder."]
        return
    make_folder(root / ".dugnad")
    sandbox = await find_sandbox(team.board, unsafe=wishes.unsafe)
    own = sandbox.readable if sandbox is not None else ()
    path = [*(str(each / "bin") for each in own), "/usr/local/bin", "/usr/bin", "/bin"]
    hosts = (*wishes.hosts, *read_user(os.environ).hosts)
    parse_hosts(hosts)  # What is wrong with one is said before anything begins.
    shop = Workshop(
        board=team.board, outputs=root / ".dugnad" / "output", sandbox=sandbox,
        why_not="" if sandbox else "there is no sandbox here (`dugnad doctor` says how to get one)",
        environment={"PATH": ":".join(path)}, hosts=hosts, project_checks=project.checks,
    )  # fmt: skip
    team.reviewer, team.sandbox = project.reviewer, sandbox
    try:
        await _give(team, project, wishes, shop, told.append, say)
        yield told
    finally:
        if sandbox is not None:
            await sandbox.close()


async def _give(
    team: Team, project: Project, wishes: Wishes, shop: Workshop, say: Say, say_now: Say
) -> None:  # fmt: skip
    root = project.root
    if wishes.in_place:
        team.places = shared(shop, root)
        return
    try:
        git = await Git.find(root, path=os.environ.get("PATH", os.defpath))
        if git is not None:
            trees = await _prepared(team, root, git, wishes, say, say_now)
            shop, branch = replace(shop, prefix=git.prefix), await git.head_branch()
            team.places = places = Worktrees(board=team.board, trees=trees, shop=shop, own_branch=branch)
            await places.sweep()
            return
    except ToolError as trouble:  # Better now than after a night in which nothing could be written.
        raise BadInput(f"{trouble} (With --in-place the team works in this very folder.)") from None
    team.places = folders(shop, root, root / ".dugnad" / "work")
    say("This folder is not in git: each task is worked in a copy under .dugnad/work. (`git init`, or --in-place.)")


async def _prepared(team: Team, root: Path, git: Git, wishes: Wishes, say: Say, say_now: Say) -> Trees:
    """Where the trees of attempts will be, and the branch that finished work goes to."""
    branch = await git.head_branch()
    trees = Trees(
        git=git, folder=root / ".dugnad" / "trees", target=wishes.into or f"{BRANCHES}{branch or 'work'}",
        bytes_max=team.limits.change_bytes_max, lease_seconds=team.board.limits.lease_seconds,
        on_wait=lambda told: say_now(told) if told else None,
    )  # fmt: skip
    if told := await prepare_target(trees, f"refs/heads/{branch}" if branch else await git.own_head()):
        say(told)
    if await git.is_dirty():
        say("Your checkout has changes that are not committed; the team does not see them.")
    return trees


def waits_for(team: Team) -> str:
    """Whom a merge of the team's waits for, if it has for a while."""
    return team.places.waits if isinstance(team.places, Worktrees) else ""


async def with_deliveries(team: Team, end: Report) -> Report:
    """The report, and where the work is that it tells of."""
    if not isinstance(team.places, Worktrees):
        return end
    try:
        return replace(end, deliveries=await team.places.deliveries(end.tasks))
    except ToolError:
        return end
