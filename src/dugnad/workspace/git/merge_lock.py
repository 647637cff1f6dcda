"""Whose turn it is to move a target: a file lock among all processes of this machine, which says who holds it.

The lock is for order alone; the target stays whole because it moves in one step, from the very commit it was at. So a
holder that no longer says that it lives, such as a stopped process, is passed over.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

from ...safe_open import owners

_LOOK_SECONDS = 0.05  # Between two looks at whether it is our turn.
_SAID_BYTES_MAX = 4_096


@asynccontextmanager
async def turn(
    path: Path, what: str, *, lease_seconds: float, tell: Callable[[str], None], tell_seconds: float = 3.0
) -> AsyncIterator[None]:  # fmt: skip
    """Hold the lock. `what` says to others what is done meanwhile. `tell` is called after `tell_seconds` with whom this
    one waits for, and with an empty text once it waits no longer."""
    lock = await _take(path, lease_seconds, tell, tell_seconds)
    _say(lock, what, 0)
    beating = asyncio.create_task(_beat(lock, what, lease_seconds / 3))
    try:
        yield
    finally:
        beating.cancel()
        os.close(lock)


async def _take(path: Path, lease_seconds: float, tell: Callable[[str], None], tell_seconds: float) -> int:
    began, seen, since, told = time.monotonic(), b"", time.monotonic(), False
    while True:
        lock = open_lock(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(path, lock):
                if told:
                    tell("")
                return lock
        except BlockingIOError:
            now, said = time.monotonic(), os.pread(lock, _SAID_BYTES_MAX, 0)
            if said != seen:
                seen, since = said, now
            elif now - since >= lease_seconds and is_at(path, lock):
                # It is dead or stopped. Others queue up behind a new lock; if it wakes up, the one step of the target
                # decides.
                with suppress(FileNotFoundError):
                    os.unlink(path)
            if now - began >= tell_seconds and not told:
                told = True
                tell(_whom(said))
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
        await asyncio.sleep(_LOOK_SECONDS)


async def _beat(lock: int, what: str, seconds: float) -> None:
    """Say again and again that this process lives."""
    for number in count(1):
        await asyncio.sleep(seconds)
        _say(lock, what, number)


def _say(lock: int, what: str, number: int) -> None:
    text = json.dumps({"what": what, "host": socket.gethostname(), "pid": os.getpid(), "beat": number}).encode()
    with suppress(OSError):  # A full disk: then nobody can read who it is, and it may be passed over.
        os.ftruncate(lock, 0)
        os.pwrite(lock, text, 0)


def _whom(said: bytes) -> str:
    try:
        about = json.loads(said)
        return f"Waiting for the merge queue: {about['what']} (process {about['pid']} on {about['host']})."
    except (ValueError, KeyError, TypeError):
        return "Waiting for the merge queue: another process merges."


def is_at(path: Path, lock: int) -> bool:
    """Whether the open file is still the one at this path."""
    with suppress(FileNotFoundError):
        return os.stat(path).st_ino == os.fstat(lock).st_ino
    return False


def open_lock(path: Path) -> int:
    """A file of ours to lock and to write to. Whatever else is there, such as another name of somebody's file, is
    replaced by a new file and never written to. OSError: that cannot be done."""
    while True:
        try:
            lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
            about = os.fstat(lock)
            if stat.S_ISREG(about.st_mode) and about.st_nlink <= 1 and about.st_uid in owners():
                return lock
            os.close(lock)
        except OSError as trouble:
            if trouble.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise
        with suppress(FileNotFoundError):
            os.rmdir(path) if stat.S_ISDIR(os.lstat(path).st_mode) else os.unlink(path)
