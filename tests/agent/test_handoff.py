"""What a hand-off costs, and who is told: a mind that may be about to split a goal."""

from __future__ import annotations

from dugnad.agent.handoff import Handoff, handoff
from dugnad.board import Board
from dugnad.types import Amount
from tests.agent.stage_agent import END, TITLE, call, set_stage, told
from tests.agent.test_packet import packet_of
from tests.team.test_compared import attempt

ASSUMED = "costs about 20,000 tokens and 60 seconds (assumed, since this board has seen too little)"


def test_without_experience_the_stated_cost_is_assumed() -> None:
    assert handoff([]) == handoff([attempt("alice", 0, 60)] * 2) == Handoff(tokens=20_000, seconds=60.0, tasks=0)


def test_a_hand_off_is_a_first_reply_the_end_after_the_last_turn_and_a_share_of_the_reviews() -> None:
    review = attempt("carol", 0, 30, kind="review", used=Amount(tokens=800, milliseconds=30_000))
    past = [attempt("bob", 0, 60)] * 4 + [attempt("bob", 0, 60, fresh=False), review]
    assert handoff(past) == Handoff(tokens=1_000 + 800 // 4, seconds=10 + 5 + 30 / 4, tasks=4)


async def test_the_packet_of_a_goal_says_what_a_hand_off_costs_and_that_of_a_part_does_not(board: Board) -> None:
    assert ASSUMED in await packet_of(board)
    stage = await set_stage(board, [call("schedule_followup", title="Part"), END], others={"Part": [END]})
    await board.put(TITLE)
    await stage.drain()
    packets = [told(each) for each in stage.model.asked]
    assert [ASSUMED in each for each in packets if "Your task is #2: Build it" in each][:1] == [True]
    assert [ASSUMED in each for each in packets if "Your task is #3: Part" in each] == [False]


async def test_the_packet_says_what_was_seen_on_this_board(board: Board) -> None:
    stage = await set_stage(board, [END] * 9)
    for _ in range(3):
        await stage.run()
    assert " seconds on this board (seen in 3 tasks)" in await packet_of(board, title="Last")
