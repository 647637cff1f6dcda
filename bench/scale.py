"""Measures how the board grows: hosts, teammates and tasks, and what bends first.

    python bench/scale.py [--json] [--quick] [--only NAME,...] [--draw FILE ...]

hosts        1 to 32 host processes of four teammates each, which take the turns of tasks without a model
             (bench/hosts.py), on a board that has 100,000 tasks already: tasks a second, one claim, CPU of the hosts
             and bytes of the database for a task.
teammates    the same with one host process of 1 to 1,000 teammates.
boards       eight host processes on one board, and the same eight on two boards of one server; also with a goal each.
wakes        from a put to the last of 1 to 64 processes' listeners that were woken, and the server's CPU for it.
idle         what an idle host asks of the board (a heartbeat, a look for lost hosts, a look for lost pushes), with 10
             to 10,000 hosts on the board: time and CPU of the server for one round of one host.
reads        `tasks`, `show`, `log`, `budget` and `status`, and the report of a run, on boards of 1,000 and 1,000,000
             tasks.

`--draw` reads what `--json` printed, and writes the tables of docs/scale.md and docs/pictures/scale.svg again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

import fill
import hosts
import scale_drawing
from dugnad.board import Board, open_board
from dugnad.team.report import report
from dugnad.types import NewTask
from tests.board.topics import change
from tests.postgres_server import PostgresServer

IDLE = """
INSERT INTO hosts (id, label, lease_until, started_at)
{rows} SELECT 'idle' || i, 'x', now_ms() + 3600000, 1 FROM n
"""
COMMANDS = (("tasks",), ("show", "2"), ("log",), ("budget",), ("status",))
Found = list[dict[str, Any]]


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    past: int = 100_000  # Tasks that are on the board before.
    tasks: int = 1_200  # That one measurement takes.
    hosts: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    teammates: tuple[int, ...] = (1, 10, 100, 1_000)
    listeners: tuple[int, ...] = (1, 4, 16, 64)
    idle: tuple[int, ...] = (10, 100, 1_000, 10_000)
    reads: tuple[int, ...] = (1_000, 1_000_000)
    samples: int = 100


QUICK = Sizes(
    past=2_000, tasks=64, hosts=(1, 2), teammates=(1, 8), listeners=(1, 2), idle=(10, 100), reads=(1_000, 4_000),
    samples=4,
)  # fmt: skip


class TimedBoard:
    """A board whose claims are timed. The clock of another process counts the same seconds."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.claims: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._board, name)

    async def claim(self, name: str, host: str) -> Any:
        began = time.perf_counter()
        claim = await self._board.claim(name, host)
        if claim is not None:
            self.claims.append((time.perf_counter() - began) * 1_000)
        return claim


