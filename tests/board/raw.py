"""A side door for tests: the board's database without the board, to let time pass and to look behind the verbs."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import asyncpg

from dugnad.errors import DugnadError

_AGED = (
    "UPDATE events SET at = at - $1",
    "UPDATE calls SET at = at - $1",
    "UPDATE turns SET at = at - $1",
    "UPDATE tasks SET ended_at = ended_at - $1",
    "UPDATE head SET pruned_to = pruned_to - $1",
    "UPDATE hosts SET stopped_at = stopped_at - $1, lost_at = lost_at - $1",
)


async def run(url: str, statement: str, *values: object) -> list[dict[str, Any]]:
    """One statement, with $1, $2 for its values, on either database."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as connection, connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(statement.replace("$", "?"), values).fetchall()]
    connection = await connect(url)
    try:
        return [dict(row) for row in await connection.fetch(statement, *values)]
    finally:
        await connection.close()


async def connect(url: str) -> asyncpg.Connection:
    server, _, name = url.partition("?board=")
    return await asyncpg.connect(server, server_settings={"search_path": name})


async def lapse(url: str, host: str) -> None:
    """The host's heartbeat ran out long ago."""
    await run(url, "UPDATE hosts SET lease_until = 1 WHERE id = $1", host)


async def grow_old(url: str, seconds: int) -> None:
    """What happened until now happened that much earlier."""
    for statement in _AGED:
        await run(url, statement, seconds * 1000)


async def count(url: str, statement: str) -> int:
    return int((await run(url, statement))[0]["n"])


async def race(url: str, *calls: Awaitable[Any]) -> list[Any]:
    """Run them so that none commits before each has come as far as it can; what each returned or raised.

    On PostgreSQL this is certain: the log's row is held, which every change needs as its last step, and a call is
    started when the one before it is stuck or done. SQLite has one writer, so there they just start together.
    """
    if url.startswith("sqlite"):
        return await asyncio.gather(*calls, return_exceptions=True)
    connection = await connect(url)
    started: list[asyncio.Future[Any]] = []
    try:
        holding = connection.transaction()
        await holding.start()
        await connection.fetch("SELECT seq FROM head FOR UPDATE")
        for call in calls:
            started.append(asyncio.ensure_future(call))
            await until(lambda: _all_stuck(connection, started))
        await holding.rollback()
    finally:
        await connection.close()
    return await asyncio.gather(*started, return_exceptions=True)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask a database until it says so. For what it does by itself; what the board does is waited for by its watch."""
    async with asyncio.timeout(120):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.002)


async def _all_stuck(connection: asyncpg.Connection, started: list[asyncio.Future[Any]]) -> bool:
    """Whether each of these waits for this session, or for one that waits for it."""
    rows = await connection.fetch("SELECT pid, pg_blocking_pids(pid) AS blockers FROM pg_locks WHERE NOT granted")
    stuck = {connection.get_server_pid()}
    while more := {row["pid"] for row in rows if stuck & set(row["blockers"])} - stuck:
        stuck |= more
    return len(stuck) - 1 >= sum(not each.done() for each in started)


async def assert_refused(call: Awaitable[object]) -> None:
    """It raises one of our errors, not one of a driver's. Those may hold text that cannot even be printed."""
    trouble = ""
    try:
        await call
    except DugnadError:
        return
    except Exception as bug:
        trouble = f"a bare {type(bug).__name__}"
    raise AssertionError(trouble or "it was accepted")
