"""Where log lines go: to standard error, or to a rotating file in the user's state folder."""

from __future__ import annotations

import fcntl
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from ..safe_open import held
from .lines import AboutFilter, LineFormatter

FILES, FILE_BYTES_MAX = 5, 5 * 1024 * 1024
_PROCESSES_MAX = 1_000  # Processes that log at the same time; each has its own files.


def start_logging(level: str | None, *, keeps: bool, screen: bool, folder: Path) -> str:
    """Send the lines from this level on to standard error, or to a file if a `screen` is drawn.

    With `keeps`, a file gets all lines from info on in any case. Returns what to tell the user: where the file is, or
    why there is none. The handlers of an earlier call are removed.
    """
    package = logging.getLogger("dugnad")
    for old in [each for each in package.handlers if isinstance(each, _OwnHandler)]:
        package.removeHandler(old)
        old.close()
    wanted = logging.getLevelNamesMapping()[(level or "info").upper()]
    made: dict[_OwnHandler, int] = {_StderrHandler(sys.stderr): wanted} if level and not screen else {}
    told = ""
    if keeps or (level and screen):
        try:
            file = _FileHandler(folder)
            made[file] = min(wanted, logging.INFO) if keeps else wanted
            told = f"Log: {file.path}"
        except (OSError, StopIteration) as trouble:  # The team works without it.
            why = getattr(trouble, "strerror", None) or "all files are in use"
            told = f"Log: none; {folder} cannot be written: {why}. Set XDG_STATE_HOME to a folder of yours."
    for handler, from_level in made.items():
        handler.setLevel(from_level)
        handler.setFormatter(LineFormatter())
        handler.addFilter(AboutFilter())
        package.addHandler(handler)
    package.setLevel(min(made.values(), default=logging.NOTSET))
    package.propagate = not made  # A handler of the root logger would print the same lines with their secrets.
    return told


class _OwnHandler(logging.Handler):
    """Drops a line that it cannot write: a full disk must not end the work or disturb the screen."""

    def handleError(self, record: logging.LogRecord) -> None: ...


class _StderrHandler(_OwnHandler, logging.StreamHandler[Any]): ...


class _FileHandler(_OwnHandler, RotatingFileHandler):
    """Writes to the first file that no other process uses: two processes that rotate one file would lose lines."""

    def __init__(self, folder: Path) -> None:
        with held(folder, make=True) as inside:
            os.fchmod(inside, 0o700)
        number, self._lock = next(filter(None, (_locked(folder, each) for each in range(1, _PROCESSES_MAX))))
        self.path = folder / f"dugnad-{number}.log"
        super().__init__(self.path, maxBytes=FILE_BYTES_MAX, backupCount=FILES - 1, encoding="utf-8", errors="replace")

    def _open(self) -> Any:
        return open(self.baseFilename, self.mode, encoding=self.encoding, errors=self.errors, opener=_open_own)

    def close(self) -> None:
        super().close()
        os.close(self._lock)


def _open_own(path: str | Path, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _locked(folder: Path, number: int) -> tuple[int, int] | None:
    """The number, and the lock of its file, which the process holds until its end. None: another process has it."""
    lock = _open_own(folder / f"dugnad-{number}.lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return number, lock
