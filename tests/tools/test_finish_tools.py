"""Finishing and claiming tools, through the real loop."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.models.scripted import Step
from dugnad.settings import Limits
from dugnad.types import Budget, Done, Failed, Released
from tests.agent.stage_agent import END, TITLE, call, calls, last_results, set_stage, told


async def test_finish_ends_the_task_with_its_result_and_outcome(board: Board) -> None:
    stage = await set_stage(board, [call("finish", result="it works", outcome="approved")])
    assert await stage.run() == Done("it works", "approved")
    found = await board.find(1)
    assert (found.state, found.result, found.outcome) == ("done", "it works", "approved")


@pytest.mark.parametrize("outcome", ["done", "failed", "skipped", "ended", "two words", "", "x" * 41, "ünlaut", "x\0"])
async def test_an_outcome_that_cannot_be_one_is_told_and_the_work_goes_on(board: Board, outcome: str) -> None:
    stage = await set_stage(board, [call("finish", result="r", outcome=outcome), END])
    assert await stage.run() == Done("built")
    (text,) = last_results(stage.model)
    assert text.startswith("Error: ")


@pytest.mark.parametrize("result", ["x" * (256 * 1024 + 1), "a\0b"], ids=["too long", "NUL"])
async def test_a_result_the_board_cannot_keep_is_told_and_the_work_goes_on(board: Board, result: str) -> None:
    stage = await set_stage(board, [call("finish", result=result), END])
    assert await stage.run() == Done("built")
    (text,) = last_results(stage.model)
    assert text.startswith("Error: The result ")


async def test_what_comes_after_finish_in_the_same_reply_is_not_done(board: Board) -> None:
    stage = await set_stage(
        board, [calls(("finish", {"result": "r"}), ("note", {"title": "t", "text": "x"}), ("give_up", {"reason": "y"}))]
    )
    assert await stage.run() == Done("r")
    assert not await board.search_notes()
    assert len(stage.model.asked) == 1


async def test_what_comes_before_finish_in_the_same_reply_is_done(board: Board) -> None:
    stage = await set_stage(board, [calls(("note", {"title": "t", "text": "x"}), ("finish", {"result": "r"}))])
    assert await stage.run() == Done("r")
    assert [note.title for note in await board.search_notes()] == ["t"]


async def test_a_finished_task_stays_finished_when_the_process_dies_before_it_is_settled(board: Board) -> None:
    stage = await set_stage(board, [calls(("finish", {"result": "r"}), ("note", {"title": "t", "text": "x"}))])
    assert await stage.agent.work(await stage.begin()) == Done("r")
    await stage.lose()
    assert await stage.go_on(await stage.claim_when_due()) == Done("r")
    assert len(stage.model.asked) == 1
    assert not await board.search_notes()


async def test_give_up_fails_the_task_for_good_and_leaves_a_word(board: Board) -> None:
    stage = await set_stage(board, [Step(say="No way.", calls=(("give_up", {"reason": "cannot be done"}),))])
    assert await stage.run() == Failed("cannot be done")
    found = await board.find(1)
    assert (found.state, found.reason) == ("failed", "cannot be done")
    assert [attempt.handover for attempt in await board.attempts(1)] == ["No way."]


async def test_giving_up_without_a_reason_says_so(board: Board) -> None:
    stage = await set_stage(board, [call("give_up", reason="")])
    assert await stage.run() == Failed("given up without a reason")


async def test_a_released_task_can_be_taken_at_once_or_later(board: Board) -> None:
    stage = await set_stage(board, [call("release", reason="not mine", delay_minutes=2)])
    assert await stage.run() == Released("not mine", 120.0)
    assert (await board.find(1)).state == "scheduled"
    stage.model._script = {TITLE: [call("release", reason="not mine", delay_minutes=-2)]}
    assert await stage.run() == Released("not mine", 0.0)
    assert (await board.find(2)).state == "ready"


async def test_the_next_attempt_is_shown_why_the_last_one_ended_and_what_it_left(board: Board) -> None:
    first = Step(
        say="Halfway.", calls=(("todo", {"items": ["[x] a", "[ ] b"]}), ("release", {"reason": "someone better"}))
    )
    stage = await set_stage(board, [first])
    await stage.run()
    stage.model._script = {TITLE: [END]}
    assert await stage.go_on() == Done("built")
    packet = told(stage.model.asked[-1])
    assert "Attempt 1, by alice, ended as released" in packet
    assert "someone better" in packet
    assert "> Halfway.\n> [x] a\n> [ ] b" in packet


async def test_idle_gives_the_task_back_to_the_others(board: Board) -> None:
    stage = await set_stage(board, [call("idle")])
    outcome = await stage.run()
    assert isinstance(outcome, Released)
    assert (await board.find(1)).state == "scheduled"


async def test_a_task_claimed_by_name_is_worked_after_this_one(board: Board) -> None:
    other = await board.put("Other", priority=-5)
    third = await board.put("Third", priority=-1)
    stage = await set_stage(board, [call("claim_task", task=other.id), END])
    claim = await stage.begin()
    await stage.go_on(claim)
    assert last_results(stage.model) == ["You hold #1 'Other' now. You work it after this one."]
    assert [held.task.id for held in stage.agent.claimed] == [other.id]
    worked = await stage.drain()
    assert [claim.task.id for claim, _ in worked] == [other.id, third.id]
    assert not stage.agent.claimed


async def test_claiming_by_name_is_under_the_same_rules(opener) -> None:
    board = await opener(limits=Limits(backoff_seconds=0.01))
    first = await board.put("First", role="x")
    blocked = await board.put("Blocked", needs=(first.id,))
    theirs = await board.put("Theirs", assignee="bob")
    spent = await board.put("Spent", budget=Budget(tasks=0))
    wanted = [first.id, blocked.id, theirs.id, spent.id, 5]
    stage = await set_stage(board, [calls(*(("claim_task", {"task": task}) for task in wanted)), END])
    await stage.run(priority=9)
    texts = last_results(stage.model)
    assert [text.startswith("Error: ") for text in texts] == [True] * 5
    assert "is for x, and alice may not claim it" in texts[0]
    assert [(await board.find(task)).state for task in wanted] == ["ready", "blocked", "ready", "ready", "done"]
    assert not stage.agent.claimed


async def test_a_task_claimed_by_name_is_not_forgotten_when_this_one_is_put_down(board: Board) -> None:
    other = await board.put("Other", priority=-5)
    stage = await set_stage(board, [calls(("claim_task", {"task": other.id}), ("ask_human", {"question": "Ok?"})), END])
    await stage.run()
    assert [held.task.id for held in stage.agent.claimed] == [other.id]


async def test_work_goes_on_after_finish_when_it_is_told_something_new(board: Board) -> None:
    stage = await set_stage(board, [call("finish", result="first"), call("finish", result="second")])
    claim = await stage.begin()
    assert await stage.agent.work(claim) == Done("first")
    assert await stage.go_on(claim, told="The check is red.") == Done("second")
    assert last_results(stage.model) == ["The check is red."]
    assert "The check is red." not in told(stage.model.asked[-1])


async def test_work_goes_on_after_plain_text_when_it_is_told_something_new(board: Board) -> None:
    stage = await set_stage(board, [Step(say="first"), Step(say="second")])
    claim = await stage.begin()
    assert await stage.agent.work(claim) == Done("first")
    assert await stage.go_on(claim, told="The check is red.") == Done("second")
    assert "The check is red." in told(stage.model.asked[-1])


@pytest.mark.parametrize(("minutes", "seconds"), [(0, 0), (2, 120), (-1, 0)])
async def test_a_task_can_be_given_back_for_later(board: Board, minutes: float, seconds: float) -> None:
    stage = await set_stage(board, [call("give_up", reason="not now", later_minutes=minutes)])
    assert await stage.run() == Released("not now", seconds)
