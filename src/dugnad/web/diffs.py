"""What a task changed, as the lines of a diff: as it was merged, or as it lies on the branch of its last attempt.

Git is asked only through `workspace/git/git.py`, and can start nothing. Everything is bounded, and names and contents,
which may be any bytes, become text that can do no harm. Where there is nothing to show, a sentence says why.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ToolError
from ..text import clean, one_line
from ..types import Task
from ..workspace.git.git import Git
from ..workspace.git.worktree import BRANCHES, branch_of

FILES_MAX = 400
LINES_MAX = 20_000
TEXT_CHARS_MAX = 2 * 1024 * 1024  # Of all lines together,
LINE_CHARS_MAX = 2_000  # and of one.
_BLOBS_BYTES_MAX = 8 * 1024 * 1024  # Of all versions that git compares;
_BLOB_BYTES_MAX = 1024 * 1024  # one that is larger is not compared.
_PATHS_CHARS_MAX = 256 * 1024  # They are words of a command.
_SECONDS_MAX = 30.0
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})(?:,\d+)? @@")
_NO_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # The empty tree, which git knows without having it.
Diff = dict[str, Any]


class NoDiff(Exception):
    """There is nothing to show, and this is why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Which commits are compared."""

    base: str
    commit: str
    into: str | None  # The branch that it was merged into, or is to be.
    merged: bool


@dataclass(frozen=True, slots=True)
class _ChangedFile:
    path: str
    kind: str  # Git's letter: A, D, M or T.
    added: int | None  # None: it is no text, or too large.
    removed: int | None
    bytes: int


async def task_diff(root: Path | None, task: Task, *, merge: tuple[str | None, str | None], into: str | None) -> Diff:
    """The diff of a task. `merge`: the branch that its work was merged into, and the commit there. `into`: the branch
    that work of this board goes to, if it is known."""
    empty: Diff = {"commit": None, "base": None, "into": None, "merged": False, "files": [], "more_files": 0}
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            git = await _repository(root, task)
            change = await _change(git, task, merge, into)
            files, more = await _files(git, change)
    except NoDiff as why:
        return {**empty, "says": str(why)}
    except TimeoutError:
        return {**empty, "says": f"Git did not answer within {_SECONDS_MAX:.0f} seconds."}
    except (ToolError, OSError) as trouble:
        return {**empty, "says": one_line(clean(str(trouble)), 500)}
    says = None if files else "The commit changes no file."
    return {
        "commit": change.commit, "base": change.base, "into": clean(change.into) if change.into else None,
        "merged": change.merged, "files": files, "more_files": more, "says": says,
    }  # fmt: skip


async def _repository(root: Path | None, task: Task) -> Git:
    if root is None:
        raise NoDiff("The project's folder is not known here; run `dugnad web` in it, or name it instead of the board.")
    git = await Git.find(root, path=os.environ.get("PATH", os.defpath))
    if git is None:
        where = f" Its files are in {one_line(task.files_in, 300)}." if task.files_in else ""
        raise NoDiff(f"The project is not in git, so nothing is merged.{where}")
    return git


async def _change(git: Git, task: Task, merge: tuple[str | None, str | None], into: str | None) -> Change:
    branch, commit = merge
    if commit is not None:
        tip = await git.commit_of(commit) if _COMMIT.fullmatch(commit) else None
        if tip is None:
            raise NoDiff(f"The commit {one_line(commit, 64)} is not in this repository; it may be on another machine.")
        base = await git.commit_of(f"{tip}^1") or _NO_TREE
        return Change(base=base, commit=tip, into=branch, merged=True)
    if branch is not None:
        raise NoDiff(f"Nothing was merged: {one_line(branch, 100)} had all of it before.")
    tip = await _last_attempt(git, task)
    if tip is None:
        raise NoDiff("No work of this task is in the repository: it changed nothing, or was never begun.")
    target = into or f"{BRANCHES}{await git.head_branch() or 'work'}"
    head = await git.commit_of(f"refs/heads/{target}")
    parted = (await git.run("merge-base", head, tip, may_fail=True)).text.strip() if head else ""
    return Change(base=parted or _NO_TREE, commit=tip, into=target, merged=False)


async def _last_attempt(git: Git, task: Task) -> str | None:
    """The tip of the branch of the last attempt, if there is one."""
    from ..team.workspaces.workspace import mark_of

    pattern = branch_of(f"{mark_of(task)}.*")
    names = (await git.run("for-each-ref", "--format=%(refname)", pattern)).text.split()
    epochs = {int(end): name for name in names if (end := name.rpartition(".")[2]).isdecimal()}
    return await git.commit_of(epochs[max(epochs)]) if epochs else None


# Files.


async def _files(git: Git, change: Change) -> tuple[list[Diff], int]:
    """Every changed file with its lines, as far as they fit; and how many files are left out."""
    listed, more = await _listed(git, change)
    shown, left = [], _BLOBS_BYTES_MAX
    for file in listed:
        fits = file.added is not None and file.bytes <= left and file.bytes <= 2 * _BLOB_BYTES_MAX
        if fits:
            shown.append(file)
            left -= file.bytes
    sections = iter(await _sections(git, change, [each.path for each in shown]))
    wanted, budget = set(shown), _LineBudget()
    files = []
    for file in listed:
        parts = [next(sections, "") for _ in range(2 if file.kind == "T" else 1)] if file in wanted else []
        lines = [line for part in parts for line in _lines(part, budget)]
        files.append({
            "path": clean(file.path), "added": file.added or 0, "removed": file.removed or 0, "lines": lines,
            "binary": file.added is None, "cut": file.added is not None and (file not in wanted or budget.spent),
        })  # fmt: skip
    return files, more


async def _listed(git: Git, change: Change) -> tuple[list[_ChangedFile], int]:
    words = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", change.base, change.commit)
    fields = (await git.run(*words)).text.split("\0")
    rows = [(fields[at].split(), fields[at + 1]) for at in range(0, len(fields) - 1, 2)]
    kept, room = [], _PATHS_CHARS_MAX
    for facts, path in rows[:FILES_MAX]:
        room -= len(path) + 1
        if room < 0:
            break
        kept.append((facts, path))
    if not kept:
        return [], len(rows)
    blobs = [each for facts, _ in kept for each in facts[2:4]]
    asked = "\n".join(blobs).encode()
    sizes = (await git.run("cat-file", "--batch-check=%(objectsize)", stdin=asked)).text.splitlines()
    size = {blob: int(said) if said.isdecimal() else 0 for blob, said in zip(blobs, sizes, strict=True)}
    counts = await _counts(git, change, [path for _, path in kept])
    found = [
        _ChangedFile(path, facts[4][:1], *counts.get(path, (None, None)), size[facts[2]] + size[facts[3]])
        for facts, path in kept
    ]
    return found, len(rows) - len(found)


def _compare(change: Change, paths: Sequence[str], *how: str) -> tuple[str, ...]:
    """What is larger than a blob may be counts as no text."""
    options = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
    begin = ("--literal-pathspecs", "-c", f"core.bigFileThreshold={_BLOB_BYTES_MAX}")
    return (*begin, "diff-tree", "-r", *how, *options, change.base, change.commit, "--", *paths)


async def _counts(git: Git, change: Change, paths: Sequence[str]) -> dict[str, tuple[int | None, int | None]]:
    listed = (await git.run(*_compare(change, paths, "-z", "--numstat"))).text
    rows = [each.split("\t", 2) for each in listed.split("\0") if each]
    return {
        path: (int(added), int(removed)) if added.isdecimal() and removed.isdecimal() else (None, None)
        for added, removed, path in rows
    }


async def _sections(git: Git, change: Change, paths: Sequence[str]) -> list[str]:
    """The part of the patch about each file, in order. A line of a file cannot look like the beginning of a part: each
    has a sign before it."""
    if not paths:
        return []
    patch = (await git.run(*_compare(change, paths, "-p"))).text
    return re.split(r"^diff --git ", patch, flags=re.MULTILINE)[1:]


# Lines.


class _LineBudget:
    """How much may still be shown."""

    def __init__(self) -> None:
        self._lines, self._chars, self.spent = LINES_MAX, TEXT_CHARS_MAX, False

    def take(self, text: str) -> bool:
        self._lines -= 1
        self._chars -= len(text)
        self.spent = self.spent or self._lines < 0 or self._chars < 0
        return not self.spent


def _lines(section: str, budget: _LineBudget) -> Iterator[Diff]:
    old = new = 0
    _, _, hunks = section.partition("\n@@ ")
    for line in f"@@ {hunks}".split("\n") if hunks else ():
        text = clean(line[:LINE_CHARS_MAX]) + ("…" if len(line) > LINE_CHARS_MAX else "")
        if line[:1] not in ("@", "+", "-", " ") or not budget.take(text):
            continue
        if found := _HUNK.match(line):
            old, new = int(found[1]), int(found[2])
            yield {"kind": "@", "old": old, "new": new, "text": text}
            continue
        kind = line[:1]
        if kind == "@":
            continue
        yield {
            "kind": kind, "old": old if kind != "+" else None, "new": new if kind != "-" else None, "text": text[1:],
        }  # fmt: skip
        old, new = old + (kind != "+"), new + (kind != "-")
