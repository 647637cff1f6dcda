"""The lead's tools, through the real loop: who joins, who leaves, whose plan is good, whose a task is."""

from __future__ import annotations

from typing import Any

import pytest

from dugnad.board import Board
from dugnad.errors import NotReady, UnknownTeammate
from dugnad.settings import AgentLimits
from dugnad.tools.built_in import BUILT_IN, LEADING
from dugnad.types import Waiting
from tests.agent.stage_agent import END, TITLE, all_told, call, last_results, set_stage

LEAD = {"lead": True, "model": "some:model"}


async def led(board: Board, name: str, /, **arguments: Any) -> str:
    """What a call of the lead gave, as its model was told."""
    fields = arguments.pop("fields", {})
    stage = await set_stage(board, [call(name, **arguments), END], name="lena", member=LEAD, **fields)
    await stage.run(assignee="lena")
    await board.stop_host(stage.host)
    return last_results(stage.model)[0]


async def test_only_a_lead_has_the_leads_tools(board: Board) -> None:
    names = {each.name for each in LEADING}
    assert names == {"spawn_teammate", "shutdown_teammate", "approve_plan", "assign"}
    assert not names & {each.name for each in BUILT_IN}
    stage = await set_stage(board, [call("spawn_teammate", name="bob"), END])
    await stage.run()
    assert not names & {spec.name for spec in stage.model.asked[0].tools}
    assert "There is no tool 'spawn_teammate'" in last_results(stage.model)[0]


async def test_a_lead_brings_a_teammate_with_its_own_model(board: Board) -> None:
    answer = await led(board, "spawn_teammate", name="bob", role="tester", prompt="You test.")
    assert answer == "bob has joined the team (tester) and takes what is ready."
    bob = await board.teammate("bob")
    assert (bob.roles, bob.prompt, bob.model, bob.status) == (
        ("tester",),
        "lena brought you to the team, and says of you:\n> You test.",
        "some:model",
        "wanted",
    )
    assert not bob.lead


async def test_a_lead_is_told_that_a_teammate_was_there_already(board: Board) -> None:
    await board.spawn("bob", roles=["tester"], model="some:model")
    answer = await led(board, "spawn_teammate", name="bob", role="tester")
    assert answer == "bob was on the team already (tester), and stays as it is."


@pytest.mark.parametrize("other", [{"prompt": "You test."}, {"role": "tester"}])
async def test_a_lead_is_told_who_has_the_name_already_and_what_to_do(board: Board, other: dict[str, str]) -> None:
    await board.spawn("bob", model="some:model")
    answer = await led(board, "spawn_teammate", name="bob", **other)
    assert answer == (
        "Error: bob is on the team already, for any work (joining). Give it tasks as it is, or choose another name. "
        "When it was shut down, it can come back with other settings."
    )
    assert not (await board.teammate("bob")).roles


async def test_a_team_grows_by_its_lead_up_to_a_bound(board: Board) -> None:
    await board.spawn("bob")
    fields = {"limits": AgentLimits(teammates_max=2)}
    answer = await led(board, "spawn_teammate", name="carol", fields=fields)
    assert "The team has 2 teammates, and 2 is the most." in answer
    with pytest.raises(UnknownTeammate):
        await board.teammate("carol")


async def test_one_who_left_makes_room_for_another(board: Board) -> None:
    await board.spawn("bob")
    await board.stop_teammate("bob")
    answer = await led(board, "spawn_teammate", name="carol", fields={"limits": AgentLimits(teammates_max=2)})
    assert answer.startswith("carol has joined the team")


@pytest.mark.parametrize("name", ["human", "board", "", "a b", "x" * 41, "bob"])
async def test_a_name_that_cannot_be_is_told_to_the_model(board: Board, name: str) -> None:
    await board.spawn("bob", prompt="set up otherwise")
    assert (await led(board, "spawn_teammate", name=name)).startswith("Error: ")


async def test_a_shutdown_is_a_request_the_other_may_refuse(board: Board) -> None:
    await board.spawn("bob")
    host = await board.start_host("elsewhere")
    await board.seat(host, name="bob")
    assert "bob is asked to shut down" in await led(board, "shutdown_teammate", name="bob", reason="All is done.")
    (asked,) = await board.requests("bob")
    assert (asked.kind, asked.sender, asked.text) == ("shutdown", "lena", "All is done.")
    assert (await board.teammate("bob")).status == "idle"
    await board.reply(str(asked.request), "bob", "One more test.", accepted=False)
    assert [message.text for message in await board.inbox("lena")] == ["One more test."]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lena", "Error: You cannot shut yourself down"),
        ("nobody", "Error: There is no teammate 'nobody'"),
        ("wanted", "wanted is stopped."),
        ("gone", "gone is stopped already."),
    ],
)
async def test_who_cannot_be_asked_to_leave(board: Board, name: str, says: str) -> None:
    await board.spawn("wanted")
    await board.spawn("gone")
    await board.stop_teammate("gone")
    assert (await led(board, "shutdown_teammate", name=name, reason="x")).startswith(says)


