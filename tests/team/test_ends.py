"""How an attempt ends: what `finish` answers, when plain text is a result, and the verdict of a review."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import Request, ToolResult
from dugnad.models.scripted import Step
from dugnad.settings import Limits
from dugnad.types import Need
from tests.agent.stage_agent import END, TITLE, call, told
from tests.team.stage_team import hosting, until_ended
from tests.team.test_checks import runner


def answers(request: Request) -> list[str]:
    """The results of all calls so far, as the model is shown them."""
    return [each.text for each in request.messages if isinstance(each, ToolResult)]


PLAIN = Step(say="I think it is done.")


async def test_finish_answers_with_the_red_check_and_how_often_it_may_be_tried_again(board: Board) -> None:
    await board.spawn("alice")
    check, _ = runner("1 failed", "still 1 failed", None)
    model = ScriptedModel({TITLE: [END] * 3})
    async with hosting(board, model, check=check, limits={"check_rounds_max": 2}):
        (done,) = await until_ended(board, await board.put(TITLE, check="pytest -q"))
    assert done.state == "done"
    first, second = answers(model.asked[-1])
    assert first.startswith("Not done: the check is red. `pytest -q` in your tree printed:\n> 1 failed\n")
    assert "you can do so 2 more times, then this attempt fails" in first
    assert "ask_human" in first
    assert "> still 1 failed" in second
    assert "you can do so 1 more time, then" in second
    assert "1 failed" not in told(model.asked[1])  # It is said once.


async def test_the_verdict_is_still_the_answer_after_a_crash(board: Board) -> None:
    """The host that ran the check is gone before the model was asked again."""
    await board.spawn("alice")
    check, asked = runner("1 failed", None)

    class Stops(ScriptedModel):
        async def ask(self, request: Request):  # type: ignore[no-untyped-def]
            if request.turn == 2 and not gone:
                gone.append(request)
                host.workers["alice"].drop("the test")
            return await super().ask(request)

    gone: list[Request] = []
    model = Stops({TITLE: [END, END]})
    async with hosting(board, model, check=check) as host:
        (done,) = await until_ended(board, await board.put(TITLE, check="pytest -q"))
    assert done.state == "done"
    (verdict,) = answers(model.asked[-1])
    assert verdict.startswith("Not done: the check is red.")
    assert len(asked) == 2


async def test_plain_text_gets_one_reminder_where_a_check_follows_and_then_counts(board: Board) -> None:
    await board.spawn("alice")
    check, asked = runner(None)
    model = ScriptedModel({TITLE: [PLAIN, call("list_tasks"), PLAIN, Step(say="It is built.")]})
    async with hosting(board, model, check=check):
        (done,) = await until_ended(board, await board.put(TITLE, check="pytest -q"))
    assert (done.state, done.result, asked) == ("done", "It is built.", ["pytest -q"])
    reminded = ["What follows then: the runtime runs `pytest -q`" in told(each) for each in model.asked]
    assert reminded == [False, True, False, True]


@pytest.mark.parametrize("more", ["nothing", "a task behind it"])
async def test_plain_text_ends_a_task_of_which_nothing_more_is_expected(board: Board, more: str) -> None:
    await board.spawn("alice")
    task = await board.put(TITLE)
    if more != "nothing":
        await board.put("Next", needs=(task.id,))
    model = ScriptedModel({TITLE: [PLAIN]})
    async with hosting(board, model):
        (done,) = await until_ended(board, task)
    assert (done.state, done.result) == ("done", PLAIN.say)


async def test_plain_text_gets_a_reminder_where_a_task_asks_for_an_outcome(board: Board) -> None:
    await board.spawn("alice")
    task = await board.put(TITLE)
    behind = await board.put("Next", needs=(Need(task.id, "approved"),))
    model = ScriptedModel({TITLE: [PLAIN, call("finish", result="Good.", outcome="approved")]})
    async with hosting(board, model):
        done, after = await until_ended(board, task, behind)
    assert (done.outcome, after.state) == ("approved", "done")
    assert f"#{behind.id} begins only if the outcome is approved" in told(model.asked[1])


async def test_a_review_ends_with_one_of_two_outcomes(opener: Callable[..., object]) -> None:
    board: Board = await opener(limits=Limits(backoff_seconds=0.01))  # type: ignore[misc]
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])
    script = {
        TITLE: [END],
        "*": [call("finish", result="Fine."), call("finish", result="Fine.", outcome="great"),
              call("finish", result="Fine.", outcome="approved")],
    }  # fmt: skip
    model = ScriptedModel(script)
    async with hosting(board, model):
        (done,) = await until_ended(board, await board.put(TITLE, role="coder", review="reviewer"))
    assert done.state == "done"
    asked = [each for each in model.asked if each.title.startswith("Review")]
    (finish,) = [each for each in asked[0].tools if each.name == "finish"]
    assert finish.schema["properties"]["outcome"]["enum"] == ["approved", "changes-requested"]
    assert "outcome" in finish.schema["required"]
    assert all(each.startswith("Error: finish was not called: outcome: ") for each in answers(asked[-1]))
    (own,) = [each for each in model.asked[0].tools if each.name == "finish"]
    assert "outcome" not in own.schema["required"]
