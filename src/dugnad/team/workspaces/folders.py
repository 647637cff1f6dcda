"""A folder for each task, if the project is not in git: no task overwrites another's files, and nothing is merged.

It begins as a copy of the project, if that is small enough, and stays when the task has ended. One attempt at a time
works in it, under a lock that ends with its process. A reviewer gets a copy of the task's folder until the review ends.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import filecmp
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...errors import ToolError
from ...prompts import tell
from ...safe_open import held
from ...text import NOTHING, Told, clean, joined, one_line
from ...types import Attempt, Claim, Done, Outcome, Task
from ...workspace.git.merge_lock import open_lock
from ...workspace.git.obstacles import remove_all
from ...workspace.git.triggers import changed_triggers, named_triggers
from .workspace import Again, OpenWorkspace, TreeWorkspace, Workshop, Workspace, continues, delivered, mark_of

_ENTRIES_MAX = 5_000
_BYTES_MAX = 200 * 1024 * 1024
_SHOWN_MAX = 10
_MARK_CHARS_MAX = 1_000
_LEFT_OUT = frozenset({".dugnad", ".git"})
# Errors that concern one file and not the whole copy.
_ITS_OWN_TROUBLE = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENXIO, errno.ENAMETOOLONG, errno.ELOOP})


@dataclass(kw_only=True)
class Folder(TreeWorkspace):
    project: Path  # What the folder is compared with.
    lock: int

    async def triggers(self, tip: str) -> Mapping[str, str]:
        return await asyncio.to_thread(changed_triggers, self.tree, self.project)

    async def fits(self, task: Task, done: Done, tip: str, *, left: int) -> Told | Again:
        """Nothing is merged, so a reviewer is told what differs from the project."""
        checked = await super().fits(task, done, tip, left=left)
        paths = await asyncio.to_thread(differing, self.tree, self.project)
        assert isinstance(checked, Told)
        return joined((tell("delivery.differs", what=_shown(paths) or "nothing"), checked), " ")

    async def deliver(self, task: Task, done: Done, tip: str | None, *, left: int) -> Done:
        where = str(self.tree.relative_to(self.project))
        return delivered(done, files_in=where, triggers=named_triggers(await self.triggers("")) or None)

    async def close(self, outcome: Outcome, *, settled: bool) -> None:
        await super().close(outcome, settled=settled)
        if not continues(outcome):
            await remove_all(_scratch_of(self.tree), outside=self.project)
            if self.reviews:
                await asyncio.to_thread(shutil.rmtree, self.tree, ignore_errors=True)
        os.close(self.lock)


def folders(shop: Workshop, project: Path, folder: Path) -> OpenWorkspace:
    """Workspaces under `folder`, which is in the project."""

    async def open_workspace(claim: Claim, attempts: Sequence[Attempt]) -> Workspace:
        task = claim.task
        reviews = task.kind == "review"
        source = await _reviewed(shop, task, folder) if reviews else project
        opening = asyncio.ensure_future(asyncio.to_thread(_open, source or project, folder, task))
        try:
            tree, lock, told = await asyncio.shield(opening)
        except asyncio.CancelledError:  # A thread cannot be stopped; let go of what it will hold.
            opening.add_done_callback(_let_go)
            raise
        told = tell("delivery.reviewing_folder") if reviews and told else told
        if claim.continues is None:  # A crash may have left that of another attempt.
            await remove_all(_scratch_of(tree), outside=project)
        equipped = shop.equipped(claim, tree, _scratch_of(tree), told=told)
        return Folder(lock=lock, reviews=reviews, project=project, **equipped)

    return open_workspace


def _scratch_of(tree: Path) -> Path:
    return tree.with_name(f"{tree.name}.tmp")


def _let_go(opened: asyncio.Future[tuple[Path, int, Told]]) -> None:
    if opened.exception() is None:
        os.close(opened.result()[1])


async def _reviewed(shop: Workshop, review: Task, folder: Path) -> Path | None:
    """The folder of the task that a review is of."""
    if review.reviews is None or (found := (await shop.board.find_all({review.reviews})).get(review.reviews)) is None:
        return None
    return next((folder / name for name in _names(found) if _whose(folder, name) == mark_of(found)), None)


def _names(task: Task) -> tuple[str, str]:
    """A task's folder is named by its number or, if another board has that one, by its mark."""
    return str(task.id), mark_of(task)


