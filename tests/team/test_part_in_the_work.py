"""Nobody approves work that they had a part in, also when somebody else finished it."""

from __future__ import annotations

from pathlib import Path

from dugnad.board import Board
from dugnad.team.growth import Joins, joining
from dugnad.tools.finish_tools import APPROVED
from tests.board.crew import crew
from tests.conftest import Opener
from tests.team.stage_team import Paused, hosting, kill, short_lease, until, until_ended, within
from tests.team.stage_trees import finish, worktrees, write
from tests.team.test_growth import member, names
from tests.web.test_why import why
from tests.workspace.repository import new_repository


async def test_who_began_work_that_another_finished_does_not_review_it(opener: Opener, tmp_path: Path) -> None:
    board = await opener(**short_lease(1.0))
    root = new_repository(tmp_path / "p")
    await board.spawn("alice", roles=["coder", "reviewer"])
    script = {"Write a": [write("a", "1\n"), finish("One.")], "*": [finish("Good.", outcome=APPROVED)]}
    model = Paused(script, where=lambda request: request.turn == 2)
    async with worktrees(board, root) as places:
        async with hosting(board, model, workspaces=places, knows_neighbours=False) as host:
            task = await board.put("Write a", role="coder", review="reviewer")
            await within(model.reached.wait())
            await kill(host)
        model.go.set()
        await board.stop_teammate("alice")
        await board.spawn("bob", roles=["coder", "reviewer"])
        async with hosting(board, model, workspaces=places):

            async def is_asked() -> bool:
                return any(each.reviews == task.id for each in await board.list_tasks())

            await until(board, is_asked)
            await board.spawn("alice", roles=["coder", "reviewer"])
            await board.spawn("carol", roles=["reviewer"])
            (done,) = await until_ended(board, task)
        (review,) = [each for each in await board.list_tasks() if each.reviews == task.id]
    assert (done.state, review.not_for, review.teammate) == ("done", "alice,bob", "carol")


def test_work_that_is_not_for_several_calls_for_one_with_another_name() -> None:
    bob = member("bob", "idle", "reviewer")
    assert joining({"reviewer!alice,bob": 1}, [bob], host="here", agents_max=3) == [Joins("carol", ("reviewer",))]
    assert names({"reviewer!alice,bob": 1}, bob, member("zoe", "idle", "reviewer")) == []


async def test_a_task_that_is_not_for_all_who_are_there(board: Board) -> None:
    await crew(board, "alice", "bob", roles=["reviewer"])
    task = await board.put("Review", role="reviewer", not_for="alice,bob")
    assert await why(board, task.id) == (
        f"#{task.id} is ready, but it is not for alice and bob, the only teammates with the role reviewer; "
        "`dugnad spawn NAME --role reviewer` adds another."
    )
