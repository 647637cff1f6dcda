"""What would keep git waiting, or use up its time and memory, found before git gets there.

Git opens some files because of their names, whatever they are. A pipe named .gitignore keeps it waiting for a writer,
and git reads a file of that name as a whole. A teammate's command can make either in its tree, and an archive can bring
pipes inside the repository itself.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..files.paths import Beneath, kind_of
from ..programs import find_program
from . import private_repository
from .ownership import GitTrouble

_READ_AS_A_WHOLE = frozenset({".gitignore", ".gitattributes", ".gitmodules"})
_BYTES_MAX = 1024 * 1024
_DEPTH_MAX, _STORES_MAX = 5, 100  # A store of objects can name others. Git follows no more than five in a row.
_OF_OBJECTS = re.compile(r"[0-9a-f]{2}|pack")


def obstacles(tree: Path, *, skipped: str = "") -> dict[str, str]:
    """By path, why git cannot be let near this file of a tree. `skipped`: a folder that git ignores."""
    found: dict[str, str] = {}
    left = [""]
    while left:  # A folder that is too deep for a path is too deep for git, too.
        folder = left.pop()
        for entry in _entries(tree / folder):
            path = os.path.join(folder, entry.name)
            if entry.name == ".git":
                for opened in _opened_in(tree / folder) if folder else ():
                    if why := _why_not(opened):
                        is_there = entry.is_dir(follow_symlinks=False)
                        found[str(opened.relative_to(tree)) if is_there else path] = why
            elif entry.is_dir(follow_symlinks=False):
                left += [path] if path != skipped else []
            elif entry.name in _READ_AS_A_WHOLE and not entry.is_symlink() and (why := _why_not(tree / path)):
                found[path] = why
    return found


def clear_away(tree: Path) -> None:
    """Remove such files, and nothing outside the tree, even if a process still renames folders in it."""
    beneath = Beneath(tree)
    for path in obstacles(tree):
        *folders, name = path.split("/")
        with suppress(OSError), beneath.folder(tuple(folders)) as held:
            os.unlink(name, dir_fd=held)


def remove_repositories(tree: Path) -> None:
    """Remove the .git of every repository inside a tree, whether folder, file or link, but not the tree's own. Nothing
    outside the tree is touched, even if a process of a lost host still renames folders in it."""
    beneath = Beneath(tree)
    left = [entry.path for entry in _entries(tree) if entry.name != ".git" and entry.is_dir(follow_symlinks=False)]
    while left:
        folder = Path(left.pop())
        for entry in _entries(folder):
            if entry.name != ".git":
                left += [entry.path] if entry.is_dir(follow_symlinks=False) else []
                continue
            with suppress(OSError), beneath.folder(folder.relative_to(tree).parts) as held:
                if stat.S_ISDIR(os.lstat(".git", dir_fd=held).st_mode):
                    shutil.rmtree(".git", dir_fd=held, ignore_errors=True)
                else:
                    os.unlink(".git", dir_fd=held)


def repository_obstacles(common: Path) -> dict[str, str]:
    """The same for the objects and names of a repository, and for the objects of those that it borrows from."""
    return {str(path): why for path, why in (*_names_in(common / "refs"), *_objects_in(common / "objects"))}


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (OSError, ValueError):  # A ValueError says that a name holds a NUL.
        return []


def _opened_in(folder: Path) -> Iterator[Path]:
    """What git opens to see whether there is a repository in a folder."""
    if (own := private_repository.led_to(folder)) is not None:
        head = private_repository.head_of(own)
        yield from (own / each for each in ("HEAD", "commondir", "packed-refs", head if head[:5] == "refs/" else ""))


def _why_not(path: Path, bytes_max: int = _BYTES_MAX) -> str:
    """Why git cannot be let near a file; empty: it can, or there is none."""
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return ""
    if stat.S_ISREG(about.st_mode):
        return f"it has {about.st_size:,} bytes, and git would read all of it" if about.st_size > bytes_max else ""
    return "" if stat.S_ISDIR(about.st_mode) else f"it is {kind_of(about.st_mode)}, and git would wait for it"


def _odd(folder: Path) -> Iterator[tuple[Path, str]]:
    """What is neither a file nor a folder."""
    for entry in _entries(folder):
        plain = entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
        if not plain and (why := _why_not(Path(entry.path), bytes_max=1 << 62)):
            yield Path(entry.path), why


def _names_in(folder: Path) -> Iterator[tuple[Path, str]]:
    left = [folder]
    while left:
        yield from _odd(at := left.pop())
        left += [Path(entry.path) for entry in _entries(at) if entry.is_dir(follow_symlinks=False)]


def _objects_in(folder: Path) -> Iterator[tuple[Path, str]]:
    stores, seen = [folder], set[Path]()
    for _ in range(_DEPTH_MAX + 1):
        further: list[Path] = []
        for store in (each for each in dict.fromkeys(stores) if each not in seen):
            seen.add(store)
            parts = [each.name for each in _entries(store) if _OF_OBJECTS.fullmatch(each.name)]
            for part in ("info", "info/commit-graphs", *parts):
                yield from _odd(store / part)
            borrows = Path(os.path.realpath(store / "info" / "alternates"))
            if why := _why_not(borrows):
                yield borrows, why
            further += [store / each for each in (private_repository.read(borrows) or "").splitlines()]
        stores = further[:_STORES_MAX]


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)


async def remove_all(path: Path, *, outside: Path) -> None:
    """Remove a folder with a program, because folders can be nested deeper than Python can follow. A command may have
    made some of them unreadable; they are removed too."""
    for words in (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf")):
        if not _is_there(path):
            return
        program = find_program(words[0], f"{os.defpath}:{os.environ.get('PATH', '')}", outside=outside)
        ran = await asyncio.create_subprocess_exec(
            program or f"/bin/{words[0]}", *words[1:], "--", str(path), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await ran.wait()
    if _is_there(path):
        raise GitTrouble(f"{path} cannot be removed; remove it by hand.")


def names_in(folder: Path) -> list[str]:
    """The names in a folder, in order; none if it cannot be looked into."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
