"""Messages to one who has no task: who is heard first, what becomes an errand, who pays, and that it comes to rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.errors import UnknownTask
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.settings import Limits
from dugnad.types import Budget, Task
from tests.agent.stage_agent import END, TITLE, all_told, call, of_task, told
from tests.board.crew import crew
from tests.conftest import Opener
from tests.team.stage_team import (
    AnswerLost,
    Paused,
    busy,
    errands,
    hosting,
    kill,
    short_lease,
    until,
    until_ended,
    until_state,
    until_status,
    within,
)

SCRIPT: dict[str, list[Step]] = {TITLE: [END], "*": [Step(say="All right.")]}


async def told_human(board: Board) -> list[str]:
    return [message.text for message in await board.inbox("human")]


async def test_a_human_is_answered_by_one_who_rests(board: Board) -> None:
    await board.spawn("alice")
    model = ScriptedModel(SCRIPT)
    async with hosting(board, model):
        await until_status(board, "alice", "idle")
        await board.tell("human", "alice", "How is it going?")
        await until(board, lambda: board.inbox("human"))
        (errand,) = await until_ended(board, *await errands(board))
    assert await told_human(board) == ["All right."]
    assert "<inbox>\nFrom the human:\n> How is it going?\n</inbox>" in told(model.asked[0])
    assert (errand.state, errand.root, errand.assignee, errand.title) == ("done", errand.id, "alice", "Answer human")
    budget = await board.budget(errand.id)  # Of its own: what a person says is not a goal's to pay for.
    assert budget.tasks_max is not None
    assert budget.tokens_max is not None
    assert not await board.inbox("alice")


async def test_a_goal_does_not_pay_for_what_a_person_says_beside_a_word_about_it(board: Board) -> None:
    peers = await crew(board, "bob")
    goal = await board.put("Goal", budget=Budget(tasks=1))
    await board.spawn("alice")
    await board.tell("bob", "alice", "I began.", claim=await peers.must_claim("bob"))
    await board.tell("human", "alice", "And you?")
    async with hosting(board, ScriptedModel(SCRIPT)):
        await until(board, lambda: board.inbox("human"))
        (errand,) = await until_ended(board, *await errands(board))
    assert (errand.parent, errand.root) == (None, errand.id)
    assert (await board.budget(goal.id)).runs == 1  # Bob's own.


async def test_people_and_the_lead_come_before_work_and_a_peers_word_comes_with_it(board: Board) -> None:
    for name in ("alice", "bob"):
        await board.spawn(name)
    await board.spawn("lena", lead=True)
    task = await board.put(TITLE, assignee="alice")
    await board.tell("bob", "alice", "from a peer")
    model = ScriptedModel(SCRIPT)
    async with hosting(board, model):
        await until_ended(board, task)
    assert [request.title for request in model.asked] == [TITLE]
    assert "<inbox>\nFrom bob:\n> from a peer\n</inbox>" in told(model.asked[0])
    assert not await errands(board)


@pytest.mark.parametrize("sender", ["human", "lena"])
async def test_who_is_pressing_is_heard_before_the_next_task(board: Board, sender: str) -> None:
    await board.spawn("alice")
    await board.spawn("lena", lead=True)
    task = await board.put(TITLE, assignee="alice", priority=99)
    await board.tell(sender, "alice", "First this.")
    model = ScriptedModel(SCRIPT)
    async with hosting(board, model):
        await until_ended(board, task)
    assert [request.title for request in model.asked] == [f"Answer {sender}", TITLE]


async def test_a_peers_word_without_work_is_an_errand(board: Board) -> None:
    await board.spawn("alice")
    await board.spawn("bob")
    model = ScriptedModel(SCRIPT)
    async with hosting(board, model):
        await board.tell("bob", "alice", "hello")
        await until(board, lambda: errands(board))
        (errand,) = await until_ended(board, *await errands(board))
    assert errand.title == "Answer bob"
    assert "From bob:\n> hello" in told(model.asked[0])
    assert await told_human(board) == []  # Nobody asked for a word to the human.


async def test_an_errand_is_paid_by_the_goal_the_message_is_about(board: Board) -> None:
    await board.spawn("alice")
    await board.spawn("bob")
    script = {TITLE: [call("send_message", to="bob", text="Please look."), END], "*": [Step(say="Seen.")]}
    goal = await board.put("Goal", assignee="nobody", budget=Budget(tasks=9))
    async with hosting(board, ScriptedModel(script)):
        task = await board.put(TITLE, assignee="alice", parent=goal.id)
        await until_ended(board, task)
        await until(board, lambda: errands(board))
        (errand,) = await until_ended(board, *await errands(board))
    assert (errand.root, errand.parent, errand.assignee) == (goal.id, task.id, "bob")
    assert (await board.budget(goal.id)).runs == 2


async def test_two_who_always_answer_each_other_come_to_rest(opener: Opener) -> None:
    board = await opener(limits=Limits(backoff_seconds=0.01, depth_max=5))
    await board.spawn("alice")
    await board.spawn("bob")

    def script(request: Request) -> Step:
        other = "bob" if request.teammate == "alice" else "alice"
        return call("send_message", to=other, text="And you?") if request.turn == 1 else Step(say="Said.")

    model = ScriptedModel(script)

    async def five_made() -> list[Task] | None:
        made = await errands(board)
        return made if len(made) >= 5 else None

    async with hosting(board, model):
        task = await board.put(TITLE, assignee="alice")
        made = await until_ended(board, task, *await until(board, five_made))
        for name in ("alice", "bob"):
            await until_status(board, name, "idle")
        assert len(await errands(board)) == 5
    assert [task.depth for task in made] == [0, 1, 2, 3, 4, 5]
    assert {task.state for task in made} == {"done"}
    assert not await board.inbox("alice")
    assert not await board.inbox("bob")


async def test_a_goal_without_budget_left_does_not_pay_for_errands_and_loses_no_message(board: Board) -> None:
    await board.spawn("alice")
    await board.spawn("bob")
    goal = await board.put(TITLE, assignee="alice", budget=Budget(tasks=1))
    script = {TITLE: [call("send_message", to="bob", text="Remember this."), END], "*": [Step(say="Seen.")]}
    model = ScriptedModel(script)
    async with hosting(board, model):
        await until_ended(board, goal)
        await until(board, lambda: errands(board))
        await until(board, lambda: is_quiet(board, "bob"))
        assert (await board.budget(goal.id)).runs == 1
        await until_ended(board, await board.put("Other", assignee="bob"))
    assert "Remember this." in all_told(of_task(model, "Other")[0])  # In what was said lately.


async def is_quiet(board: Any, name: str) -> bool:
    return not await board.inbox(name)


async def test_the_answer_to_a_tasks_question_goes_to_that_task_alone(board: Board) -> None:
    await board.spawn("alice")
    model = Paused(
        {TITLE: [call("ask_human", question="Which?"), END], "Other": [call("list_tasks"), END]},
        where=lambda request: request.title == "Other" and request.turn == 1,
    )
    async with hosting(board, model):
        task = await board.put(TITLE)
        await until_state(board, task, "waiting")
        other = await board.put("Other")
        await within(model.reached.wait())
        (asked,) = await board.requests()
        await board.reply(str(asked.request), "human", "The blue one.")
        model.go.set()
        await until_ended(board, task, other)
    assert "The blue one." not in "".join(map(all_told, of_task(model, "Other")))
    assert "The blue one." in all_told(of_task(model)[-1])
    assert not await errands(board)


@pytest.mark.parametrize("turn", [1, 2])
async def test_an_errand_goes_on_elsewhere_after_a_kill_and_the_human_hears_once(opener: Opener, turn: int) -> None:
    board = await opener(**short_lease(1.0))
    await board.spawn("alice")
    script = {"*": [call("list_tasks"), Step(say="All right.")]}
    model = Paused(script, where=lambda request: request.turn == turn)
    async with hosting(board, model) as host:
        await board.tell("human", "alice", "hello")
        await within(model.reached.wait())
        await kill(host)
    again = ScriptedModel(script)
    async with hosting(board, again):
        await until_ended(board, *await errands(board))
        await until_status(board, "alice", "idle")
    made = await errands(board)
    assert [task.state for task in made] == ["done"]
    assert await told_human(board) == ["All right."]
    assert all_told(again.asked[-1]).count("> hello") == 1


@pytest.mark.parametrize("verb", ["put", "claim", "settle"])
async def test_an_errand_is_made_once_whatever_the_board_answers(board: Board, verb: str) -> None:
    """The call is made, and its answer is lost: the errand is on the board, but nobody heard of it."""
    await board.spawn("alice")

    troubled = AnswerLost(board, verb, busy, where=lambda answer: answer is not None)
    async with hosting(troubled, ScriptedModel(SCRIPT)):
        await board.tell("human", "alice", "hello")
        await until(board, lambda: board.inbox("human"))
        await until_ended(board, *await errands(board))
        await until_status(board, "alice", "idle")
    assert troubled.happened == 1
    assert [task.state for task in await errands(board)] == ["done"]
    assert await told_human(board) == ["All right."]


async def test_a_stopped_teammates_errand_does_not_hold_up_the_goal(board: Board) -> None:
    await board.spawn("alice")
    await board.spawn("bob")
    script = {TITLE: [call("send_message", to="bob", text="Please look."), END], "*": [Step(say="Seen.")]}
    model = Paused(script, where=lambda request: request.teammate == "bob")
    async with hosting(board, model):
        goal = await board.put(TITLE, assignee="alice")
        await within(model.reached.wait())
        await board.stop_teammate("bob", reason="enough")

        async def all_ended() -> bool:
            return not {"ready", "claimed", "scheduled"} & (await board.count_tasks(root=goal.id)).keys()

        await until(board, all_ended)


async def test_nor_does_one_that_was_to_be_tried_again_a_little_later(board: Board) -> None:
    await board.spawn("alice")
    errand = await board.put("Answer human", assignee="alice", kind="human_message", delay_seconds=0.3)
    await board.stop_teammate("alice")
    async with hosting(board, ScriptedModel(SCRIPT)):
        (gone,) = await until_ended(board, errand)
    assert (gone.state, gone.reason) == ("cancelled", "alice was shut down")


async def test_several_senders_share_one_errand(board: Board) -> None:
    names = ("alice", "bob", "carol")
    for name in names:
        await board.spawn(name)
    for name in names[1:]:
        await board.tell(name, "alice", f"{name} says hello")
    model = ScriptedModel(SCRIPT)
    async with hosting(board, model):
        await until(board, lambda: errands(board))
        (errand,) = await until_ended(board, *await errands(board))
    assert errand.title == "Answer bob, carol"
    assert all(f"{name} says hello" in told(model.asked[0]) for name in names[1:])


async def test_an_errand_that_fails_is_not_made_for_ever(board: Board) -> None:
    """A model that refuses: the attempts are bounded, and so are the errands."""
    await board.spawn("alice")
    model = ScriptedModel({"*": [Step(odd="refusal")] * 9})
    async with hosting(board, model):
        await board.tell("human", "alice", "hello")
        await until_ended(board, *await until(board, lambda: errands(board)))
        await until_status(board, "alice", "idle")
    made: list[Task] = await errands(board)
    assert [task.state for task in made] == ["failed"]
    assert len(model.asked) == 3


async def test_mail_during_an_errand_is_read_in_it(board: Board) -> None:
    await board.spawn("alice")
    model = Paused({"*": [call("list_tasks"), Step(say="All right.")]}, where=lambda request: request.turn == 1)
    async with hosting(board, model):
        await board.tell("human", "alice", "first")
        await within(model.reached.wait())
        await board.tell("human", "alice", "second")
        model.go.set()
        await until(board, lambda: board.inbox("human"))
        await asyncio.sleep(0.2)
    assert len(await errands(board)) == 1
    assert "> second" in told(model.asked[1])


async def test_one_who_must_show_plans_may_still_answer_with_a_word(board: Board) -> None:
    await board.spawn("alice", plan=True)
    model = ScriptedModel(lambda request: Step(say="All right."))
    async with hosting(board, model):
        await board.tell("human", "alice", "hello")
        await until(board, lambda: board.inbox("human"))
    assert await told_human(board) == ["All right."]
    assert len(model.asked) == 1


async def test_a_message_about_a_task_that_is_not_there_harms_nobody(board: Board) -> None:
    for name in ("alice", "bob"):
        await board.spawn(name)
    async with hosting(board, ScriptedModel(SCRIPT)):
        try:
            await board.tell("bob", "alice", "about nothing", task=999)
        except UnknownTask:
            pass
        await until_ended(board, await board.put(TITLE, assignee="alice"))
        await until(board, lambda: is_quiet(board, "alice"))
        assert (await board.teammate("alice")).status in ("idle", "working")
