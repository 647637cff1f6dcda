"""Which of the other hosts are lost.

When a process of this machine ended, that is known at once, and its work need not wait for the lease to run out. A
host's label names its machine, boot, process space and process. Only a process that ended for certain counts as dead;
a label that cannot be read, or a process number that is in use again, is left to the lease.

A host of another machine is lost when it is silent, and only this host's own watching counts: the board's clock may
jump, and a laptop may sleep with every host on it. So a host watches the others for two beats of its own waking time.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from ..types import HostInfo


def own_label() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{_process_space()}"


def _process_space() -> str:
    """The same for two processes only if they see one another's process numbers, on one boot of one machine."""
    parts = []
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            parts.append(os.readlink(path) if path.endswith("pid") else Path(path).read_text().strip())
        except OSError:
            return "?"  # Not Linux: nothing is certain, so no host counts as dead.
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # It belongs to another user.
        pass
    try:  # A program may leave the dead that it started unburied.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] not in ("Z", "X")
    except OSError:
        return True


def dead_neighbours(
    hosts: Iterable[HostInfo], label: str, exists: Callable[[int], bool] = process_exists
) -> list[HostInfo]:  # fmt: skip
    """The hosts that still count as alive, and whose process ended."""
    own = label.split(":")
    if len(own) != 3 or own[2] == "?":
        return []
    dead = []
    for host in hosts:
        parts = host.label.split(":")
        if not host.alive or len(parts) != 3 or (parts[0], parts[2]) != (own[0], own[2]) or not parts[1].isdigit():
            continue
        if not exists(int(parts[1])):
            dead.append(host)
    return dead


class Silence:
    """How long each host has not renewed its lease, counted only while we were awake."""

    def __init__(self, lease_seconds: float) -> None:
        self._beat = lease_seconds / 3
        self._looked_at: float | None = None
        self._seen: dict[str, tuple[int, float]] = {}  # The end of its lease, and how long it has been that.

    def watch(self, hosts: Iterable[HostInfo], now: float) -> dict[str, int]:
        """The hosts that were silent for two beats, with the end of their lease.

        Between two looks at most half a beat counts. If it was longer, we slept, and they may have slept too: they get
        the time for a beat of their own before they count as lost.
        """
        passed = 0.0 if self._looked_at is None else max(0.0, min(now - self._looked_at, self._beat / 2))
        self._looked_at, before, self._seen = now, self._seen, {}
        for host in hosts:
            until, silent = before.get(host.id, (None, 0.0))
            self._seen[host.id] = (host.lease_until, silent + passed if until == host.lease_until else 0.0)
        return {name: until for name, (until, silent) in self._seen.items() if silent >= 2 * self._beat}
