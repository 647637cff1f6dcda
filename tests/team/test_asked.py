"""What follows from a person's message: it has the person's words as its goal, and its end is told."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.scripted import Step
from dugnad.types import Message, Task
from tests.agent.stage_agent import END, TITLE, all_told, call, of_task, told
from tests.team.stage_team import Paused, errands, hosting, until, until_ended, until_status, within

WORDS = "Build a ledger.\nKeep it small."
PLAN = [call("add_task", title="Write it", body="In ledger.py."), Step(say="I put it on the board.")]


@pytest.mark.parametrize("paid_by", ["itself", "the goal of the run"])
async def test_what_follows_from_a_message_has_the_persons_words_as_its_goal(board: Board, paid_by: str) -> None:
    await board.spawn("lena", lead=True)
    await board.spawn("bob")
    goal = await board.put(TITLE, assignee="bob", body="The run's own.")
    model = ScriptedModel(
        {TITLE: [END], "Answer human": PLAN, "Write it": [call("add_task", title="Test it"), END], "*": [END]}
    )
    async with hosting(board, model) as host:
        host.payer = goal.id if paid_by != "itself" else None
        await board.tell("human", "lena", WORDS)
        await until(board, lambda: of_title(board, "Test it"))
        await until_ended(board, *await board.list_tasks())
    (errand,) = await errands(board)
    assert (errand.body, errand.put_by) == (WORDS, "human")
    for title in ("Write it", "Test it"):
        packet = told(of_task(model, title)[0])
        assert "The human asked for this:\n> Build a ledger.\n> Keep it small." in packet
        assert "You were written to" not in packet
        assert ("> The run's own." in packet) == (paid_by != "itself")
    answered = told(of_task(model, "Answer human")[0])
    assert "You were written to" in answered
    assert "> You were written to" not in answered
    assert answered.count("> Build a ledger.") == 1


async def test_what_is_said_during_the_answer_is_a_part_of_the_goal(board: Board) -> None:
    await board.spawn("lena", lead=True)
    await board.spawn("bob")
    script = {"Answer human": [call("list_tasks"), *PLAN], "Write it": [END]}
    model = Paused(script, where=lambda request: request.title == "Write it" or request.turn == 1)
    async with hosting(board, model):
        await board.tell("human", "lena", WORDS)
        await within(model.reached.wait())
        await board.tell("human", "lena", "In Rust.")
        model.reached.clear()
        model.go.set()
        await until_ended(board, *await until(board, lambda: of_title(board, "Write it")))
    (work,) = of_task(model, "Write it")
    assert "> Build a ledger.\n> Keep it small.\n> \n> In Rust.\n" in told(work)


async def of_title(board: Board, title: str) -> list[Task]:
    return [task for task in await board.list_tasks() if task.title == title]


async def test_a_lead_reads_with_the_next_message_that_the_work_of_an_earlier_one_has_ended(board: Board) -> None:
    await board.spawn("lena", lead=True)
    await board.spawn("bob")
    model = ScriptedModel(lambda request: END if request.title == "Write it" else PLAN[min(request.turn, 2) - 1])
    async with hosting(board, model):
        await board.tell("human", "lena", WORDS)
        await until(board, lambda: notices(board))
        await until_status(board, "lena", "idle")
        assert len(await errands(board)) == 1  # There is nothing to do, so it costs nothing.
        await board.tell("human", "lena", "And?")
        (_, again) = await until_ended(board, *await until(board, lambda: two_errands(board)))
    first = told(next(request for request in model.asked if request.task == again.id))
    assert "From the runtime, about #1:\n> All work that follows from 'Build a ledger." in first
    assert "> #" not in first
    assert "'Write it' is done (bob)." in first
    assert not [message for message in await notices(board) if message.task == 1]


async def notices(board: Board) -> list[Message]:
    return [message for message in await board.inbox("lena") if message.kind == "notice"]


async def two_errands(board: Board) -> list[Task]:
    found = await errands(board)
    return found if len(found) > 1 else []


async def test_a_lead_is_woken_when_something_failed_and_may_plan_anew_under_the_same_words(board: Board) -> None:
    await board.spawn("lena", lead=True)
    await board.spawn("bob")
    script = {
        "Answer human": PLAN, "Write it": [call("give_up", reason="no pen")],
        "Answer the runtime": [call("add_task", title="Buy a pen"), Step(say="Again.")], "Buy a pen": [END],
    }  # fmt: skip
    model = ScriptedModel(script)
    async with hosting(board, model):
        await board.tell("human", "lena", WORDS)
        await until_ended(board, *await until(board, lambda: of_title(board, "Buy a pen")))
        await until_status(board, "lena", "idle")
    woken = told(of_task(model, "Answer the runtime")[0])
    assert "'Write it' is failed: no pen" in woken
    assert "> Build a ledger." in told(of_task(model, "Buy a pen")[0])
    assert len(await errands(board)) == 2  # What follows from it is told once.


async def test_a_notice_keeps_nobody_from_resting(board: Board) -> None:
    await board.spawn("lena", lead=True)
    await board.spawn("bob")
    model = ScriptedModel({"Answer human": PLAN, "Write it": [END]})
    async with hosting(board, model, limits={"idle_seconds": 0.5}):
        await board.tell("human", "lena", WORDS)
        await until(board, lambda: notices(board))
        await until_status(board, "lena", "stopped")


async def test_a_later_attempt_at_an_answer_is_shown_the_message_whole(board: Board) -> None:
    await board.spawn("alice")
    long = "Please. " * 200 + "And hurry."
    model = ScriptedModel({"*": [Step(odd="refusal")]})
    async with hosting(board, model):
        await board.tell("human", "alice", long)
        await until_ended(board, *await until(board, lambda: errands(board)))
    assert [all_told(request).count("And hurry.") for request in model.asked] == [1, 1, 1]
