"""A project with an attack planted in it, taken through every command of ours that touches git.

`count` does so with all of them and says what ran; `bench/sandbox.py` counts with it as well.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from dugnad.cli.checks import Scene
from dugnad.cli.checks import git as doctors_git
from dugnad.errors import StaleClaim
from dugnad.workspace.git.merge_queue import Work, prepare_target, rehearse
from dugnad.workspace.git.merging import came_between
from dugnad.workspace.git.ownership import GitTrouble
from dugnad.workspace.git.worktree import Tree
from dugnad.workspace.git.worktrees import Trees
from tests.workspace.git_attacks import ATTACKS, FILES, Attack
from tests.workspace.repository import CLEAN, PERSON, attempt, finish, git, green, new_repository, trees_of


@dataclass(kw_only=True)
class Stage:
    """One project with one attack planted in it."""

    attack: Attack
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.folder / "p"

    @property
    def told(self) -> Path:
        return self.folder / "told"

    def filled(self, text: str) -> str:
        person = " ".join(f"'{each}'" for each in PERSON)
        names = {"{run}": str(self.folder / "run"), "{root}": str(self.root), "{person}": person}
        for name, value in names.items():
            text = text.replace(name, value)
        return text

    def set_up(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "run").write_text(f"#!/bin/sh\necho ran >> {self.told}\n")
        (self.folder / "run").chmod(0o755)
        new_repository(self.root, {**FILES, **self.attack.files})
        self.shell(self.attack.before, self.root, plain=True)
        self.plant()
        self.environment = {name: self.filled(value) for name, value in self.attack.environment.items()}

    def plant(self) -> None:
        for name, text in self.attack.beside.items():
            path = self.root / ".git" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.filled(text))
            path.chmod(0o755)
        with (self.root / ".git" / "config").open("a") as file:
            file.write(self.filled(self.attack.settings))

    def shell(self, script: str, where: Path, *, plain: bool = False) -> None:
        """As a person at a shell, or as a command that is not in any sandbox."""
        who = {
            "GIT_AUTHOR_NAME": "A",
            "GIT_AUTHOR_EMAIL": "a@b",
            "GIT_COMMITTER_NAME": "A",
            "GIT_COMMITTER_EMAIL": "a@b",
        }
        environment = {**CLEAN, **who, "TERM": "xterm", **({} if plain else self.environment)}
        if "HOME" in self.environment:
            del environment["GIT_CONFIG_GLOBAL"]
        command = ["sh", "-c", self.filled(script)]
        subprocess.run(
            command, cwd=where, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False
        )

    def has_run(self) -> bool:
        """Whether the program ran since this was last asked."""
        ran = self.told.exists()
        self.told.unlink(missing_ok=True)
        return ran

    def control(self) -> bool:
        """Whether plain git runs it."""
        where = self.root
        if self.attack.left:
            where = self.folder / "control"
            git(self.root, "worktree", "add", "--quiet", "-b", "control", str(where))
            self.shell(self.attack.left, where, plain=True)
        self.told.unlink(missing_ok=True)
        self.shell(self.attack.control, where)
        ran = self.has_run()
        if self.attack.left:
            git(self.root, "worktree", "remove", "--force", "--force", str(where))
        return ran


Change = Callable[[Trees], None]


async def everything(stage: Stage, change: Change = lambda trees: None) -> None:
    """Every command of ours that touches git. `change` is made to the trees once they are found."""
    trees = await trees_of(stage.root)
    change(trees)
    first, second, third, fourth = [await trees.begin(attempt(task)) for task in (1, 2, 3, 4)]
    for tree in (first, second, third, fourth):
        stage.shell(stage.attack.left, tree.path, plain=True)
        stage.told.unlink(missing_ok=True)  # What a command runs itself is not our doing.
        (tree.path / "a.txt").write_text(f"by {tree.name}\n")
        (tree.path / "c.py").write_text(f"c = '{tree.name}'\n")
        (tree.path / "new.txt").write_text("new\n")
        (tree.path / f"{tree.name}.txt").write_text("new\n")
    for tree in (first, second):
        for _ in range(2):
            with suppress(GitTrouble):
                await tree.changed()
            with suppress(GitTrouble):
                async with tree.checking():
                    (tree.path / "litter").write_text("x\n")
            with suppress(GitTrouble):
                await finish(trees, tree)  # Twice, so that there is a merge, and one that conflicts.
        with suppress(GitTrouble):
            await tree.show(await tree.head())
            await tree.back_to_branch()
    with suppress(GitTrouble):
        await look_and_update(trees, fourth)
    with suppress(GitTrouble):
        await trees.put_away(second, keep=True)
    lost = await trees.begin(attempt(1, epoch=2, born=1, in_order=False))
    third.let_go()
    again = await trees.begin(attempt(3, epoch=2, born=3))
    with suppress(GitTrouble):
        await again.commit_whatever("Whatever", "alice")
    for tree in (lost, again):
        with suppress(GitTrouble, StaleClaim):
            await finish(trees, tree)
        with suppress(GitTrouble):
            await trees.put_away(tree, keep=True)
    first.let_go()
    await trees.sweep(dict.fromkeys([f"{task}-abcd1234" for task in (1, 2)], False).get)
    await trees.forget("3-abcd1234")
    await prepare_target(trees, "refs/heads/main")
    (stage.root / "a.txt").write_text("by the person\n")
    with suppress(GitTrouble):
        await trees.git.is_dirty()
    for asked in (
        trees.git.checked_out(),
        trees.git.head_branch(),
        trees.git.own_head(),
        trees.git.is_tracked("a.txt"),
    ):
        await asked
    await doctors_git(Scene(start=stage.root, environment=os.environ))


async def look_and_update(trees: Trees, tree: Tree) -> None:
    """As for a review, and after a conflict."""
    tip = await tree.commit("Some work", "alice")
    await rehearse(trees, tree, Work(tip=tip, message="Some work", author="alice"), check=green)
    commit, trial = await trees.would_be(tip)
    await trees.git.change_size(await trees.target_head(), commit)
    if trial is not None:
        await came_between(trees.git, trial, ["a.txt"])
    await trees.update(tree, "alice")
    await tree.unresolved(trees.target_name)


async def count(folder: Path) -> tuple[int, list[str]]:
    """How many attacks plain git falls for, and the names of those that ours does."""
    attacks, ran = 0, []
    for number, attack in enumerate(ATTACKS):
        stage = Stage(attack=attack, folder=folder / str(number))
        stage.set_up()
        before = {name: os.environ.get(name) for name in stage.environment}
        os.environ.update(stage.environment)
        try:
            stage.told.unlink(missing_ok=True)
            await everything(stage)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        ran += [attack.name] * stage.has_run()
        attacks += stage.control()
    return attacks, ran


def with_settings(trees: Trees, settings: str) -> None:
    """Have our git read these, on purpose."""
    trees.git = replace(trees.git, settings=trees.git.settings + settings)
    trees.git.make_private(trees.git.private, "refs/heads/dugnad/none")
