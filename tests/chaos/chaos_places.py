"""Where a storm's board is, and what can be done to that place: a disk that runs full, a server that crashes, a wire.

A place that cannot be made on this machine is an error that says why: a fault that was not tried is not a promise kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from dugnad.board import Board, open_board
from dugnad.errors import BoardTrouble
from dugnad.settings import Patience
from tests.chaos.chaos_hosts import FREEZE_SECONDS, Cradle
from tests.postgres_server import PostgresServer
from tests.team.namespaces import PORT, lab_address

NAMESPACES = Path(__file__).parent.parent / "team" / "namespaces.py"
DISK_BYTES = 192 * 1024 * 1024
FULL_NOTES_MAX = 400
SECONDS_MAX = 120
_NEWNS, _NEWUSER, _PRIVATE = 0x20000, 0x10000000, 0x4000 | 0x40000


class CannotBeTried(Exception):
    """This machine does not let us make the place for a fault."""


@dataclass
class SmallDisk:
    """A SQLite board on a small disk of its own, which only this process and its children see."""

    folder: Path
    fields: dict[str, object] = field(default_factory=lambda: {"fail_every": 80})

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/board.db"

    async def cradles(self) -> list[Cradle]:
        return [await Cradle.make()]

    async def fill(self, board: Board) -> None:
        """Until nothing more can be written to the board; then others meet it too."""
        await asyncio.to_thread(self._shorten_log)
        with (self.folder / "filler").open("wb") as filler:
            with contextlib.suppress(OSError):
                free = os.statvfs(self.folder)
                os.posix_fallocate(filler.fileno(), 0, max(1, free.f_bavail * free.f_frsize))
            with contextlib.suppress(OSError):
                while True:
                    os.write(filler.fileno(), b"x" * 4_096)
        for number in range(FULL_NOTES_MAX):
            try:
                await board.write_note("human", "full", f"{number} " + "x" * 50_000)
            except BoardTrouble:
                return
        raise AssertionError("the disk is full, and the board still takes notes")

    def _shorten_log(self) -> None:
        """What SQLite has written to its log before it can write again, however full the disk is."""
        with contextlib.closing(sqlite3.connect(self.folder / "board.db", timeout=5)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def empty(self) -> None:
        (self.folder / "filler").unlink()


def _must(name: str, *given: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*given) != 0:
        why = os.strerror(ctypes.get_errno())
        raise CannotBeTried(f"There can be no full disk here. {name}: {why}; run as root, or allow user namespaces.")


def _mount(place: Path) -> None:
    """Before any thread is started: only then a person who is not root may have mounts of their own."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _must("unshare", _NEWNS)
    else:
        _must("unshare", _NEWNS | _NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _must("mount", b"none", b"/", None, _PRIVATE, None)
    _must("mount", b"tmpfs", str(place).encode(), b"tmpfs", 0, f"size={DISK_BYTES}".encode())


@contextlib.asynccontextmanager
async def small_disk(folder: Path) -> AsyncIterator[SmallDisk]:
    place = folder / "disk"
    place.mkdir()
    _mount(place)
    try:
        yield SmallDisk(place)
    finally:
        _must("umount2", str(place).encode(), 2)  # Detached: gone with the last who uses it.


@dataclass
class Server:
    """A PostgreSQL server of its own, reached from here, and by one of the two cradles over a wire that can be cut."""

    server: PostgresServer
    lab: subprocess.Popen[str]
    impatient: Board | None = None
    fields: dict[str, object] = field(default_factory=dict)
    is_cut: bool = False

    @property
    def url(self) -> str:
        return self.server.url

    async def cradles(self) -> list[Cradle]:
        return [await Cradle.make(), await Cradle.make(sys.executable, str(NAMESPACES), "join", str(self.lab.pid), "1")]

    @property
    def far_url(self) -> str:
        return f"postgresql://postgres@{lab_address(1)}:{PORT}/postgres"

    async def crash(self, how: str) -> None:
        """stop: as `pg_ctl stop -m immediate`, kill: kill -9 of the server, backend: of one of its processes."""
        if how == "backend":  # After that the server comes back by itself.
            serving = [each for each in psutil.Process(self.server.pid).children() if _serves(each)]
            if serving:
                serving[0].kill()
                await asyncio.to_thread(serving[0].wait, SECONDS_MAX)
                return
        if how == "stop":
            os.kill(self.server.pid, signal.SIGQUIT)
            await asyncio.to_thread(self.server.stop)
        else:
            await asyncio.to_thread(self.server.kill)
        await asyncio.to_thread(self.server.start)

    async def cut(self) -> bool:
        """Cut the wire; but not in the midst of a transaction, which would hold everybody up."""
        if self.is_cut:
            return False
        try:
            if self.impatient is None:  # It opens only where the server is up.
                patience = Patience(busy_seconds=0.5, statement_seconds=0.5, reconnect_seconds=10)
                self.impatient = await open_board(self.url, patience=patience)
        except BoardTrouble:
            return False
        self._wire("down")
        try:
            await self.impatient.write_note("human", "cut", "a wire")
        except BoardTrouble:
            self._wire("up")
            return False
        self.is_cut = True
        asyncio.get_running_loop().call_later(FREEZE_SECONDS, self.mend)
        return True

    def mend(self) -> None:
        self._wire("up")
        self.is_cut = False

    def _wire(self, state: str) -> None:
        command = [sys.executable, str(NAMESPACES), "wire", str(self.lab.pid), "1", state]
        subprocess.run(command, check=True, timeout=SECONDS_MAX)


def _serves(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return "postgres postgres" in " ".join(process.cmdline())
    return False


def _start_lab(server: PostgresServer, errors: Path) -> subprocess.Popen[str]:
    socket = server.folder / f".s.PGSQL.{server.port}"
    with errors.open("wb") as said:  # It complains of every connection a crash refuses; nobody needs to read that.
        return subprocess.Popen(
            [sys.executable, str(NAMESPACES), "lab", str(socket)], stdout=subprocess.PIPE, stderr=said, text=True
        )


@contextlib.asynccontextmanager
async def crashing_server(folder: Path) -> AsyncIterator[Server]:
    server = PostgresServer()
    lab: subprocess.Popen[str] | None = None
    made: Server | None = None
    try:
        with (server.folder / "data" / "postgresql.conf").open("a") as conf:
            conf.write(f"unix_socket_directories = '{server.folder}'\n")
        await asyncio.to_thread(server.start)
        lab = _start_lab(server, folder / "lab.err")
        assert lab.stdout is not None
        if await asyncio.to_thread(lab.stdout.readline) != "ready\n":
            raise CannotBeTried(f"There can be no partition here. {(folder / 'lab.err').read_text()}")
        made = Server(server, lab)
        yield made
    finally:
        if made is not None and made.impatient is not None:
            await made.impatient.close()
        if lab is not None:
            lab.kill()
            lab.communicate()
        server.remove()
