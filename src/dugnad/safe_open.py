"""Opens our own folders in a project that is not trusted: name by name, without following a link from `.dugnad` on.
And reads files that a user named: never more than a limit, and never a device."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import BadInput

NAMED_BYTES_MAX = 4 * 1024 * 1024  # Of standard input, and of a named file without a smaller limit.
OWN = ".dugnad"  # The folder of a project's board, its worktrees, and the output of commands.
_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def owners(environment: Mapping[str, str] | None = None) -> set[int]:
    """The users whose files are trusted: this one, root, and under sudo the caller."""
    asked = (os.environ if environment is None else environment).get("SUDO_UID", "")[:10]
    return {0, os.geteuid()} | ({int(asked)} if os.geteuid() == 0 and asked.isdecimal() else set())


def user_state(environment: Mapping[str, str], name: str) -> Path:
    """Where the user's state of one kind is: in XDG_STATE_HOME, or in ~/.local/state."""
    given, home = environment.get("XDG_STATE_HOME", ""), environment.get("HOME") or os.path.expanduser("~")
    return Path(given if given.startswith("/") else f"{home}/.local/state", "dugnad", name)


@contextmanager
def held(folder: Path, *, make: bool = False) -> Iterator[int]:
    """A descriptor of one of our folders. No link is followed from `.dugnad` on, or without it for the last name.
    OSError: the folder does not exist, is something else, or belongs to another user."""
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
    """The content of the file, and its owner. With `pipes` it may also be a pipe, which is read to its end."""
    # Not blocking: it may be a pipe without a writer, which counts as empty.
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
        why = f"has more than {bytes_max // 1024} KiB; shorten it" if right else "is not a file; put a text file there"
        raise BadInput(f"{label} {why}.")
    return content, found.st_uid
