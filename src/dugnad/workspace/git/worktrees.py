"""A tree of its own for each attempt, on a branch of its own, from the target's head.

A tree is held by a lock of the process that works in it. Who goes on from an attempt that was put down in order takes
its tree over as it stands; who goes on from one whose host was lost gets a copy of what it had, because something of
that host may still be writing there. Before anything else an attempt raises the task's fence in the repository itself:
from then on no earlier one can merge.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import StaleClaim
from ...safe_open import held
from ...text import pasted
from ..programs import find_program
from . import private_repository
from .git import Git, GitTrouble
from .worktree import BRANCHES, CHECKING, FENCES, AttemptRef, Tree, names_in, on_branch

_NAME = re.compile(r"(?P<mark>\d+-[0-9a-f]+)\.(?P<epoch>\d+)")
_LOOK_SECONDS = 0.05  # Between two tries to move a name.
_TRIES_MAX = 10
_WHOLE = "dugnad-whole"  # A file in a tree's git directory: it was made to its end, and nobody began to remove it.


@dataclass(kw_only=True)
class Trees:
    """All trees of one project on this machine."""

    git: Git
    folder: Path
    target: str  # The branch that finished work goes to.
    bytes_max: int = 1024**3  # Of all files that one attempt changes or adds.
    lease_seconds: float = 30.0  # Of whoever merges: who does not say for so long that it lives is not waited for.
    tell_seconds: float = 3.0  # Of waiting for a turn to merge, before `on_wait` is told
    on_wait: Callable[[str], None] = lambda _: None  # for whom, and with an empty text that it is over.

    def __post_init__(self) -> None:
        self.folder = self.folder.parent.resolve() / self.folder.name  # As git names it.

    @property
    def target_name(self) -> str:
        return f"refs/heads/{self.target}"

    async def begin(self, place: AttemptRef) -> Tree:
        """The tree of an attempt: taken over, copied, or made from the target's head."""
        with held(self.folder, make=True):
            pass
        fence = await self._raise_fence(place)
        for epoch in await self._line(place):
            name = f"{place.mark}.{epoch}"
            own = self._own(self.folder / name)
            whole = own is not None and (own / _WHOLE).exists()
            if whole and place.in_order and (tree := self._take(name, place, fence)) is not None:
                try:
                    await tree.clear_up()
                except BaseException:
                    tree.let_go()
                    raise
                return tree
            start = (
                await self._copy_of(self.folder / name, own, place)
                if whole and own is not None
                else await self.git.commit_of(f"refs/heads/{BRANCHES}task-{name}")
            )
            if start is not None:
                return await self._make(place, fence, start, carried_over=True)
        start = await self.git.commit_of(place.at or self.target_name)
        if start is None and place.at:
            raise GitTrouble(f"The commit {place.at} is not in this repository; it may be on another machine.")
        if start is None:
            raise GitTrouble(gone(self))
        return await self._make(place, fence, start)

    async def _line(self, place: AttemptRef) -> list[int]:
        """The epochs of this line of attempts of which a tree or a branch is left, the last first."""
        if not place.goes_on:
            return []
        left = {*self.names(place.mark), *(each.rpartition("task-")[2] for each in await self.branches(place.mark))}
        epochs = {int(each.rpartition(".")[2]) for each in left}
        return sorted((each for each in epochs if place.born <= each < place.epoch), reverse=True)

    async def _raise_fence(self, place: AttemptRef) -> str:
        """From now on, no earlier attempt at this task can merge. StaleClaim: there is a later one."""
        ours = await self.git.blob(f"{place.epoch}\n")
        name = FENCES + place.mark
        tries = _TRIES_MAX
        while True:
            now = (await self.git.run("rev-parse", "--verify", "--quiet", name, may_fail=True)).text.strip()
            if now == ours:
                return ours
            if now and int(await self.git.content(now) or 0) > place.epoch:
                raise StaleClaim
            if await self.git.move([(name, now, ours)]):
                return ours
            if not self.git.remove_stale_lock(name):
                tries -= 1
                if not tries:
                    raise GitTrouble(f"{name} cannot be moved; is {self.git.directory} writable?")
            await asyncio.sleep(_LOOK_SECONDS)

    def names(self, mark: str | None = None) -> list[str]:
        """The trees there are, of one task or of all, the newest first."""
        found = [
            each for each in names_in(self.folder) if (name := _NAME.fullmatch(each)) and mark in (None, name["mark"])
        ]
        return sorted(found, key=lambda each: int(each.rpartition(".")[2]), reverse=True)

    async def marks(self) -> set[str]:
        """The tasks of which something is there: a tree, a lock, a branch or a fence."""
        fences = (await self.git.run("for-each-ref", "--format=%(refname)", FENCES)).text.split()
        names = [*names_in(self.folder), *(each.rpartition("task-")[2] for each in await self.branches())]
        found = map(_NAME.match, names)
        return {each["mark"] for each in found if each is not None} | {each.rpartition("/")[2] for each in fences}

    def _take(self, name: str, place: AttemptRef, fence: str) -> Tree | None:
        """A tree that is there already, if nobody holds it."""
        path = self.folder / name
        own, lock = self._own(path), self._locked(name)
        if lock is None or own is None:
            if lock is not None:
                os.close(lock)
            return None
        private_repository.write(path / ".git", f"gitdir: {own}\n")  # The project may have been moved since.
        return self._tree(place, own, name=name, fence=fence, _lock=lock)

    def _tree(self, place: AttemptRef, own: Path, *, name: str, fence: str = "", **about: Any) -> Tree:
        path = self.folder / name
        return Tree(
            git=self.git, place=place, name=name, path=path, own=own, fence=fence, bytes_max=self.bytes_max, **about
        )

    def _locked(self, name: str) -> int | None:
        """The lock of a tree, which ends with this process; None: somebody has it."""
        path = self.folder / f"{name}.lock"
        while True:
            lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                return None
            if path.exists() and os.stat(path).st_ino == os.fstat(lock).st_ino:
                return lock
            os.close(lock)  # Whoever had it took its file away.

    def _own(self, path: Path) -> Path | None:
        """The git directory of the tree at this path, as the repository says and not the tree."""
        own = self._private(path.name)
        if (own / "HEAD").exists():
            self.git.make_private(own, None)
            return own
        # An earlier version had git keep it among the user's worktrees.
        for each in names_in(self.git.directory / "worktrees"):
            before = self.git.directory / "worktrees" / each
            if (private_repository.read(before / "gitdir") or "").strip() == str(path / ".git"):
                self.git.make_private(own, f"refs/heads/{BRANCHES}task-{path.name}")
                private_repository.write(own / "HEAD", private_repository.read(before / "HEAD") or "")
                for name in ("index", _WHOLE, CHECKING):
                    if (before / name).is_file() and not (before / name).is_symlink():
                        shutil.copyfile(before / name, own / name)
                shutil.rmtree(before, ignore_errors=True)
                return own
        return None

    def _private(self, name: str) -> Path:
        return self.git.directory / "dugnad" / "trees" / name

    async def _copy_of(self, path: Path, own: Path, place: AttemptRef) -> str | None:
        """A commit of what a tree holds, made without touching it: somebody may be there still."""
        branch = f"refs/heads/{BRANCHES}task-{path.name}"
        head = await self.git.commit_of(branch)
        if head is None or not on_branch(own):
            # It was being merged, so all of it is on its branch; what the tree shows is not its own.
            return head
        # With an index of its own, in the git directory of the tree that is to be made.
        aside = self._private(place.name)
        self.git.make_private(aside, branch)
        for name in ("index", "index.lock"):
            (aside / name).unlink(missing_ok=True)
        copy = self._tree(place, aside, name=path.name)
        if (own / CHECKING).exists():  # What is there now may be the check's; what was taken down before it is not.
            await asyncio.to_thread(shutil.copyfile, own / "index", aside / "index")
        else:
            await copy.run("read-tree", head)
            for left in reversed(range(_TRIES_MAX)):
                try:
                    await copy.stage(whatever=True)
                    break
                except GitTrouble:  # Something changed under it.
                    if not left:
                        raise
        made = (await copy.run("write-tree")).strip()
        if made == (await self.git.run("rev-parse", f"{head}^{{tree}}")).text.strip():
            return head
        message = "What a host that was lost had in its tree"
        return (await self.git.run("commit-tree", made, "-p", head, "-m", message)).text.strip()

    async def _make(self, place: AttemptRef, fence: str, start: str, *, carried_over: bool = False) -> Tree:
        path, own = self.folder / place.name, self._private(place.name)
        lock = self._locked(place.name)
        if lock is None:
            raise StaleClaim  # Another process works under this very epoch, so it is not ours.
        tree = self._tree(
            place, own, name=place.name, fence=fence, anew=place.goes_on and not carried_over,
            carried_over=carried_over, _lock=lock,
        )  # fmt: skip
        try:
            await self._clear(place.name, keep_branch=True)  # A crash may have left half of it.
            path.mkdir()
            self.git.make_private(own, tree.branch)
            await self.git.run("update-ref", tree.branch, start)
            # What is made here can be made again: to wait for the disk would be to wait for every file of it.
            await tree.run("-c", "core.fsync=none", "read-tree", "--reset", "-u", start)
            private_repository.write(path / ".git", f"gitdir: {own}\n")
            (own / _WHOLE).touch()
        except BaseException:
            tree.let_go()
            raise
        return tree

    # What is left.

    async def remove(self, tree: Tree, *, keep_branch: bool = False) -> None:
        """Take the tree away, and its branch unless it is to be kept."""
        await self._clear(tree.name, keep_branch=keep_branch)
        (self.folder / f"{tree.name}.lock").unlink(missing_ok=True)
        tree.let_go()

    async def _clear(self, name: str, *, keep_branch: bool = False) -> None:
        path = self.folder / name
        own = self._own(path)
        if own is not None:
            (own / _WHOLE).unlink(missing_ok=True)
        await _remove_all(path, outside=self.git.top)
        if own is not None:
            await asyncio.to_thread(shutil.rmtree, own, ignore_errors=True)
        if not keep_branch:
            await self.drop_branch(f"refs/heads/{BRANCHES}task-{name}")

    async def drop_branch(self, name: str) -> None:
        if (at := await self.git.commit_of(name)) is not None:
            await self.git.move([(name, at, "")])

    async def forget(self, mark: str) -> None:
        """The task has ended in the target: nothing of its attempts is needed any more, but trees that are held."""
        for name in self.names(mark):
            if (lock := self._locked(name)) is not None:
                await self._clear(name)
                (self.folder / f"{name}.lock").unlink(missing_ok=True)
                os.close(lock)
        for name in await self.branches(mark):
            if name.rpartition("task-")[2] not in self.names(mark):
                await self.drop_branch(f"refs/heads/{name}")
        await self._drop_fence(mark)

    async def _drop_fence(self, mark: str) -> None:
        fence = (await self.git.run("rev-parse", "--verify", "--quiet", FENCES + mark, may_fail=True)).text.strip()
        if fence:
            await self.git.move([(FENCES + mark, fence, "")])

    async def branches(self, mark: str | None = None) -> list[str]:
        """The branches of attempts, of one task or of all."""
        pattern = f"refs/heads/{BRANCHES}task-{mark + '.' if mark else ''}*"
        return (await self.git.run("for-each-ref", "--format=%(refname:lstrip=2)", pattern)).text.split()

    async def sweep(self, keeps: Callable[[str], bool | None]) -> None:
        """Take away trees nobody holds whose task has ended. `keeps` says of a mark whether its work is to be kept on
        its branch; None: the task is open, or another board's."""
        without_tree = {each.removesuffix(".lock") for each in names_in(self.folder) if each.endswith(".lock")}
        for name in sorted({*self.names(), *without_tree}):
            if (found := _NAME.fullmatch(name)) is None:
                continue
            if (kept := keeps(found["mark"])) is None or (lock := self._locked(name)) is None:
                continue
            place = AttemptRef(mark=found["mark"], epoch=int(found["epoch"]), born=int(found["epoch"]))
            own = self._own(self.folder / name)
            if own is not None and (own / _WHOLE).exists():
                tree = self._tree(place, own, name=name, _lock=lock)
                try:
                    await self.put_away(tree, keep=kept)
                except GitTrouble:
                    tree.let_go()  # It stays; a later sweep may find more room on the disk.
            else:
                await self._clear(name, keep_branch=kept)
                (self.folder / f"{name}.lock").unlink(missing_ok=True)
                os.close(lock)
        for mark in await self.marks():
            if (kept := keeps(mark)) is False:
                await self.forget(mark)
            elif kept:
                await self._drop_fence(mark)

    async def put_away(self, tree: Tree, *, keep: bool) -> str | None:
        """Take a tree away; with `keep`, what was changed in it stays on its branch, which is returned. GitTrouble: it
        cannot be put on a branch, so the tree is still there."""
        kept = False
        if keep:
            await tree.clear_up()
            tip = await tree.commit_whatever("What was there when the attempt ended", "dugnad")
            kept = await tree.is_ahead(self.target_name, tip)
        await self.remove(tree, keep_branch=kept)
        return tree.branch.removeprefix("refs/heads/") if kept else None


def gone(trees: Trees) -> str:
    return (
        f"The branch {trees.target} is gone, and finished work goes there: `git branch {pasted(trees.target)}` makes "
        "it again from what you have checked out."
    )


async def _remove_all(path: Path, *, outside: Path) -> None:
    """By a program, since folders can lie deeper in one another than Python can follow. A command may have closed some
    to us; they are ours to remove all the same."""
    for words in (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf")):
        if path.name not in names_in(path.parent):
            return
        program = find_program(words[0], f"{os.defpath}:{os.environ.get('PATH', '')}", outside=outside)
        ran = await asyncio.create_subprocess_exec(
            program or f"/bin/{words[0]}", *words[1:], "--", str(path), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await ran.wait()
    if path.name in names_in(path.parent):
        raise GitTrouble(f"{path} cannot be removed; remove it by hand.")
