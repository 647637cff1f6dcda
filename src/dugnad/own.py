"""Folders of our own in a project that may come from anyone. A path is opened name by name, each folder held before the
next, and no link is followed from `.dugnad` on."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

OWN = ".dugnad"  # The folder of a project's board, of the trees that are worked in, and of what commands said.
_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def owners(environment: Mapping[str, str] | None = None) -> set[int]:
    """Whose files are believed: one's own, root's, and under sudo those of whoever asked."""
    asked = (os.environ if environment is None else environment).get("SUDO_UID", "")
    return {0, os.geteuid()} | ({int(asked)} if os.geteuid() == 0 and asked.isdecimal() else set())


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
