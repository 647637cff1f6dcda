"""Other processes, as a starter of commands needs them: who is left, what they said, and how they end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

_READ_BYTES = 65_536


def drain(fd: int) -> bytes:
    found = b""
    while True:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return found
        if not data:
            return found
        found += data


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def children() -> list[int]:
    try:
        return [int(pid) for pid in Path("/proc/thread-self/children").read_text().split()]
    except OSError:
        return processes_with(1, os.getpid())


def below(pid: int, levels: int) -> list[int]:
    """What descends from a process, but for so many generations next to it."""
    parents: dict[int, list[int]] = {}
    for child, about in _all():
        parents.setdefault(int(about[1]), []).append(child)
    generation, found = [pid], []
    for depth in range(100):
        generation = [child for each in generation for child in parents.get(each, ())]
        found += generation if depth >= levels else []
    return found


def processes_with(field: int, value: int) -> list[int]:
    """Those with this value in their stat: the parent is in field 1, the session in field 3.

    The dead are among them as long as they are ours to reap; whoever answers "nothing is left" before that lies. The
    dead of a living parent elsewhere are not: it may never reap them.
    """
    own = os.getpid()
    return [
        pid for pid, about in _all() if int(about[field]) == value and (about[0] not in "ZX" or int(about[1]) == own)
    ]


def _all() -> Iterator[tuple[int, list[str]]]:
    """Every process there is, with the fields of its stat from its state on."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                about = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            yield int(entry), about
