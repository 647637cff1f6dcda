"""Texts and numbers no database can store: refused by name, by every verb, and nothing was changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dugnad.board import Board, open_board
from dugnad.errors import BadInput, BadText, BoardTrouble, DugnadError
from dugnad.types import Amount, Budget, Done, NewTurn
from tests.board.crew import crew


async def everything(board: Board) -> tuple[Any, int]:
    return await board.observed_state(), await board.last_event()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"title": "nul \0 inside"}, BadText),
        ({"title": "half \ud83d a pair"}, BadText),
        ({"title": "x" * 201}, BadText),
        ({"title": "   "}, BadText),
        ({"title": "t", "body": "nul \0 inside"}, BadText),
        ({"title": "t", "body": "half \udc00 a pair"}, BadText),
        ({"title": "t", "body": "x" * (256 * 1024 + 1)}, BadText),
        ({"title": "t", "key": "k\0"}, BadText),
        ({"title": "t", "key": "k" * 201}, BadText),
        ({"title": "t", "role": "no spaces"}, BadText),
        ({"title": "t", "assignee": "a/b"}, BadText),
        ({"title": "t", "check": "make \0 test"}, BadText),
        ({"title": "t", "priority": 10**9}, BadInput),
        ({"title": "t", "delay_seconds": float("nan")}, BadInput),
        ({"title": "t", "delay_seconds": -1}, BadInput),
        ({"title": "t", "budget": Budget(tasks=-1)}, BadInput),
        ({"title": "t", "budget": Budget(tokens=-5)}, BadInput),
        ({"title": "t", "budget": Budget(dollars=-0.01)}, BadInput),
        ({"title": "t", "budget": Budget(seconds=float("inf"))}, BadInput),
    ],
)
async def test_what_cannot_be_stored_is_refused_by_name_and_changes_nothing(
    board: Board, fields: dict[str, Any], error: type[DugnadError]
) -> None:
    before = await everything(board)
    with pytest.raises(error) as caught:
        await board.put(**fields)
    assert not isinstance(caught.value, BoardTrouble)
    assert await everything(board) == before


@pytest.mark.parametrize("bad", ["nul \0", "half \ud800"])
async def test_texts_of_every_other_verb_are_looked_at_too(board: Board, bad: str) -> None:
    team = await crew(board)
    await board.put("held")
    claim = await team.must_claim()
    before = await everything(board)
    for call in (
        lambda: board.tell("alice", "human", bad),
        lambda: board.broadcast("alice", bad),
        lambda: board.write_note("alice", "title", bad),
        lambda: board.write_note("alice", bad, "text"),
        lambda: board.settle(claim, Done(bad)),
        lambda: board.settle(claim, Done("ok"), handover=bad),
        lambda: board.hand_over(claim, bad),
        lambda: board.record(claim, NewTurn(number=1, kind="reply", body=bad)),
        lambda: board.reserve(claim, Amount(tokens=1), key=bad),
        lambda: board.spawn(bad),
        lambda: board.spawn("bob", prompt=bad),
        lambda: board.cancel(1, why=bad),
        lambda: board.put("t", by=bad),
    ):
        with pytest.raises(BadInput):
            await call()
    assert await everything(board) == before


NAMED: dict[str, Callable[[Board, str], Any]] = {
    "cancel by": lambda board, bad: board.cancel(1, by=bad),
    "release by": lambda board, bad: board.release(1, by=bad),
    "add_need by": lambda board, bad: board.add_need(2, 1, by=bad),
    "set_budget by": lambda board, bad: board.set_budget(1, Budget(tasks=5), by=bad),
    "spawn by": lambda board, bad: board.spawn("bob", by=bad),
    "stop_teammate by": lambda board, bad: board.stop_teammate("alice", by=bad),
    "take key": lambda board, bad: board.take("alice", bad),
    "write_note author": lambda board, bad: board.write_note(bad, "title", "text"),
    "start_host host": lambda board, bad: board.start_host("label", host=bad),
    "tell request": lambda board, bad: board.tell("alice", "human", "why?", kind="question", request=bad),
}


@pytest.mark.parametrize("bad", ["nul \0", "half \ud800"])
@pytest.mark.parametrize("call", NAMED.values(), ids=NAMED)
async def test_names_and_keys_of_every_verb_are_looked_at_too(
    url: str, call: Callable[[Board, str], Any], bad: str
) -> None:
    async with await open_board(url) as board:
        team = await crew(board)
        await board.put("held")
        await board.put("free")
        await team.must_claim()
        before = await everything(board)
        with pytest.raises(BadInput):
            await call(board, bad)
        assert await everything(board) == before


@pytest.mark.parametrize(
    "text", ["naïve – 日本語 – 🦭", "tabs\tand\nlines\r\n", "\x01\x1f\x7f", "﻿bom", "'; DROP TABLE tasks"]
)
async def test_whatever_else_is_text_comes_back_as_it_was(board: Board, text: str) -> None:
    task = await board.put(f"t{text}", body=text, key=f"k{text}")
    assert (await board.find(task.id)).body == text
    assert (await board.put("another", key=f"k{text}")).id == task.id
