"""Confinement without bubblewrap: Landlock for files, the system call filter for the rest. It holds less, and says so.

Landlock cannot take back what it granted further up. So nothing is granted on a tree itself: what stands in it is
granted piece by piece, and what is protected is left out. That is why nothing new can be made at a tree's top.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable, Sequence
from typing import Literal

from .profile import ETC, SYSTEM, Confinement

Right = Literal["read", "write", "list", "use"]
Grant = tuple[str, Right]

ABI_LEAST = 3  # Before it a file could be cut short by its name, wherever it was.
ABI_SIGNALS = 6  # From here on, signals do not leave.
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # The system calls, on every architecture.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_DEVICES, _REFER, _TRUNCATE = 1 << 6 | 1 << 11, 1 << 13, 1 << 14
_ALL = {3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}  # By version; later ones have no more of them.
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _ALL[3] & ~_DEVICES
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_RIGHTS: dict[Right, int] = {
    "read": _READ, "write": _WRITE, "list": _READ_DIR, "use": _READ_FILE | _WRITE_FILE,
}  # fmt: skip
_TCP, _SCOPES = 0b11, 0b11  # Binding and connecting; abstract sockets and signals.
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES = 41  # As many as there are; asking for one more is an error that harms nothing.

_DEVICE_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Single files: in the whole of /proc every other process could be seen.
_PROC_FILES = (
    "cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "sys/kernel/cap_last_cap",
    "sys/kernel/ngroups_max", "sys/kernel/pid_max", "sys/kernel/random/boot_id", "sys/vm/overcommit_memory",
)  # fmt: skip


def version() -> int:
    """Of the kernel's Landlock; 0 where there is none."""
    return max(0, int(ctypes.CDLL(None, use_errno=True).syscall(_CREATE, None, 0, 1)))


def grants_for(policy: Confinement, entries: Iterable[os.DirEntry[str]]) -> list[Grant]:
    """What a command may do where. `entries` are what stands at the top of the tree."""
    grants: list[Grant] = [(each, "read") for each in (*SYSTEM, *ETC)]
    grants += [(f"/proc/{each}", "read") for each in _PROC_FILES]
    grants += [(each, "use") for each in _DEVICE_FILES]
    grants += [(str(each), "read") for each in policy.readable if not each.is_relative_to(policy.tree)]
    grants.append((str(policy.tree), "list"))
    git, own, settings = (policy.tree / name for name in (".git", ".dugnad", "dugnad.toml"))
    for entry in entries:
        path = policy.tree / entry.name
        if path == own or entry.is_symlink():
            continue
        kept = path in (git, settings) or any(each.is_relative_to(path) for each in policy.readable)
        grants.append((str(path), "read" if kept else "write"))
    return grants


def confine(grants: Sequence[Grant], program: bytes) -> None:
    """Take everything from this process and its children but what is granted. OSError: it could not be done."""
    libc = ctypes.CDLL(None, use_errno=True)
    abi = version()
    if abi < ABI_LEAST:
        raise OSError(0, "the kernel's Landlock is too old")
    ruleset = _ruleset(libc, abi)
    for path, right in grants:
        _grant(libc, ruleset, path, _RIGHTS[right])
    _did(libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0))
    _did(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _did(libc.syscall(_RESTRICT, ruleset, 0))
    os.close(ruleset)
    if os.geteuid() == 0:
        _drop_capabilities(libc)
    filter_calls(program)


def wall_in(writable: Iterable[str], runnable: Iterable[str], readable: Iterable[str] = ()) -> None:
    """Let this thread, and what it starts, write and run nothing but this, and read nothing else if something is given
    to be read. What is to be written must not be a link: it would lead elsewhere. OSError: it could not be done."""
    libc = ctypes.CDLL(None, use_errno=True)
    reads = _READ_FILE | _READ_DIR if readable else 0
    ruleset = _ruleset(libc, version(), _ALL[3] & ~_READ | _EXECUTE | reads)
    for paths, rights in ((writable, _WRITE & ~_READ), (runnable, _EXECUTE), (readable, reads)):
        for path in paths:
            _grant(libc, ruleset, path if paths is writable else os.path.realpath(path), rights)
    _did(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _did(libc.syscall(_RESTRICT, ruleset, 0))
    os.close(ruleset)


def filter_calls(program: bytes) -> None:
    """Put this thread, and what it starts, under a system call filter. OSError: it could not be done."""
    libc = ctypes.CDLL(None, use_errno=True)
    _did(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    steps = ctypes.create_string_buffer(program, len(program))
    given = struct.pack("@HP", len(program) // 8, ctypes.addressof(steps))
    _did(libc.prctl(_PR_SET_SECCOMP, 2, given, 0, 0))


def _ruleset(libc: ctypes.CDLL, abi: int, rights: int = 0) -> int:
    words = [rights or _ALL[min(abi, 5)], _TCP if abi >= 4 else 0, _SCOPES if abi >= ABI_SIGNALS else 0]
    size = 8 if abi < 4 else 16 if abi < ABI_SIGNALS else 24
    return _did(libc.syscall(_CREATE, struct.pack("=QQQ", *words), size, 0))


def _grant(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if path in SYSTEM else os.O_NOFOLLOW))
    except OSError:
        return  # What is not there, or not to be reached, cannot be granted.
    mode = os.fstat(place).st_mode
    if not stat.S_ISLNK(mode):
        allowed = rights if stat.S_ISDIR(mode) else rights & _OF_A_FILE
        _did(libc.syscall(_ADD, ruleset, 1, struct.pack("=Qi", allowed, place), 0))
    os.close(place)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    for number in range(_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    head = struct.pack("=Ii", 0x20080522, 0)
    _did(libc.syscall(_CAPSET[os.uname().machine], head, bytes(24)))


def _did(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
