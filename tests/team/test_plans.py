"""Plan approval: until the lead or the human agrees, only reading is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.team import requests
from dugnad.tools.tool import tool
from dugnad.types import Message
from tests.agent.stage_agent import END, TITLE, all_told, call, calls, last_results, of_task
from tests.conftest import Opener
from tests.team.stage_team import (
    Paused,
    hosting,
    kill,
    short_lease,
    until,
    until_ended,
    until_state,
    until_status,
    within,
)

NEEDS: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = [({"plan": True}, {}), ({}, {"plan": True})]
by_task_or_teammate = pytest.mark.parametrize(("task", "member"), NEEDS, ids=["of the task", "of the teammate"])


async def the_request(board: Board) -> Message:
    await until(board, lambda: requests.waiting_requests(board))
    (asked,) = await requests.waiting_requests(board)
    return asked


@by_task_or_teammate
async def test_before_approval_only_reading_is_allowed(board: Board, task: Any, member: Any) -> None:
    ran: list[str] = []

    @tool
    def change() -> str:
        """Change the world."""
        ran.append("change")
        return "changed"

    @tool(safe=True)
    def look() -> str:
        """Look at the world."""
        ran.append("look")
        return "seen"

    await board.spawn("alice", **member)
    tries = calls(
        ("look", {}), ("list_tasks", {}), ("change", {}), ("finish", {"result": "x"}),
        ("schedule_followup", {"title": "y"}),
    )  # fmt: skip
    model = ScriptedModel({TITLE: [tries, call("submit_plan", plan="First this."), call("change"), END]})
    async with hosting(board, model, tools=[change, look]):
        put = await board.put(TITLE, **task)
        asked = await the_request(board)
        assert (asked.kind, asked.text, asked.sender, asked.recipient) == ("plan", "First this.", "alice", "human")
        assert (await board.teammate("alice")).status == "waiting"
        assert ran == ["look"]
        await requests.decide_plan(board, str(put.id), accept=True)
        (done,) = await until_ended(board, put)
    assert (done.state, ran) == ("done", ["look", "change"])
    seen, listed, *refused = last_results(SimpleNamespace(asked=of_turn(model, 2)))
    assert (seen, "has to wait" in listed) == ("seen", False)
    assert all("has to wait: until your plan is approved you may only read" in each for each in refused)
    assert "until your plan is approved" in all_told(model.asked[0])
    assert "Approved. The human answered" in all_told(model.asked[-1])
    assert len(await board.list_tasks()) == 1


def of_turn(model: ScriptedModel, turn: int) -> list[Request]:
    return [request for request in model.asked if request.turn == turn]


async def test_a_refused_plan_is_revised_and_approved(board: Board) -> None:
    await board.spawn("alice")
    plans = [call("submit_plan", plan=f"Plan {number}") for number in (1, 2)]
    model = ScriptedModel({TITLE: [*plans, END]})
    async with hosting(board, model):
        task = await board.put(TITLE, plan=True)
        await the_request(board)
        await requests.decide_plan(board, f"#{task.id}", accept=False, why="Tests first.")

        async def second() -> bool:
            return [each.text for each in await requests.waiting_requests(board)] == ["Plan 2"]

        await until(board, second)
        assert "Not approved. The human answered:\n> Tests first." in all_told(model.asked[1])
        await requests.decide_plan(board, f"m{(await the_request(board)).id}", accept=True)
        (done,) = await until_ended(board, task)
    assert done.state == "done"


async def test_plain_text_does_not_end_a_task_whose_plan_is_missing(board: Board) -> None:
    await board.spawn("alice")
    model = ScriptedModel({TITLE: [Step(say="I am done."), call("submit_plan", plan="Do it."), Step(say="Now I am.")]})
    async with hosting(board, model):
        task = await board.put(TITLE, plan=True)
        await the_request(board)
        assert "Your plan is not approved yet." in all_told(model.asked[1])
        await requests.decide_plan(board, str(task.id), accept=True)
        (done,) = await until_ended(board, task)
    assert done.result == "Now I am."


async def test_a_plan_that_was_approved_stays_so_after_a_restart(opener: Opener) -> None:
    board = await opener(**short_lease(1.0))
    await board.spawn("alice", plan=True)
    steps = [call("submit_plan", plan="Do it."), call("note", title="a", text="b"), END]
    model = Paused({TITLE: steps}, where=lambda request: request.turn == 2)
    task = await board.put(TITLE)
    async with hosting(board, model):
        await the_request(board)
    await requests.decide_plan(board, str(task.id), accept=True)
    async with hosting(board, model) as host:
        await within(model.reached.wait())
        await kill(host)
    async with hosting(board, ScriptedModel({TITLE: steps})):
        (done,) = await until_ended(board, task)
    assert (done.state, done.result) == ("done", "built")


async def test_a_plan_still_waits_after_a_restart(opener: Opener) -> None:
    board = await opener(**short_lease(1.0))
    await board.spawn("alice")
    model = ScriptedModel({TITLE: [call("submit_plan", plan="Do it."), END]})
    task = await board.put(TITLE, plan=True)
    async with hosting(board, model) as host:
        await the_request(board)
        await kill(host)
    async with hosting(board, model):
        await until_status(board, "alice", "waiting")
        await requests.decide_plan(board, str(task.id), accept=True)
        (done,) = await until_ended(board, task)
    assert done.state == "done"
    assert len(model.asked) == 2


def led(request: Request) -> Step:
    """A lead that approves every plan it is shown; and a teammate that submits one."""
    if request.teammate == "lena":
        if "respond(request='" in all_told(request) and request.turn == 1:
            plan = all_told(request).rsplit("respond(request='", 1)[1].split("'", 1)[0]
            return call("approve_plan", request=plan, approve=True, text="Mind the edge.")
        return Step(say="Approved.")
    return call("submit_plan", plan="Do it.") if request.turn == 1 else END


async def test_the_lead_approves_and_the_human_is_not_asked(board: Board) -> None:
    await board.spawn("lena", lead=True)
    await board.spawn("alice")
    model = ScriptedModel(led)
    async with hosting(board, model):
        task = await board.put(TITLE, plan=True, assignee="alice")
        (done,) = await until_ended(board, task)
    assert done.state == "done"
    assert "Approved. lena answered:\n> Mind the edge." in all_told(of_task(model)[-1])
    assert not await board.inbox("human")


async def test_when_the_lead_is_gone_the_human_sees_the_plan_and_can_answer(board: Board) -> None:
    await board.spawn("lena", lead=True)
    await board.spawn("alice")
    model = Paused(led, where=lambda request: request.teammate == "lena")
    async with hosting(board, model):
        task = await board.put(TITLE, plan=True, assignee="alice")
        await until_state(board, task, "waiting")
        await within(model.reached.wait())
        assert not await requests.waiting_requests(board)
        await board.stop_teammate("lena", reason="enough")
        asked = await the_request(board)
        assert (asked.recipient, asked.text) == ("lena", "Do it.")
        await requests.decide_plan(board, str(task.id), accept=True)
        (done,) = await until_ended(board, task)
    assert done.state == "done"


async def test_a_planned_task_that_comes_to_another_keeps_its_approval(board: Board) -> None:
    await board.spawn("alice")
    steps = [call("submit_plan", plan="Do it."), END]
    model = Paused({TITLE: steps}, where=lambda request: request.turn == 2)
    async with hosting(board, model):
        task = await board.put(TITLE, plan=True)
        await the_request(board)
        await requests.decide_plan(board, str(task.id), accept=True)
        await within(model.reached.wait())
        await requests.stop(board, "alice", now=True)
        await until_state(board, task, "ready")
        await board.spawn("bob")
        model.go.set()
        (done,) = await until_ended(board, task)
    assert (done.state, done.teammate) == ("done", "bob")
