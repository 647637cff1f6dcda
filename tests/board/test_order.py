"""Three cases of order and reference that random walks seldom reach."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.errors import BadInput
from dugnad.settings import Limits
from dugnad.types import Budget, NewTask
from tests.board.crew import crew
from tests.conftest import Opener


async def test_a_task_needed_by_number_and_by_place_is_refused(board: Board) -> None:
    there = await board.put("there", key="k")
    seq = await board.last_event()
    with pytest.raises(BadInput, match="twice"):
        await board.put_many([NewTask(title="there", key="k"), NewTask(title="new", needs=(-1, there.id))])
    assert await board.last_event() == seq


async def test_behind_a_task_without_a_run_left_the_next_best_of_any_lane_is_taken(board: Board) -> None:
    await board.put("spent", priority=5, budget=Budget(tasks=0))
    best = await board.put("best", priority=4)
    await board.put("mine", priority=1, assignee="alice")
    team = await crew(board)
    assert (await team.must_claim()).task.id == best.id


async def test_a_chain_longer_than_the_bound_counts_as_the_bound_all_the_way_up(opener: Opener) -> None:
    board = await opener(limits=Limits(chain_max=3))
    first = await board.put("first")
    second = await board.put("second", needs=[first.id])
    await board.put_many(
        [NewTask(title="1", needs=(second.id,)), *(NewTask(title=str(n), needs=(1 - n,)) for n in (2, 3, 4))]
    )
    assert [(await board.find(task.id)).chain for task in (first, second)] == [3, 3]
