"""What a PostgreSQL server that crashes must not take back: a commit gives up its locks before it is flushed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import asyncpg
import pytest

from dugnad.board import open_board
from dugnad.types import Done, NewTurn
from tests.board.crew import crew
from tests.postgres_server import PostgresServer, children_of


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    made = PostgresServer()
    try:
        made.start()
        yield made
    finally:
        made.remove()


class Crash:
    """While it lasts, the server's own processes flush nothing that a commit leaves unflushed. At its end all of the
    server is killed at one moment, since a session that ends by itself would flush, and it starts again."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    async def __aenter__(self) -> None:
        connection = await asyncpg.connect(self._server.url)
        own = "SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'background writer')"
        for row in await connection.fetch(own):
            os.kill(row["pid"], signal.SIGSTOP)
        await connection.close()

    async def __aexit__(self, *_: object) -> None:
        parts = children_of(self._server.folder)
        for step in (signal.SIGSTOP, signal.SIGKILL):
            for pid in parts:
                os.kill(pid, step)
        self._server.kill()
        self._server.start()


async def test_what_a_script_wrote_survives_a_crash_of_the_server(server: PostgresServer) -> None:
    async with await open_board(f"{server.url}?board=flushed") as board:
        team = await crew(board, "alice")
        task = await board.put("A")
        claim = await team.must_claim("alice")
        async with Crash(server):
            await board.record(claim, NewTurn(number=1, kind="reply", body="{}"))
            await board.settle(claim, Done("written"))
        assert (await board.find(task.id)).result == "written"


async def test_what_a_verb_wrote_survives_a_crash_of_the_server(server: PostgresServer) -> None:
    async with await open_board(f"{server.url}?board=flushed") as board:
        async with Crash(server):
            task = await board.put("A")
        assert (await board.find(task.id)).title == "A"


@pytest.mark.parametrize("last", [False, True])
async def test_an_event_that_was_read_survives_a_crash_of_the_server(server: PostgresServer, last: bool) -> None:
    """Or its number would be given again, and who follows the log would miss the second one."""
    async with await open_board(f"{server.url}?board=flushed") as board:
        await board.put("A")
        async with Crash(server):
            writer = await asyncpg.connect(server.url, server_settings={"search_path": "flushed"})
            await writer.execute(
                "SET synchronous_commit = off; UPDATE head SET seq = seq + 1; "
                "INSERT INTO events (seq, at, kind, actor, data) SELECT seq, 1, 'remark', 'board', '{}' FROM head"
            )
            read = await board.last_event() if last else (await board.events())[-1].seq
        assert await board.last_event() == read
        writer.terminate()


async def test_what_a_repeated_call_answers_survives_a_crash_of_the_server(server: PostgresServer) -> None:
    """The first call was cut off between its commit and its flush."""
    async with await open_board(f"{server.url}?board=flushed") as board:
        await board.put("A", key="first")
        async with Crash(server):
            writer = await asyncpg.connect(server.url, server_settings={"search_path": "flushed"})
            await writer.execute("SET synchronous_commit = off; UPDATE tasks SET title = 'B'")
            assert (await board.put("A", key="first")).title == "B"
        assert [task.title for task in await board.list_tasks()] == ["B"]
        writer.terminate()
