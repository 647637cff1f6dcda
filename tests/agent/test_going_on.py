"""Who goes on with what another began: whose words are whose, and what a person said stays known."""

from __future__ import annotations

from stage_agent import END, all_told, calls, last_results, set_stage, told

from dugnad.board import Board
from dugnad.types import HUMAN, Done, Failed


async def asked_and_answered(board: Board) -> None:
    """carol asks a person, and behind that has something to say to dave; then she leaves."""
    await board.spawn("dave")
    carol = await set_stage(
        board, [calls(("ask_human", {"question": "One or two?"}), ("send_message", {"to": "dave", "text": "Soon."}))],
        name="carol",
    )  # fmt: skip
    await carol.run()
    (asked,) = await board.requests(HUMAN)
    await board.reply(asked.request, HUMAN, "One.")
    await board.stop_teammate("carol")


async def test_what_one_asked_for_is_not_said_by_another_who_goes_on(board: Board) -> None:
    await asked_and_answered(board)
    alice = await set_stage(board, [END, END], name="alice")
    assert isinstance(await alice.go_on(), Done)
    assert await board.inbox("dave") == []
    answer, left = last_results(alice.model)
    assert answer.endswith("> One.")
    assert left.startswith("Interrupted: carol asked for this before you went on with the task.")
    assert "carol has worked on this task until here" in told(alice.model.asked[0])


async def test_what_a_person_answered_is_in_the_packet_of_the_next_try(board: Board) -> None:
    await asked_and_answered(board)
    alice = await set_stage(board, [END, END], name="alice")
    claim = await alice.claim()
    await alice.agent.work(claim)
    await board.settle(claim, Failed("it stayed red", retry=True))
    bob = await set_stage(board, [END], name="bob")
    await bob.agent.work(await bob.claim_when_due())
    said = all_told(bob.model.asked[0])
    assert "> One or two?\nThe human answered:\n> One." in said
