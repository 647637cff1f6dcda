"""Making room: what gives way, when, and that nothing is lost from the transcript."""

from __future__ import annotations

import orjson
import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import ToolResult, Usage
from dugnad.models.scripted import Step
from dugnad.settings import AgentLimits
from dugnad.tools.tool import tool
from dugnad.types import Done
from tests.agent.stage_agent import END, TITLE, all_told, call, calls, of_task, set_stage, told, used

SMALL = 10_000 + 8_192  # A window with 10,000 tokens for the conversation.
LIMITS = AgentLimits(retry_seconds=0.01, keep_share=0.01)


@tool
def look(length: int = 1_000) -> str:
    """Look.

    Args:
        length: How much to see.
    """
    return "seen " * (length // 5)


def small(steps: list[Step], summaries: list[Step] | None = None) -> ScriptedModel:
    return ScriptedModel(
        {TITLE: steps, "(summary)": summaries or [Step(say=f"Summary {number}.") for number in range(40)]},
        window_tokens=SMALL,
    )


LONG = call("look", length=12_000)


async def test_above_the_high_mark_old_results_are_shortened_and_recent_ones_stay(board: Board) -> None:
    model = small([*[used(1_000, LONG)] * 6, used(8_600, LONG), END])
    stage = await set_stage(board, model=model, tools=[look], limits=LIMITS)
    assert await stage.run() == Done("built")
    assert len(of_task(model)) == len(model.asked)
    results = [message.text for message in model.asked[-1].messages if isinstance(message, ToolResult)]
    assert [text == look(12_000) for text in results] == [False] * 3 + [True] * 4
    assert all("[… 11,400 characters left out; read_output(output=" in text for text in results[:3])
    turns = await board.transcript(1, 1)
    assert [orjson.loads(turn.body)["text"] for turn in turns if turn.kind == "tool"][:-1] == [look(12_000)] * 7


async def test_a_result_that_was_shortened_to_make_room_can_be_read_again(board: Board) -> None:
    model = small([*[used(1_000, LONG)] * 6, used(8_600, LONG), END])
    stage = await set_stage(board, model=model, tools=[look], limits=LIMITS)
    await stage.run()
    assert "read_output" in all_told(model.asked[-1])


async def test_below_the_high_mark_nothing_gives_way(board: Board) -> None:
    model = small([*[used(1_000, call("look"))] * 6, used(8_100, call("look")), END])
    stage = await set_stage(board, model=model, tools=[look], limits=LIMITS)
    await stage.run()
    assert all(turn.kind != "summary" for turn in await board.transcript(1, 1))


async def test_where_shortening_is_not_enough_the_older_part_becomes_a_summary(board: Board) -> None:
    model = small([*[used(1_000, call("look", length=100))] * 6, used(8_600, call("look", length=600)), END])
    stage = await set_stage(board, model=model, tools=[look], limits=LIMITS)
    assert await stage.run(body="The goal in full.") == Done("built")
    (summary,) = [request for request in model.asked if request.title == "(summary)"]
    before = model.asked[6]
    assert (summary.system, summary.tools) == (before.system, before.tools)
    assert summary.messages[: len(before.messages)] == before.messages, "the provider has it in its cache"
    assert "Only the first message and the last turns stay" in told(summary)
    assert "they begin like this:\n> [said]" in told(summary)
    assert (summary.teammate, summary.task) == ("alice", 1)
    last = model.asked[-1]
    assert last.messages[0].text == model.asked[0].messages[0].text
    assert "The goal in full." in last.messages[0].text
    assert last.messages[1].text.startswith("What happened between the first message and the turns below")
    assert "Summary 6." in last.messages[1].text
    assert len(last.messages) == 5
    assert told(last).startswith("[turn 8 of 50] [this conversation: ")
    turns = await board.transcript(1, 1)
    assert sum(turn.kind == "reply" for turn in turns) == 8
    covers = [turn.covers for turn in turns if turn.kind == "summary" and turn.covers]
    assert covers == [(1, turns[-3].number - 1)]


@pytest.mark.parametrize("fault", ["overflow", "empty"])
async def test_when_no_summary_can_be_had_a_plain_one_is_made(board: Board, fault: str) -> None:
    model = small(
        [*[used(1_000, call("look", length=100))] * 6, used(8_600, call("look", length=600)), END],
        [Step(faults=("overflow",) * 9)] * 20 if fault == "overflow" else [Step(odd="empty")] * 20,
    )
    stage = await set_stage(board, model=model, tools=[look], limits=LIMITS)
    assert await stage.run() == Done("built")
    summary = model.asked[-1].messages[1].text
    assert '[called look] {"length": 100}' in summary
    assert "[look gave] seen seen" in summary


async def test_a_plain_summary_keeps_what_an_earlier_summary_said(board: Board) -> None:
    steps = [*[used(1_000, call("look"))] * 2, call("compact"), *[used(1_000, call("look"))] * 3, call("compact"), END]
    model = small(steps, [Step(say="The key is 4711.")] * 3 + [Step(odd="empty")] * 30)
    stage = await set_stage(board, model=model, tools=[look], limits=AgentLimits(keep_share=0.0001))
    assert await stage.run() == Done("built")
    assert "The key is 4711." in model.asked[4].messages[1].text
    assert "The key is 4711." in model.asked[-1].messages[1].text


async def test_a_plain_summary_keeps_what_the_human_said(board: Board) -> None:
    steps = [*[used(1_000, call("look"))] * 2, call("compact"), END]
    model = small(steps, [Step(odd="empty")] * 30)
    stage = await set_stage(board, model=model, tools=[look], limits=AgentLimits(keep_share=0.0001))
    await board.tell("human", "alice", "Never touch main.")
    assert await stage.run() == Done("built")
    assert "Never touch main." in all_told(model.asked[-1])


async def test_a_second_summary_is_made_of_the_first_and_what_came_after(board: Board) -> None:
    steps = [*[used(1_000, call("look"))] * 3, call("compact"), *[used(1_000, call("look"))] * 3, call("compact"), END]
    model = small(steps)
    stage = await set_stage(board, model=model, tools=[look], limits=AgentLimits(keep_share=0.0001))
    await stage.run()
    first, second = [request for request in model.asked if request.title == "(summary)"]
    assert "Summary 3." in second.messages[1].text
    assert "Summary 3." not in all_told(first)
    assert "Summary 7." in model.asked[-1].messages[1].text
    assert all_told(model.asked[-1]).count("Your task is #1") == 1


async def test_a_provider_that_counts_nothing_does_not_run_into_its_window(board: Board) -> None:
    model = small([Step(calls=(("look", {"length": 9_000}),), usage=Usage())] * 12 + [END])
    stage = await set_stage(board, model=model, tools=[look], limits=LIMITS)
    await stage.run()
    assert any(turn.kind == "summary" for turn in await board.transcript(1, 1))


async def test_a_summary_is_recorded_with_its_cost_and_found_again_after_a_crash(board: Board) -> None:
    model = small([*[used(1_000, call("look"))] * 4, calls(("compact", {})), call("ask_human", question="Ok?"), END])
    stage = await set_stage(board, model=model, tools=[look], limits=AgentLimits(keep_share=0.0001))
    await stage.run()
    (asked,) = await board.requests()
    await board.reply(str(asked.request), "human", "ok")
    await stage.go_on()
    assert "Summary 4." in model.asked[-1].messages[1].text
    (turn,) = [turn for turn in await board.transcript(1, 1) if turn.kind == "summary"]
    assert turn.used.tokens > 0
    assert sum(request.title == "(summary)" for request in model.asked) == 1
    assert "[turn 1 of 50]" in told(model.asked[-1])


async def test_what_does_not_fit_any_more_is_summarised_in_a_request_of_its_own(board: Board) -> None:
    """Its model is told what stays, so that it writes only what is lost."""
    model = small([*[used(1_000, call("look", length=100))] * 6, used(10_100, call("look", length=600)), END])
    stage = await set_stage(board, model=model, tools=[look], limits=LIMITS)
    assert await stage.run(body="The goal in full.") == Done("built")
    (summary,) = [request for request in model.asked if request.title == "(summary)"]
    assert "keeps the first message and the last turns word for word" in summary.system
    (said,) = (each.text for each in summary.messages)
    assert "which stays:\nYou are alice." in said
    assert said.count("The goal in full.") == 1
    assert "which stay, begin like this:\n> [said]" in said
    assert (summary.teammate, summary.task, summary.tools) == ("alice", 1, ())
    assert "Summary 6." in model.asked[-1].messages[1].text


async def test_after_room_was_made_nothing_changes_until_the_high_mark_is_passed_again(board: Board) -> None:
    model = small([*[used(1_000, LONG)] * 6, used(8_600, LONG), *[used(8_000, call("look", length=100))] * 5, END])
    stage = await set_stage(board, model=model, tools=[look], limits=LIMITS)
    assert await stage.run() == Done("built")
    assert sum(turn.kind == "summary" for turn in await board.transcript(1, 1)) == 1
