"""A run with a goal: only what is under it is worked, paid for and reported."""

from __future__ import annotations

import asyncio
from typing import Any

from dugnad import Budget, Team
from dugnad.agent.stop import Stop
from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.team import RunPlan
from dugnad.types import Task
from tests.agent.stage_agent import END, all_told, call
from tests.conftest import Opener
from tests.team.stage_team import Paused, until, until_ended, within
from tests.team.test_team import open_team


async def test_a_run_with_a_goal_leaves_what_else_is_on_the_board_alone(url: str) -> None:
    """Also what is for a role nobody has: it calls for nobody to join."""
    model = ScriptedModel({"Goal": [call("add_task", title="Part"), END], "*": [END]})
    async with open_team(url, model, agents=3) as team:
        leftovers = [await team.board.put(title, priority=5) for title in ("Old", "Older")]
        leftovers.append(await team.board.put("Oldest", role="tester"))
        report = await within(team.run("Goal", budget=Budget(tokens=100_000)))
        left = [(await team.board.find(task.id)).state for task in leftovers]
        roles = {role for member in await team.board.team() for role in member.roles}
    assert (report.exit_code, report.others) == (0, 3)
    assert {task.title for task in report.tasks} == {"Goal", "Part"}
    assert left == ["ready"] * 3
    assert roles == set()
    assert {request.title for request in model.asked} == {"Goal", "Part"}


async def test_with_others_all_of_it_is_worked_and_all_of_it_is_reported(url: str) -> None:
    model = ScriptedModel({"Old": [call("give_up", reason="no")], "*": [END]})
    async with open_team(url, model, agents=2) as team:
        await team.board.put("Old")
        report = await within(team.run("Goal", others=True))
    assert (report.exit_code, report.others) == (1, 0)
    assert {task.title: task.state for task in report.tasks} == {"Goal": "done", "Old": "failed"}


async def test_a_teammate_of_a_run_cannot_claim_a_leftover_by_its_name(url: str) -> None:
    model = ScriptedModel({"Goal": [call("claim_task", task=1), END], "*": [END]})
    async with open_team(url, model, agents=1) as team:
        leftover = await team.board.put("Old")
        await within(team.run("Goal"))
        assert (await team.board.find(leftover.id)).state == "ready"
    assert "not under the goal of this run" in all_told(model.asked[-1])


async def test_one_run_after_another_works_the_goal_of_each_and_then_the_rest(url: str) -> None:
    async with open_team(url, ScriptedModel({"*": [END]}), agents=2) as team:
        await team.board.put("Old")
        assert (await within(team.run("One"))).others == 1
        assert (await within(team.run("Two"))).others == 1
        report = await within(team.run())
    assert [(task.title, task.state) for task in report.tasks] == [("Old", "done")]


async def test_a_capped_run_without_a_goal_works_under_the_goal_that_its_cap_is_for(url: str) -> None:
    """A goal that is added meanwhile has a cap of its own, or none; a message is paid for by the goal of the run."""
    model = Paused({"*": [END]}, where=lambda request: request.title == "Goal")
    async with open_team(url, model, agents=2) as team:
        goal = await team.board.put("Goal")
        await team.spawn("alice")
        await team.board.tell("human", "alice", "How is it going?")
        running = asyncio.ensure_future(within(team.run(budget=Budget(tokens=1_000_000))))
        await model.reached.wait()
        other = await team.board.put("Other")
        model.go.set()
        report = await running
        assert (await team.board.find(other.id)).state == "ready"
        assert [each.root for each in await team.board.budgets()] == [other.id, goal.id]
    assert (report.exit_code, report.others) == (0, 1)


async def test_a_run_of_the_whole_board_also_ends_what_was_put_on_it_meanwhile(url: str) -> None:
    model = Paused({"*": [END]}, where=lambda request: request.title == "First")
    async with open_team(url, model, agents=1) as team:
        await team.board.put("First")
        running = asyncio.ensure_future(within(team.run()))
        await model.reached.wait()
        await team.board.put("Second")
        model.go.set()
        report = await running
        await team.board.put("Third")
        again = await within(team.run())
    assert [(task.title, task.state) for task in report.tasks] == [("First", "done"), ("Second", "done")]
    assert [task.title for task in again.tasks] == ["Third"]


async def test_a_run_that_is_stopped_reports_all_that_was_worked_in_it(url: str) -> None:
    async with open_team(url, ScriptedModel({"*": [END]}), agents=1) as team:
        await team.board.put("First")
        roots, stop = await team.roots(None, None), Stop()
        running = asyncio.ensure_future(within(team.work(roots, stop=stop, forever=True)))
        second = await team.board.put("Second")
        await until_ended(team.board, second)
        stop.say("enough")
        await running
        report = await team.report(roots)
    assert [(task.title, task.state) for task in report.tasks] == [("First", "done"), ("Second", "done")]


async def test_what_is_answered_during_a_run_is_paid_for_by_its_goal(url: str) -> None:
    """Also what was written about a task under another root: the cap is for all that the run spends."""
    model = Paused({"Goal": [END], "*": [Step(say="I look at it.")]}, where=lambda request: request.title == "Goal")

    def titles(request: Request) -> str:
        return request.title

    async with open_team(url, model, agents=2) as team:
        old = await team.board.put("Old")
        await team.spawn("alice", role="talker")
        await team.spawn("bob")
        await team.board.tell("human", "alice", "How is it going?")
        roots = await team.roots("Goal", Budget(tokens=1_000_000))
        running = await team.start()
        await model.reached.wait()
        await team.board.tell("bob", "alice", "Look at the old one.", task=old.id)
        await until(team.board, lambda: _said_to_human(team.board))
        model.go.set()
        await within(team.work(roots))
        report = await team.report(roots)
        assert running is team.host
        old_runs = (await team.board.budget(old.id)).runs
    assert {task.title for task in report.tasks} >= {"Goal", "Answer human"}
    assert {task.root for task in report.tasks} == set(roots)
    assert old_runs == 0
    assert "Old" not in map(titles, model.asked)


async def test_two_runs_that_begin_at_once_put_one_goal(opener: Opener, url: str) -> None:
    """Both look before either of them puts it."""
    boards = [await opener(), await opener()]
    looked = asyncio.Barrier(2)

    async def goal(board: Board) -> Task:
        real = board.list_tasks

        async def list_tasks(**given: Any) -> list[Task]:
            found = await real(**given)
            await looked.wait()
            return found

        board.list_tasks = list_tasks  # type: ignore[method-assign]
        try:
            return await Team(RunPlan(url=url), board=board).goal("Build it", budget=Budget(tasks=20))
        finally:
            board.list_tasks = real  # type: ignore[method-assign]

    first, second = await within(asyncio.gather(*map(goal, boards)))
    assert first == second
    await boards[0].cancel(first.id)
    third, fourth = await within(asyncio.gather(*map(goal, boards)))
    assert third == fourth != first, "one that has ended is put anew"


async def _said_to_human(board):  # type: ignore[no-untyped-def]
    return [message for message in await board.inbox("human") if message.text == "I look at it."]
