"""The one place that starts git. Each git can start no other program, and writes only where it is told.

A thread of its own puts itself behind the walls (`walls.py`) and starts git, which inherits them. A program that a
repository's settings name cannot run, however git finds it: git fails instead. Its time and its memory are limited, and
it ends when we end. The walls and these limits are Linux's. On other systems only our own settings protect us
(`private_repository.py`).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import selectors
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO

from ..sandbox.profile import SYSTEM, childless
from .walls import ABI_LEAST, filter_calls, version, wall_in

_ENDING_SECONDS = 10.0
_LOOK_SECONDS = 0.01
_READABLE = ("/etc", "/nix", "/dev/null", "/dev/urandom", "/dev/random")
_MEMORY_BYTES_MAX = 2 * 1024**3  # Of git's own; what it maps of packs and indexes is not counted.
_F_SETSIG = 10  # Of Linux: which signal a process gets when something happens to an open file.


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """Which of them stand. A wall that the machine has is never left out because putting it up failed."""

    files: bool  # Landlock.
    calls: bytes  # The system call filter; empty where there is none.


NO_WALLS = Walls(files=False, calls=b"")


@cache
def walls() -> Walls:
    """Those that this machine has: each is tried on a thread that does nothing."""
    if sys.platform != "linux":
        return NO_WALLS
    calls = b""
    with suppress(ValueError):
        calls = childless(os.uname().machine)
    files = version() >= ABI_LEAST and _stands(lambda: wall_in((), ()))
    return Walls(files=files, calls=calls if calls and _stands(lambda: filter_calls(calls)) else b"")


def _stands(put_up: Callable[[], None]) -> bool:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(put_up).exception() is None


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCall:
    """What git is asked, and what it may touch. `keep`: open files that it holds as long as it lives. `readable`: all
    that it may read besides the system's own files; empty: it may read anything. `runnable`: programs and folders of
    programs that it may run besides itself, where the wall of calls is not up."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    stdin: bytes = b""
    writable: Sequence[Path] = ()
    readable: Sequence[Path] = ()
    keep: Sequence[int] = ()
    runnable: Sequence[str] = ()
    output_bytes_max: int | None = None  # Git is ended if it prints more. None: what it prints is our own.


class _Running(threading.Thread):
    """One git, from its start to its end. A thread that went behind the walls cannot come back, so it serves once."""

    def __init__(self, call: GitCall, seconds: float, behind: Walls) -> None:
        super().__init__(name="git", daemon=True)
        self.call, self.seconds, self.behind = call, seconds, behind
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[tuple[int, bytes, bytes]] = self.loop.create_future()
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        tell: Callable[[], None]
        try:
            tell = partial(self.ended.set_result, self._ask())
        except BaseException as trouble:
            tell = partial(self.ended.set_exception, trouble)
        with suppress(RuntimeError):  # The loop is gone, and with it the caller.
            self.loop.call_soon_threadsafe(tell)

    def _ask(self) -> tuple[int, bytes, bytes]:
        call = self.call
        if self.behind.files:
            readable = [str(each) for each in call.readable]
            if readable:
                readable += [*SYSTEM, *_READABLE, os.path.dirname(os.path.realpath(call.argv[0]))]
            runnable = [path for each in (call.argv[0], *call.runnable) for path in _runnable(each)]
            wall_in([str(each) for each in (*call.writable, os.devnull)], runnable, readable)
        if self.behind.calls:
            filter_calls(self.behind.calls)
        lifeline, ours = os.pipe()
        try:
            self.process = subprocess.Popen(
                call.argv, env=call.environment, cwd=call.folder, start_new_session=True,
                pass_fds=(*call.keep, lifeline), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            _bound(self.process.pid, self.seconds, lifeline)
            out, errors = _heard(self.process, call)
        finally:
            os.close(lifeline)
            os.close(ours)
        return self.process.returncode, out, errors


def _heard(process: subprocess.Popen[bytes], call: GitCall) -> tuple[bytes, bytes]:
    """What it prints, and its errors."""
    if call.output_bytes_max is None:
        return process.communicate(call.stdin)
    assert process.stdin is not None
    process.stdin.close()
    heard: dict[IO[bytes] | None, bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as waiting, process:
        for pipe, so_far in heard.items():
            assert pipe is not None
            waiting.register(pipe, selectors.EVENT_READ, so_far)
        while waiting.get_map():
            found = waiting.select(_LOOK_SECONDS * 10)
            if not found and process.poll() is not None:
                break  # A program that git started stays, as ssh does for the next connection, and holds the pipe.
            for ready, _ in found:
                ready.data.extend(more := os.read(ready.fd, 65_536))
                if not more:
                    waiting.unregister(ready.fileobj)
                elif len(ready.data) > call.output_bytes_max and process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
    return bytes(heard[process.stdout]), bytes(heard[process.stderr])


def _bound(pid: int, seconds: float, lifeline: int) -> None:
    """Limit what a git uses. The kernel ends it when the other end of the lifeline, which only we have, is closed: at
    the latest when this process ends, however it ends."""
    if sys.platform == "linux":
        with suppress(ProcessLookupError):  # It has ended already.
            for kind, most in ((resource.RLIMIT_CPU, int(seconds)), (resource.RLIMIT_DATA, _MEMORY_BYTES_MAX)):
                soft, hard = resource.prlimit(pid, kind)
                least = min(each for each in (most, soft, hard) if each != resource.RLIM_INFINITY)
                resource.prlimit(pid, kind, (least, hard))
            fcntl.fcntl(lifeline, fcntl.F_SETOWN, pid)
            fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGTERM)  # Git removes its locks then.
            fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)


async def ask(call: GitCall, *, seconds: float, behind: Walls | None = None) -> tuple[int, bytes, bytes]:
    """Its exit code, output and errors. If this is cancelled, git ends before it returns. TimeoutError: too long."""
    running = _Running(call, seconds, behind or walls())
    running.start()
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.shield(running.ended)
    except (asyncio.CancelledError, TimeoutError):
        await _end(running)
        raise


async def _end(running: _Running) -> None:
    """Ask git to end, so that it removes its locks; then kill it."""
    while running.process is None and not running.ended.done():
        await asyncio.wait([running.ended], timeout=_LOOK_SECONDS)
    for how in (signal.SIGTERM, signal.SIGKILL):
        if running.ended.done() or running.process is None:
            break
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, how)
        await asyncio.wait([running.ended], timeout=_ENDING_SECONDS)
    if running.ended.done():
        running.ended.exception()  # It was looked at; nobody else will.


@cache
def _runnable(program: str) -> tuple[str, ...]:
    """The program, and the loader it names; or a folder of programs."""
    if os.path.isdir(program):
        return (program,)
    with open(os.path.realpath(program), "rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return (program,)
        (at,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
        file.seek(at)
        for part in (file.read(size) for _ in range(count)):
            if part[:4] == b"\x03\0\0\0":
                where, length = struct.unpack_from("<Q", part, 8)[0], struct.unpack_from("<Q", part, 32)[0]
                file.seek(where)
                return program, os.fsdecode(file.read(length).rstrip(b"\0"))
    return (program,)
