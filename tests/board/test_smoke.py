from crew import crew

from dugnad.board import Board
from dugnad.types import Done


async def test_a_task_is_put_claimed_and_done(board: Board) -> None:
    first = await board.put("first")
    second = await board.put("second", needs=[first.id])
    team = await crew(board)
    claim = await team.must_claim()
    assert claim.task.id == first.id
    assert await team.claim() is None
    assert await board.settle(claim, Done("ok")) == "done"
    assert (await team.must_claim()).task.id == second.id
