"""Placeholders: paths that no command may make exist while a command runs. They are made before the first command, and
removed after the last."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_DATE = 7  # Seconds after the beginning of 1970: the time stamp that tells a placeholder from somebody's own file.

Hold = tuple[str, str | None]


class Placeholders:
    """Those that this process made, or that a killed one left behind."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}  # How many commands need each.

    def hold(self, path: str, content: str | None, user: int | None) -> None:
        """Make what is protected and missing: a folder, or a file with this content."""
        if path not in self.held:
            with suppress(FileExistsError):
                if content is None:
                    os.mkdir(path, 0o755)
                else:
                    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o644)
                    os.write(fd, content.encode())
                    os.close(fd)
                if user is not None:
                    os.chown(path, user, -1, follow_symlinks=False)
                os.utime(path, (_DATE, _DATE), follow_symlinks=False)
        self.held[path] = self.held.get(path, 0) + 1

    def let_go(self, holds: Sequence[Hold]) -> None:
        """Remove placeholders after the last command that needed them, also those that an ended helper left."""
        for path, content in reversed(holds):
            self.held[path] -= 1
            if self.held[path]:
                continue
            del self.held[path]
            with suppress(OSError):  # Not empty, or gone: then it is not ours any more.
                if os.lstat(path).st_mtime != _DATE:
                    continue
                if content is None:
                    os.rmdir(path)
                elif Path(path).read_text() == content:
                    os.unlink(path)
