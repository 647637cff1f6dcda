"""A PostgreSQL server whose connections, or whose whole self, go away in the middle of traffic."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import asyncpg
import pytest

from dugnad.board import Board, open_board
from dugnad.board.store.postgres import PostgresStore
from dugnad.errors import BoardBusy, BoardUnreachable
from dugnad.settings import Limits, Patience
from dugnad.types import Amount, Budget, Claim, Done, Failed, NewTurn, Released
from tests.board import oracle
from tests.board.crew import crew
from tests.postgres_server import PostgresServer

LIMITS = Limits(lease_seconds=60, backoff_seconds=0.01)
PATIENCE = Patience(reconnect_seconds=60, poll_seconds=0.5)
REST_SECONDS_MAX = 120
HANGS_SECONDS = 120
PUTS_MIN = 20  # Less traffic than that would show little.


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of this file's own, for it is stopped and killed."""
    made = PostgresServer()
    try:
        made.start()
        yield made
    finally:
        made.remove()


@pytest.fixture
async def url(server: PostgresServer) -> AsyncIterator[str]:
    yield f"{server.url}?board=traffic"
    connection = await asyncpg.connect(server.url)
    await connection.execute("DROP SCHEMA IF EXISTS traffic CASCADE")
    await connection.close()


class Traffic:
    """Teammates on a few boards, each board with connections of its own, all putting, claiming and settling.

    Nobody here is killed, so everything that happened was acknowledged to somebody: the two counts must be equal.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = False
        self._boards: list[Board] = []
        self.heard: list[tuple[object, ...]] = []

    async def run(self, trouble: Callable[[], Awaitable[None]], *, boards: int = 2, teammates: int = 4) -> None:
        """Until the trouble has passed, and everything that was put has ended."""
        for _ in range(boards):
            self._boards.append(await open_board(self._url, limits=LIMITS, patience=PATIENCE))
        async with asyncio.timeout(REST_SECONDS_MAX), asyncio.TaskGroup() as group:
            for number, board in enumerate(self._boards):
                names = [f"m{number}{letter}" for letter in "abcdefgh"[:teammates]]
                team = await crew(board, *names)
                for name in names:
                    group.create_task(self._live(board, name, team.host, random.Random(name)))
            await trouble()
            while sum(each[0] == "put" for each in self.heard) <= PUTS_MIN:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            self._over = True
        await self._check()

    async def _live(self, board: Board, name: str, host: str, chance: random.Random) -> None:
        done = 0
        while True:
            if not self._over:
                done += 1
                task = await board.put(f"{name} {done}", budget=Budget(tokens=100))
                self.heard.append(("put", task.id))
            claim = await board.claim(name, host)
            if claim is not None:
                self.heard.append(("claim", claim.task.id, claim.epoch))
                await self._work(board, claim, chance)
            elif self._over and not (await board.count_tasks()).keys() - {"done", "failed"}:
                return
            await asyncio.sleep(0.001)

    async def _work(self, board: Board, claim: Claim, chance: random.Random) -> None:
        key = await board.reserve(claim, Amount(tokens=10))
        self.heard.append(("reserve", key))
        await board.record(claim, NewTurn(number=1, kind="reply", body="1", used=Amount(tokens=3), reservation=key))
        self.heard.append(("turn", claim.task.id, claim.epoch, 1))
        if chance.random() < 0.1:
            more = await board.follow_up(claim, f"more of #{claim.task.id}", key=f"more {claim.task.id}.{claim.epoch}")
            self.heard.append(("put", more.id))
        dice = chance.random()
        outcome = Released("later") if dice < 0.05 else Failed("once more", retry=True) if dice < 0.1 else Done("ok")
        how = await board.settle(claim, outcome)
        self.heard.append(("settled as", claim.task.id, claim.epoch, how))

    async def _check(self) -> None:
        board = self._boards[0]
        assert await oracle.verdict(board, self.heard) == []
        kinds = Counter(event.kind for event in await oracle.read_log(board))
        told = Counter(each[0] for each in self.heard)
        settled = sum(kinds[kind] for kind in oracle.SETTLED)
        happened = (kinds["put"], kinds["claimed"], kinds["reserved"], kinds["turn"], settled)
        assert happened == tuple(told[what] for what in ("put", "claim", "reserve", "turn", "settled as"))
        await self._hear_each_other()

    async def _hear_each_other(self) -> None:
        """The listeners came back too: a push from one board wakes whoever waits at another."""
        one, other = self._boards[0], self._boards[-1]
        with one.watch(["log"]) as watch:
            await other.put("a sign of life")
            assert await watch.wait(HANGS_SECONDS)

    async def close(self) -> None:
        for board in self._boards:
            await board.close()


@pytest.fixture
async def traffic(url: str) -> AsyncIterator[Traffic]:
    made = Traffic(url)
    yield made
    await made.close()


async def test_calls_succeed_by_themselves_while_connections_are_ended_by_the_server(
    server: PostgresServer, traffic: Traffic
) -> None:
    """Writers, readers and listeners alike, chosen at random."""
    ended = 0

    async def end_connections() -> None:
        nonlocal ended
        connection = await asyncpg.connect(server.url)
        for _ in range(25):
            ended += await connection.fetchval(
                "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity"
                " WHERE application_name = 'dugnad' ORDER BY random() LIMIT 2) AS chosen"
            )
            await asyncio.sleep(0.08)
        await connection.close()

    await traffic.run(end_connections)
    assert ended >= 25


async def test_a_single_call_outlives_the_end_of_each_kind_of_connection(server: PostgresServer, url: str) -> None:
    connection = await asyncpg.connect(server.url)
    async with await open_board(url, patience=PATIENCE) as board:
        for number in range(3):
            task = await board.put(f"before {number}")
            await connection.fetch(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'dugnad'"
            )
            async with asyncio.timeout(HANGS_SECONDS):
                assert await board.find(task.id) == task  # A reader.
                assert (await board.put(f"after {number}")).title == f"after {number}"  # The writer.
        assert await board.count_tasks() == {"ready": 6}
        with board.watch(["log"]) as watch:  # The listener, once it is back.
            async with await open_board(url, patience=PATIENCE) as other:
                async with asyncio.timeout(HANGS_SECONDS):
                    while not await watch.wait(0.2):
                        await other.put("knock")
    await connection.close()


async def test_a_server_that_is_stopped_and_started_loses_nothing_acknowledged(
    server: PostgresServer, traffic: Traffic
) -> None:
    async def restart() -> None:
        for _ in range(2):
            await asyncio.sleep(0.7)
            await asyncio.to_thread(server.stop)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.start)
        await asyncio.sleep(0.7)

    await traffic.run(restart)


async def test_a_server_that_is_killed_and_started_loses_nothing_acknowledged(
    server: PostgresServer, traffic: Traffic
) -> None:
    async def kill() -> None:
        for _ in range(2):
            await asyncio.sleep(0.7)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await asyncio.sleep(0.7)

    await traffic.run(kill)


async def test_a_server_that_is_gone_for_good_is_said_to_be_after_the_patience_is_over(
    server: PostgresServer, url: str
) -> None:
    """The bound is the promise: neither at once nor for ever. When it comes back after all, the same board works."""
    patience = Patience(reconnect_seconds=1.5, poll_seconds=0.5)
    async with await open_board(url, patience=patience) as board:
        task = await board.put("before")
        await asyncio.to_thread(server.stop)
        try:
            for call in (lambda: board.put("during", key="k"), lambda: board.find(task.id)):
                began = time.monotonic()
                with pytest.raises(BoardUnreachable, match="did not come back"):
                    await call()
                assert 0.3 < time.monotonic() - began < Patience().reconnect_seconds
        finally:
            await asyncio.to_thread(server.start)
        assert (await board.put("after", key="k")).title == "after"
        assert await board.count_tasks() == {"ready": 2}
        with board.watch(["log"]) as watch:
            async with await open_board(url) as other, asyncio.timeout(HANGS_SECONDS):
                while not await watch.wait(0.2):
                    await other.put("knock")


async def test_everyone_who_asked_together_is_told_that_the_server_is_gone(server: PostgresServer, url: str) -> None:
    async with await open_board(url, patience=Patience(reconnect_seconds=1)) as board:
        await board.put("before")
        await asyncio.to_thread(server.stop)
        try:
            async with asyncio.timeout(HANGS_SECONDS):
                answers = await asyncio.gather(*(board.put(f"during {n}") for n in range(5)), return_exceptions=True)
        finally:
            await asyncio.to_thread(server.start)
        assert {type(answer) for answer in answers} == {BoardUnreachable}


async def test_a_statement_that_waits_too_long_for_a_lock_is_busy_and_changes_nothing(
    server: PostgresServer, url: str
) -> None:
    async with await open_board(url, patience=Patience(statement_seconds=0.5, reconnect_seconds=60)) as board:
        team = await crew(board)
        await board.put("held")
        claim = await team.must_claim()
        before = await board.observed_state(), await board.last_event()
        connection = await asyncpg.connect(server.url)
        async with connection.transaction():
            await connection.execute("SET LOCAL search_path TO traffic; LOCK TABLE tasks IN EXCLUSIVE MODE")
            for call in (
                lambda: board.put("more"),
                lambda: board.claim("alice", team.host),
                lambda: board.settle(claim, Done("ok")),
            ):
                async with asyncio.timeout(HANGS_SECONDS):
                    with pytest.raises(BoardBusy, match="nothing was changed"):
                        await call()
        await connection.close()
        assert (await board.observed_state(), await board.last_event()) == before
        assert await board.settle(claim, Done("ok")) == "done"


async def test_a_reading_that_waits_too_long_for_a_lock_is_busy(server: PostgresServer, url: str) -> None:
    async with await open_board(url, patience=Patience(statement_seconds=0.5, reconnect_seconds=60)) as board:
        connection = await asyncpg.connect(server.url)
        async with connection.transaction():
            await connection.execute("SET LOCAL search_path TO traffic; LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE")
            async with asyncio.timeout(HANGS_SECONDS):
                with pytest.raises(BoardBusy):
                    await board.list_tasks()
        await connection.close()
        assert await board.list_tasks() == []


async def test_a_wrong_password_is_said_at_once(server: PostgresServer) -> None:
    rules = server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute("CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'right'")
        rules.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + before)
        await connection.execute("SELECT pg_reload_conf()")
        address = server.url.replace("postgres@", "locked:WORD@") + "?board=locked"
        async with asyncio.timeout(HANGS_SECONDS):
            while True:  # Until the server has read its rules again.
                try:
                    await (await asyncpg.connect(address.replace("WORD", "wrong").split("?")[0])).close()
                except asyncpg.InvalidPasswordError:
                    break
                await asyncio.sleep(0.05)
            with pytest.raises(BoardUnreachable, match="locked") as caught:
                await open_board(address.replace("WORD", "wrong"))
            assert "wrong" not in str(caught.value)
            await (await open_board(address.replace("WORD", "right"))).close()
    finally:
        rules.write_text(before)
        await connection.execute("SELECT pg_reload_conf()")
        await connection.execute("DROP SCHEMA IF EXISTS locked CASCADE; DROP ROLE IF EXISTS locked")
        await connection.close()


async def test_a_server_that_goes_away_while_a_board_is_opened_is_told_of(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PostgresStore._connect

    async def closed(self: PostgresStore, settings: dict[str, str]) -> object:
        connection = await real(self, settings)
        if not settings:  # The one that listens.
            await connection.close()
        return connection

    monkeypatch.setattr(PostgresStore, "_connect", closed)
    with pytest.raises(BoardUnreachable, match="connection is closed"):
        await open_board(url, patience=PATIENCE)
