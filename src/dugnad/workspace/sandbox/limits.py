"""Bounds of a command, set from outside: the output that is kept, limits of each process, a cgroup for all of them."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_CGROUPS = "/sys/fs/cgroup"
# Which file of a cgroup bounds what, in version 1 by the kind of the group; version 2 has one kind without a name.
_BOUNDS: Mapping[str, Mapping[str, str]] = {
    "pids": {"pids.max": "processes_max"}, "memory": {"memory.limit_in_bytes": "memory_bytes_max"},
    "": {"pids.max": "processes_max", "memory.max": "memory_bytes_max"},
}  # fmt: skip
_OURS = re.compile(r"dugnad-(\d+)-\d+")
_KINDS = {
    "cpu_seconds_max": resource.RLIMIT_CPU, "memory_bytes_max": resource.RLIMIT_DATA,
    "file_bytes_max": resource.RLIMIT_FSIZE, "open_files_max": resource.RLIMIT_NOFILE,
}  # fmt: skip


@dataclass(slots=True)
class BoundedOutput:
    """The beginning and the end of what a command prints, within a bound."""

    bytes_max: int
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    left_out: int = 0

    def add(self, data: bytes) -> None:
        room = self.bytes_max - self.bytes_max // 2 - len(self.head)
        self.head += data[:room]
        self.tail += data[max(room, 0) :]
        if (over := len(self.tail) - self.bytes_max // 2) > 0:
            del self.tail[:over]
            self.left_out += over

    def whole(self) -> bytes:
        gap = f"\n[... {self.left_out} bytes left out ...]\n".encode() if self.left_out else b""
        return bytes(self.head) + gap + bytes(self.tail)


def bounded(wanted: int, kind: int) -> int:
    """A limit of this kind, no higher than this process may set it."""
    _, hard = resource.getrlimit(kind)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def set_limits(limits: Mapping[str, int]) -> None:
    """Of each process. The number of processes is bounded inside, where the count is the command's own."""
    for name, kind in _KINDS.items():
        most = bounded(limits[name], kind)
        resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def make_groups(name: str, limits: Mapping[str, int]) -> list[str]:
    """Cgroups of either version that bound processes and memory; none where this process may not make one."""
    groups = [(f"{parent}/{name}", files) for parent, files in _parents()]
    return [group for group, files in groups if _make_group(group, {file: limits[key] for file, key in files.items()})]


def remove_group(group: str) -> bool:
    try:
        os.rmdir(group)
    except OSError:
        return not os.path.exists(group)
    return True


def remove_stale_groups() -> None:
    """Those of helpers that were killed. A group that is in use cannot be removed, so nobody is harmed."""
    for parent, _ in _parents():
        for name in os.listdir(parent) if os.path.isdir(parent) else ():
            if (found := _OURS.fullmatch(name)) and not os.path.exists(f"/proc/{found[1]}"):
                remove_group(f"{parent}/{name}")


def _parents() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Where groups of this process can be made, and which limit goes into which file there."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kind, path = line.split(":", 2)
        if kind in _BOUNDS:
            # Beside this process, not below it: a group of version 2 with processes in it cannot have bounded children.
            above = f"/{kind}{path}" if kind else os.path.dirname(path)
            yield f"{_CGROUPS}{above}".rstrip("/"), _BOUNDS[kind]


def join_group(group: str) -> None:
    _write(f"{group}/cgroup.procs", 0)


def _make_group(group: str, bounds: Mapping[str, int]) -> bool:
    try:
        os.mkdir(group)
    except OSError:
        return False
    try:
        for file, most in bounds.items():
            _write(f"{group}/{file}", most)
        return True
    except OSError:
        os.rmdir(group)
        return False


def _write(path: str, value: int) -> None:
    """Never makes a file: where no cgroup is mounted, the folder may be an ordinary one."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)
