"""Refuses a board that version control can change: what git tracks is anybody's who commits."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from ..config.project import Project
from ..errors import ToolError
from ..safe_open import OWN, owners
from ..workspace.git.git import Git
from .command import file_of
from .unaccepted import NotAccepted

_FILES = ("", "-wal", "-shm", "-journal")  # SQLite takes what it finds beside a board for the board's own.
_LINKS_MAX = 40


async def refuse_tracked(project: Project, url: str) -> None:
    """Refuse a board whose real file git tracks, in any repository it lies in, or that is found by way of a link or a
    submodule that git tracks. This holds also if it was accepted: a pull could change it."""
    if (path := file_of(url)) is None:
        return
    known: dict[Path, Git | None] = {}
    untracked: set[tuple[Path, Path]] = set()
    for each in await asyncio.to_thread(_asked_about, project.root, path):
        for at, top in enumerate(_tops(each.parent)):
            if top not in known:
                known[top] = await _repository(top, nearest=at == 0)
            git, name = known[top], each.relative_to(top).as_posix()
            if git is None or any((top, folder) in untracked for folder in each.parents):
                continue  # Git is not asked again about what is in a folder of which it tracks nothing.
            if await git.is_tracked(name):
                raise NotAccepted(_refusal(project, top, each))
            untracked.add((top, each))


def _asked_about(root: Path, path: Path) -> list[Path]:
    ways, real = _way_to(path)
    files = (Path(f"{real}{suffix}") for suffix in _FILES)
    return list(dict.fromkeys((Path(os.path.realpath(root), OWN), *files, *ways)))


def _way_to(path: Path) -> tuple[list[Path], Path]:
    """What leads elsewhere on the way to a file: links, and folders that are repositories. And the real file."""
    ways: list[Path] = []
    here, todo = Path(path.anchor), list(reversed(path.parts[1:]))
    while todo:
        step = here.parent if (name := todo.pop()) == ".." else here / name
        if os.path.islink(step) and len(ways) < _LINKS_MAX:
            target = Path(os.readlink(step))
            here = Path("/") if target.is_absolute() else here
            todo += [part for part in reversed(target.parts) if part != "/"]
            ways.append(step)
            continue
        here = step
        if todo and name != ".." and os.path.lexists(step / ".git"):
            ways.append(step)
    return ways, here


def _tops(folder: Path) -> Iterator[Path]:
    """The repositories that a folder lies in, the nearest first."""
    return (each for each in (folder, *folder.parents) if os.path.lexists(each / ".git"))


async def _repository(top: Path, *, nearest: bool) -> Git | None:
    """None: it cannot be asked. Of those further out this is no reason to refuse: they may be another user's."""
    if not nearest and os.lstat(top / ".git").st_uid not in owners():
        return None
    try:
        return await Git.find(top, path=os.environ.get("PATH", os.defpath))
    except ToolError as trouble:
        if nearest:
            raise NotAccepted(f"{trouble}") from None
    return None


def _refusal(project: Project, top: Path, path: Path) -> str:
    root = Path(os.path.realpath(project.root))
    own = path.is_relative_to(root) and root.is_relative_to(top)
    name = str(path.relative_to(root if own else top))
    command = shlex.join(["git", *(() if own else ("-C", str(top))), "rm", "-r", "--cached", "--", name])
    return (
        f"Git tracks {name if own else path}, so anybody who commits could put tasks and answers on your board. Remove "
        f"it from the repository and commit that: {command}"
    )
