"""The bare drivers: the statements of one claim and one settle, in a tight loop, one transaction a call.

No gathering, no rules, no records: what the databases and their drivers give by themselves at the same durability.
The texts are the board's own, so both sides ask the database for the same work.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import asyncpg

from dugnad.board.store.pool import split_url
from dugnad.board.store.queries import Query, load, of_entries

HOST, TEAMMATE = "bench-host", "bench"
LOG = {"count": 1, "channel": "dugnad_bench", "topics": '{"log":1}'}


def claim_arguments() -> dict[str, object]:
    return {
        "claimants": f'[{{"teammate":"{TEAMMATE}","host":"{HOST}"}}]',
        "lease_max": 10**12,
        "lanes": f'[{{"lane":""}},{{"lane":"@{TEAMMATE}"}}]',
        "count": 1,
        "asker": TEAMMATE,
    }


def take_arguments(task: int, root: int) -> dict[str, object]:
    return {"id": task, "teammate": TEAMMATE, "host": HOST, "ids": f'[{{"id":{root}}}]', "roots": _charge(root)}


def _charge(root: int) -> str:
    return f'[{{"root":{root},"n":1}}]'


def attempt_arguments(task: int, epoch: int, key: str) -> dict[str, object]:
    place = {"teammate": TEAMMATE, "host": HOST}
    return {"task": task, "epoch": epoch, "key": key, **place, "continues": None, "context": None}


def event_arguments(kind: str, task: int, epoch: int) -> dict[str, object]:
    data = {"epoch": epoch, "host": HOST, "number": 1}
    return {"kind": kind, "task": task, "root": task, "actor": TEAMMATE, "data": data}


def settle_arguments(task: int) -> dict[str, object]:
    return {
        "id": task, "state": "done", "tried": 0, "back": 0, "outcome": None, "result": "ok", "reason": None,
        "merged_into": None, "merged_as": None, "files_in": None, "triggers": None, "by": None, "lane": None,
        "continues": None, "waiting_for": None, "request": None, "open_needs": 0, "delay": 0, "ended": 1,
        "ids": f'[{{"id":{task}}}]',
    }  # fmt: skip


def close_arguments(task: int, epoch: int) -> dict[str, object]:
    return {"task": task, "epoch": epoch, "ended_as": "done", "settled_as": "x", "handover": None, "reason": None}


def sqlite_pairs(path: Path, pairs: int) -> float:
    """Claim + settle pairs a second on one connection."""
    queries = load("sqlite")
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    connection.row_factory = sqlite3.Row
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000"):
        connection.execute(f"PRAGMA {pragma}")
    connection.create_function("now_ms", 0, lambda: time.time_ns() // 1_000_000, deterministic=True)

    def run(name: str, arguments: dict[str, object]) -> list[Any]:
        query = queries[name]
        return connection.execute(query.text, query.arguments(arguments)).fetchall()

    def write(name: str, entry: dict[str, object], *, told: bool = False) -> list[Any]:
        query = queries[name]
        return connection.execute(of_entries(query, 1, told=told), [entry[field] for field in query.fields]).fetchall()

    def append(kind: str, task: int, epoch: int) -> None:
        entry, last = event_arguments(kind, task, epoch), run("last_seq", {})[0]["seq"]
        at = time.time_ns() // 1_000_000
        write("append_events", {**entry, "data": json.dumps(entry["data"]), "seq": last + 1, "at": at})

    begin = time.perf_counter()
    for _ in range(pairs):
        connection.execute("BEGIN IMMEDIATE")
        run("claimants", claim_arguments())
        run("promote_due", {})
        best = run("claim_candidates", claim_arguments())[0]
        take = take_arguments(best["id"], best["root_id"])
        run("hold_budgets", take)
        task = write("claim_tasks", take, told=True)[0]
        write("open_attempts", attempt_arguments(task["id"], task["epoch"], f"raw{task['id']}"), told=True)
        write("charge_runs", {"root": best["root_id"], "n": 1})
        append("claimed", task["id"], task["epoch"])
        connection.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        settle = settle_arguments(task["id"])
        run("hold_tasks", settle)
        write("settle_tasks", settle)
        write("close_attempts", close_arguments(task["id"], task["epoch"]))
        run("open_reservations_of", settle)
        append("done", task["id"], task["epoch"])
        connection.execute("COMMIT")
    seconds = time.perf_counter() - begin
    connection.close()
    return pairs / seconds


async def postgres_pairs(url: str, connections: int, pairs: int) -> float:
    """Claim + settle pairs a second over this many connections."""
    address, schema = split_url(url)
    queries = load("postgres")
    settings = {
        "search_path": schema, "synchronous_commit": "on", "jit": "off", "enable_seqscan": "off",
        "enable_hashjoin": "off", "enable_mergejoin": "off", "plan_cache_mode": "force_generic_plan",
    }  # fmt: skip
    opened = [await asyncpg.connect(address, server_settings=settings) for _ in range(connections)]
    each = max(1, pairs // connections)
    await asyncio.gather(*(_pairs(connection, queries, 2, f"warm{n}-") for n, connection in enumerate(opened)))
    begin = time.perf_counter()
    await asyncio.gather(*(_pairs(connection, queries, each, f"c{n}-") for n, connection in enumerate(opened)))
    seconds = time.perf_counter() - begin
    for connection in opened:
        await connection.close()
    return each * connections / seconds


async def _pairs(connection: Any, queries: dict[str, Query], pairs: int, prefix: str) -> None:
    async def run(name: str, arguments: dict[str, object]) -> list[Any]:
        query = queries[name]
        return list(await connection.fetch(query.text, *query.arguments(arguments)))

    async def each(name: str, rows: str, arguments: dict[str, object]) -> list[Any]:
        return await run(name, {rows: json.dumps([arguments]), **LOG})

    for number in range(pairs):
        await connection.execute("BEGIN")
        await run("claimants", claim_arguments())
        await run("promote_due", {})
        best = (await run("claim_candidates", claim_arguments()))[0]
        take = take_arguments(best["id"], best["root_id"])
        await run("hold_budgets", take)
        task = (await each("claim_tasks", "tasks", take))[0]
        await each(
            "open_attempts", "attempts", attempt_arguments(task["id"], task["epoch"], f"{prefix}{number}-{task['id']}")
        )
        await run("charge_runs", take)
        await each("append_events", "events", event_arguments("claimed", task["id"], task["epoch"]))
        await connection.execute("COMMIT")
        await connection.execute("BEGIN")
        settle = settle_arguments(task["id"])
        await run("hold_tasks", settle)
        await each("settle_tasks", "tasks", settle)
        await each("close_attempts", "attempts", close_arguments(task["id"], task["epoch"]))
        await run("open_reservations_of", settle)
        await each("append_events", "events", event_arguments("done", task["id"], task["epoch"]))
        await connection.execute("COMMIT")
