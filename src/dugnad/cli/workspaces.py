"""Where a team works: in a git worktree for each attempt, in a copy for each task, or in the project's own folder."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import click

from ..board import Board
from ..config.project import Project
from ..config.user import UserSettings
from ..errors import BadInput, ToolError
from ..team import Report
from ..team.workspaces.folders import folders
from ..team.workspaces.workspace import OpenWorkspace, Workshop, shared
from ..team.workspaces.worktrees import Worktrees
from ..text import plain
from ..types import HUMAN
from ..workspace.git.git import Git
from ..workspace.git.merge_queue import prepare_target
from ..workspace.git.remote import RemoteAway, open_remote
from ..workspace.git.sharing import SharedNames
from ..workspace.git.worktree import BRANCHES
from ..workspace.git.worktrees import Trees
from ..workspace.sandbox.destinations import parse_hosts
from ..workspace.sandbox.sandbox import Sandbox, probe
from .base_trees import Base, in_place, of_folder, of_git
from .command import make_folder

Say = Callable[[str], None]
_UNSAFE = "--unsafe-no-sandbox"
_START_SECONDS = 5.0  # For a remote that is away when a team starts: somebody, or a supervisor, waits for the start.


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a person typed about where the team works."""

    in_place: bool = False
    into: str | None = None  # The branch that finished work goes to.
    remote: str | None = None  # The git remote through which hosts on several machines share the work.
    unsafe: bool = False  # If there is no sandbox, commands run without one.
    hosts: tuple[str, ...] = ()  # Hosts that commands may reach, if their task asks for the network.
    red_base: bool = False  # The team begins although the project's check fails already.

    @classmethod
    def typed(cls, options: dict[str, Any]) -> Wishes:
        """Take them out of the options of a command."""
        return cls(**{each.name: options.pop(each.name, each.default) for each in fields(cls)})


@dataclass(slots=True)
class Given:
    """Where the team works, what to tell the person about it, and the project before the team changes it."""

    told: list[str] = field(default_factory=list)
    base: Base | None = None
    places: OpenWorkspace | None = None
    sandbox: Sandbox | None = None
    reviewer: str | None = None  # The role that reviews each change of the project.

    def waits(self) -> str:
        """The process that a merge has waited for, if it has waited for a while."""
        return self.places.waits if isinstance(self.places, Worktrees) else ""

    async def target_head(self) -> str | None:
        """The newest commit of the branch that finished work goes to, if there is one."""
        trees = self.places.trees if isinstance(self.places, Worktrees) else None
        return await trees.git.commit_of(trees.target_name) if trees is not None else None


def is_no_project(root: Path) -> bool:
    """Whether this is the home folder or a folder above it, which a team should not see."""
    return Path.home().resolve().is_relative_to(root)


@asynccontextmanager
async def workplaces(
    board: Board, project: Project, user: UserSettings, wishes: Wishes, say: Say
) -> AsyncIterator[Given]:  # fmt: skip
    """Prepare where the team works. Without a sandbox no command runs. `say` is told at once what this waits for."""
    root = project.root
    given = Given()
    if is_no_project(root):
        given.told.append(
            "This is your home folder, so the team sees no files of it; run dugnad in a project's own folder."
        )
        yield given
        return
    make_folder(root / ".dugnad")
    sandbox = await find_sandbox(board, root, user, unsafe=wishes.unsafe)
    own = sandbox.readable if sandbox is not None else ()
    path = [*(str(each / "bin") for each in own), "/usr/local/bin", "/usr/bin", "/bin"]
    hosts = (*wishes.hosts, *user.sandbox.hosts)
    parse_hosts(hosts)  # A wrong host is refused before anything begins.
    shop = Workshop(
        board=board, outputs=root / ".dugnad" / "output", sandbox=sandbox,
        why_not="" if sandbox else "there is no sandbox here (`dugnad doctor` says how to get one)",
        environment={"PATH": ":".join(path)}, hosts=hosts, project_checks=project.checks,
    )  # fmt: skip
    given.reviewer, given.sandbox = project.reviewer, sandbox
    try:
        wishes = replace(wishes, remote=wishes.remote or user.remote_of(root))
        given.places, given.base = await _places(shop, project, wishes, given.told.append, say)
        yield given
    finally:
        if sandbox is not None:
            await sandbox.close()


