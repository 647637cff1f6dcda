"""Two hosts in network namespaces of their own over PostgreSQL, one of them cut off.

Its work is taken over after the lease. By then it has stopped by itself; when it comes back it is refused. Where the
machine allows no namespaces this fails and says why: a partition that was not tried is not a promise kept.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dugnad.board import Board, open_board
from dugnad.errors import BoardBusy
from dugnad.types import NewTask
from tests.board import oracle
from tests.postgres_server import PostgresServer
from tests.team.hosts_stage import (
    IMPATIENT,
    LIMITS,
    SECONDS_MAX,
    HostProcess,
    all_ended,
    host_processes,
    in_second_turn,
    marks,
    seated,
    slow_host,
    until,
)
from tests.team.namespaces import PORT, lab_address

PROGRAM = Path(__file__).with_name("namespaces.py")


class Lab:
    """The place where all wires end and the database is found."""

    def __init__(self, server: PostgresServer) -> None:
        self._process = subprocess.Popen(
            [sys.executable, PROGRAM, "lab", server.folder / f".s.PGSQL.{server.port}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if self._process.stdout.readline() != "ready\n":
            pytest.fail(f"There can be no partition here. {self._process.stderr.read()}")

    def url(self, number: int) -> str:
        return f"postgresql://postgres@{lab_address(number)}:{PORT}/postgres"

    def on_wire(self, *numbers: int) -> tuple[str, ...]:
        """What to put before a command that is to run in its own namespace."""
        return (sys.executable, str(PROGRAM), "join", str(self._process.pid), ",".join(map(str, numbers)))

    def ssh(self, number: int) -> str:
        """What a host on this wire has in the place of ssh."""
        return f"{sys.executable} {PROGRAM} ssh {lab_address(number)}"

    def wire(self, number: int, state: str) -> None:
        subprocess.run(
            [sys.executable, PROGRAM, "wire", str(self._process.pid), str(number), state],
            check=True, timeout=SECONDS_MAX,
        )  # fmt: skip

    async def cut(self, number: int, board: Board) -> None:
        """Cut a wire, but not in the midst of a transaction: that would hold up everybody until the server notices."""
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                self.wire(number, "down")
                try:
                    await board.write_note("human", "cut", f"wire {number}")
                    return
                except BoardBusy:
                    self.wire(number, "up")
                    await asyncio.sleep(0.1)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def a_lab() -> Iterator[tuple[Lab, str]]:
    """With a database of its own, which is reached by its Unix socket from every namespace; and its address here."""
    server = PostgresServer()
    lab: Lab | None = None
    try:
        with (server.folder / "data" / "postgresql.conf").open("a") as conf:
            conf.write(f"unix_socket_directories = '{server.folder}'\n")
        server.start()
        lab = Lab(server)
        yield lab, server.url
    finally:
        if lab is not None:
            lab.end()
        server.remove()


async def test_a_host_cut_off_from_the_board_stops_by_itself_and_is_refused_when_it_comes_back(folder: Path) -> None:
    titles = ("long one", "long two")
    with a_lab() as (lab, here), host_processes() as running:
        async with await open_board(here, limits=LIMITS, patience=IMPATIENT) as board:
            cut_off = slow_host(lab.url(1), folder, "alice", "bob", prefix=lab.on_wire(1))
            running.append(cut_off)
            old = await seated(board, cut_off)
            tasks = await board.put_many([NewTask(title=title) for title in titles])
            await in_second_turn(board, [task.id for task in tasks])
            other = HostProcess(lab.url(2), folder, "carol", prefix=lab.on_wire(2))
            running.append(other)
            new = await seated(board, other)

            await lab.cut(1, board)
            # Nobody can tell it anything; its own clock says that the lease is over.
            assert sorted(await cut_off.stopped_calls(len(tasks))) == [task.id for task in tasks]
            await all_ended(board)
            assert {each.host for each in await board.team()} == {new}

            lab.wire(1, "up")
            assert sorted(await cut_off.refused(len(tasks))) == [task.id for task in tasks]
            await until(board, lambda events: any(e.kind == "host_back" and e.data["host"] == old for e in events))
            for task in tasks:
                first, second, *others = await board.attempts(task.id)  # A starved machine loses the new host, too.
                assert (first.host, first.ended_as) == (old, "lost")
                assert (second.host, second.continues) == (new, first.epoch)
                assert [second, *others][-1].ended_as == "done"
            await cut_off.leaves_well()
            await other.leaves_well()
            assert await oracle.verdict(board) == []
    assert marks(folder) == Counter(titles)
