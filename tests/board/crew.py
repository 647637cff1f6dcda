"""Shorthand for tests: a host with teammates, and races between two boards."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import asyncpg
import pytest

from dugnad.board import Board
from dugnad.board.open import sqlite_path
from dugnad.board.store.pool import split_url
from dugnad.errors import StaleClaim
from dugnad.types import Amount, Claim, Done, NewTurn

T = TypeVar("T")


class Crew:
    """A host on a board, with teammates seated at it."""

    def __init__(self, board: Board, host: str) -> None:
        self.board = board
        self.host = host

    async def claim(self, teammate: str = "alice", **options: Any) -> Claim | None:
        return await self.board.claim(teammate, self.host, **options)

    async def must_claim(self, teammate: str = "alice", **options: Any) -> Claim:
        claim = await self.claim(teammate, **options)
        assert claim is not None, f"{teammate} found nothing to claim"
        return claim


async def crew(board: Board, *names: str, roles: Iterable[str] = ()) -> Crew:
    host = await board.start_host("test host")
    for name in names or ("alice",):
        await board.spawn(name, roles=roles)
        await board.seat(host, name=name)
    return Crew(board, host)


async def both(*calls: Awaitable[T]) -> list[T | BaseException]:
    """Run them at the same moment; what each returned or raised."""
    return await asyncio.gather(*calls, return_exceptions=True)


# Behind the board's back.


async def _connect(url: str) -> asyncpg.Connection:
    address, schema = split_url(url)
    return await asyncpg.connect(address, server_settings={"search_path": schema})


async def meddle(url: str, statement: str, *values: object) -> None:
    """Run one statement on the board's tables; $1 is the first value."""
    if url.startswith("sqlite"):
        path = sqlite_path(url)
        assert path is not None
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as connection, connection:
            connection.execute(statement, {str(place): value for place, value in enumerate(values, start=1)})
        return
    connection = await _connect(url)
    try:
        await connection.execute(statement, *values)
    finally:
        await connection.close()


async def expire(url: str, host: str) -> None:
    """Let the host's lease run out."""
    await meddle(url, "UPDATE hosts SET lease_until = 1 WHERE id = $1", host)


async def make_due(url: str, task: int) -> None:
    """Let the delay of a scheduled or blocked task be over."""
    await meddle(url, "UPDATE tasks SET due_at = 1 WHERE id = $1 AND due_at IS NOT NULL", task)


async def race(url: str, *calls: Awaitable[Any]) -> list[Any]:
    """Run them so that none commits before all have done their work; what each returned or raised.

    On PostgreSQL this is certain: the log's row is held, which every call needs as its last step, and each call
    is started when the one before it has come that far. On SQLite there is one writer, so they just start together.
    """
    if url.startswith("sqlite"):
        return await both(*calls)
    connection = await _connect(url)
    try:
        async with asyncio.timeout(120):
            holding = connection.transaction()
            await holding.start()
            await connection.fetch("SELECT seq FROM head FOR UPDATE")
            started: list[asyncio.Future[Any]] = []
            for call in calls:
                started.append(asyncio.ensure_future(call))
                await _until_stuck(connection, started)
            await holding.rollback()
            return await asyncio.gather(*started, return_exceptions=True)
    finally:
        await connection.close()


async def _until_stuck(connection: asyncpg.Connection, started: list[asyncio.Future[Any]]) -> None:
    while True:
        await asyncio.sleep(0.002)
        if await _stuck_behind(connection) >= sum(not each.done() for each in started):
            return


async def _stuck_behind(connection: asyncpg.Connection) -> int:
    """How many backends wait for this one, or for one that waits for it."""
    # Not from pg_stat_activity, which shows one transaction the same picture again and again.
    rows = await connection.fetch("SELECT pid, pg_blocking_pids(pid) AS blockers FROM pg_locks WHERE NOT granted")
    stuck = {connection.get_server_pid()}
    while more := {row["pid"] for row in rows if stuck & set(row["blockers"])} - stuck:
        stuck |= more
    return len(stuck) - 1


# What a holder can write.


def holder_writes(board: Board, claim: Claim) -> dict[str, Callable[[], Awaitable[object]]]:
    """Every write that carries a claim, by name."""
    who = claim.teammate
    return {
        "settle": lambda: board.settle(claim, Done("late")),
        "record": lambda: board.record(claim, NewTurn(number=900, kind="reply", body="{}")),
        "reserve": lambda: board.reserve(claim, Amount(tokens=1)),
        "spend": lambda: board.spend(claim, "no such reservation", Amount(tokens=1)),
        "forfeit": lambda: board.forfeit(claim),
        "follow_up": lambda: board.follow_up(claim, "a late follow-up"),
        "tell": lambda: board.tell(who, "human", "a late word", claim=claim),
        "broadcast": lambda: board.broadcast(who, "a late word", claim=claim),
        "write_note": lambda: board.write_note(who, "late", "a late note", claim=claim),
        "hand_over": lambda: board.hand_over(claim, "a late word"),
        "merge_into": lambda: board.merge_into(claim, "dugnad/main"),
    }


async def assert_fenced(board: Board, claim: Claim) -> None:
    """Every write of this holder is refused, and leaves no trace."""
    before = await board.last_event()
    for name, write in holder_writes(board, claim).items():
        with pytest.raises(StaleClaim, match=f"#{claim.task.id}"):
            pytest.fail(f"{name} was accepted: {await write()}")
    assert await board.last_event() == before


async def kinds(board: Board, task: int | None = None) -> list[str]:
    """The kinds of the events, of one task or of all."""
    return [event.kind for event in await board.events(task=task)]


async def claim_many(board: Board, teammates: Iterable[str], host: str) -> list[Claim]:
    """One task for each of these teammates, as long as there are tasks, asked for at once."""
    found = await asyncio.gather(*(board.claim(teammate, host) for teammate in teammates))
    return [claim for claim in found if claim is not None]
