"""Files that the runtime keeps in folders of its own. Such a folder may have come with the project, so no link is
followed, and only files in the very folder are opened, counted or removed."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ...safe_open import held

_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def make_file(folder: Path, name: str) -> int:
    """A new file, to be written. FileExistsError: the name is taken."""
    with held(folder) as inside:
        return os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _FLAGS, 0o600, dir_fd=inside)


def open_file(folder: Path, name: str) -> BinaryIO:
    with held(folder) as inside:
        file = os.fdopen(os.open(name, os.O_RDONLY | _FLAGS, dir_fd=inside), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "It is not a file")
    return file


def files_in(folder: Path, ending: str) -> list[tuple[os.stat_result, str]]:
    """The files whose names end with `ending`, each with its stat."""
    found = []
    with held(folder) as inside:
        for name in os.listdir(inside):
            with suppress(FileNotFoundError):  # Another process has removed it.
                if name.endswith(ending):
                    found.append((os.stat(name, dir_fd=inside, follow_symlinks=False), name))
    return found


def remove_files(folder: Path, *names: str) -> None:
    with held(folder) as inside:
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=inside)
