"""Opening what lies beneath a folder, and nothing else, while others rename and link in it.

A path is never looked up first and opened afterwards: between the two it can be made to lead elsewhere. The kernel
resolves and opens it in one step (`openat2`), or, where it cannot, each component is opened by itself and held. Both
follow links that stay beneath the root, and refuse those that leave it or that the kernel makes up, as in /proc.

Knows nothing of what files hold. The root itself is trusted: nobody who is kept inside may rename what is above it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from ...errors import ToolError
from ...safe_open import OWN

PATH_CHARS_MAX = 4_096
PARTS_MAX = 100  # The walk holds a descriptor for each.
LINKS_MAX = 40  # As the kernel counts them.

_OPENAT2 = 437  # The same on both; other machines take the walk.
_MACHINES = ("x86_64", "aarch64")
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 0x02, 0x08
_TRIES_MAX = 128  # The kernel gives up on a path with ".." in it while others rename; asked again, it mostly does not.
_LOOK = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)  # To hold a thing without opening it.
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
    errno.EAGAIN: "{path} is being moved about by others; try again.",
    errno.EMFILE: "Too many files are open at this moment; try again.",
}


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_Opener = Callable[[int, bytes, int], int]


def kernel_opener() -> _Opener | None:
    """The kernel's own way to open beneath a folder, or None if it has none or may not be asked."""
    if os.uname().sysname != "Linux" or os.uname().machine not in _MACHINES:
        return None
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long

    def opener(folder: int, path: bytes, flags: int) -> int:
        how = _How(flags | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
        for _ in range(_TRIES_MAX):
            found = syscall(
                ctypes.c_long(_OPENAT2), ctypes.c_int(folder), ctypes.c_char_p(path), ctypes.byref(how),
                ctypes.c_size_t(ctypes.sizeof(how)),
            )  # fmt: skip
            if found >= 0:
                return int(found)
            if (code := ctypes.get_errno()) not in (errno.EAGAIN, errno.EINTR):
                break
        raise OSError(code, os.strerror(code))

    try:
        here = os.open("/", _FOLDER)
    except OSError:
        return None
    try:
        os.close(opener(here, b".", _LOOK))
    except OSError:  # Too old, or a filter forbids it.
        return None
    finally:
        os.close(here)
    return opener


def read_from(descriptor: int, most: int) -> bytes:
    """The first bytes of a file, at most so many. Closes it."""
    try:
        found = bytearray()
        while len(found) < most and (piece := os.read(descriptor, min(1 << 20, most - len(found)))):
            found += piece
        return bytes(found)
    finally:
        os.close(descriptor)


def kind_of(mode: int) -> str:
    return next((name for test, name in _KINDS if test(mode)), "something unknown")


def trouble(error: OSError, path: str) -> ToolError:
    """What the system said, as a sentence."""
    known = _TROUBLES.get(error.errno or 0)
    told = path if len(path) <= 200 else f"{path[:199]}…"
    if known is None:
        return ToolError(f"{told} could not be used: {error.strerror or error}.")
    return ToolError(known.format(path=told))


def parts_of(path: str, root: Path) -> tuple[str, ...]:
    """The names in a path that a model gave. ".." stays: what it means depends on the links before it.

    An absolute path that begins as the root does is taken as relative to it. That is a courtesy and no check: what
    decides is how the rest is opened.
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
            raise trouble(OSError(errno.EXDEV, ""), path)
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
        """What is there now; None: nothing. A link that was put there since is not followed."""
        if len(self.rest) > 1:
            return None
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self, flags: int) -> int:
        if len(self.rest) > 1:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return os.open(self.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.folder)

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
    """A root folder. Every method raises OSError as the system does; a path that leaves the root is EXDEV."""

    def __init__(self, root: Path, *, opener: _Opener | None) -> None:
        self.root = root.absolute()
        self._opener = opener  # From `kernel_opener`; None: the walk.

    @property
    def by_kernel(self) -> bool:
        return self._opener is not None

    @contextmanager
    def place(self, parts: tuple[str, ...]) -> Iterator[OpenedPath]:
        """Follow a path name by name, holding every folder on the way. The last name need not be there."""
        held = [(os.open(self.root, _FOLDER & ~os.O_NOFOLLOW), "")]
        try:
            rest = _walk(held, list(reversed(parts)))
            real = tuple(name for _, name in held[1:])
        except BaseException:
            _close(held)
            raise
        place = OpenedPath(held.pop()[0], real, rest)
        _close(held)
        try:
            yield place
        finally:
            os.close(place.folder)

    def open(self, parts: tuple[str, ...], flags: int) -> int:
        """A descriptor of what is at the path, with its links followed as long as they stay beneath."""
        if self._opener is None:
            with self.place(parts) as place:
                return place.open(flags)
        root = os.open(self.root, _FOLDER & ~os.O_NOFOLLOW)
        try:
            return self._opener(root, os.fsencode("/".join(parts) or "."), flags)
        finally:
            os.close(root)

    def open_file(self, parts: tuple[str, ...]) -> int:
        """A regular file, to be read. A pipe or a device is not so much as opened, and never waited for."""
        self._check_kind(self._mode(parts), parts)
        found = self.open(parts, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:  # It may have become something else since, which O_NONBLOCK kept from being waited for.
            self._check_kind(os.fstat(found).st_mode, parts)
        except BaseException:
            os.close(found)
            raise
        return found

    def open_folder(self, parts: tuple[str, ...]) -> int:
        return self.open(parts, os.O_RDONLY | os.O_DIRECTORY)

    def _mode(self, parts: tuple[str, ...]) -> int:
        if self._opener is None:
            with self.place(parts) as place:
                found = place.stat()
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return found.st_mode
        held = self.open(parts, _LOOK)
        try:
            return os.fstat(held).st_mode
        finally:
            os.close(held)

    def _check_kind(self, mode: int, parts: tuple[str, ...]) -> None:
        if not stat.S_ISREG(mode):
            raise ToolError(f"{'/'.join(parts) or '.'} is {kind_of(mode)}, not a file.")


def read_within(root: Path, path: str, most: int) -> bytes:
    """The first bytes of a file beneath a root, whatever links are put there meanwhile. OSError or ToolError: there is
    no such file, it is none, or it is the runtime's own. Nothing is waited for."""
    beneath = Beneath(root, opener=None)
    with beneath.place(parts_of(path, beneath.root)) as place:
        found = place.stat()
        if found is None or OWN in place.real:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        beneath._check_kind(found.st_mode, place.real)
        descriptor = place.open(os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # Since a moment ago.
            os.close(descriptor)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return read_from(descriptor, most)


def names_within(root: Path, path: str, most: int) -> list[tuple[str, bool]]:
    """The files and folders in a folder beneath a root, so many at most, in order of their names, each with whether it
    is a folder, or a link to one. Nothing if there is no such folder."""
    beneath = Beneath(root, opener=None)
    try:
        with beneath.place(parts_of(path, beneath.root)) as place:
            descriptor = place.open(os.O_RDONLY | os.O_DIRECTORY)
            try:
                with os.scandir(descriptor) as entries:
                    return sorted((each.name, each.is_dir()) for each in islice(entries, most))
            finally:
                os.close(descriptor)
    except (OSError, ToolError):
        return []


def _walk(held: list[tuple[int, str]], todo: list[str]) -> tuple[str, ...]:
    """Go on from the last folder held, until one name is left or a folder is missing. The first held is the root."""
    links = 0
    while todo:
        name = todo.pop()
        if name == "..":
            if len(held) == 1:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
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
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            todo.extend(each for each in reversed(target.split("/")) if each not in ("", "."))
        elif not todo:
            return (name,)
        else:  # If it has become a link since, this fails instead of following it.
            held.append((os.open(name, _FOLDER, dir_fd=here), name))
            if len(held) > PARTS_MAX:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    return ()


def _link(name: str, folder: int) -> str | None:
    """Where a link points; None: it is not a link."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def _close(held: list[tuple[int, str]]) -> None:
    for descriptor, _ in held:
        os.close(descriptor)
