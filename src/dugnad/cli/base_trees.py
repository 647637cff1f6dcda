"""The project before the team changes it: in a git worktree, in a copy of a plain folder, or in place."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..safe_open import held
from ..team.workspaces.folders import entries, fill
from ..team.workspaces.workspace import Workshop
from ..team.workspaces.worktrees import Worktrees
from ..workspace.git.worktree import AttemptRef

_MARK = "0-"  # No task has this number.
Opened = tuple[Path, tuple[Path, ...]]  # A tree, and what else commands in it may read.


@dataclass(frozen=True, kw_only=True)
class Base:
    """The state of the project in which the work begins. `name` changes whenever something in the project does."""

    shop: Workshop
    where: str  # What people call it.
    name: Callable[[], Awaitable[str]]
    tree: Callable[[], AbstractAsyncContextManager[Opened]]


def of_git(places: Worktrees) -> Base:
    """The head of the target branch, as a new attempt would get it."""
    trees = replace(places.trees, shared=None)  # Nobody else needs it.

    async def name() -> str:
        return (await trees.git.run("rev-parse", f"{trees.target_name}^{{tree}}")).text.strip()

    @asynccontextmanager
    async def tree() -> AsyncIterator[Opened]:
        for left in [each for each in await trees.marks() if each.startswith(_MARK)]:
            await trees.forget(left)  # Left by a process that was killed. A tree in use stays.
        mark = f"{_MARK}{places.board.sources.new_id()}"
        try:
            opened = await trees.begin(AttemptRef(mark=mark, epoch=1, born=1))
            try:
                yield opened.path, opened.readable
            finally:
                await trees.remove(opened)
        finally:
            await trees.forget(mark)  # Also what was made so far, if somebody stops it while the tree is made.

    return Base(shop=places.shop, where=trees.target, name=name, tree=tree)


def of_folder(shop: Workshop, root: Path, folder: Path) -> Base:
    """A copy of the folder, as each task gets one."""

    @asynccontextmanager
    async def tree() -> AsyncIterator[Opened]:
        place = await asyncio.to_thread(_new_folder, folder)
        try:
            await asyncio.to_thread(fill, root, place / "tree")
            yield place / "tree", ()
        finally:
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    return Base(shop=shop, where="this folder", name=partial(_fingerprint, root), tree=tree)


def _new_folder(folder: Path) -> Path:
    with held(folder, make=True):  # No link is followed there.
        return Path(tempfile.mkdtemp(prefix="base-", dir=folder))


def in_place(shop: Workshop, root: Path) -> Base:
    """The project's own folder, in which all teammates work."""

    @asynccontextmanager
    async def tree() -> AsyncIterator[Opened]:
        yield root, ()

    return Base(shop=shop, where="this folder", name=partial(_fingerprint, root), tree=tree)


async def _fingerprint(root: Path) -> str:
    def look() -> str:
        found = []
        for entry in entries(root):
            try:
                facts = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            size = 0 if entry.is_dir(follow_symlinks=False) else facts.st_size
            when = 0 if entry.is_dir(follow_symlinks=False) else facts.st_mtime_ns
            found.append(f"{entry.path}\0{facts.st_mode}\0{size}\0{when}")
        return hashlib.sha256("\n".join(sorted(found)).encode(errors="surrogatepass")).hexdigest()

    return await asyncio.to_thread(look)
