"""Runs the command line many times as processes of their own, without paying for its imports each time.

One process imports everything once and forks for each call. The child gets its own folder, environment, streams and
bounds on memory and time before the command line is called, as a shell would have set them.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

MEMORY_BYTES_MAX = 1024**3  # Of addresses; a command that reads all it is given passes it soon.
SECONDS_MAX = 120.0
_PRINTED_MAX = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Call:
    """A command and its surroundings. A stream is a path, "" for a pipe of ours, or None when it is closed."""

    words: list[str]
    folder: str
    environment: dict[str, str] = field(default_factory=dict)
    given: str | None = "/dev/null"
    out: str | None = ""
    err: str | None = ""
    removes_folder: bool = False
    plain: bool = False  # Without root's right to read and write what its permissions forbid.
    memory_bytes_max: int | None = MEMORY_BYTES_MAX


@dataclass(frozen=True)
class Ran:
    code: int  # Negative: the signal that ended it.
    out: str
    err: str
    late: bool


class Forks:
    """The process that forks, as the tests see it."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.forking"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, call: Call) -> Ran:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with self._asking:
            self._server.stdin.write(json.dumps(asdict(call)) + "\n")
            self._server.stdin.flush()
            return Ran(**json.loads(self._server.stdout.readline()))

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


def _serve() -> None:
    import asyncio
    import sqlite3

    from dugnad.cli import SECTIONS, main

    context = main.make_context("dugnad", [], resilient_parsing=True)
    for name in main.list_commands(context):
        main.get_command(context, name)
    _warm(asyncio, sqlite3, SECTIONS)
    for line in sys.stdin:
        ran = _run(Call(**json.loads(line)))
        sys.stdout.write(json.dumps(asdict(ran)) + "\n")
        sys.stdout.flush()


def _warm(*imported: object) -> None:
    """What commands import when they run."""
    import urllib.request
    import xml.sax.saxutils

    import rich.table

    import dugnad.board.open
    import dugnad.board.store.sqlite
    import dugnad.cli.conduct
    import dugnad.config.project
    import dugnad.rehearsal.play
    import dugnad.view.json
    import dugnad.view.tables

    assert all((*imported, urllib.request, xml.sax.saxutils, rich.table, dugnad.view.tables))


def _run(call: Call) -> Ran:
    pipes = {1: os.pipe(), 2: os.pipe()}
    child = os.fork()
    if child == 0:
        _become(call, pipes)
    for _, writing in pipes.values():
        os.close(writing)
    printed, late = _collect({1: pipes[1][0], 2: pipes[2][0]}, child)
    for reading, _ in pipes.values():
        os.close(reading)
    _, status = os.waitpid(child, 0)
    texts = {stream: b"".join(parts).decode(errors="replace") for stream, parts in printed.items()}
    return Ran(os.waitstatus_to_exitcode(status), texts[1], texts[2], late)


def _collect(reading: dict[int, int], child: int) -> tuple[dict[int, list[bytes]], bool]:
    deadline = time.monotonic() + SECONDS_MAX
    printed: dict[int, list[bytes]] = {stream: [] for stream in reading}
    left = dict(reading)
    while left and (rest := deadline - time.monotonic()) > 0:
        for fd in select.select(list(left.values()), [], [], rest)[0]:
            stream = next(each for each, its in left.items() if its == fd)
            if data := os.read(fd, 65_536):
                if sum(map(len, printed[stream])) < _PRINTED_MAX:
                    printed[stream].append(data)
            else:
                del left[stream]
    if left:
        os.killpg(child, signal.SIGKILL)
    return printed, bool(left)


def _become(call: Call, pipes: dict[int, tuple[int, int]]) -> None:
    """In the child: never returns."""
    code = 70
    try:
        os.setsid()
        os.chdir(call.folder)
        if call.removes_folder:
            os.rmdir(call.folder)
        os.environ.clear()
        os.environ.update(call.environment)
        sys.stdin = _stream(0, call.given, -1)  # type: ignore[assignment]
        sys.stdout = _stream(1, call.out, pipes[1][1])  # type: ignore[assignment]
        sys.stderr = _stream(2, call.err, pipes[2][1])  # type: ignore[assignment]
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
        for reading, writing in pipes.values():
            os.close(reading)
            os.close(writing)
        if call.memory_bytes_max is not None:
            resource.setrlimit(resource.RLIMIT_AS, (call.memory_bytes_max, call.memory_bytes_max))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if call.plain:
            _be_plain()
        from dugnad.cli import main

        sys.argv = ["dugnad", *call.words]
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except BaseException:
        code = 99
        if sys.stderr is not None:
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        os._exit(code)


def _be_plain() -> None:
    """Root without its capabilities is bound by permissions like everybody else; its programs are still its own."""
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, nothing) == 0


def _stream(fd: int, where: str | None, pipe: int) -> IO[str] | None:
    """As the interpreter makes it when it starts with such a stream."""
    if where is None:
        os.close(fd)
        return None
    if where:
        pipe = os.open(where, os.O_RDONLY if fd == 0 else os.O_WRONLY)
    os.dup2(pipe, fd)
    if where:
        os.close(pipe)
    errors = "backslashreplace" if fd == 2 else "strict"
    return open(fd, "r" if fd == 0 else "w", encoding="utf-8", errors=errors, closefd=False)


if __name__ == "__main__":
    _serve()
