"""Hosts on this very machine whose process is gone: their work need not wait for the lease to run out.

A host's label says which machine, which boot, which process space and which process it is. Only a process that ended
for certain is taken for dead; a label that cannot be read, or a number in use again, is left to the lease.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from ..types import Host


def own_label() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{_place()}"


def _place() -> str:
    """The same for two processes only if they see one another's process numbers, on one boot of one machine."""
    parts = []
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            parts.append(os.readlink(path) if path.endswith("pid") else Path(path).read_text().strip())
        except OSError:
            return "?"  # Not Linux: nothing is certain, so nobody is taken for dead.
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def dead_neighbours(
    hosts: Iterable[Host], label: str, exists: Callable[[int], bool] = process_exists
) -> list[Host]:  # fmt: skip
    """Those that still count as alive, but whose process ended."""
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
