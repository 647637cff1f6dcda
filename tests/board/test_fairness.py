"""Sixteen processes on one SQLite board, each as fast as it can: nobody waits long, nobody goes without."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dugnad.board import open_board
from dugnad.types import NewTask
from tests.board import oracle

PROCESSES = 16
SECONDS = 3.0

# Claims and settles for a while after the parent's signal, then says how often, and the longest time a call took.
CLAIM_AND_SETTLE = """
import asyncio, json, sys, time
from dugnad.board import open_board
from dugnad.types import Done

async def main(url, name, seconds):
    async with await open_board(url) as board:
        host = await board.start_host(name)
        await board.spawn(name)
        await board.seat(host, name=name)
        print("ready", flush=True)
        sys.stdin.readline()
        until = time.monotonic() + seconds
        settled, longest = 0, 0.0
        while (began := time.monotonic()) < until:
            claim = await board.claim(name, host)
            longest = max(longest, time.monotonic() - began)
            if claim is None:
                break
            began = time.monotonic()
            await board.settle(claim, Done())
            longest = max(longest, time.monotonic() - began)
            settled += 1
        print(json.dumps([settled, longest]), flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
"""

# Opens, reads and closes the same board again and again; a reader must never be told that the board is busy.
OPEN_READ_CLOSE = """
import asyncio, sys, time
from dugnad.board import open_board

async def main(url, seconds):
    print("ready", flush=True)
    sys.stdin.readline()
    until, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        async with await open_board(url) as board:
            await board.count_tasks()
            if rounds % 5 == 0:
                await board.put(f"seen {rounds}")
        rounds += 1
    print(rounds, flush=True)

asyncio.run(main(sys.argv[1], float(sys.argv[2])))
"""


@contextlib.contextmanager
def running(program: str, arguments: list[list[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    """The program once for each list of arguments, all of them at the start line."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, *each],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for each in arguments
    ]  # fmt: skip
    try:
        for each in processes:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n", each.communicate(timeout=120)[1]
        yield processes
    finally:
        for each in processes:
            each.kill()
            each.communicate()


def start(processes: list[subprocess.Popen[str]]) -> None:
    for each in processes:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()


def answers(processes: list[subprocess.Popen[str]]) -> list[str]:
    found = []
    for each in processes:
        out, err = each.communicate(timeout=120)
        assert each.returncode == 0, err
        found.append(out)
    return found


def _race(url: str) -> list[tuple[int, float]]:
    with running(CLAIM_AND_SETTLE, [[url, f"p{n}", str(SECONDS)] for n in range(PROCESSES)]) as processes:
        start(processes)
        return [(int(each[0]), float(each[1])) for each in map(json.loads, answers(processes))]


@pytest.mark.proof
async def test_among_sixteen_processes_no_call_waits_for_the_whole_race_and_all_get_a_fair_share(
    folder: Path,
) -> None:
    url = f"sqlite:///{folder}/board.db"
    async with await open_board(url) as board:
        await board.put_many([NewTask(title=f"task {number}") for number in range(8_000)])
        found = await asyncio.to_thread(_race, url)
        counts, waits = [each[0] for each in found], [each[1] for each in found]
        assert max(waits) < SECONDS, f"settled {counts}, longest waits {waits}"
        assert min(counts) * 4 > max(counts), f"settled {counts}"
        assert (await board.count_tasks())["done"] == sum(counts)
        assert oracle.faults(await oracle.read_log(board), at_rest=False) == []


async def test_readers_are_not_blocked_by_a_writer_that_is_busy(folder: Path) -> None:
    url = f"sqlite:///{folder}/board.db"
    async with await open_board(url) as board:
        await board.put("first")
        other = await open_board(url)
        large = [NewTask(title=f"task {number}", body="x" * 1_000) for number in range(4_000)]
        writing = asyncio.ensure_future(other.put_many(large))
        reads = 0
        while not writing.done():
            counts = await board.count_tasks()
            assert counts in ({"ready": 1}, {"ready": 4_001})  # All of the batch, or none of it.
            reads += 1
            await asyncio.sleep(0)
        await writing
        assert reads > 5  # Behind the writer there would be two: one before it, one after it.
        await other.close()


async def test_a_reader_sees_one_state_while_others_write(folder: Path) -> None:
    """A page is one statement, so it is of one moment: every event is there, up to some number, without a gap."""
    url = f"sqlite:///{folder}/board.db"
    async with await open_board(url) as board, await open_board(url) as other:
        writing = asyncio.ensure_future(asyncio.gather(*(other.put(f"task {number}") for number in range(500))))
        while not writing.done():
            events = await board.events()
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            await asyncio.sleep(0)
        await writing
        assert await board.last_event() == 500


def _come_and_go(url: str) -> list[int]:
    with running(OPEN_READ_CLOSE, [[url, "2"]] * 6) as processes:
        start(processes)
        return [int(each) for each in answers(processes)]


async def test_processes_that_come_and_go_never_find_the_board_busy(folder: Path) -> None:
    """The last to leave a SQLite file tidies it up, and the first to come may have to; neither is anybody's trouble."""
    url = f"sqlite:///{folder}/board.db"
    await (await open_board(url)).close()
    rounds = await asyncio.to_thread(_come_and_go, url)
    assert min(rounds) > 0
    async with await open_board(url) as board:
        assert await board.replayed_state() == await board.observed_state()
