"""Host processes of a test: started, signalled and ended by their own pid, and what the board shows of them."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dugnad.board import Board
from dugnad.errors import BoardBusy
from dugnad.settings import Limits, Patience
from dugnad.types import OPEN, Event

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 120.0
LIMITS = Limits(lease_seconds_max=1_200, backoff_seconds=0.05)  # As the workers have them.
IMPATIENT = Patience(busy_seconds=0.5, statement_seconds=0.5, reconnect_seconds=10, poll_seconds=0.5)


class HostProcess:
    """One worker. What it says goes to a file, to be shown when it ends badly."""

    def __init__(self, url: str, folder: Path, *teammates: str, prefix: Sequence[str] = (), **order: Any) -> None:
        given = {"url": url, "folder": str(folder), "teammates": teammates, **order}
        self._said = folder / f"said-{'-'.join(teammates)}"
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "tests.team.host_worker", json.dumps(given)],
                cwd=ROOT,
                stdout=said,
                stderr=said,
            )
        self.folder = folder
        self.teammates = teammates

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS_MAX)

    async def leaves_well(self) -> None:
        """Told to stop, it stops in order."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        code = await asyncio.to_thread(self.process.wait, SECONDS_MAX)
        said = self._said.read_text()
        assert code == 0, f"the host of {self.teammates} ended with {code}:\n{said[-3000:]}"
        assert "Traceback" not in said, said

    async def stopped_calls(self, count: int) -> list[int]:
        """The tasks whose call of the model was stopped from outside, once there are so many."""
        return await self._told("stopped", count)

    async def refused(self, count: int) -> list[int]:
        """The tasks it wanted to settle after it had lost them, once there are so many."""
        return await self._told("refused", count)

    async def _told(self, what: str, count: int) -> list[int]:
        path = self.folder / f"{what}-{self.pid}"
        async with asyncio.timeout(SECONDS_MAX):
            while len(lines_of(path)) < count:  # noqa: ASYNC110  The other process can only tell by a file.
                await asyncio.sleep(0.05)
        return [int(line) for line in lines_of(path)]

    async def host(self, board: Board) -> str:
        """The id under which it is registered."""
        await until(board, lambda events: bool(self._ids(events)))
        return self._ids(await log_of(board))[-1]

    def _ids(self, events: Sequence[Event]) -> list[str]:
        started = [event.data for event in events if event.kind == "host_started"]
        return [str(data["host"]) for data in started if f":{self.pid}:" in str(data["label"])]


def slow_host(url: str, folder: Path, *teammates: str, **order: Any) -> HostProcess:
    """One that comes to no end with its long tasks, and leaves everybody else's teammates alone."""
    return HostProcess(url, folder, *teammates, slow=True, seats_max=len(teammates), **order)


@contextmanager
def host_processes() -> Iterator[list[HostProcess]]:
    """Whoever is added is ended with the block, whatever happens."""
    running: list[HostProcess] = []
    try:
        yield running
    finally:
        for each in running:
            each.kill()


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def marks(folder: Path) -> Counter[str]:
    """How often each task was marked."""
    return Counter(line.rsplit(" ", 1)[0] for line in lines_of(folder / "marks"))


async def log_of(board: Board) -> list[Event]:
    events: list[Event] = []
    while page := await board.events(events[-1].seq if events else 0):
        events += page
    return events


async def until(board: Board, is_so: Callable[[list[Event]], bool]) -> None:
    """Until the log says so; it is looked at again at every change."""
    async with asyncio.timeout(SECONDS_MAX):
        with board.watch(["log"]) as watch:
            while not is_so(await log_of(board)):
                await watch.wait(1)


async def seated(board: Board, host: HostProcess) -> str:
    """Until as many teammates as it brought have a seat at it, whoever they are; its id."""
    own = await host.host(board)
    await until(board, lambda events: len(names_at(own, events)) >= len(host.teammates))
    return own


def names_at(host: str, events: Sequence[Event]) -> set[object]:
    """Who was ever seated at this host."""
    return {event.data["name"] for event in events if event.kind == "seated" and event.data["host"] == host}


async def in_second_turn(board: Board, tasks: Sequence[int]) -> None:
    """Until each of these has recorded its first turn, with the mark, and has reserved for the second."""

    def is_so(events: list[Event]) -> bool:
        reserved = Counter(event.task for event in events if event.kind == "reserved")
        return all(reserved[task] == 2 for task in tasks)

    await until(board, is_so)


async def all_ended(board: Board) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        with board.watch(["log"]) as watch:
            while (await board.count_tasks()).keys() & OPEN:
                await watch.wait(1)


async def freeze(board: Board, host: HostProcess) -> None:
    """Stop a process where it stands, but not while it holds the board: then nobody could go on, and nothing is shown.

    The board must be opened with little patience.
    """
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            host.signal(signal.SIGSTOP)
            try:
                await board.write_note("human", "frozen", f"process {host.pid}")
                return
            except BoardBusy:
                host.signal(signal.SIGCONT)
                await asyncio.sleep(0.05)
