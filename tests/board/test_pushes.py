"""What a PostgreSQL board tells other processes with a commit, and what goes out together a moment later."""

from __future__ import annotations

import json
from collections.abc import Iterator

import asyncpg
import pytest

from dugnad.board import open_board
from dugnad.types import Amount, Done, NewTurn
from tests.board.crew import crew
from tests.postgres_server import PostgresServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    made = PostgresServer()
    try:
        made.start()
        yield made
    finally:
        made.remove()


async def test_news_that_nobody_works_for_goes_out_together(server: PostgresServer) -> None:
    heard: list[set[str]] = []
    listener = await asyncpg.connect(server.url)
    async with await open_board(f"{server.url}?board=pushes") as board:
        team = await crew(board, "alice")
        await board.put("first")
        claim = await team.must_claim("alice")
        await listener.add_listener("dugnad_pushes", lambda *said: heard.append(set(json.loads(str(said[3])))))
        for number in range(1, 21):
            await board.record(claim, NewTurn(number=number, kind="reply", body="{}", used=Amount(tokens=1)))
        await board.settle(claim, Done("done"))
        await board.put("second")
    await listener.fetch("SELECT 1")  # What the board owed when it was closed is heard before this is answered.
    await listener.close()
    assert set().union(*heard) >= {"log", "ready:", f"task:{claim.task.id}"}
    assert [topics for topics in heard if "ready:" in topics] == [{"log", "ready:"}]  # Told by its own transaction.
    assert len(heard) < 22  # There were so many commits.
