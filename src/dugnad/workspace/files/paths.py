"""Opening what lies beneath a folder, and nothing else, while others rename and link in it.

A path is never looked up first and opened afterwards: between the two it can be made to lead elsewhere. Each component
is opened by itself and held. Links that stay beneath the root are followed; those that leave it, or that the kernel
makes up, as in /proc, are refused. The kernel's own way (`openat2`) is not everywhere, and hardly faster.

The root itself is trusted: nobody who is kept inside may rename what is above it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from ...errors import ToolError
from ...safe_open import OWN

PATH_CHARS_MAX = 4_096
PARTS_MAX = 100  # The walk holds a descriptor for each.
LINKS_MAX = 40  # As the kernel counts them.

_LOOK = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)  # Holds something without opening it.
_FOLDER = _LOOK | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISREG, "a file"), (stat.S_ISDIR, "a folder"), (stat.S_ISLNK, "a link"), (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip
_TROUBLES = {
    errno.ENOENT: "There is no {path}.",
    errno.EXDEV: "{path} leads out of the workspace; only what lies beneath it can be used.",
    errno.ELOOP: "{path} goes in circles, or through a link that is refused.",
    errno.ENOTDIR: "{path} goes through something that is not a folder.",
    errno.EISDIR: "{path} is a folder.",
    errno.EEXIST: "{path} was made by somebody else just now; it was not overwritten. Read it first.",
    errno.EACCES: "{path} is not permitted to this user.",
    errno.EPERM: "{path} is not permitted to this user.",
    errno.EROFS: "{path} is on a disk that can only be read.",
    errno.ENAMETOOLONG: "A name in {path} is too long for this disk.",
    errno.EILSEQ: "A name in {path} cannot be written on this disk.",
    errno.ENOSPC: "The disk is full; {path} was not changed. Free some space first.",
    errno.EDQUOT: "The disk's quota is used up; {path} was not changed. Free some space first.",
    errno.EFBIG: "{path} would be larger than is allowed; it was not changed.",
    errno.EMFILE: "Too many files are open at this moment; try again.",
}


def read_from(descriptor: int, most: int) -> bytes:
    """The first bytes of a file, at most `most`. Closes it."""
    try:
        found = bytearray()
        while len(found) < most and (piece := os.read(descriptor, min(1 << 20, most - len(found)))):
            found += piece
        return bytes(found)
    finally:
        os.close(descriptor)


def kind_of(mode: int) -> str:
    return next((name for test, name in _KINDS if test(mode)), "something unknown")


def check_kind(mode: int, shown: str) -> None:
    if not stat.S_ISREG(mode):
        raise ToolError(f"{shown} is {kind_of(mode)}, not a file.")


def open_regular(name: str | Path, shown: str = "It", folder: int | None = None) -> int:
    """A regular file, to be read. No link is followed; a pipe or a device is not even opened, and never waited for.
    ToolError: it is something else."""
    check_kind(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode, shown)
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:  # It may have become something else since, which O_NONBLOCK kept from being waited for.
        check_kind(os.fstat(descriptor).st_mode, shown)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def trouble(error: OSError, path: str) -> ToolError:
    """What an error of the system means for a path, as a sentence."""
    known = _TROUBLES.get(error.errno or 0)
    told = path if len(path) <= 200 else f"{path[:199]}…"
    if known is None:
        return ToolError(f"{told} could not be used: {error.strerror or error}.")
    return ToolError(known.format(path=told))


def parts_of(path: str, root: Path) -> tuple[str, ...]:
    """The names in a path that a model gave. ".." stays: what it means depends on the links before it.

    An absolute path that begins with the root counts as relative to it. That is a courtesy and no check: the rest is
    opened like any other path.
    """
    if not path:
        raise ToolError('The path is empty; "." is the workspace itself.')
    if "\0" in path:
        raise ToolError("A path cannot contain NUL.")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise ToolError("The path has half a character in it.") from None
    pure = PurePosixPath(path)
    if pure.is_absolute():
        if not pure.is_relative_to(root):
            raise trouble(_error(errno.EXDEV), path)
        pure = pure.relative_to(root)
    if size > PATH_CHARS_MAX or len(pure.parts) > PARTS_MAX:
        raise ToolError(f"The path is too long: {PATH_CHARS_MAX:,} bytes and {PARTS_MAX} names are the most.")
    return pure.parts


@dataclass(slots=True)
class OpenedPath:
    """Where a path leads, with all links followed: a folder that is held open, and the names beneath it.

    `rest` is empty for the root, one name where the folder is there, and more where folders are missing.
    """

    folder: int
    parts: tuple[str, ...]
    rest: tuple[str, ...]

    @property
    def real(self) -> tuple[str, ...]:
        return self.parts + self.rest

    @property
    def name(self) -> str:
        return self.rest[-1] if self.rest else "."

    def stat(self) -> os.stat_result | None:
        """What is there now; None: nothing. If it has become a link since, the link is not followed."""
        if len(self.rest) > 1:
            return None
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self, flags: int) -> int:
        if len(self.rest) > 1:
            raise _error(errno.ENOENT)
        return os.open(self.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.folder)

    def open_file(self, shown: str) -> int:
        if len(self.rest) > 1:
            raise _error(errno.ENOENT)
        return open_regular(self.name, shown, self.folder)

    def make_folders(self) -> None:
        """Make the folders that are missing, each held before the next is made in it."""
        while len(self.rest) > 1:
            name = self.rest[0]
            with suppress(FileExistsError):  # Somebody was faster; if it is no folder, opening it says so.
                os.mkdir(name, dir_fd=self.folder)
            inner = os.open(name, _FOLDER, dir_fd=self.folder)
            os.close(self.folder)
            self.folder, self.parts, self.rest = inner, (*self.parts, name), self.rest[1:]


class Beneath:
    """A root folder. Every method raises OSError, as the system does; a path that leaves the root raises EXDEV."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    @contextmanager
    def follow(self, parts: tuple[str, ...]) -> Iterator[OpenedPath]:
        """Follow a path name by name, holding every folder on the way. The last name need not be there."""
        held = [(os.open(self.root, _FOLDER & ~os.O_NOFOLLOW), "")]
        try:
            rest = _walk(held, list(reversed(parts)))
            real = tuple(name for _, name in held[1:])
            opened = OpenedPath(held.pop()[0], real, rest)
        finally:
            for descriptor, _ in held:
                os.close(descriptor)
        try:
            yield opened
        finally:
            os.close(opened.folder)

    @contextmanager
    def folder(self, parts: tuple[str, ...]) -> Iterator[int]:
        """A descriptor of a folder, with its links followed as long as they stay beneath."""
        with self.follow(parts) as opened:
            held = opened.open(os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield held
        finally:
            os.close(held)


def read_within(root: Path, path: str, most: int) -> bytes:
    """The first bytes of a file beneath a root, whatever links are put there meanwhile. OSError or ToolError: there is
    no such file, it is something else, or it is the runtime's own. Nothing is waited for."""
    beneath = Beneath(root)
    with beneath.follow(parts_of(path, beneath.root)) as opened:
        if OWN in opened.real:
            raise _error(errno.ENOENT)
        return read_from(opened.open_file(path), most)


def names_within(root: Path, path: str, most: int) -> list[tuple[str, bool]]:
    """The names in a folder beneath a root, in order and at most `most`, each with whether it is a folder, or a link to
    one. Nothing if there is no such folder."""
    beneath = Beneath(root)
    try:
        with beneath.folder(parts_of(path, beneath.root)) as held, os.scandir(held) as entries:
            return sorted((each.name, each.is_dir()) for each in islice(entries, most))
    except (OSError, ToolError):
        return []


def _walk(held: list[tuple[int, str]], todo: list[str]) -> tuple[str, ...]:
    """Go on from the last folder held, until one name is left or a folder is missing. The first held is the root."""
    links = 0
    while todo:
        name = todo.pop()
        if name == "..":
            if len(held) == 1:
                raise _error(errno.EXDEV)
            os.close(held.pop()[0])
            continue
        here = held[-1][0]
        try:
            target = _link(name, here)
        except FileNotFoundError:
            if ".." in todo:
                raise
            return (name, *reversed(todo))
        if target is not None:
            links += 1
            if links > LINKS_MAX:
                raise _error(errno.ELOOP)
            if target.startswith("/"):
                raise _error(errno.EXDEV)
            todo.extend(each for each in reversed(target.split("/")) if each not in ("", "."))
        elif not todo:
            return (name,)
        else:  # If it has become a link since, this fails instead of following it.
            held.append((os.open(name, _FOLDER, dir_fd=here), name))
            if len(held) > PARTS_MAX:
                raise _error(errno.ENAMETOOLONG)
    return ()


def _link(name: str, folder: int) -> str | None:
    """Where a link points; None: it is not a link."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
