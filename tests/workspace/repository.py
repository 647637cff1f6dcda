"""What the tests of git share: a small repository with a person in it, and trees of a team over it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dugnad.workspace.git.git import Git
from dugnad.workspace.git.merge_queue import Conflict, Merged, RedAfterMerge, Work, merge, prepare_target
from dugnad.workspace.git.worktree import AttemptRef, Tree
from dugnad.workspace.git.worktrees import Trees

PERSON = ("-c", "user.name=A person", "-c", "user.email=person@example.org")
FILES: Mapping[str, str] = {"README.md": "# A project\n"}
CLEAN = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C"}


def git(where: Path, *words: str) -> str:
    """As the person: plain git, with all that the repository's settings say."""
    command = ["git", *PERSON, *words]
    ran = subprocess.run(command, cwd=where, env=CLEAN, capture_output=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.decode(errors="surrogateescape").strip()


def new_repository(where: Path, files: Mapping[str, str] = FILES) -> Path:
    where.mkdir(parents=True, exist_ok=True)
    git(where, "init", "--quiet", "--initial-branch=main", ".")
    for name, text in files.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(text)
    (where / ".dugnad").mkdir(exist_ok=True)
    (where / ".dugnad" / ".gitignore").write_text("*\n")
    git(where, "add", "--all")
    git(where, "commit", "--quiet", "--message", "Begin")
    return where


async def trees_of(where: Path, target: str = "dugnad/main", *, prepared: bool = True) -> Trees:
    found = await Git.find(where, path=os.environ["PATH"])
    assert found is not None
    trees = Trees(git=found, folder=where / ".dugnad" / "trees", target=target)
    if prepared:
        await prepare_target(trees, "refs/heads/main")
    return trees


def attempt(task: int, epoch: int = 1, born: int | None = None, *, in_order: bool = True) -> AttemptRef:
    before = 0 if born in (None, epoch) else epoch - 1
    return AttemptRef(mark=f"{task}-abcd1234", epoch=epoch, born=born or epoch, before=before, in_order=in_order)


async def green() -> str | None:
    return None


async def ours() -> None:
    return None


async def finish(
    trees: Trees, tree: Tree, check: object = green, is_ours: object = ours
) -> Merged | Conflict | RedAfterMerge:
    """Commit what is in the tree, and merge it."""
    tip = await tree.commit("Some work", "alice")
    work = Work(tip=tip, message="Some work", author="alice")
    return await merge(trees, tree, work, check=check, is_ours=is_ours)  # type: ignore[arg-type]


def at(where: Path, name: str, file: str) -> str:
    """A file as it is on a branch."""
    return git(where, "show", f"{name}:{file}")


def subjects(where: Path, name: str = "dugnad/main") -> list[str]:
    return git(where, "log", "--format=%s", name).splitlines()
