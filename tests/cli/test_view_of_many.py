"""The live view on a board with many tasks: what is at work is seen, however much ended before."""

from __future__ import annotations

from dugnad.board import Board
from dugnad.cli.conduct import snapshot
from dugnad.team import RunPlan, Team
from dugnad.types import NewTask
from dugnad.view.live import picture
from tests.board.crew import crew
from tests.cli.test_view import drawn


async def test_what_is_at_work_is_seen_behind_many_tasks_that_ended(board: Board) -> None:
    alice = await crew(board)
    root = await board.put("old", body="cancelled with all that needs it")
    await board.put_many([NewTask(title=f"old {number}", needs=(root.id,)) for number in range(600)])
    await board.cancel(root.id, dependents=True)
    await board.put("at work")
    claim = await alice.must_claim()
    seen = await snapshot(Team(RunPlan(url=""), board=board), None, [], "", "")
    lines = drawn(picture(seen, width=100, height=20), 100)
    assert "1 claimed" in lines[0]
    assert "601 cancelled" in lines[0]
    assert any(f"#{claim.task.id}" in line and "at work" in line for line in lines)
    assert any("more" in line for line in lines)
