"""A merge tried in the repository alone, without a tree: what comes of it, what conflicts, and who changed the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .git import Git
from .ownership import GitTrouble

_SHOWN_MAX = 20
_TASK = re.compile(r"^Dugnad-Task: (#\d+)$", re.MULTILINE)  # The last one is ours; others are an author's words.


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialMerge:
    """A tip merged onto a head. `tree` has marks in the files that conflict, where git can make some."""

    head: str
    tip: str
    base: str  # Where the two parted; empty: nowhere.
    tree: str
    files: tuple[str, ...] = ()  # That conflict; none: it merges cleanly.
    said: tuple[str, ...] = ()  # What git says of each conflict.


async def try_merge(git: Git, head: str, tip: str) -> TrialMerge:
    """Never resolves a conflict, and moves no name."""
    base = (await git.run("merge-base", head, tip, may_fail=True)).text.strip()
    if base == head:
        return TrialMerge(head=head, tip=tip, base=base, tree=await git.tree_of(tip))
    words = ("merge-tree", "--write-tree", "--name-only", "--messages", "-z", "--allow-unrelated-histories")
    tried = await git.run(*words, head, tip, may_fail=True)
    if tried.code not in (0, 1):
        raise GitTrouble(f"git merge-tree failed: {tried.errors.strip()[:500]}")
    tree, _, rest = tried.text.partition("\0")
    names, _, messages = rest.partition("\0\0") if not rest.startswith("\0") else ("", "", rest[1:])
    files = tuple(dict.fromkeys(each for each in names.split("\0") if each)) if tried.code else ()
    return TrialMerge(head=head, tip=tip, base=base, tree=tree, files=files, said=_conflicts(messages))


def _conflicts(messages: str) -> tuple[str, ...]:
    """The messages about conflicts. Each is a count, so many paths, a kind and a text."""
    left = messages.split("\0")
    found: list[str] = []
    while len(left) > 3:
        kind, text = left[int(left[0]) + 1 : int(left[0]) + 3]
        left = left[int(left[0]) + 3 :]
        if kind.startswith("CONFLICT"):
            found.append(text.strip())
    return tuple(found[:_SHOWN_MAX])


async def came_between(git: Git, trial: TrialMerge, files: Sequence[str] = ()) -> tuple[str, ...]:
    """The commits that the head has and the tip has not, each with its task and its author. `files`: only those that
    changed one of these."""
    between = f"{trial.base}..{trial.head}" if trial.base else trial.head
    form = "--format=%h %s%x1f%an%x1f%b%x1e"
    only = ("--", *(f":(literal,top){each}" for each in files[:_SHOWN_MAX])) if files else ()
    listed = await git.run("log", form, f"--max-count={_SHOWN_MAX}", between, *only)
    parts = (each.strip("\n").split("\x1f", 2) for each in listed.text.split("\x1e") if each.strip("\n"))
    return tuple(
        f"{what} ({''.join(f'{each}, ' for each in _TASK.findall(body)[-1:])}by {who})" for what, who, body in parts
    )
