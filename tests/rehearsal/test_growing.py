"""How many teammates the open work calls for, and a host that grows only so far."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from dugnad.board import Board
from dugnad.rehearsal.findings import enough_of
from dugnad.rehearsal.growing import enough_now
from dugnad.types import NewTask
from tests.agent.stage_agent import END
from tests.rehearsal.stage_rehearsal import planned, task
from tests.team import stage_team
from tests.team.stage_team import hosting, until, until_ended
from tests.team.test_growth import member, names


@pytest.mark.parametrize(
    ("needs", "most", "enough"),
    [
        ([()], 8, 1),
        ([(), (), ()], 8, 3),
        ([()] * 9, 3, 3),
        ([(), (1,), (2,), (3,)], 8, 1),
        ([(), (1,), (1,), (2, 3)], 8, 2),
        ([()] * 5, 4, 3),  # A fourth would only wait for the others' second tasks.
    ],
)
def test_another_teammate_is_called_for_only_if_it_shortens_the_whole(
    needs: list[tuple[int, ...]], most: int, enough: int
) -> None:
    plan = planned(*(task(number, *each) for number, each in enumerate(needs, start=1)))
    assert enough_of(plan, most) == enough


def test_a_host_has_no_more_join_than_the_rehearsal_calls_for() -> None:
    busy = member("x", "working")
    assert names({"": 9}, busy, most=8, enough=3) == ["alice", "bob"]
    assert names({"": 9}, busy, most=8, enough=1) == []
    assert names({"": 9}, most=8, enough=1) == ["alice"]
    assert names({"": 9}, busy, member("y", "working", host="there"), most=8, enough=3) == ["alice"]


def test_work_that_nobody_may_take_is_not_asked_whether_it_is_worth_it() -> None:
    assert names({"reviewer": 1}, member("x", "working"), most=8, enough=1) == ["alice"]
    assert names({"!x": 1}, member("x", "working"), most=8, enough=1) == ["alice"]


async def test_the_board_is_played_through_with_its_needs_and_without_errands(board: Board) -> None:
    assert await enough_now(board, None, 8) == 1
    root = await board.put("goal")
    for number in range(3):
        await board.put(f"Answer {number}", kind="message", parent=root.id)
    assert await enough_now(board, None, 8) == 1
    await board.put_many([NewTask(title=f"t{number}") for number in range(4)])
    assert await enough_now(board, None, 8) == 5
    assert await enough_now(board, None, 2) == 2
    assert await enough_now(board, [root.id], 8) == 1, "the others are not under this root"
    before = None
    chained = await board.put("begin")
    for number in range(4):
        needs = [] if before is None else [before.id]
        before = await board.put(f"c{number}", needs=needs, parent=chained.id)
    assert await enough_now(board, [chained.id], 8) == 2


async def test_a_host_begins_alone_on_a_chain_and_fills_up_at_once_for_a_wide_backlog(board: Board) -> None:
    model = stage_team.Paused({"*": [END]})
    first = await board.put("first")
    await board.put("second", needs=[first.id])
    async with hosting(board, model, agents=3, enough=partial(enough_now)):
        await until(board, lambda: working(board, 1))
        await asyncio.sleep(1.5)  # Some looks later.
        assert len(await board.team()) == 1
        wide = [await board.put(f"w{number}") for number in range(6)]
        await until(board, lambda: working(board, 3))
        model.go.set()
        await until_ended(board, *wide)


async def working(board: Board, count: int) -> bool:
    return [each.status for each in await board.team()] == ["working"] * count
