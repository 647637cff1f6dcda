"""The status bar."""

from __future__ import annotations

import re

from dugnad.board import Board
from dugnad.chat.status import BoardStatus, bar, look
from dugnad.types import Budget, Done
from tests.cli.chat_stage import play_lead


async def test_an_empty_board_says_so(board: Board) -> None:
    assert bar(await look(board), 80) == "no tasks | nobody works"


async def test_the_bar_says_what_goes_on(board: Board) -> None:
    lead = await play_lead(board, "alice", "bob")
    goal = await board.put("Build a slug library", budget=Budget(tasks=20, dollars=2.0))
    await board.put("Old and open", needs=[goal.id])
    done = await lead.claim("alice", goal.id)
    await board.settle(done, Done())
    for title in ("Write slugify", "Write its tests"):
        await board.put(title, parent=goal.id, role="coder")
    await lead.claim("alice", goal.id + 2)
    said = bar(await look(board), 200)
    assert (
        said == "2 ready, 1 claimed, 1 done | alice on #3 Write slugify | #1: 2 of 20 tasks, $0.00 of $2.00, 0 tokens"
    )


async def test_what_waits_for_the_human_comes_first(board: Board) -> None:
    lead = await play_lead(board, "alice", "bob")
    await lead.asks("alice", "Pick a licence", "Which one?")
    await lead.asks("bob", "Move the data", "Copy, then switch.", plan=True)
    said = bar(await look(board), 200)
    assert said.startswith("1 question for you: /answer, 1 plan for you: /approve or /reject | 2 waiting | nobody")


async def test_a_question_to_a_lead_that_is_gone_waits_for_the_human(board: Board) -> None:
    await play_lead(board, "alice")
    await board.tell("alice", "lead", "May I?", kind="question")
    assert not (await look(board)).requests
    await board.stop_teammate("lead")
    assert [request.text for request in (await look(board)).requests] == ["May I?"]


async def test_a_budget_that_is_used_up_is_named(board: Board) -> None:
    lead = await play_lead(board, "alice")
    goal = await board.put("One run only", budget=Budget(tasks=1))
    await board.put("A second", parent=goal.id)
    await board.settle(await lead.claim("alice", goal.id), Done())
    assert await board.claim("alice", lead.host) is None
    assert bar(await look(board), 200).endswith("#1: 1 of 1 task, 0 tokens (held: no tasks left)")


async def test_the_budget_is_that_of_the_goal_not_of_an_answer(board: Board) -> None:
    lead = await play_lead(board)
    await board.put("The goal", budget=Budget(tasks=20))
    put = await board.put("Answer human", assignee="lead", kind="human_message", budget=Budget(tasks=3))
    await lead.claim("lead", put.id)
    assert bar(await look(board), 200).endswith("lead on #2 Answer human | #1: 0 of 20 tasks, 0 tokens")


async def test_a_long_pause_of_a_provider_key_is_counted_down(board: Board) -> None:
    await board.cool_down("openai:1a2b3c4d", seconds=30, reason="busy", by="board")
    assert bar(await look(board), 200) == "no tasks | nobody works"
    await board.cool_down("anthropic:5e6f7a8b", seconds=3_000, reason="No more.", by="board")
    said = bar(await look(board), 200)
    expected = r"anthropic:5e6f7a8b goes on in (50m|49m \d+s): No more\. \| no tasks \| nobody works"
    assert re.fullmatch(expected, said), said


async def test_a_teammate_that_failed_is_named(board: Board) -> None:
    await play_lead(board, "alice")
    await board.fail_teammate("alice", by="alice", reason="KeyError")
    assert "alice failed" in bar(await look(board), 200)


async def test_a_narrow_bar_gives_up_titles_first(board: Board) -> None:
    lead = await play_lead(board, "alice")
    goal = await board.put("A title that is rather long for a bar", budget=Budget(tasks=20))
    await lead.claim("alice", goal.id)
    standing = await look(board)
    assert bar(standing, 60) == "1 claimed | alice on #1 | #1: 1 of 20 tasks, 0 tokens"
    assert len(bar(standing, 20)) == 20


async def test_a_title_cannot_draw_on_the_terminal(board: Board) -> None:
    lead = await play_lead(board, "alice")
    await lead.claim("alice", (await board.put("\x1b[2J gone")).id)
    assert "\x1b" not in bar(await look(board), 200)


def test_trouble_takes_the_whole_bar() -> None:
    assert bar(BoardStatus(trouble="gone."), 80) == "The board is in trouble: gone."
