"""The outer loop: claim, work, settle, until there is nothing more for these minds."""

from __future__ import annotations

import asyncio

import pytest

from dugnad.agent.agent import Agent
from dugnad.agent.drain import drain
from dugnad.board import Board
from dugnad.errors import ModelMisconfigured
from dugnad.models import ScriptedModel
from dugnad.models.port import Reply, Request
from dugnad.models.scripted import Step
from dugnad.types import Budget, Done
from tests.agent.stage_agent import END, TITLE, Wrapped, call, set_stage


async def test_the_work_that_work_finds_is_worked_too(board: Board) -> None:
    stage = await set_stage(
        board,
        [call("schedule_followup", title="A"), END],
        others={"A": [call("schedule_followup", title="B"), END], "B": [Step(say="the end")]},
    )
    await board.put(TITLE)
    worked = await stage.drain()
    assert [(claim.task.title, outcome) for claim, outcome in worked] == [
        (TITLE, Done("built")), ("A", Done("built")), ("B", Done("the end")),
    ]  # fmt: skip


async def test_the_budget_of_task_runs_ends_a_chain_without_end(board: Board) -> None:
    stage = await set_stage(
        board, lambda request: call("schedule_followup", title=f"{request.title}x") if request.turn == 1 else END
    )
    await board.put("x", budget=Budget(tasks=4))
    assert len(await stage.drain()) == 4
    assert (await board.budget(1)).held is not None


async def test_a_drain_starts_and_stops_a_host_of_its_own(board: Board) -> None:
    alice = await board.spawn("alice")
    await board.put(TITLE)
    agent = Agent(board=board, teammate=alice, model=ScriptedModel({TITLE: [END]}))
    assert len(await drain(board, [agent])) == 1
    assert not any(host.alive for host in await board.hosts())


async def test_two_teammates_share_the_work_and_meet_in_the_middle(board: Board) -> None:
    meeting = asyncio.Barrier(2)

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        await meeting.wait()
        return await inner.ask(request)

    first = await set_stage(board, model=Wrapped(ScriptedModel({"*": [END]}), ask))
    bob = await board.spawn("bob")
    other = Agent(board=board, teammate=bob, model=first.agent.model)
    for number in range(2):
        await board.put(f"Task {number}")
    worked = await first.drain(other)
    assert sorted(claim.teammate for claim, _ in worked) == ["alice", "bob"]


async def test_nobody_leaves_while_another_is_about_to_make_work_for_it(board: Board) -> None:
    stage = await set_stage(board, [call("add_task", title="For alice", assignee="alice"), END])
    bob = Agent(board=board, teammate=await board.spawn("bob"), model=stage.model)
    await board.put(TITLE, assignee="bob")
    worked = await stage.drain(bob)
    assert {claim.task.title for claim, _ in worked} == {TITLE, "For alice"}


async def broken_beside_busy(board: Board) -> tuple[BaseException, set[asyncio.Task[object]]]:
    """One teammate's model is set up wrongly while the other one thinks: what is raised, and what runs on."""
    thinking = asyncio.Event()

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        if request.teammate == "alice":
            await thinking.wait()
            raise ModelMisconfigured("the key is wrong")
        thinking.set()
        await asyncio.Event().wait()
        raise AssertionError

    stage = await set_stage(board, model=Wrapped(ScriptedModel({}), ask))
    bob = Agent(board=board, teammate=await board.spawn("bob"), model=stage.agent.model)
    for number in range(2):
        await board.put(f"Task {number}")
    before = asyncio.all_tasks()
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        await stage.drain(bob)
    left = {task for task in asyncio.all_tasks() - before if "one" in repr(task.get_coro())}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    return caught.value, left


async def test_when_one_teammate_breaks_nobody_works_on_behind_the_callers_back(board: Board) -> None:
    _, left = await broken_beside_busy(board)
    assert not left


async def test_what_breaks_a_drain_is_raised_as_it_is(board: Board) -> None:
    error, _ = await broken_beside_busy(board)
    assert isinstance(error, ModelMisconfigured)
