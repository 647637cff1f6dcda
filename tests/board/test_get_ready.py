"""Getting ready for many calls: connections are made, and nothing on the board changes."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from dugnad.board import Board, open_board
from dugnad.types import Done
from tests.board.crew import crew
from tests.board.raw import count, run, until
from tests.board.test_scripts import scripts_of


async def ready(board: Board) -> Any:
    """The store, when nothing is left to prepare."""
    store: Any = board._store
    board.get_ready()
    while chores := getattr(store, "_chores", None):
        await asyncio.wait(chores)
    return store


async def test_a_board_that_gets_ready_is_connected_and_unchanged(board: Board, url: str) -> None:
    await board.put("one")
    before, told = await board.observed_state(), await board.last_event()
    store = await ready(board)
    assert (await board.observed_state(), await board.last_event()) == (before, told)
    if url.startswith("postgres"):
        assert all(writer.is_open() and writer.has_scripts for writer in store._writers)
        assert len(store._readers._all) == 2


async def test_what_is_asked_meanwhile_is_done(board: Board, url: str) -> None:
    team = await crew(board)
    await asyncio.gather(*(board.put(f"task {n}") for n in range(20)))
    board.get_ready()
    claims = [await team.must_claim() for _ in range(20)]

    async def settles() -> None:
        await asyncio.gather(*(board.settle(claim, Done()) for claim in claims))

    assert all(await scripts_of(board, settles))
    assert await board.count_tasks() == {"done": 20}


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_board_that_is_closed_while_it_gets_ready_leaves_no_connection(url: str) -> None:
    there = "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'dugnad'"
    before = await count(url, there)

    async def none_is_left() -> bool:
        return await count(url, there) <= before

    gc.disable()  # It would close what we left open.
    try:
        for moment in range(40):
            async with await open_board(url) as board:
                board.get_ready()
                for _ in range(moment):  # Steps of the loop, each of which may be the wrong one to be cut off at.
                    await asyncio.sleep(0.0005)
        await until(none_is_left)
    finally:
        gc.enable()


async def test_connections_that_are_lost_meanwhile_are_made_again(board: Board, url: str) -> None:
    board.get_ready()
    if url.startswith("postgres"):
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dugnad'"
        for _ in range(5):
            await run(url, ended)
    assert (await board.put("one")).title == "one"
    await ready(board)
    assert (await board.put("two")).title == "two"
