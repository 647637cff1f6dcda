"""Replies as models give them at times, and where an attempt ends without one of the finishing tools."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.models.scripted import Step
from dugnad.settings import AgentLimits
from dugnad.types import Done, Failed, Waiting
from tests.agent.stage_agent import END, TITLE, call, calls, last_results, set_stage, told

EMPTY, CUT, MALFORMED, REFUSAL = (Step(odd=odd) for odd in ("empty", "cut", "malformed", "refusal"))


async def test_plain_text_is_the_result(board: Board) -> None:
    stage = await set_stage(board, [Step(say="  All is well.\n")])
    assert await stage.run() == Done("All is well.")
    assert (await board.find(1)).result == "All is well."


async def test_a_result_in_plain_text_is_kept_as_a_database_can(board: Board) -> None:
    stage = await set_stage(board, [Step(say="a\0b" + "x" * 60_000)])
    outcome = await stage.run()
    assert isinstance(outcome, Done)
    assert outcome.result.startswith("a\ufffdbxxx")
    assert len(outcome.result) < 50_200


async def test_a_reply_with_half_of_a_surrogate_pair_is_kept(board: Board) -> None:
    stage = await set_stage(board, [Step(say="a\ud800b")])
    assert isinstance(await stage.run(), Done)


async def test_an_empty_reply_is_answered_with_what_to_do(board: Board) -> None:
    stage = await set_stage(board, [EMPTY, Step(say=" \n"), END])
    assert await stage.run() == Done("built")
    assert ["Your reply was empty" in told(request) for request in stage.model.asked] == [False, True, True]


@pytest.mark.parametrize("cut", [CUT, Step(say="A whole sentence", stop="length")])
async def test_a_reply_that_was_cut_off_is_not_a_result(board: Board, cut: Step) -> None:
    stage = await set_stage(board, [cut, END], limits=AgentLimits(output_tokens_max=4_096))
    assert await stage.run() == Done("built")
    assert "Your reply was cut off: a reply can have at most 4,096 tokens." in told(stage.model.asked[1])


async def test_calls_of_a_reply_that_was_cut_off_are_run(board: Board) -> None:
    cut = Step(calls=(("note", {"title": "t", "text": "x"}), ("note", '{"title": "u", "te')), stop="length")
    stage = await set_stage(board, [cut, END])
    assert await stage.run() == Done("built")
    first, second = last_results(stage.model)
    assert first == "Note 1 is written."
    assert second.startswith("Error: note was not called: the arguments: ")


async def test_a_malformed_call_is_told(board: Board) -> None:
    stage = await set_stage(board, [MALFORMED, END])
    assert await stage.run() == Done("built")
    assert last_results(stage.model)[0].startswith("Error: finish was not called: ")


async def test_a_refusal_fails_the_attempt_and_another_one_is_made(board: Board) -> None:
    stage = await set_stage(board, [REFUSAL])
    assert await stage.run() == Failed("the model refused: I can't help with that.", retry=True)
    assert (await board.find(1)).state == "scheduled"
    assert [attempt.handover for attempt in await board.attempts(1)] == ["I can't help with that."]


async def test_a_refusal_without_a_word_says_so(board: Board) -> None:
    stage = await set_stage(board, [Step(stop="refused")])
    assert await stage.run() == Failed("the model refused: without a reason", retry=True)


@pytest.mark.parametrize("odd", [EMPTY, CUT, MALFORMED, calls(("fly", {})), calls(("todo", "[]"))])
async def test_too_many_odd_replies_in_a_row_fail_the_attempt(board: Board, odd: Step) -> None:
    stage = await set_stage(board, [odd] * 9)
    outcome = await stage.run()
    assert outcome == Failed("4 replies in a row were empty, cut off or malformed", retry=True)
    assert len(stage.model.asked) == 4


async def test_one_good_reply_makes_up_for_odd_ones_before_it(board: Board) -> None:
    odd = [EMPTY, MALFORMED, CUT]
    stage = await set_stage(board, [*odd, call("list_tasks"), *odd, call("list_tasks"), *odd, END])
    assert await stage.run() == Done("built")


async def test_an_error_of_a_tool_is_not_an_odd_reply(board: Board) -> None:
    stage = await set_stage(board, [*[call("show_task", task=99)] * 6, END])
    assert await stage.run() == Done("built")


async def test_several_wrong_calls_in_one_reply_are_one_odd_reply(board: Board) -> None:
    stage = await set_stage(board, [calls(*[("fly", {})] * 4), END])
    assert await stage.run() == Done("built")


async def test_odd_replies_are_still_counted_after_a_crash(board: Board) -> None:
    stage = await set_stage(board, [EMPTY] * 3 + [EMPTY])
    stage.agent.limits = AgentLimits(odd_replies_max=99, turns_max=3)
    claim = await stage.begin()
    assert isinstance(await stage.agent.work(claim), Waiting)
    await stage.lose()
    stage.agent.limits = AgentLimits()
    outcome = await stage.go_on(await stage.claim_when_due())
    assert outcome == Failed("4 replies in a row were empty, cut off or malformed", retry=True)
    assert len(stage.model.asked) == 4


async def test_after_so_many_turns_a_person_is_asked_and_the_answer_lets_it_go_on(board: Board) -> None:
    look = call("list_tasks")
    stage = await set_stage(board, [look, look, look, END], limits=AgentLimits(turns_max=3))
    outcome = await stage.run()
    assert isinstance(outcome, Waiting)
    assert outcome.on == "human"
    assert "3 turns were taken" in outcome.question
    assert len(stage.model.asked) == 3
    (asked,) = await board.requests()
    await board.reply(str(asked.request), "human", "Hurry up.")
    assert await stage.go_on() == Done("built")
    last = told(stage.model.asked[-1])
    assert "The human answered:\n> Hurry up." in last
    assert "turn 1 of 3" in last
    assert len(stage.model.asked[-1].messages) == 10


async def test_the_advice_reaches_whoever_goes_on_with_the_task(board: Board) -> None:
    look = call("list_tasks")
    stage = await set_stage(board, [look, END], limits=AgentLimits(turns_max=1))
    await stage.run()
    (asked,) = await board.requests()
    await board.reply(str(asked.request), "human", "Hurry up.")
    other = await set_stage(board, [look, END], name="bob", host=stage.host)
    await other.go_on()
    assert "Hurry up." in told(other.model.asked[-1])


async def test_finishing_in_the_last_turn_is_finishing(board: Board) -> None:
    stage = await set_stage(board, [call("list_tasks"), END], limits=AgentLimits(turns_max=2))
    assert await stage.run() == Done("built")


async def test_what_the_runtime_says_stands_behind_the_results_it_is_about(board: Board) -> None:
    stage = await set_stage(board, [call("list_tasks"), END], limits=AgentLimits(turns_max=4))
    await stage.run()
    kinds = [type(message).__name__ for message in stage.model.asked[-1].messages]
    assert kinds == ["Said", "Reply", "ToolResult", "Said"]
    assert stage.model.asked[-1].title == TITLE


async def test_where_there_is_nothing_to_say_the_results_end_the_request(board: Board) -> None:
    stage = await set_stage(board, [call("list_tasks"), END])
    await stage.run()
    kinds = [type(message).__name__ for message in stage.model.asked[-1].messages]
    assert kinds == ["Said", "Reply", "ToolResult"]
