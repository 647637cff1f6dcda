"""Folders of our own in a project that may come from anyone. A path is opened name by name, each folder held before the
next, and no link is followed from `.dugnad` on. And files that somebody named: never more of one than was meant, and
never a device that has no end."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import BadInput

NAMED_BYTES_MAX = 4 * 1024 * 1024  # Of a named file that has no smaller bound of its own, and of standard input.
OWN = ".dugnad"  # The folder of a project's board, of the trees that are worked in, and of what commands said.
_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def owners(environment: Mapping[str, str] | None = None) -> set[int]:
    """Whose files are believed: one's own, root's, and under sudo the caller's."""
    asked = (os.environ if environment is None else environment).get("SUDO_UID", "")[:10]
    return {0, os.geteuid()} | ({int(asked)} if os.geteuid() == 0 and asked.isdecimal() else set())


def user_state(environment: Mapping[str, str], name: str) -> Path:
    """Where the user's state of one kind is: in XDG_STATE_HOME, or in ~/.local/state."""
    given, home = environment.get("XDG_STATE_HOME", ""), environment.get("HOME") or os.path.expanduser("~")
    return Path(given if given.startswith("/") else f"{home}/.local/state", "dugnad", name)


@contextmanager
def held(folder: Path, *, make: bool = False) -> Iterator[int]:
    """A descriptor of a folder of ours. No link is followed from `.dugnad` on, or else for the last name. OSError: it
    is not there, something else is, or it is another user's."""
    parts = folder.absolute().parts
    first = max((at for at, name in enumerate(parts) if name == OWN), default=len(parts) - 1)
    if make:
        Path(*parts[:first]).mkdir(parents=True, exist_ok=True)
    inside = os.open(Path(*parts[:first]), _LOOK)
    try:
        for name in parts[first:]:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=inside)
            outer, inside = inside, os.open(name, _FOLDER, dir_fd=inside)
            os.close(outer)
            if os.fstat(inside).st_uid not in owners():
                raise PermissionError(errno.EPERM, "It belongs to another user")
        yield inside
    finally:
        os.close(inside)


def read_named(path: Path, label: str, bytes_max: int = NAMED_BYTES_MAX, *, pipes: bool = False) -> tuple[bytes, int]:
    """What the file holds, and whose it is. With `pipes` it may also be a pipe, which is read to its end."""
    # Not blocking: what looks like a file may be a pipe nobody writes to. Such a pipe is an empty one.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if pipes else os.O_NOFOLLOW)
    try:
        with os.fdopen(os.open(path if pipes else os.path.realpath(path), flags), "rb") as file:
            found = os.fstat(file.fileno())
            os.set_blocking(file.fileno(), True)
            right = stat.S_ISREG(found.st_mode) or (pipes and stat.S_ISFIFO(found.st_mode))
            content = file.read(bytes_max + 1) if right else b""
    except (OSError, ValueError) as trouble:  # A ValueError says that a name holds a NUL.
        raise BadInput(f"{label} cannot be read: {getattr(trouble, 'strerror', trouble)}.") from None
    if not right or len(content) > bytes_max:
        says = f"has more than {bytes_max // 1024} KiB; shorten it" if right else "is not a file; put a text file there"
        raise BadInput(f"{label} {says}.")
    return content, found.st_uid