def _whose(folder: Path, name: str) -> str:
    """The mark of the task that has a folder; empty: no task has it."""
    try:
        with os.fdopen(os.open(folder / f"{name}.lock", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "r") as lock:
            return lock.read(_MARK_CHARS_MAX)
    except OSError:
        return ""


def _open(source: Path, folder: Path, task: Task) -> tuple[Path, int, Told]:
    """Make the task's folder if it is not there yet. Returns it, its lock, and what the mind must know about it."""
    with held(folder, make=True):
        pass
    name = next(each for each in _names(task) if _whose(folder, each) in ("", mark_of(task)))
    tree = folder / name
    lock = open_lock(folder / f"{name}.lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(lock, mark_of(task).encode(), 0)
        told = NOTHING
        if not os.path.lexists(tree):
            half = folder / f"{name}.new"  # So a copy that a crash cut short is never used.
            told = fill(source, half)
            half.rename(tree)
        return tree, lock, told
    except BlockingIOError:
        os.close(lock)
        raise ToolError(f"{tree} is still in use by an earlier attempt at #{task.id}") from None
    except BaseException:
        os.close(lock)
        raise


def fill(source: Path, tree: Path) -> Told:
    """Make a copy of the project, or an empty folder if it is too large. Returns what the mind must know."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir()
    if not _is_small(source):
        return joined((tell("delivery.empty_folder"), tell("delivery.folder_stays")), " ")
    left_out = list(_copy(source, tree))
    without = tell("delivery.copied_without", names=_shown(left_out)) if left_out else None
    return joined((tell("delivery.copy"), without, tell("delivery.folder_stays")), " ")


def _shown(names: Sequence[str]) -> str:
    more = " and more" if len(names) > _SHOWN_MAX else ""
    return ", ".join(one_line(clean(each)) for each in names[:_SHOWN_MAX]) + more


def _copy(source: Path, tree: Path) -> Iterator[str]:
    """Copy all that can be copied, links as links. Yields what was left out: pipes, devices, unreadable files."""
    for entry in entries(source):
        to = tree / os.path.relpath(entry.path, source)
        try:
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), to)
            elif entry.is_dir():
                to.mkdir()
                os.listdir(entry.path)
            elif entry.is_file():
                shutil.copyfile(entry.path, to)
                os.chmod(to, entry.stat().st_mode & 0o777)
            else:
                yield os.path.relpath(entry.path, source)
        except OSError as trouble:
            if trouble.errno not in _ITS_OWN_TROUBLE:
                raise
            yield os.path.relpath(entry.path, source)


def differing(tree: Path, project: Path) -> list[str]:
    """The files that are not the same in both, by content. A project that is too large was not copied, so what the
    folder lacks of it says nothing."""
    roots = (tree, project) if _is_small(project) else (tree,)
    names = {os.path.relpath(each.path, root) for root in roots for each in entries(root) if _is_file(each)}
    return sorted(each for each in names if not _same(tree / each, project / each))


def _is_file(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() or entry.is_file(follow_symlinks=False)


def _same(one: Path, other: Path) -> bool:
    try:
        if one.is_symlink() or other.is_symlink():
            return os.readlink(one) == os.readlink(other)
        return filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def entries(source: Path) -> Iterator[os.DirEntry[str]]:
    """Everything but our own folder and git's, each folder before what is in it."""
    left = [str(source)]
    while left:
        with suppress(OSError), os.scandir(left.pop()) as found:
            for entry in found:
                if entry.name not in _LEFT_OUT:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    yield entry


def _is_small(source: Path) -> bool:
    size = 0
    for count, entry in enumerate(entries(source)):
        with suppress(OSError):
            size += entry.stat(follow_symlinks=False).st_size
        if count >= _ENTRIES_MAX or size > _BYTES_MAX:
            return False
    return True
