"""A folder for each task, where the project is not in git: nobody overwrites anybody, and nothing is merged.

It begins as a copy of the project, if that is small enough, and stays when the task has ended. One attempt at a time
works in it, under a lock that ends with its process.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ToolError
from ..types import Claim, Done, Failed, Outcome, Task
from .places import Kit, Place, Places, Red, Workshop

_FILES_MAX = 5_000
_BYTES_MAX = 200 * 1024 * 1024
_LEFT_OUT = frozenset({".dugnad", ".git"})
_COPY = "You work in a folder of your own, a copy of the project as it was when this task began."
_EMPTY = "You work in an empty folder of your own: the project is too large to be copied for each task."
_STAYS = (
    " It is not in git, so nothing is merged: what you leave there stays there, and your result should say what it is."
)


@dataclass(kw_only=True)
class Folder(Place):
    shop: Workshop
    kit: Kit
    shown: str  # How people find it.
    release: Callable[[], None]

    def checks(self, task: Task) -> Sequence[str]:
        return (*super().checks(task), *self.shop.project_checks)

    @property
    def cannot_check(self) -> str:
        return self.shop.why_not if self.shop.sandbox is None else ""

    async def check(self, task: Task) -> Red | None:
        assert self.tree is not None
        await self.kit.rest()
        return await self.shop.check(self.checks(task), self.tree, task)

    async def deliver(self, task: Task, done: Done) -> Done | Failed:
        return Done(f"{done.result}\n\n[its files are in {self.shown}]".lstrip(), done.outcome)

    async def close(self, outcome: Outcome, *, settled: bool) -> None:
        await self.kit.close()
        self.release()


def folders(shop: Workshop, project: Path, folder: Path) -> Places:
    """Places under `folder`, which lies in the project."""

    async def place(claim: Claim) -> Place:
        tree = folder / str(claim.task.id)
        made = not await asyncio.to_thread(tree.exists)
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        lock = os.open(folder / f"{claim.task.id}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ToolError(f"{tree} is still in use by whoever worked on #{claim.task.id} before") from None
        told = ""
        if made:
            half = folder / f"{claim.task.id}.new"  # A copy that a crash cut short is never taken for a whole one.
            told = await asyncio.to_thread(_fill, project, half) + _STAYS
            half.rename(tree)
        kit = shop.kit(claim, tree)
        return Folder(
            shop=shop, kit=kit, tree=tree, told=told, tools=kit.tools, shown=str(tree.relative_to(project)),
            release=lambda: os.close(lock),
        )  # fmt: skip

    return place


def _fill(project: Path, tree: Path) -> str:
    shutil.rmtree(tree, ignore_errors=True)
    if not _is_small(project):
        tree.mkdir()
        return _EMPTY
    shutil.copytree(project, tree, symlinks=True, ignore=lambda folder, names: _LEFT_OUT.intersection(names))
    return _COPY


def _is_small(project: Path) -> bool:
    count = size = 0
    for folder, names, files in os.walk(project):
        names[:] = [each for each in names if each not in _LEFT_OUT]
        count += len(files)
        size += sum(os.lstat(os.path.join(folder, each)).st_size for each in files)
        if count > _FILES_MAX or size > _BYTES_MAX:
            return False
    return True
