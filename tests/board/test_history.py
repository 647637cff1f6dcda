"""What the board tells of earlier attempts, for whoever wants to judge the next."""

from __future__ import annotations

from dugnad.board import Board
from dugnad.types import Amount, Done, NewTurn
from tests.board.crew import crew, meddle


async def test_a_lost_attempt_took_until_its_last_turn_and_not_until_somebody_looked(board: Board, url: str) -> None:
    """A laptop that was closed over night has not worked over night."""
    await board.put("with a turn", priority=1)
    await board.put("without one")
    team = await crew(board, "alice", "bob")
    claim = await team.must_claim("alice")
    await team.must_claim("bob")
    await board.record(claim, NewTurn(number=1, kind="reply", body="{}", used=Amount(tokens=5)))
    await meddle(url, "UPDATE attempts SET claimed_at = claimed_at - $1", 30_000_000)
    await meddle(url, "UPDATE turns SET at = (SELECT min(claimed_at) FROM attempts) + $1", 20_000)
    await board.stop_host(team.host)
    await board.take_back()
    lost, untouched = await board.past_attempts()
    assert (lost.ended_as, lost.replies) == ("lost", 1)
    assert 19 < lost.seconds <= 20
    assert untouched.seconds == 0


async def test_the_verdict_that_is_kept_at_the_end_is_no_work(board: Board, url: str) -> None:
    """Between the last step of the work and the verdict are the check and the merge, which a hand-off costs."""
    await board.put("with a verdict")
    team = await crew(board, "alice")
    claim = await team.must_claim("alice")
    await board.record(claim, NewTurn(number=1, kind="reply", body="{}", used=Amount(tokens=5)))
    verdict = '{"place":0,"text":"Done.","verdict":true,"last":true}'
    await board.record(claim, NewTurn(number=2, kind="tool", body=verdict))
    await board.settle(claim, Done("built"))
    await meddle(url, "UPDATE turns SET at = (SELECT min(claimed_at) FROM attempts) + $1 * number", 20_000)
    await meddle(url, "UPDATE attempts SET ended_at = claimed_at + $1", 41_000)
    (past,) = await board.past_attempts()
    assert past.after_ms == 21_000