async def find_sandbox(board: Board, root: Path, user: UserSettings, *, unsafe: bool) -> Sandbox | None:
    """The sandbox for commands. None: there is no sandbox, and no command runs. No file can set `unsafe`.

    Warnings go to standard error, since they are for the person, also where a program reads the rest.
    """

    def warn(words: str, colour: str) -> None:
        click.secho(plain(words), fg=colour, bold=True, err=True)

    found = await probe(os.environ.get("PATH", os.defpath), outside=root)
    if found.level == "none" and not unsafe:
        warn(found.says + (f" To fix it: {found.mend}" if found.mend else ""), "yellow")
        return None
    if found.level == "none":
        warn(
            f"UNSAFE: commands run without any sandbox, as you typed {_UNSAFE}. {found.says.partition('. ')[0]}.", "red"
        )
        await board.remark(HUMAN, "unsandboxed", machine=platform.node(), why=found.says)
    elif unsafe:
        warn(f"There is a sandbox here, and commands run in it: {_UNSAFE} changes nothing.", "yellow")
    return Sandbox(found, unsafe=unsafe, readable=_readable(user.sandbox.readable))


def _readable(named: Sequence[str]) -> tuple[Path, ...]:
    """A project's checks need our interpreter, which may be outside of the system's folders."""
    own = dict.fromkeys(Path(each) for each in (sys.prefix, sys.base_prefix) if not each.startswith("/usr"))
    return (*own, *(Path(each).expanduser() for each in named))


async def _places(
    shop: Workshop, project: Project, wishes: Wishes, say: Say, say_now: Say
) -> tuple[OpenWorkspace, Base]:  # fmt: skip
    root = project.root
    if wishes.in_place:
        return shared(shop, root), in_place(shop, root)
    try:
        path, says = os.environ.get("PATH", os.defpath), lambda told: say_now(told) if told else None
        git = await Git.find(root, path=path, tell=says)
        if git is not None:
            trees = await _prepared(shop.board, project, git, wishes, say)
            shop, branch = replace(shop, prefix=git.prefix), await git.head_branch()
            places = Worktrees(board=shop.board, trees=trees, shop=shop, own_branch=branch)
            await places.sweep()
            return places, of_git(places)
    except RemoteAway as away:  # No bad input: a later start may succeed, and a supervisor should try it.
        raise RemoteAway(f"{str(away).rstrip('.')}. Check the address and the network, then start again.") from None
    except ToolError as trouble:  # Better now than after a night in which nothing could be written.
        raise BadInput(f"{trouble} (With --in-place the team works in this folder itself.)") from None
    say("This folder is not in git, so each task gets a copy under .dugnad/work. (Or use `git init`, or --in-place.)")
    work = root / ".dugnad" / "work"
    return folders(shop, root, work), of_folder(shop, root, work)


async def _prepared(board: Board, project: Project, git: Git, wishes: Wishes, say: Say) -> Trees:
    """The worktrees of attempts, and the branch that finished work is merged into."""
    branch = await git.head_branch()
    trees = Trees(
        git=git, folder=project.root / ".dugnad" / "trees", target=wishes.into or f"{BRANCHES}{branch or 'work'}",
        bytes_max=project.team_limits.change_bytes_max, lease_seconds=board.limits.lease_seconds,
        on_wait=git.tell,
    )  # fmt: skip
    remote = await open_remote(wishes.remote, git, os.environ) if wishes.remote is not None else None
    if remote is not None:
        soon = replace(remote, patience_seconds=_START_SECONDS)
        trees.shared = SharedNames(git=git, remote=soon, target_name=trees.target_name)
    if told := await prepare_target(trees, f"refs/heads/{branch}" if branch else await git.own_head()):
        say(told)
    if remote is not None and trees.shared is not None:
        trees.shared.remote = remote
    if await git.is_dirty():
        say("Your checkout has changes that are not committed; the team does not see them.")
    return trees


class Settings:
    """Notices when dugnad.toml changes after the run began. A run reads it once."""

    def __init__(self, file: Path | None) -> None:
        self._file, self._says = file, ""
        self._before = self._facts()

    def _facts(self) -> tuple[int, ...] | None:
        try:
            facts = self._file.stat() if self._file is not None else None
        except OSError:
            return None
        return facts and (facts.st_ino, facts.st_size, facts.st_mtime_ns)

    def changed(self) -> str:
        """What to tell the person; empty as long as the file is the same."""
        if not self._says and self._file is not None and self._facts() != self._before:
            self._says = f"{self._file.name} has changed; that takes effect with the next run."
        return self._says


async def with_deliveries(given: Given, end: Report) -> Report:
    """The report, with the branches that hold the work."""
    if not isinstance(given.places, Worktrees):
        return end
    try:
        return replace(end, deliveries=await given.places.deliveries(end.tasks))
    except ToolError:
        return end