@pytest.mark.parametrize("approve", [True, False])
async def test_a_plan_is_approved_or_sent_back(board: Board, approve: bool) -> None:
    lena = await set_stage(board, name="lena", member=LEAD, others={})
    bob = await set_stage(board, [call("submit_plan", plan="Do it."), END], name="bob")
    outcome = await bob.run(assignee="bob")
    assert outcome == Waiting(on="plan", question="Do it.", ask="lena")
    (asked,) = await board.requests("lena")
    answer = await led_on(lena, "approve_plan", request=asked.request, approve=approve, text="So be it.")
    assert answer == f"bob's plan is {'approved' if approve else 'sent back'}."
    await bob.go_on()
    assert f"{'Approved' if approve else 'Not approved'}. lena answered:\n> So be it." in all_told(bob.model.asked[-1])


async def led_on(stage: Any, name: str, /, **arguments: Any) -> str:
    """The same, on a stage that is set already."""
    stage.model._script = {"Lead": [call(name, **arguments), END]}
    await stage.run("Lead", assignee="lena")
    return last_results(stage.model)[0]


async def test_a_question_is_no_plan_and_an_unknown_one_is_nothing(board: Board) -> None:
    await board.spawn("lena", **LEAD)
    await board.spawn("bob")
    asked = await board.tell("bob", "lena", "Which?", kind="question")
    assert "is a question, not a plan" in await led(board, "approve_plan", request=asked.request, approve=True)
    assert "Error: There is no request 'x'" in await led(board, "approve_plan", request="x", approve=True)


async def test_a_plan_for_somebody_else_is_not_the_leads_to_approve(board: Board) -> None:
    await board.spawn("bob")
    asked = await board.tell("bob", "human", "Do it.", kind="plan")
    assert "only human or the human can answer" in await led(board, "approve_plan", request=asked.request, approve=True)


async def test_an_assigned_task_changes_its_lane_and_back(board: Board) -> None:
    await board.spawn("bob", roles=["coder"])
    await board.spawn("carol", roles=["coder"])
    host = await board.start_host("elsewhere")
    for name in ("bob", "carol"):
        await board.seat(host, name=name)
    task = await board.put("For one", role="coder")
    assert await led(board, "assign", task=task.id, name="bob") == f"#{task.id} is for bob now."
    assert (await board.find(task.id)).assignee == "bob"
    assert await board.claim("carol", host) is None
    await board.assign(task.id, None)
    found = await board.find(task.id)
    assert (found.assignee, found.role) == (None, "coder")
    claim = await board.claim("carol", host)
    assert claim is not None
    assert claim.task.id == task.id


async def test_assigning_wakes_just_the_one_it_is_for(board: Board) -> None:
    await board.spawn("bob")
    await board.spawn("carol")
    task = await board.put("For one", role="nobody")
    with board.watch_for("bob", []) as bob, board.watch_for("carol", []) as carol:
        await board.assign(task.id, "bob")
        assert await bob.wait(120)
        assert not carol.changed


async def test_what_was_taken_or_is_over_cannot_be_assigned(board: Board) -> None:
    stage = await set_stage(board, [END])
    claim = await stage.begin()
    await board.spawn("bob")
    with pytest.raises(NotReady, match="is claimed"):
        await board.assign(claim.task.id, "bob")
    await stage.go_on(claim)
    with pytest.raises(NotReady, match="is done"):
        await board.assign(claim.task.id, "bob")
    assert "Error: There is no teammate 'x'" in await led(board, "assign", task=(await board.put("x")).id, name="x")
    assert "Error: There is no task #99" in await led(board, "assign", task=99, name="bob")


async def test_blocked_and_scheduled_tasks_keep_their_state_when_assigned(board: Board) -> None:
    await board.spawn("bob")
    first = await board.put("First", delay_seconds=600)
    second = await board.put("Second", needs=[first.id])
    for task, state in ((first, "scheduled"), (second, "blocked")):
        await board.assign(task.id, "bob", key=f"k{task.id}")
        await board.assign(task.id, "bob", key=f"k{task.id}")
        found = await board.find(task.id)
        assert (found.state, found.assignee) == (state, "bob")
    events = [event for event in await board.events() if event.kind == "assigned"]
    assert [event.task for event in events] == [first.id, second.id]


async def test_the_leads_title_is_told_to_its_model(board: Board) -> None:
    stage = await set_stage(board, [END], name="lena", member=LEAD)
    await stage.run(TITLE, assignee="lena")
    assert "You are the lead" in stage.model.asked[0].system
