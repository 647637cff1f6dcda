"""The merge queue: finished work goes into the target one task at a time, checked as it will be there.

The queue is a lock (`merge_lock.py`), which ends with its process, and the target itself. The target moves in one step,
from the very commit that the work was checked on, and only while the task's fence is the attempt's own. So it is whole
at every moment, and an attempt that was overtaken cannot move it. Whether a merge happened before a crash is read from
the target. Each task is one commit there. A conflict is never resolved here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from ...errors import StaleClaim
from ...logs import logger
from ...logs.steps import step
from ...text import clean, pasted
from .merge_lock import turn
from .merging import TrialMerge, came_between, try_merge
from .ownership import GitTrouble
from .worktree import BRANCHES, Tree, on_branch
from .worktrees import Trees

Check = Callable[[], Awaitable[str | None]]  # Of the tree as it is now. None: green.

_LOG = logger(__name__)
_MOVES_MAX = 20  # How often the target may move under us. Teammates wait for the lock, so a person moves it.
_TIP = "Dugnad-Tip"  # A trailer of commits in the target: the tip of the attempt's branch that was merged.
_LOOK_BACK_MAX = 10_000  # Commits of the target that are searched for a merge before a crash.


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The work is in the target. `commit` is None if there was nothing to add to it."""

    commit: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Both sides changed the same. `others` are the commits of the target that changed those files meanwhile."""

    files: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedAfterMerge:
    """Green by itself, red together with `others`, the commits of the target that came in between."""

    output: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is to be merged: a tip, checked, and how to say what it is."""

    tip: str
    message: str
    author: str


async def prepare_target(trees: Trees, start: str | None) -> str:
    """Make the target, or bring it up to date with the person's own branch. Returns what to tell the person."""
    git, target = trees.git, trees.target
    if (await git.run("check-ref-format", trees.target_name, may_fail=True)).code or clean(target) != target:
        raise GitTrouble(f"{target[:200]!r} cannot be the name of a branch here; name another one with --into.")
    await trees.bring(first=True)
    await trees.be_sure_it_is_free()
    for above in (*Path(target).parents[:-1], BRANCHES.rstrip("/")):  # Trees have branches there, too.
        if await git.commit_of(f"refs/heads/{above}") is not None:
            raise GitTrouble(
                f"There is a branch named {above}, so git can have none named {above}/…, which the team needs: rename "
                f"it, `git branch -m {pasted(str(above))} {pasted(f'{above}-old')}`."
            )
    if start is None or (theirs := await git.commit_of(start)) is None:
        raise GitTrouble("The repository has no commit yet; make a first one, so that there is something to work from.")
    if await _behind(trees, theirs) is not None:
        async with _turn(trees, f"a run brings {target} up to date"):
            while (ours := await _behind(trees, theirs)) is not None:
                if await _moved(trees, ours, theirs):
                    return ""
    ours = await git.commit_of(trees.target_name) or theirs
    if await git.is_in(theirs, ours):
        return ""
    own = start.removeprefix("refs/heads/") if start.startswith("refs/heads/") else start[:12]
    return (
        f"{target} lacks commits of {own}. If the team should have them: `git switch {pasted(target)} && git merge "
        f"{pasted(own)} && git switch -`."
    )


async def _behind(trees: Trees, theirs: str) -> str | None:
    """The target's commit, if the target has to move to the person's commit; empty: there is no target yet. None: it
    stays. A target of our own follows the person's branch; any other is the person's, and stays where it is.
    """
    ours = await trees.git.commit_of(trees.target_name)
    if ours is None:
        return ""
    follows = ours != theirs and trees.target.startswith(BRANCHES) and await trees.git.is_in(ours, theirs)
    return ours if follows else None


async def _moved(trees: Trees, old: str, new: str) -> bool:
    if trees.shared is not None:
        return await trees.shared.move_target(old, new)
    return await trees.git.move_when_free([(trees.target_name, old, new)])


async def merge(
    trees: Trees, tree: Tree, work: Work, *, check: Check, is_ours: Callable[[], Awaitable[None]],
    wait: Callable[[], Awaitable[None]] | None = None,
) -> Merged | Conflict | RedAfterMerge:  # fmt: skip
    """Merge, when it is our turn. `is_ours` raises StaleClaim if the board says that the task is another's. `wait`: for
    our turn among other machines."""
    with step("merge", trees.target) as facts:
        if wait is not None:
            await wait()
        async with _turn(trees, f"{work.author} merges #{tree.attempt.mark.partition('-')[0]}"):
            merged = await _merge(trees, tree, work, check, is_ours)
        facts["ended_as"] = type(merged).__name__
    _LOG.info("merged as=%s target=%s", type(merged).__name__, trees.target)
    return merged


