"""Measures many host processes on one PostgreSQL server: where more hosts stop to help, and why.

    python bench/hosts.py [--json] [--quick]

For 1, 4, 16 and 32 processes of four teammates each, which take the turns of tasks without a model (claim, reserve,
record, settle), all under one goal and each host under its own: calls and events a second, CPU of the hosts for a call,
deadlocks, and what the server's processes waited for while they were busy, as shares of samples of pg_stat_activity.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import asyncpg

from dugnad.board import Board, open_board
from dugnad.settings import Limits
from dugnad.types import Amount, Done, NewTask, NewTurn
from tests.postgres_server import PostgresServer

TEAMMATES = 4
LIMITS = Limits(lease_seconds=3_600, lease_seconds_max=10**9, tasks_per_root_max=10**6, children_max=10**6)


async def host(url: str, number: int, own: bool) -> None:
    """One process: works until nothing is left, and says how many commits that took."""
    async with await open_board(url, limits=LIMITS) as board:
        scope = [number + 1] if own else None
        id = await board.start_host(f"host {number}", scope=scope)
        names = [f"mate{number}x{place}" for place in range(TEAMMATES)]
        for name in names:
            await board.spawn(name, host=id)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        before = time.process_time()
        calls = sum(await asyncio.gather(*(work(board, name, id) for name in names)))
        print(json.dumps({"calls": calls, "cpu": time.process_time() - before}), flush=True)


async def work(board: Board, name: str, id: str) -> int:
    calls = 0
    while (claim := await board.claim(name, id)) is not None:
        for number in (1, 2):
            key = await board.reserve(claim, Amount(tokens=100))
            await board.record(
                claim, NewTurn(number=number, kind="reply", body="{}", used=Amount(tokens=9), reservation=key)
            )
        await board.settle(claim, Done("done"))
        calls += 6
    return calls


async def sample(server: PostgresServer, waits: Counter[str], stop: asyncio.Event) -> None:
    connection = await asyncpg.connect(server.url)
    while not stop.is_set():
        rows = await connection.fetch(
            "SELECT wait_event_type, wait_event FROM pg_stat_activity "
            "WHERE application_name = 'dugnad' AND state = 'active' AND query NOT LIKE 'LISTEN%'"
        )
        waits.update(f"{row[0]}:{row[1]}" if row[0] else "running" for row in rows)
        await asyncio.sleep(0.01)
    await connection.close()


async def measured(server: PostgresServer, hosts: int, tasks: int, own: bool) -> dict[str, Any]:
    url = f"{server.url}?board=hosts{hosts}{'own' if own else 'one'}"
    async with await open_board(url, limits=LIMITS) as board:
        await board.put_many([NewTask(title=f"goal {each}", assignee="human") for each in range(hosts)])
        for root in range(1, hosts + 1):
            share = tasks // hosts if own else tasks * (root == 1)
            for first in range(0, share, 200):
                few = [NewTask(title="t", parent=root, key=f"{first + n}") for n in range(min(200, share - first))]
                await board.put_many(few)
        before = await board.last_event()
    command = [sys.executable, __file__, "--host", url]
    started = [
        await asyncio.create_subprocess_exec(
            *command, str(number), str(int(own)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        for number in range(hosts)
    ]
    for each in started:
        assert each.stdout is not None
        assert await each.stdout.readline() == b"ready\n"
    stats = await asyncpg.connect(server.url)
    transactions = "SELECT xact_commit, deadlocks FROM pg_stat_database WHERE datname = 'postgres'"
    await stats.execute("SELECT pg_stat_force_next_flush()")
    first = await stats.fetchrow(transactions)
    waits, stop = Counter[str](), asyncio.Event()
    sampler, began = asyncio.create_task(sample(server, waits, stop)), time.monotonic()
    for each in started:
        assert each.stdin is not None
        each.stdin.write(b"go\n")
    said = [json.loads(each[0].splitlines()[-1]) for each in await asyncio.gather(*(p.communicate() for p in started))]
    took = time.monotonic() - began
    stop.set()
    await sampler
    last = await stats.fetchrow(transactions)
    await stats.close()
    async with await open_board(url, limits=LIMITS) as board:
        assert (await board.count_tasks())["done"] == (tasks // hosts) * hosts if own else tasks
        events = await board.last_event() - before
    calls = sum(each["calls"] for each in said)
    return {
        "hosts": hosts, "calls_per_second": round(calls / took), "events_per_second": round(events / took),
        "host_cpu_ms_per_call": round(1000 * sum(each["cpu"] for each in said) / calls, 3),
        "deadlocks": last[1] - first[1],
        "waits": {name: round(count / sum(waits.values()), 2) for name, count in waits.most_common(4)},
    }  # fmt: skip


async def measure(server: PostgresServer, quick: bool) -> dict[str, Any]:
    tasks = 160 if quick else 960
    return {
        name: [await measured(server, hosts, tasks, own) for hosts in (1, 4, 16, 32)]
        for name, own in (("one_goal", False), ("own_goals", True))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--host", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.host:
        asyncio.run(host(given.host[0], int(given.host[1]), given.host[2] == "1"))
        return
    server = PostgresServer(in_memory=False)
    try:
        server.start()
        found = asyncio.run(measure(server, given.quick))
    finally:
        server.remove()
    if given.json:
        print(json.dumps(found))
        return
    for name, rows in found.items():
        print(name.replace("_", " "))
        for row in rows:
            print("  " + ", ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
