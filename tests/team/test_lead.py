"""A lead at work in a team: what it spawns, ends, approves and assigns; and a team that goes on without it."""

from __future__ import annotations

from typing import Any

import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.team import requests
from dugnad.types import Task
from tests.agent.stage_agent import END, TITLE, all_told, call, of_task, told
from tests.conftest import Opener
from tests.team.stage_team import Paused, hosting, until, until_ended, until_state, until_status, within


async def test_the_lead_spawns_one_who_takes_what_nobody_could(board: Board) -> None:
    await board.spawn("lena", lead=True)
    waiting = await board.put("Test it", role="tester")
    script = {
        "Answer human": [
            call("spawn_teammate", name="tom", role="tester", prompt="You test."),
            Step(say="Tom is here."),
        ],
        "Test it": [END],
    }
    model = ScriptedModel(script)
    async with hosting(board, model):
        await board.tell("human", "lena", "We need a tester.")
        (done,) = await until_ended(board, waiting)
        assert done.teammate == "tom"
        await until(board, lambda: board.inbox("human"))
    assert [message.text for message in await board.inbox("human")] == ["Tom is here."]
    first = of_task(model, "Test it")[0]
    assert told(first).startswith("You are tom.\n\nlena brought you to the team, and says of you:\n> You test.\n\n")
    assert "You test." not in first.system


async def test_the_lead_does_not_take_anybodys_work(board: Board) -> None:
    await board.spawn("lena", lead=True)
    task = await board.put(TITLE)
    async with hosting(board, ScriptedModel({"*": [END]})):
        await until_ended(board, await board.put("For the lead", assignee="lena"))
        assert (await board.find(task.id)).state == "ready"
        await board.spawn("alice")
        (done,) = await until_ended(board, task)
        assert done.teammate == "alice"


async def test_the_lead_ends_one_at_rest_and_reads_that_it_is_gone(board: Board) -> None:
    await board.spawn("lena", lead=True)
    await board.spawn("tom")

    def script(request: Request) -> Step:
        if request.title == "Send Tom home" and request.turn == 1:
            return call("shutdown_teammate", name="tom", reason="All is tested.")
        return Step(say="Noted.")

    model = ScriptedModel(script)
    async with hosting(board, model):
        await until_status(board, "tom", "idle")
        await board.put("Send Tom home", assignee="lena")
        gone = await until_status(board, "tom", "stopped")
        assert gone.reason == "shut down as asked"

        async def has_read() -> bool:
            return any("From tom [shutdown reply]" in all_told(request) for request in model.asked)

        await until(board, has_read)


async def test_an_assignment_wakes_just_the_one_it_names(board: Board) -> None:
    await board.spawn("lena", lead=True)
    for name in ("alice", "bob", "carol"):
        await board.spawn(name)
    task = await board.put(TITLE, role="nobody")
    script = {"Assign": [call("assign", task=task.id, name="bob"), END], TITLE: [END]}
    async with hosting(board, ScriptedModel(script)):
        for name in ("alice", "bob", "carol"):
            await until_status(board, name, "idle")
        await board.put("Assign", assignee="lena")
        (done,) = await until_ended(board, task)
    assert done.teammate == "bob"


@pytest.mark.parametrize("how", ["stopped", "failed"])
async def test_a_team_goes_on_without_its_lead(board: Board, how: str) -> None:
    await board.spawn("lena", lead=True)
    await board.spawn("alice")
    model = Paused({"*": [END]}, where=lambda request: request.teammate == "lena")
    async with hosting(board, model):
        led = await board.put("Lead", assignee="lena")
        await within(model.reached.wait())
        if how == "stopped":
            await requests.stop(board, "lena", now=True)
        else:
            await board.fail_teammate("lena", by="lena", reason="a bug")
        tasks = [await board.put(f"t{number}") for number in range(3)]
        done = await until_ended(board, *tasks)
        assert {task.teammate for task in done} == {"alice"}
        back = await until_state(board, led, "ready")
        assert back.tries == 0


def planning(request: Request) -> Step:
    """The first task breaks the goal down; the lead only looks on."""
    if request.title == "Goal" and request.turn == 1:
        parts = [{"title": f"Part {number}"} for number in range(3)]
        return Step(calls=tuple(("schedule_followup", part) for part in parts))
    return END


async def test_nobody_hands_out_the_parts_of_a_goal(opener: Opener) -> None:
    board = await opener()
    await board.spawn("lena", lead=True)
    for name in ("alice", "bob"):
        await board.spawn(name)
    model = ScriptedModel(planning)
    async with hosting(board, model):
        goal = await board.put("Goal")

        async def all_done() -> list[Task]:
            found = await board.list_tasks(root=goal.id)
            return found if len(found) == 4 and all(task.state == "done" for task in found) else []

        found = await until(board, all_done)
    assert {task.teammate for task in found} <= {"alice", "bob"}
    assert not [request for request in model.asked if request.teammate == "lena"]


async def test_the_leads_word_is_marked_as_the_leads(board: Board) -> None:
    await board.spawn("lena", lead=True)
    await board.spawn("alice")
    script: dict[str, Any] = {
        "Lead": [call("send_message", to="alice", text="Look at the tests."), END], "*": [Step(say="I will.")],
    }  # fmt: skip
    model = ScriptedModel(script)
    async with hosting(board, model):
        await board.put("Lead", assignee="lena")

        async def has_read() -> list[Request]:
            return [request for request in model.asked if request.teammate == "alice"]

        (request,) = await until(board, has_read)
    assert "From lena (lead), about #1:\n> Look at the tests." in all_told(request)