async def _merge(
    trees: Trees, tree: Tree, work: Work, check: Check, is_ours: Callable[[], Awaitable[None]]
) -> Merged | Conflict | RedAfterMerge:  # fmt: skip
    git = trees.git
    for moved in range(_MOVES_MAX):
        await trees.bring()
        head = await trees.target_head()
        trial = await try_merge(git, head, work.tip)
        # A push that was not answered may have landed after all.
        before = tree.attempt.goes_on or (moved and trees.shared is not None)
        if before and (found := await _merged_before(trees, tree, trial)):
            return Merged(commit=found)
        if not trial.files and trial.tree == await git.tree_of(head):
            return Merged(commit=None)
        commit = await _checked(tree, work, trial, check)
        if not isinstance(commit, str):
            return commit
        await trees.be_sure_it_is_free()
        await is_ours()
        if await _advance(trees, tree, head, commit):
            return Merged(commit=commit)
    raise GitTrouble(f"The branch {trees.target} keeps moving under the merge; stop moving it for a while.")


async def rehearse(trees: Trees, tree: Tree, work: Work, *, check: Check) -> TrialMerge | Conflict | RedAfterMerge:
    """What a merge would come to as the target is now. No name moves, and the tree is afterwards as it was."""
    await trees.bring()
    trial = await try_merge(trees.git, await trees.target_head(), work.tip)
    came = await _checked(tree, work, trial, check)
    if not isinstance(came, str):
        return came
    if not on_branch(tree.own):
        await tree.back_to_branch()
    return trial


async def _checked(tree: Tree, work: Work, trial: TrialMerge, check: Check) -> str | Conflict | RedAfterMerge:
    """The commit that the target may move to. The tree shows it, if that is not what was checked before."""
    git = tree.git
    if trial.files:
        if not on_branch(tree.own):  # It shows an earlier try; the target has moved since.
            await tree.back_to_branch()
        return Conflict(files=trial.files, others=await came_between(git, trial, trial.files))
    message = f"{work.message.rstrip()}\n\n{_TIP}: {work.tip}\n"
    commit = await tree.git_commit(trial.tree, [trial.head], message, work.author)
    if trial.tree != await git.tree_of(work.tip):
        await tree.show(commit)
        if (red := await check()) is not None:
            await tree.back_to_branch()
            return RedAfterMerge(output=red, others=await came_between(git, trial))
    return commit


async def _advance(trees: Trees, tree: Tree, head: str, commit: str) -> bool:
    """The one step. False: the target has moved meanwhile."""
    if trees.shared is not None:
        return await trees.shared.land(tree.fence_name, tree.fence, head, commit)
    fence = (tree.fence_name, tree.fence)
    if await trees.git.move_when_free([(trees.target_name, head, commit)], verified=[fence]):
        return True
    if await trees.git.object_of(tree.fence_name) != tree.fence:
        raise StaleClaim
    return False


async def _merged_before(trees: Trees, tree: Tree, trial: TrialMerge) -> str | None:
    """The commit of this very work in the target, if it was merged before a crash and nobody could say so."""
    if trial.base == trial.head:
        return None
    between = f"{trial.base}..{trial.head}" if trial.base else trial.head
    git, form = trees.git, f"--format=%H %ce %(trailers:key={_TIP},valueonly,separator=%x20)"
    found = await git.run("log", form, f"--max-count={_LOOK_BACK_MAX}", between)
    for line in found.text.splitlines():
        commit, by, *tips = line.split()
        if by == tree.attempt.committer and tips and await git.tree_of(tips[-1]) == await git.tree_of(trial.tip):
            return commit
    return None


def _turn(trees: Trees, what: str) -> AbstractAsyncContextManager[None]:
    """One merge at a time for each target."""
    name = trees.target.removeprefix(BRANCHES).replace("/", "%")
    path = trees.git.directory / "dugnad" / f"{name}.lock"
    return turn(path, what, lease_seconds=trees.lease_seconds, tell=trees.on_wait, tell_seconds=trees.tell_seconds)
