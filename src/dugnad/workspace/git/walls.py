"""Walls around the thread that starts git: Landlock for files, a system call filter for programs and sockets.

They are for our own git only. Commands of teammates run in bubblewrap or not at all.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress

from ..sandbox.profile import SYSTEM

ABI_LEAST = 3  # Older versions do not keep a process from truncating a file.
_ABI_SIGNALS = 6  # From here on, signals to processes outside are refused.
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # The system calls, on every architecture.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_DEVICES, _TRUNCATE = 1 << 6 | 1 << 11, 1 << 14
_RIGHTS = (1 << 15) - 1  # Those of version 3; later versions have more, which are not used.
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _RIGHTS & ~_DEVICES & ~_READ
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_TCP, _SCOPES = 0b11, 0b11  # Binding and connecting; abstract sockets and signals.
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38


def version() -> int:
    """Of the kernel's Landlock; 0 where there is none."""
    with suppress(OSError):
        return _call("syscall", _CREATE, None, 0, 1)
    return 0


def wall_in(writable: Iterable[str], runnable: Iterable[str], readable: Iterable[str] = ()) -> None:
    """Let this thread, and what it starts, write and run only these paths, and read only these if any are given. A
    writable path must not be a link, which would lead elsewhere. OSError: it could not be done."""
    reads = _READ_FILE | _READ_DIR if readable else 0
    ruleset = _ruleset(_RIGHTS & ~_READ | _EXECUTE | reads)
    for paths, rights in ((writable, _WRITE), (runnable, _EXECUTE), (readable, reads)):
        for path in paths:
            _grant(ruleset, path if paths is writable else os.path.realpath(path), rights)
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("syscall", _RESTRICT, ruleset, 0)
    os.close(ruleset)


def filter_calls(program: bytes) -> None:
    """Put this thread, and what it starts, under a system call filter. OSError: it could not be done."""
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    steps = ctypes.create_string_buffer(program, len(program))
    given = struct.pack("@HP", len(program) // 8, ctypes.addressof(steps))
    _call("prctl", _PR_SET_SECCOMP, 2, given, 0, 0)


def _ruleset(rights: int) -> int:
    abi = version()
    words = [rights, _TCP if abi >= 4 else 0, _SCOPES if abi >= _ABI_SIGNALS else 0]
    size = 8 if abi < 4 else 16 if abi < _ABI_SIGNALS else 24
    return _call("syscall", _CREATE, struct.pack("=QQQ", *words), size, 0)


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        held = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if path in SYSTEM else os.O_NOFOLLOW))
    except OSError:
        return  # It is not there, or cannot be reached, so there is nothing to grant.
    mode = os.fstat(held).st_mode
    if not stat.S_ISLNK(mode):
        allowed = rights if stat.S_ISDIR(mode) else rights & _OF_A_FILE
        _call("syscall", _ADD, ruleset, 1, struct.pack("=Qi", allowed, held), 0)
    os.close(held)


def _call(function: str, *words: int | bytes | None) -> int:
    """Call a function of the C library. OSError: it failed."""
    answer = int(getattr(ctypes.CDLL(None, use_errno=True), function)(*words))
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
