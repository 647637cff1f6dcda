"""What no command may make exists while one runs: made before the first, and taken away after the last."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_DATE = 7  # Seconds after the beginning of 1970. It tells what was made here from what somebody has.

Hold = tuple[str, str | None]


class Placeholders:
    """Those that this process has made, or found left by one that was killed."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}  # How many commands need each.

    def hold(self, path: str, content: str | None, user: int | None) -> None:
        """Make what is protected and not there: a folder, or a file with this content."""
        if path not in self.held:
            try:
                if content is None:
                    os.mkdir(path, 0o755)
                else:
                    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o644)
                    os.write(fd, content.encode())
                    os.close(fd)
                if user is not None:
                    os.chown(path, user, -1, follow_symlinks=False)
                os.utime(path, (_DATE, _DATE), follow_symlinks=False)
            except FileExistsError:
                pass
        self.held[path] = self.held.get(path, 0) + 1

    def let_go(self, holds: Sequence[Hold]) -> None:
        """Take placeholders away with the last command that needed them, also those an ended starter left."""
        for path, content in reversed(holds):
            self.held[path] -= 1
            if self.held[path]:
                continue
            del self.held[path]
            try:
                if os.lstat(path).st_mtime != _DATE:
                    continue
                if content is None:
                    os.rmdir(path)
                elif Path(path).read_text() == content:
                    os.unlink(path)
            except OSError:
                pass  # Not empty, or gone: then it is not ours any more.
