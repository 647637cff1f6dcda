"""A tree of its own for each attempt, on a branch of its own, from the target's head.

The process that works in a tree holds its lock. An attempt that goes on from one that ended in order takes its tree
over as it is. An attempt that goes on from one whose host was lost gets a copy, because processes of that host may
still write there. First of all an attempt raises the task's fence in the repository: from then on no earlier one can
merge.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import StaleClaim, ToolError
from ...safe_open import held
from ...text import pasted
from . import private_repository
from .git import Git
from .merge_lock import is_at, open_lock
from .merging import TrialMerge, try_merge
from .obstacles import names_in, remove_all
from .ownership import GitTooSlow, GitTrouble
from .sharing import COPIES, SharedNames, copied_branch, handed_on
from .worktree import (
    BRANCHES,
    CHECKING,
    FENCES,
    AttemptRef,
    Tree,
    branch_of,
    held_in,
    on_branch,
    scratch_of,
)  # fmt: skip

_NAME = re.compile(r"(?P<mark>\d+-[0-9a-f]+)\.(?P<epoch>\d+)")
_STAGE_TRIES = 10
_WHOLE = "dugnad-whole"  # A file in a tree's git directory: the tree is complete, and nobody began to remove it.


@dataclass(kw_only=True)
class Trees:
    """All trees of one project on this machine."""

    git: Git
    folder: Path
    target: str  # The branch that finished work goes to.
    bytes_max: int = 1024**3  # Of all files that one attempt changes or adds.
    lease_seconds: float = 30.0  # A process that merges and says nothing for so long is not waited for.
    tell_seconds: float = 3.0  # How long a merge waits for its turn before `on_wait` is told
    on_wait: Callable[[str], None] = lambda _: None  # whom it waits for, and at the end an empty text.
    shared: SharedNames | None = None  # If hosts on other machines work on the same.

    def __post_init__(self) -> None:
        self.folder = self.folder.parent.resolve() / self.folder.name  # As git names it.

    @property
    def target_name(self) -> str:
        return f"refs/heads/{self.target}"

    async def target_head(self) -> str:
        if (head := await self.git.commit_of(self.target_name)) is None:
            raise GitTrouble(
                f"The branch {self.target} is gone, and finished work goes there: `git branch {pasted(self.target)}` "
                "makes it again from what you have checked out."
            )
        return head

    async def be_sure_it_is_free(self) -> None:
        """GitTrouble: the target is checked out, so it would move under the person who works there."""
        if where := (await self.git.checked_out()).get(self.target):
            raise GitTrouble(
                f"The branch {self.target} is checked out in {where}, and what is checked out is yours: switch to "
                "another branch there, or name another target with --into."
            )

    async def bring(self, *, first: bool = False, at_once: bool = False) -> None:
        """Have here what the remote has, if there is one."""
        if self.shared is not None:
            await self.be_sure_it_is_free()
            await self.shared.bring(first=first, at_once=at_once)

    async def claimed(self, mark: str | None, epoch: int) -> None:
        """Before an attempt begins: raise its fence at the remote, and bring what is there. No mark: a review."""
        if self.shared is not None and mark is not None:
            await self.shared.begin(mark, epoch)
        await self.bring()

    async def keep(self, tree: Tree, tip: str) -> None:
        if self.shared is not None:
            await self.shared.keep(tree.branch, tip)

    async def begin(self, attempt: AttemptRef) -> Tree:
        """The tree of an attempt: taken over, copied, or made from the target's head."""
        with held(self.folder, make=True):
            pass
        fence = await self._raise_fence(attempt)
        line = [f"{attempt.mark}.{epoch}" for epoch in await self._line(attempt)]
        for name in filter(lambda name: self._has_all(name, attempt), line):
            if (tree := await self._go_on(name, attempt, fence)) is not None:
                return tree
        if attempt.goes_on and (left := await self.git.commit_of(handed_on(f"{attempt.mark}.{attempt.before}"))):
            return await self._make(attempt, fence, left, carried_over=True)
        for name in line:
            if (tree := await self._go_on(name, attempt, fence, older=True)) is not None:
                return tree
        start = await self.git.commit_of(attempt.at) if attempt.at else await self.target_head()
        if start is None:
            raise ToolError(f"The commit {attempt.at} is not in this repository; it may be on another machine.")
        return await self._make(attempt, fence, start)

    def _has_all(self, name: str, attempt: AttemptRef) -> bool:
        """Whether a tree here has all that was changed so far: no attempt was on another machine since, and it did not
        begin without that."""
        held = held_in(own) if (own := self._whole(name)) is not None else None
        return held == attempt.before if self.shared is not None else held != 0

    async def _go_on(self, name: str, attempt: AttemptRef, fence: str, *, older: bool = False) -> Tree | None:
        """Take over an earlier tree, or make one from what is left of it. None: nothing is left."""
        own = self._whole(name)
        if own and attempt.in_order and not older and (tree := self._take(name, own, attempt, fence)) is not None:
            try:
                await tree.clear_up()
            except BaseException:
                tree.let_go()
                raise
            return tree
        start = await (self._copy_of(name, own, attempt) if own else self.git.commit_of(branch_of(name)))
        start = start or await self.git.commit_of(copied_branch(name))
        return await self._make(attempt, fence, start, carried_over=True, older=older) if start is not None else None

    async def _line(self, attempt: AttemptRef) -> list[int]:
        """The earlier epochs of this line of attempts that left a tree or a branch, the last first."""
        if not attempt.goes_on:
            return []
        left = {*self.names(attempt.mark), *(each.rpartition("task-")[2] for each in await self.branches(attempt.mark))}
        left |= {each for each in await self._copies() if each.startswith(f"{attempt.mark}.")}
        epochs = {int(each.rpartition(".")[2]) for each in left}
        return sorted((each for each in epochs if attempt.born <= each < attempt.epoch), reverse=True)

    async def _raise_fence(self, attempt: AttemptRef) -> str:
        """From now on, no earlier attempt at this task can merge. StaleClaim: there is a later one."""
        ours = await self.git.blob(f"{attempt.epoch}\n")
        name = FENCES + attempt.mark
        while (now := await self.git.object_of(name)) != ours:
            if now and int(await self.git.content(now) or 0) > attempt.epoch:
                raise StaleClaim
            if await self.git.move_when_free([(name, now, ours)]):
                break
        return ours

    def names(self, mark: str | None = None) -> list[str]:
        """The names of the trees of one task or of all, also of those that left only a lock."""
        found = map(_NAME.fullmatch, sorted({each.removesuffix(".lock") for each in names_in(self.folder)}))
        return [each[0] for each in found if each and mark in (None, each["mark"])]

    async def marks(self) -> set[str]:
        """The marks of the tasks that have a tree, a lock, a branch or a fence."""
        fences = (await self.git.run("for-each-ref", "--format=%(refname)", FENCES)).text.split()
        names = [*names_in(self.folder), *(each.rpartition("task-")[2] for each in await self.branches())]
        found = map(_NAME.match, names)
        marks = {each["mark"] for each in found if each is not None} | {each.rpartition("/")[2] for each in fences}
        return marks | {each.partition(".")[0] for each in await self._copies()}

    def _take(self, name: str, own: Path, attempt: AttemptRef, fence: str) -> Tree | None:
        """A tree that is there already, if nobody holds it."""
        if (lock := self._locked(name)) is None:
            return None
        tree = self._tree(attempt, own, name=name, fence=fence, _lock=lock)
        private_repository.write(tree.path / ".git", f"gitdir: {own}\n")  # The project may have been moved since.
        tree.hold()
        return tree

    def _tree(self, attempt: AttemptRef, own: Path, *, name: str, **about: Any) -> Tree:
        path = self.folder / name
        return Tree(git=self.git, attempt=attempt, name=name, path=path, own=own, bytes_max=self.bytes_max, **about)

    def _locked(self, name: str) -> int | None:
        """The lock of a tree, which ends with this process; None: another process has it."""
        path = self.folder / f"{name}.lock"
        while True:
            lock = open_lock(path)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                return None
            if is_at(path, lock):
                return lock
            os.close(lock)  # The process that held it has removed its file.

    def _whole(self, name: str) -> Path | None:
        """The git directory of a tree that was made to its end; None: it was not, or there is none."""
        own = self._own(name)
        return own if own is not None and (own / _WHOLE).exists() else None

    def _own(self, name: str) -> Path | None:
        """The git directory of a tree, as the repository says and not the tree."""
        path, own = self.folder / name, self._private(name)
        if (own / "HEAD").exists():
            self.git.make_private(own, None)
            return own
        # An earlier version had git keep it among the user's worktrees.
        for each in names_in(self.git.directory / "worktrees"):
            before = self.git.directory / "worktrees" / each
            if (private_repository.read(before / "gitdir") or "").strip() == str(path / ".git"):
                self.git.make_private(own, branch_of(name))
                private_repository.write(own / "HEAD", private_repository.read(before / "HEAD") or "")
                for file in ("index", _WHOLE, CHECKING):
                    if (before / file).is_file() and not (before / file).is_symlink():
                        shutil.copyfile(before / file, own / file)
                shutil.rmtree(before, ignore_errors=True)
                return own
        return None

    def _private(self, name: str) -> Path:
        return self.git.directory / "dugnad" / "trees" / name

    async def _copy_of(self, name: str, own: Path, attempt: AttemptRef) -> str | None:
        """A commit of what a tree holds, made without touching the tree: a process may still work in it."""
        branch = branch_of(name)
        head = await self.git.commit_of(branch)
        if head is None or not on_branch(own):
            # It was being merged, so all its work is on its branch, and the tree has the work of others too.
            return head
        # With an index of its own, in the git directory of the tree that is to be made.
        aside = self._private(attempt.name)
        self.git.make_private(aside, branch)
        for file in ("index", "index.lock"):
            (aside / file).unlink(missing_ok=True)
        copy = self._tree(attempt, aside, name=name)
        if (own / CHECKING).exists():  # The tree may have files of a check; the index was written before it.
            await asyncio.to_thread(shutil.copyfile, own / "index", aside / "index")
        else:
            await copy.run("read-tree", head)
            for left in reversed(range(_STAGE_TRIES)):
                try:
                    await copy.stage(whatever=True)
                    break
                except GitTooSlow:
                    raise
                except GitTrouble:  # Something changed under it.
                    if not left:
                        raise
        made = (await copy.run("write-tree")).strip()
        if made == await self.git.tree_of(head):
            return head
        author = attempt.authors.get(int(name.rpartition(".")[2]), "dugnad")
        return await copy.git_commit(made, [head], "What a host that was lost had in its tree", author)

    async def _make(
        self, attempt: AttemptRef, fence: str, start: str, *, carried_over: bool = False, older: bool = False
    ) -> Tree:
        path, own = self.folder / attempt.name, self._private(attempt.name)
        lock = self._locked(attempt.name)
        if lock is None:
            raise StaleClaim  # Another process works under this very epoch, so it is not ours.
        tree = self._tree(
            attempt, own, name=attempt.name, fence=fence, anew=attempt.goes_on and not carried_over,
            carried_over=carried_over, older=older, _lock=lock,
        )  # fmt: skip
        try:
            await self._clear(attempt.name, keep_branch=True)  # A crash may have left half of it.
            path.mkdir()
            self.git.make_private(own, tree.branch)
            await self.git.run("update-ref", tree.branch, start)
            # This can be made again, so it need not wait until every file is on the disk.
            await tree.run("-c", "core.fsync=none", "read-tree", "--reset", "-u", start)
            private_repository.write(path / ".git", f"gitdir: {own}\n")
            tree.hold(lacks_work=tree.anew or older)
            (own / _WHOLE).touch()
        except BaseException as trouble:
            if isinstance(trouble, GitTrouble | OSError):  # It may come again with every attempt.
                with suppress(GitTrouble, OSError):
                    await self._remove(attempt.name)
            tree.let_go()
            raise
        return tree

    async def update(self, tree: Tree, author: str) -> TrialMerge | None:
        """Bring the target as it is now into a tree. What conflicts is marked in its files. None: it has all of it."""
        await self.bring()
        tip, head = await tree.commit("Work until here", author), await self.target_head()
        if await self.git.is_in(head, tip):
            return None
        trial = await try_merge(self.git, head, tip)
        await tree.bring_in(trial, author)
        return trial

    async def would_be(self, tip: str) -> tuple[str, TrialMerge | None]:
        """A commit for a reviewer to look at: the target as it is now with this tip merged into it. The tip itself, if
        it conflicts or is not here."""
        if await self.git.commit_of(tip) is None:
            return tip, None
        trial = await try_merge(self.git, await self.target_head(), tip)
        if trial.files:
            return tip, trial
        words = ("commit-tree", trial.tree, "-p", trial.head, "-m", "What would be merged")
        return (await self.git.run(*words)).text.strip(), trial

    # What is left.

    async def remove(self, tree: Tree, *, keep_branch: bool = False) -> None:
        """Remove the tree, and its branch unless that is to be kept."""
        await self._remove(tree.name, keep_branch=keep_branch)
        tree.let_go()

    async def _remove(self, name: str, *, keep_branch: bool = False) -> None:
        """The caller holds the tree's lock, whose file is removed last."""
        await self._clear(name, keep_branch=keep_branch)
        (self.folder / f"{name}.lock").unlink(missing_ok=True)

    async def _clear(self, name: str, *, keep_branch: bool = False) -> None:
        own = self._own(name)
        if own is not None:
            (own / _WHOLE).unlink(missing_ok=True)
        for each in (scratch_of(self.folder / name), self.folder / name):
            await remove_all(each, outside=self.git.top)
        if own is not None:
            await asyncio.to_thread(shutil.rmtree, own, ignore_errors=True)
        if not keep_branch:
            await self._drop(branch_of(name))

    async def _drop(self, name: str) -> None:
        """Delete a branch or a fence, if it is there."""
        if at := await self.git.object_of(name):
            await self.git.move([(name, at, "")])

    async def forget(self, mark: str) -> None:
        """Remove all that is left of a task whose work is in the target, except trees that are held."""
        for name in self.names(mark):
            if (lock := self._locked(name)) is not None:
                await self._remove(name)
                os.close(lock)
        for name in await self.branches(mark):
            if name.rpartition("task-")[2] not in self.names(mark):
                await self._drop(f"refs/heads/{name}")
        await self._drop_fence(mark, branches=True)

    async def _drop_fence(self, mark: str, *, branches: bool = False) -> None:
        """Also at the remote, with the branches there."""
        await self._drop(FENCES + mark)
        if self.shared is not None:
            with suppress(GitTrouble):
                await self.shared.forget(mark, branches=branches)

    async def _copies(self) -> list[str]:
        """What the remote has of all hosts: the names of trees that have a branch there, and the marks of fences."""
        listed = await self.git.run("for-each-ref", "--format=%(refname:lstrip=-1)", COPIES)
        return [each.removeprefix("task-") for each in listed.text.split()]

    async def branches(self, mark: str | None = None) -> list[str]:
        """The branches of attempts, of one task or of all."""
        pattern = f"refs/heads/{BRANCHES}task-{mark + '.' if mark else ''}*"
        return (await self.git.run("for-each-ref", "--format=%(refname:lstrip=2)", pattern)).text.split()

    async def sweep(self, keeps: Callable[[str], bool | None]) -> None:
        """Remove trees that nobody holds and whose task has ended. `keeps` says for a mark whether its work stays on
        its branch; None: the task is open, or another board's."""
        for name in self.names():
            mark, _, epoch = name.rpartition(".")
            if (kept := keeps(mark)) is None or (lock := self._locked(name)) is None:
                continue
            if (own := self._whole(name)) is not None:
                attempt = AttemptRef(mark=mark, epoch=int(epoch), born=int(epoch))
                tree = self._tree(attempt, own, name=name, _lock=lock)
                try:
                    await self.put_away(tree, keep=kept)
                except GitTrouble:
                    tree.let_go()  # It stays; a later sweep may find more room on the disk.
            else:
                await self._remove(name, keep_branch=kept)
                os.close(lock)
        for mark in await self.marks():
            if (kept := keeps(mark)) is False:
                await self.forget(mark)
            elif kept:
                await self._drop_fence(mark)

    async def put_away(self, tree: Tree, *, keep: bool) -> str | None:
        """Remove a tree. With `keep`, its changes stay on its branch, which is returned. GitTrouble: they cannot be put
        there, so the tree is kept."""
        kept = False
        if keep:
            await tree.clear_up()
            tip = await tree.commit_whatever("What was there when the attempt ended", "dugnad")
            kept = await tree.is_ahead(self.target_name, tip)
            with suppress(GitTrouble):  # Then it is on this machine alone.
                if kept and self.shared is not None:
                    await self.shared.keep(tree.branch, tip, at_once=True)
        await self.remove(tree, keep_branch=kept)
        return tree.branch.removeprefix("refs/heads/") if kept else None
