"""What the board tells of earlier attempts, for whoever wants to judge the next."""

from __future__ import annotations

from dugnad.board import Board
from dugnad.types import Amount, NewTurn
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
