"""Work that comes due while nobody looks for it."""

from __future__ import annotations

from dugnad.models import ScriptedModel
from tests.conftest import Opener
from tests.team.stage_team import hosting, until, until_ended


async def test_work_that_comes_due_brings_somebody_to_it_whose_role_nobody_has(opener: Opener) -> None:
    board = await opener()
    async with hosting(board, ScriptedModel({}), agents=3):
        task = await board.put("Review it later", role="reviewer", delay_seconds=0.5)
        assert task.state == "scheduled"
        (ended,) = await until_ended(board, task)
    assert ended.state == "done"


async def test_what_came_due_counts_as_work_that_waits(opener: Opener) -> None:
    board = await opener()
    await board.put("Now", role="coder")
    await board.put("Later", role="coder", delay_seconds=600)
    assert await board.ready_work() == {"coder": 1}
    # A moment from now on the database's clock; its being put takes less.
    due = await board.put("Very soon", role="reviewer", delay_seconds=0.5)
    assert due.state == "scheduled"

    async def counted() -> bool:
        return (await board.ready_work()).get("reviewer") == 1

    await until(board, counted)
    assert (await board.find(due.id)).state == "scheduled"  # Nobody has claimed, so nobody has looked.
    assert await board.ready_work(most=1) == {"coder": 1, "reviewer": 1}
