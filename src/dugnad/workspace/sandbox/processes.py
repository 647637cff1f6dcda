"""Other processes, as the helper that starts commands needs them: which are left, what they said, how they end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_READ_BYTES = 65_536


def drain(fd: int) -> bytes:
    found = b""
    with suppress(BlockingIOError):
        while data := os.read(fd, _READ_BYTES):
            found += data
    return found


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def children() -> list[int]:
    try:
        return [int(pid) for pid in Path("/proc/thread-self/children").read_text().split()]
    except OSError:
        return processes_with(1, os.getpid())


def below(pid: int, levels: int) -> list[int]:
    """The descendants of a process, without the first so many generations."""
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

    Dead processes count as long as they are ours to reap: before that, something is left. Those of another living
    parent do not count: it may never reap them.
    """
    own = os.getpid()
    found = ((pid, about) for pid, about in _all() if int(about[field]) == value)
    return [pid for pid, about in found if about[0] not in "ZX" or int(about[1]) == own]


def _all() -> Iterator[tuple[int, list[str]]]:
    """Every process there is, with the fields of its stat from its state on."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                yield int(entry), Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
