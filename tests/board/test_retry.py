"""Opening failed and cancelled tasks again, and what was skipped because of them."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.errors import NotReady, UnknownTask
from dugnad.types import Done, Failed, Need, NewTask, Task
from tests.board.crew import assert_fenced, crew, kinds


async def states(board: Board, *tasks: Task) -> list[str]:
    return [(await board.find(task.id)).state for task in tasks]


async def test_a_failed_task_is_opened_again_as_if_it_was_new(board: Board) -> None:
    task = await board.put("task")
    team = await crew(board)
    failed = await team.must_claim()
    await board.settle(failed, Failed("no way"))
    assert await board.retry(task.id, by="bob", key="k") == [task.id]
    seq = await board.last_event()
    assert await board.retry(task.id, by="bob", key="k") == [task.id]
    assert await board.last_event() == seq
    found = await board.find(task.id)
    assert (found.state, found.tries, found.claims, found.reason, found.ended_at) == ("ready", 0, 0, None, None)
    await assert_fenced(board, failed)
    claim = await team.must_claim()
    assert (claim.number, claim.continues) == (2, None)
    assert [each.ended_as for each in await board.attempts(task.id)] == ["failed", None]


async def test_a_cancelled_task_is_opened_again_and_its_old_holder_stays_fenced_off(board: Board) -> None:
    task = await board.put("task")
    team = await crew(board)
    claim = await team.must_claim()
    await board.cancel(task.id)
    await board.retry(task.id)
    await assert_fenced(board, claim)
    assert await board.settle(await team.must_claim(), Done()) == "done"


async def test_a_retry_brings_back_a_whole_chain_that_was_skipped(board: Board) -> None:
    first, second, third, other = await board.put_many(
        [
            NewTask(title="1"), NewTask(title="2", needs=(-1,)), NewTask(title="3", needs=(-2,)),
            NewTask(title="after a failure", needs=(Need(-1, "failed"),)),
        ]
    )  # fmt: skip
    team = await crew(board)
    await board.settle(await team.must_claim(), Failed("no"))
    assert await states(board, second, third, other) == ["skipped", "skipped", "ready"]
    assert sorted(await board.retry(first.id)) == [first.id, second.id, third.id]
    assert await states(board, first, second, third, other) == ["ready", "blocked", "blocked", "ready"]
    assert [(await board.find(each.id)).reason for each in (second, third)] == [None, None]
    for expected in (first, second, third):
        claim = await team.must_claim(task=expected.id)
        await board.settle(claim, Done())
    assert await states(board, first, second, third) == ["done"] * 3


async def test_a_retry_brings_back_a_diamond_each_task_once(board: Board) -> None:
    top, left, right, low, last = await board.put_many(
        [
            NewTask(title="top"), NewTask(title="left", needs=(-1,)), NewTask(title="right", needs=(-1,)),
            NewTask(title="low", needs=(-1, -2, -3)), NewTask(title="last", needs=(-4,)),
        ]
    )  # fmt: skip
    team = await crew(board)
    for _ in range(2):
        await board.settle(await team.must_claim(), Failed("no"))
        assert await states(board, left, right, low, last) == ["skipped"] * 4
        assert sorted(await board.retry(top.id)) == [top.id, left.id, right.id, low.id, last.id]
        assert [(await board.find(each.id)).open_needs for each in (left, right, low, last)] == [1, 1, 3, 1]
    assert (await kinds(board)).count("retried") == 10
    while claim := await team.claim():
        await board.settle(claim, Done())
    assert await states(board, top, left, right, low, last) == ["done"] * 5


async def test_what_was_skipped_for_two_reasons_comes_back_with_the_second(board: Board) -> None:
    one, two = await board.put("one"), await board.put("two")
    low = await board.put("low", needs=[one.id, two.id])
    last = await board.put("last", needs=[low.id])
    team = await crew(board)
    for _ in range(2):
        await board.settle(await team.must_claim(), Failed("no"))
    assert await board.retry(one.id) == [one.id]
    assert await states(board, low, last) == ["skipped", "skipped"]
    await board.settle(await team.must_claim(), Done())
    assert await board.retry(two.id) == [two.id, low.id, last.id]
    assert (await board.find(low.id)).open_needs == 1
    await board.settle(await team.must_claim(), Done())
    assert (await team.must_claim()).task.id == low.id


async def test_a_need_that_was_met_meanwhile_is_not_asked_for_again(board: Board) -> None:
    bad, good = await board.put("bad", priority=1), await board.put("good")
    low = await board.put("low", needs=[bad.id, good.id])
    team = await crew(board)
    await board.settle(await team.must_claim(), Failed("no"))
    await board.settle(await team.must_claim(), Done())
    assert sorted(await board.retry(bad.id)) == [bad.id, low.id]
    assert (await board.find(low.id)).open_needs == 1
    await board.settle(await team.must_claim(), Done())
    assert (await board.find(low.id)).state == "ready"


async def test_a_retried_task_that_was_cancelled_waits_for_its_needs_again(board: Board) -> None:
    needed = await board.put("needed")
    task = await board.put("task", needs=[needed.id])
    await board.cancel(task.id)
    assert await board.retry(task.id) == [task.id]
    found = await board.find(task.id)
    assert (found.state, found.open_needs) == ("blocked", 1)
    await board.cancel(task.id)
    await board.settle(await (await crew(board)).must_claim(), Done())
    await board.retry(task.id)
    assert (await board.find(task.id)).state == "ready"


async def test_a_task_cancelled_with_what_it_needs_can_be_retried_after_it(board: Board) -> None:
    needed = await board.put("needed")
    task = await board.put("task", needs=[needed.id])
    await board.cancel(needed.id, dependents=True)
    with pytest.raises(NotReady, match=f"needs #{needed.id}"):
        await board.retry(task.id)
    await board.retry(needed.id)
    await board.settle(await (await crew(board)).must_claim(), Done())
    await board.retry(task.id)
    assert (await board.find(task.id)).state == "ready"


async def test_a_cancelled_task_whose_need_failed_and_was_retried_can_be_retried(board: Board) -> None:
    needed = await board.put("needed")
    task = await board.put("task", needs=[needed.id])
    team = await crew(board)
    await board.cancel(task.id)
    await board.settle(await team.must_claim(), Failed("no"))
    await board.retry(needed.id)
    await board.retry(task.id)
    assert await states(board, needed, task) == ["ready", "blocked"]
    await board.settle(await team.must_claim(), Done())
    assert (await board.find(task.id)).state == "ready"


async def test_only_a_failed_or_cancelled_task_can_be_retried(board: Board) -> None:
    task = await board.put("task")
    behind = await board.put("behind", needs=[task.id])
    later = await board.put("later", delay_seconds=3600)
    team = await crew(board)
    for each, state in ((task, "ready"), (behind, "blocked"), (later, "scheduled")):
        with pytest.raises(NotReady, match=f"#{each.id} is {state}"):
            await board.retry(each.id)
    claim = await team.must_claim()
    with pytest.raises(NotReady, match="is claimed"):
        await board.retry(task.id)
    await board.settle(claim, Failed("no"))
    with pytest.raises(NotReady, match=f"#{behind.id} was skipped because it needs #{task.id}.*retry that one"):
        await board.retry(behind.id)
    await board.retry(task.id)
    await board.settle(await team.must_claim(), Done())
    with pytest.raises(NotReady, match="is done"):
        await board.retry(task.id)
    with pytest.raises(UnknownTask):
        await board.retry(999)
