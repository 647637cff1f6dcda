"""Measures the board beside the bare driver, in one run, on both databases.

    python bench/board.py [--json] [--quick]

ratio_to_raw      claim + settle pairs a second of 1 and of 64 teammates, over what the bare driver does with the same
                  statements at the same durability: on SQLite its one writer, on PostgreSQL its best over 1 to 64
                  connections for "64", and one connection for "1".
claim_us          one claim, median, on a board of that many tasks, most of them ended or blocked.
wake_ms           from asking for a put in one process to a waiter awake in another: the commit is in it.
idle_cpu_percent  of one core, with 10,000 teammates waiting in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

import fill
import raw
from dugnad.board import Board, open_board
from dugnad.settings import Limits
from dugnad.types import Done, NewTask
from tests.postgres_server import PostgresServer

LIMITS = Limits(lease_seconds=3_600, lease_seconds_max=10**9)
CONNECTIONS = (1, 4, 16, 64)


async def prepare(url: str, teammates: int, tasks: int) -> tuple[Board, str]:
    """A board with this many ready tasks, each a root of its own, and seated teammates."""
    board = await open_board(url, limits=LIMITS)
    host = await board.start_host("bench", host=raw.HOST)
    await asyncio.gather(*(board.spawn(name_of(number)) for number in range(teammates)))
    await board.seat(host, count=teammates)
    for begin in range(0, tasks, 2_000):
        await board.put_many([NewTask(title=f"task {n}") for n in range(begin, min(tasks, begin + 2_000))])
    return board, host


def name_of(number: int) -> str:
    return raw.TEAMMATE if number == 0 else f"{raw.TEAMMATE}{number}"


async def board_pairs(board: Board, host: str, teammates: int, pairs: int) -> float:
    async def one(name: str) -> None:
        for _ in range(max(1, pairs // teammates)):
            claim = await board.claim(name, host)
            assert claim is not None
            await board.settle(claim, Done("ok"))

    begin = time.perf_counter()
    await asyncio.gather(*(one(name_of(number)) for number in range(teammates)))
    return max(1, pairs // teammates) * teammates / (time.perf_counter() - begin)


async def throughput(url: str, scale: float, rounds_wanted: int) -> dict[str, Any]:
    """The two ratios, and the rates behind them. The sides take turns, and a ratio is the median of the rounds'."""
    one, many = int(100 * scale), int(3_200 * scale)
    board, host = await prepare(url, 64, int((one * 2 + many * (1 + len(CONNECTIONS) / 8)) * (rounds_wanted + 1)))
    rounds: list[dict[str, float]] = []
    for _ in range(rounds_wanted + 1):
        found = {"board 1": await board_pairs(board, host, 1, one)}
        if url.startswith("sqlite"):
            found["raw 1"] = raw.sqlite_pairs(Path(url.removeprefix("sqlite:///")), one)
        else:
            for connections in CONNECTIONS:
                pairs = one if connections == 1 else max(connections, many // 16)
                found[f"raw {connections}"] = await raw.postgres_pairs(url, connections, pairs)
        found["board 64"] = await board_pairs(board, host, 64, many)
        rounds.append(found)
    await board.close()
    del rounds[0]  # It warmed up.
    best = [max(rate for name, rate in found.items() if name.startswith("raw")) for found in rounds]
    return {
        "ratio_to_raw": {
            "1": median(found["board 1"] / found["raw 1"] for found in rounds),
            "64": median(found["board 64"] / rate for found, rate in zip(rounds, best, strict=True)),
        },
        "pairs_per_second": {name: median((found[name] for found in rounds), 1) for name in rounds[0]},
    }


def median(values: Iterable[float], digits: int = 3) -> float:
    return round(statistics.median(values), digits)


async def claim_latency(url: Callable[[str], str], sizes: tuple[int, ...], samples: int) -> dict[str, float]:
    """The median of one claim, in microseconds, on boards of these sizes, asked in turn."""
    boards = {}
    for size in sizes:
        boards[size] = await prepare(url(f"claims{size}"), 1, 0)
        await fill.fill(url(f"claims{size}"), size)
    took: dict[int, list[float]] = {size: [] for size in sizes}
    for number in range(samples + 10):
        for size, (board, host) in boards.items():
            begin = time.perf_counter()
            claim = await board.claim(raw.TEAMMATE, host)
            if number >= 10:
                took[size].append(time.perf_counter() - begin)
            assert claim is not None
    for board, _ in boards.values():
        await board.close()
    return {str(size): median((each * 1e6 for each in values), 1) for size, values in took.items()}


async def wake(url: str, samples: int) -> dict[str, float]:
    board, _ = await prepare(url, 1, 0)
    waiter = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).parent / "waiter.py"), url, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert waiter.stdout is not None
    took = []
    for number in range(samples + 5):
        assert (await waiter.stdout.readline()).strip() == b"waiting"
        await asyncio.sleep(0.005)
        begin = time.monotonic_ns()
        await board.put(f"wake {number}", role="waker")
        woken = int(await waiter.stdout.readline())
        took.append((woken - begin) / 1e6)
    waiter.kill()
    await waiter.wait()
    await board.close()
    took = sorted(took[5:])
    return {"p50": median(took), "p99": round(took[min(len(took) - 1, int(len(took) * 0.99))], 3)}


async def idle(url: str, waiters: int, seconds: float) -> float:
    board, _ = await prepare(url, 1, 0)

    async def wait(number: int) -> None:
        with board.watch_for(f"idle{number}", ["coder"]) as watch:
            await watch.wait(600)

    tasks = [asyncio.create_task(wait(number)) for number in range(waiters)]
    await asyncio.sleep(1)
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    share = (time.process_time() - cpu) / (time.perf_counter() - wall)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await board.close()
    return round(share * 100, 3)


async def measure(urls: Any, quick: bool) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for kind, url in urls.items():
        report[kind] = {
            **await throughput(url("throughput"), *((0.25, 3) if quick else (2.0, 7))),
            "wake_ms": await wake(url("wake"), 60 if quick else 500),
            "idle_cpu_percent": await idle(url("idle"), 10_000, 5.1 if quick else 21),
            "claim_us": await claim_latency(url, (1_000, 100_000, 1_000_000), 100 if quick else 400),
        }
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--quick", action="store_true", help="the same in under a minute")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="dugnad-bench-"))
    server = PostgresServer(in_memory=False)  # On a real disk: the flush is what is measured.
    try:
        server.start()
        urls = {
            "sqlite": lambda name: f"sqlite:///{folder}/{name}.db",
            "postgres": lambda name: f"{server.url}?board={name}",
        }
        report = asyncio.run(measure(urls, options.quick))
    finally:
        server.remove()
        shutil.rmtree(folder)
    if options.json:
        print(json.dumps(report))
        return
    for kind, found in report.items():
        print(kind)
        for name, value in found.items():
            print(f"  {name:18} {json.dumps(value)}")


if __name__ == "__main__":
    main()
