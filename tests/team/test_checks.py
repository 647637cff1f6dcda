"""A task with a check is done when the check says so, not when the model does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.scripted import Step
from dugnad.settings import Limits
from dugnad.team import requests
from dugnad.team.workspaces.workspace import Check
from dugnad.types import Task
from tests.agent.stage_agent import END, TITLE, all_told, call
from tests.team.stage_team import hosting, until_ended, until_state, until_status, within


def runner(*answers: str | None) -> tuple[Check, list[str | None]]:
    """A check that prints these in turn, the last one ever after; and what it was asked to run."""
    asked: list[str | None] = []

    async def check(task: Task) -> str | None:
        asked.append(task.check)
        return answers[min(len(asked), len(answers)) - 1]

    return check, asked


async def test_a_green_check_ends_the_task(board: Board) -> None:
    await board.spawn("alice")
    check, asked = runner(None)
    async with hosting(board, ScriptedModel({TITLE: [END]}), check=check):
        (done,) = await until_ended(board, await board.put(TITLE, check="pytest -q"))
    assert (done.state, done.result, asked) == ("done", "built", ["pytest -q"])


async def test_a_red_check_goes_back_to_the_model_with_what_it_printed(board: Board) -> None:
    await board.spawn("alice")
    check, asked = runner("1 failed: test_slugify", None)
    by_text = [Step(say="done"), Step(say="It is."), Step(say="now")]
    for title, steps in (("By tool", [END, call("list_tasks"), END]), ("By text", by_text)):
        model = ScriptedModel({title: steps})
        async with hosting(board, model, check=check):
            (done,) = await until_ended(board, await board.put(title, check="pytest -q"))
        assert done.state == "done"
        assert "1 failed: test_slugify" in all_told(model.asked[-1])
        assert "`pytest -q`" in all_told(model.asked[-1])
        assert len(asked) == 2
        assert [attempt.ended_as for attempt in await board.attempts(done.id)] == ["done"]
        asked.clear()


async def test_a_check_that_stays_red_fails_the_task_in_the_end(opener: Callable[..., object]) -> None:
    board: Board = await opener(limits=Limits(backoff_seconds=0.01, attempts_max=2))  # type: ignore[misc]
    await board.spawn("alice")
    check, asked = runner("still red")
    model = ScriptedModel(lambda request: END)
    async with hosting(board, model, check=check, limits={"check_rounds_max": 2}):
        (failed,) = await until_ended(board, await board.put(TITLE, check="false"))
    assert failed.state == "failed"
    assert failed.reason is not None
    assert "'false' stayed red:\nstill red" in failed.reason
    assert len(asked) == 2 * 3
    assert "still red" in all_told(model.asked[3])  # The second attempt knows how the first one ended.


async def test_without_a_runner_a_person_is_asked_before_any_model_is(board: Board) -> None:
    await board.spawn("alice")
    model = ScriptedModel({TITLE: [END]})
    async with hosting(board, model):
        task = await board.put(TITLE, check="pytest -q")
        waiting = await until_state(board, task, "waiting")
        assert waiting.waiting_for == "human"
        (asked,) = await requests.waiting_requests(board)
        assert "`pytest -q`" in asked.text
        await requests.answer(board, str(task.id), "Try again.")
        await until_state(board, task, "waiting")
    assert not model.asked
    check, _ = runner(None)
    await requests.answer(board, str(task.id), "There is one now.")
    async with hosting(board, model, check=check):
        (done,) = await until_ended(board, task)
    assert done.state == "done"
    assert len(model.asked) == 1


async def test_a_check_that_hangs_is_left_when_the_host_stops_and_runs_again_elsewhere(board: Board) -> None:
    await board.spawn("alice")
    reached = asyncio.Event()

    async def hangs(task: Task) -> str | None:
        reached.set()
        await asyncio.Event().wait()
        return None

    task = await board.put(TITLE, check="sleep 1000")
    model = ScriptedModel({TITLE: [END]})
    async with hosting(board, model, check=hangs, limits={"stop_seconds": 0.2}):
        await within(reached.wait())
    given_back = await board.find(task.id)
    assert (given_back.state, given_back.tries) == ("ready", 0)
    check, asked = runner(None)
    async with hosting(board, model, check=check):
        await until_ended(board, task)
    assert asked == ["sleep 1000"]
    assert len(model.asked) == 1  # Its work was recorded, and only the check was missing.


async def test_a_check_with_a_bug_fails_the_teammate_and_not_the_host(board: Board) -> None:
    await board.spawn("alice")

    async def broken(task: Task) -> str | None:
        raise OSError("no such runner")

    async with hosting(board, ScriptedModel({TITLE: [END], "Other": [END]}), check=broken) as host:
        task = await board.put(TITLE, check="true")
        assert (await until_status(board, "alice", "failed")).reason == "OSError: no such runner"
        assert (await board.find(task.id)).state in ("ready", "scheduled")
        await board.spawn("bob")
        await until_ended(board, await board.put("Other", priority=9))
        assert host.trouble == ""
