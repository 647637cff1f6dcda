"""Measures many host processes on one PostgreSQL server: where more hosts stop to help, and why.

    python bench/hosts.py [--json] [--quick]

For 1, 4, 16 and 32 processes of four teammates each, which take the turns of tasks without a model (claim, reserve,
record, settle), all under one goal and each host under its own. Each host works on a few tasks before it is measured,
so that the server has planned its statements.

calls_per_second, commits_per_second    of all hosts. Each host gathers its calls into transactions.
cpu_ms_per_call    of the hosts and of the server's processes.
deadlocks, lock_waits_over_a_second     by the server's own count, and by its log.
waits              what the server's processes did while they were busy, as shares of samples of pg_stat_activity.
                   A lock is named with its table.
bends              the first number of hosts that is not a tenth quicker than the one before, and what it waits for.

--flush-ms delays each flush of the server by so much (commit_delay), as a slower disk would.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
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
WARM = 3 * TEAMMATES
STALLED = "still waiting for"  # In the server's log, after its deadlock_timeout of a second.
COUNTED = "SELECT xact_commit, deadlocks FROM pg_stat_database WHERE datname = 'postgres'"
BUSY = """
SELECT wait_event_type, wait_event, (
  SELECT relation::regclass::text FROM pg_locks WHERE pg_locks.pid = pg_stat_activity.pid AND locktype = 'tuple' LIMIT 1
) FROM pg_stat_activity
WHERE application_name = 'dugnad' AND state = 'active' AND query NOT LIKE 'LISTEN%'
"""
LIMITS = Limits(lease_seconds=3_600, lease_seconds_max=10**9, tasks_per_root_max=10**6, children_max=10**6)


async def host(url: str, number: int, own: bool) -> None:
    """One process: works until nothing is left, and says how many commits that took."""
    async with await open_board(url, limits=LIMITS) as board:
        scope = [number + 1] if own else None
        id = await board.start_host(f"host {number}", scope=scope)
        names = [f"mate{number}x{place}" for place in range(TEAMMATES)]
        for name in names:
            await board.spawn(name, host=id)
        await asyncio.gather(*(work(board, name, id, WARM // TEAMMATES) for name in names))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        before = time.process_time()
        calls = sum(await asyncio.gather(*(work(board, name, id) for name in names)))
        print(json.dumps({"calls": calls, "cpu": time.process_time() - before}), flush=True)


async def work(board: Board, name: str, id: str, most: int = 10**9) -> int:
    calls = 0
    while calls < 6 * most and (claim := await board.claim(name, id)) is not None:
        for number in (1, 2):
            key = await board.reserve(claim, Amount(tokens=100))
            await board.record(
                claim, NewTurn(number=number, kind="reply", body="{}", used=Amount(tokens=9), reservation=key)
            )
        await board.settle(claim, Done("done"))
        calls += 6
    return calls


def named(kind: str | None, event: str | None, table: str | None) -> str:
    if kind != "Lock":
        return f"{kind}:{event}" if kind else "running"
    if event in ("tuple", "transactionid"):
        return f"row of {table.rpartition('.')[2] if table else 'another'}"
    return f"lock: {event}"


async def sample(server: PostgresServer, waits: Counter[str], stop: asyncio.Event) -> None:
    connection = await asyncpg.connect(server.url)
    while not stop.is_set():
        waits.update(named(*row) for row in await connection.fetch(BUSY))
        await asyncio.sleep(0.01)
    await connection.close()


def server_cpu(server: PostgresServer) -> float:
    """Seconds of all processes of the server, also of those that have ended."""
    ticks = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            if server.pid in (int(entry.parent.name), int(fields[1])):
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def fill(url: str, hosts: int, tasks: int, own: bool) -> None:
    """Tasks under each host's goal, or all under the first one."""
    async with await open_board(url, limits=LIMITS) as board:
        await board.put_many([NewTask(title=f"goal {each}", assignee="human") for each in range(hosts)])
        for root in range(1, hosts + 1):
            share = tasks // hosts if own else tasks * (root == 1)
            for first in range(0, share, 200):
                few = [NewTask(title="t", parent=root, key=f"{first + n}") for n in range(min(200, share - first))]
                await board.put_many(few)


async def ready(url: str, number: int, own: bool) -> Any:
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--host", url, str(number), str(int(own)),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


async def measured(server: PostgresServer, hosts: int, tasks: int, own: bool) -> dict[str, Any]:
    url = f"{server.url}?board=hosts{hosts}{'own' if own else 'one'}"
    tasks = (tasks // hosts + WARM) * hosts
    await fill(url, hosts, tasks, own)
    started = await asyncio.gather(*(ready(url, number, own) for number in range(hosts)))
    stats = await asyncpg.connect(server.url)
    first, slow = await stats.fetchrow(COUNTED), server.log.count(STALLED)
    waits, stop = Counter[str](), asyncio.Event()
    sampler, began, cpu = asyncio.create_task(sample(server, waits, stop)), time.monotonic(), server_cpu(server)
    for each in started:
        each.stdin.write(b"go\n")
    said = [json.loads(line) for line in await asyncio.gather(*(each.stdout.readline() for each in started))]
    took, cpu = time.monotonic() - began, server_cpu(server) - cpu
    stop.set()
    await asyncio.gather(sampler, *(each.wait() for each in started))
    last = await stats.fetchrow(COUNTED)
    await stats.close()
    async with await open_board(url, limits=LIMITS) as board:
        assert (await board.count_tasks())["done"] == tasks
    calls = sum(each["calls"] for each in said)
    return {
        "hosts": hosts, "calls_per_second": round(calls / took),
        "commits_per_second": round((last["xact_commit"] - first["xact_commit"]) / took),
        "cpu_ms_per_call": {
            "hosts": round(1000 * sum(each["cpu"] for each in said) / calls, 3), "server": round(1000 * cpu / calls, 3)
        },
        "deadlocks": last["deadlocks"] - first["deadlocks"],
        "lock_waits_over_a_second": server.log.count(STALLED) - slow,
        "waits": {name: round(count / sum(waits.values()), 2) for name, count in waits.most_common(4)},
    }  # fmt: skip


def bend(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    for before, row in itertools.pairwise(rows):
        if row["calls_per_second"] < 1.1 * before["calls_per_second"]:
            return {"hosts": row["hosts"], "waits": row["waits"]}
    return None


async def measure(server: PostgresServer, hosts: list[int], tasks: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, own in (("one_goal", False), ("own_goals", True)):
        rows = [await measured(server, each, tasks, own) for each in hosts]
        found[name] = {"rows": rows, "bends": bend(rows)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 4, 16, 32])
    parser.add_argument("--flush-ms", type=float, default=0.0)
    parser.add_argument("--host", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.host:
        asyncio.run(host(given.host[0], int(given.host[1]), given.host[2] == "1"))
        return
    server = PostgresServer(in_memory=False)
    try:
        server.configure(f"log_lock_waits = on\ncommit_delay = {int(given.flush_ms * 1000)}\ncommit_siblings = 0\n")
        server.start()
        found = asyncio.run(measure(server, given.hosts, 480 if given.quick else 1_920))
    finally:
        server.remove()
    if given.json:
        print(json.dumps(found))
        return
    for name, kind in found.items():
        print(name.replace("_", " "))
        for row in kind["rows"]:
            print("  " + ", ".join(f"{key} {value}" for key, value in row.items()))
        print(f"  bends: {kind['bends']}")


if __name__ == "__main__":
    main()