async def host(url: str, number: int, teammates: int, scope: int) -> None:
    """One process: works until nothing is left under the goal, and says what that took."""
    async with await open_board(url, limits=hosts.LIMITS) as board:
        id = await board.start_host(f"host {number}", scope=[scope])
        names = [f"mate{scope}x{number}x{place}" for place in range(teammates)]
        await asyncio.gather(*(board.spawn(name, host=id) for name in names))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        timed, before = TimedBoard(board), time.process_time()
        calls = sum(await asyncio.gather(*(hosts.work(timed, name, id) for name in names)))  # type: ignore[arg-type]
        cpu = time.process_time() - before
        print(json.dumps({"tasks": calls // 6, "cpu": cpu, "claims": timed.claims}), flush=True)


async def prepared(url: str, goals: int, tasks: int, past: int) -> list[int]:
    """A board with a past, and with these tasks under new goals. Returns the goals."""
    async with await open_board(url, limits=hosts.LIMITS) as board:
        if past:
            await fill.fill_past(url, past)
        new = [NewTask(title=f"goal {each}", assignee="human") for each in range(goals)]
        roots = [task.id for task in await board.put_many(new)]
        for root in roots:
            await board.put_many([NewTask(title="t", parent=root, key=f"{n}") for n in range(tasks // goals)])
    return roots


async def crowd(places: list[tuple[str, int, int]]) -> dict[str, Any]:
    """Host processes, each at a board, under a goal and with so many teammates: all begin at once."""
    started = []
    for number, (url, scope, teammates) in enumerate(places):
        words = [sys.executable, __file__, "--host", url, str(number), str(teammates), str(scope)]
        pipe = asyncio.subprocess.PIPE
        started.append(await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe))
    for each in started:
        assert each.stdout is not None
        assert await each.stdout.readline() == b"ready\n"
    began = time.monotonic()
    said = [
        json.loads(each[0].splitlines()[-1]) for each in await asyncio.gather(*(p.communicate(b"\n") for p in started))
    ]
    took, tasks = time.monotonic() - began, sum(each["tasks"] for each in said)
    claims = sorted(took for each in said for took in each["claims"])
    cpu = sum(each["cpu"] for each in said)
    return {
        "tasks_per_second": round(tasks / took, 1), "cpu_ms_per_task": round(1_000 * cpu / tasks, 2),
        "claim_ms_p50": part(claims, 0.5), "claim_ms_p99": part(claims, 0.99),
    }  # fmt: skip


def part(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 2)


class Measuring:
    def __init__(self, sizes: Sizes, url: Callable[[str, str], str], server: PostgresServer) -> None:
        self.sizes, self.url, self.server = sizes, url, server

    async def hosts(self) -> dict[str, Found]:
        return {
            kind: await self._crowds(kind, [(each, hosts.TEAMMATES) for each in self.sizes.hosts]) for kind in KINDS
        }

    async def teammates(self) -> dict[str, Found]:
        return {kind: await self._crowds(kind, [(1, each) for each in self.sizes.teammates]) for kind in KINDS}

    async def _crowds(self, kind: str, crowds: list[tuple[int, int]]) -> Found:
        """On one board, one after the other: each has a goal of its own."""
        url, found, past = self.url(kind, f"crowd{crowds[-1][1]}"), list[dict[str, Any]](), self.sizes.past
        for many, teammates in crowds:
            (root,) = await prepared(url, 1, self.sizes.tasks, past)
            before, past = await _size(url), 0
            measured = await crowd([(url, root, teammates)] * many)
            grown = (await _size(url) - before) // self.sizes.tasks
            found.append({"hosts": many, "teammates": teammates, **measured, "bytes_per_task": grown})
        return found

    async def boards(self) -> dict[str, Any]:
        many, found = max(2, self.sizes.hosts[-1] // 4), {}
        for name, count, goals in (
            ("one board, one goal", 1, 1),
            ("one board, a goal each", 1, many),
            ("two boards, one goal each", 2, 1),
        ):
            urls = [self.url("postgres", f"boards{count}g{goals}n{each}") for each in range(count)]
            roots = [await prepared(url, goals, self.sizes.tasks // count, 0) for url in urls]
            places = [(urls[n % count], roots[n % count][n % goals], hosts.TEAMMATES) for n in range(many)]
            found[name] = {"hosts": many, **await crowd(places)}
        return found

    async def wakes(self) -> Found:
        found = []
        url = self.url("postgres", "wakes")
        for many in self.sizes.listeners:
            boards = [await open_board(url) for _ in range(many)]
            await asyncio.sleep(1)  # Until the server's processes for those of before have ended: they count no more.
            took, cpu = [], self._server_cpu()
            for number in range(self.sizes.samples):
                woken = [asyncio.create_task(change(each, ["ready:"], 60)) for each in boards[1:]]
                await asyncio.sleep(0.02)
                began = time.perf_counter()
                await boards[0].put(f"wake {many} {number}")
                await asyncio.gather(*woken)
                took.append((time.perf_counter() - began) * 1_000)
            spent = (self._server_cpu() - cpu) / self.sizes.samples
            for each in boards:
                await each.close()
            found.append({"listeners": many, "all_woken_ms": part(took, 0.5), "server_cpu_ms": round(spent * 1_000, 2)})
        return found

    async def idle(self) -> Found:
        """The hosts are rows on the board: what one of them asks does not depend on where the others run."""
        found, url, there = list[dict[str, Any]](), self.url("postgres", "idle"), 0
        async with await open_board(url, limits=hosts.LIMITS) as board:
            own = await board.start_host("own")
            for many in self.sizes.idle:
                rows = fill.NUMBERS["postgres"].format(first=there + 1, last=many)
                await fill.run(url, [IDLE.format(rows=rows), "VACUUM ANALYZE hosts"])
                there, took, cpu = many, list[float](), self._server_cpu()
                for _ in range(self.sizes.samples):
                    began = time.perf_counter()
                    await board.heartbeat(own)
                    await board.hosts()
                    await board.take_back()
                    await board.next_lapse()
                    await board.ready_work(most=1)
                    took.append((time.perf_counter() - began) * 1_000)
                spent = (self._server_cpu() - cpu) / self.sizes.samples
                found.append({"hosts": many, "round_ms": part(took, 0.5), "server_cpu_ms": round(spent * 1_000, 2)})
        return found

    async def reads(self) -> dict[str, Found]:
        return {kind: [await self._reads(kind, size) for size in self.sizes.reads] for kind in KINDS}

    async def _reads(self, kind: str, size: int) -> dict[str, Any]:
        url, took = self.url(kind, f"reads{size}"), dict[str, Any]()
        (root,) = await prepared(url, 1, 10, size)
        for words in (("--version",), *COMMANDS):
            took[words[0]] = min(_command(url, words) for _ in range(3))
        async with await open_board(url) as board:
            began = time.perf_counter()
            assert len((await report(board, [root], began_ms=await board.now_ms())).tasks) == 11
            took["report"] = round((time.perf_counter() - began) * 1_000, 1)
        return {"tasks": size, "milliseconds": took}

    def _server_cpu(self) -> float:
        """Seconds of all processes of the server that there are."""
        spent = 0
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                    if self.server.pid in (int(folder.name), parent):
                        spent += int((folder / "schedstat").read_text().split()[0])
                except OSError:  # It has ended meanwhile.
                    continue
        return spent / 1e9


KINDS = ("sqlite", "postgres")
NAMES = ("hosts", "teammates", "boards", "wakes", "idle", "reads")


def _command(url: str, words: tuple[str, ...]) -> float:
    began = time.perf_counter()
    asked = [sys.executable, "-m", "dugnad", *(() if words[0] == "--version" else ("--board", url)), *words]
    ran = subprocess.run(asked, capture_output=True, cwd=tempfile.gettempdir(), check=False)
    assert ran.stdout, ran.stderr  # `status` says by its code that nobody works.
    return round((time.perf_counter() - began) * 1_000, 1)


async def _size(url: str) -> int:
    async with await open_board(url) as board:
        return await board.size_bytes()


async def measure(measuring: Measuring, names: Iterable[str]) -> dict[str, Any]:
    return {name: await getattr(measuring, name)() for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--quick", action="store_true", help="the same with small numbers")
    parser.add_argument("--only", default=",".join(NAMES), help="which of them, with commas between")
    parser.add_argument("--draw", nargs="+", type=Path, metavar="FILE", help="write the tables and the picture again")
    parser.add_argument("--host", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.host:
        asyncio.run(host(given.host[0], *(int(each) for each in given.host[1:])))
        return
    if given.draw:
        found = {name: each for file in given.draw for name, each in json.loads(file.read_text()).items()}
        scale_drawing.write(Path(__file__).parent.parent / "docs", found)
        return
    folder = Path(tempfile.mkdtemp(prefix="dugnad-bench-"))
    server = PostgresServer(in_memory=False)  # On a real disk: the flush is part of what is measured.
    try:
        server.start()

        def url(kind: str, name: str) -> str:
            return f"sqlite:///{folder}/{name}.db" if kind == "sqlite" else f"{server.url}?board={name}"

        measuring = Measuring(QUICK if given.quick else Sizes(), url, server)
        found = asyncio.run(measure(measuring, given.only.split(",")))
    finally:
        server.remove()
        shutil.rmtree(folder)
    print(json.dumps(found) if given.json else "\n".join(scale_drawing.tables(found)))


if __name__ == "__main__":
    main()
