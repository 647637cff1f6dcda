"""The time that checks take is the goal's: counted, bounded by its cap, and never lost to a check that was cut off."""

from __future__ import annotations

from pathlib import Path

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.types import Budget
from tests.team.stage_team import Paused, hosting, until, until_ended, until_state, within
from tests.team.stage_trees import finish, worktrees, write
from tests.workspace.repository import git, new_repository

WORK = {"Write a": [write("a.py", "a = 1\n"), finish("a is 1.")]}


async def spent(board: Board, root: int) -> float:
    return (await board.budget(root)).spent.milliseconds / 1000


async def test_the_time_of_a_check_counts_with_a_cap_and_without(board: Board, tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    async with worktrees(board, root) as places, hosting(board, ScriptedModel(WORK), workspaces=places):
        for budget in (None, Budget(seconds=600)):
            goal = await board.put("Write a", check="sleep 0.7", budget=budget)
            (done,) = await until_ended(board, goal)
            assert done.state == "done"
            assert await spent(board, goal.id) >= 0.7
            assert (await board.budget(goal.id)).reserved.milliseconds == 0


async def test_the_check_of_a_merge_counts_too(board: Board, tmp_path: Path) -> None:
    """The second of two has to be checked again on what the first one merged."""
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    model = Paused(WORK, where=lambda request: request.turn == 2)
    async with worktrees(board, root, "sleep 0.5") as places, hosting(board, model, workspaces=places):
        goal = await board.put("Write a")
        await within(model.reached.wait())
        other = git(root, "commit-tree", "-p", "dugnad/main", "-m", "Other", await _tree_with_another_file(root))
        git(root, "update-ref", "refs/heads/dugnad/main", other)
        model.go.set()
        (done,) = await until_ended(board, goal)
        assert done.state == "done"
        assert await spent(board, goal.id) >= 1.0


async def _tree_with_another_file(root: Path) -> str:
    (root / "other").write_text("other\n")
    git(root, "add", "other")
    tree = git(root, "write-tree")
    git(root, "reset", "--quiet", "--hard")
    return tree


async def test_a_check_that_does_not_fit_under_the_cap_waits_for_it_and_is_no_red_one(
    board: Board, tmp_path: Path
) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    model = ScriptedModel(WORK)
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        goal = await board.put("Write a", check="sleep 4", budget=Budget(seconds=2))
        waiting = await until_state(board, goal, "waiting")
        account = await board.budget(goal.id)
        assert (waiting.waiting_for, account.held) == ("budget", "seconds")
        assert account.spent.milliseconds <= 2_000
        await board.set_budget(goal.id, Budget(seconds=600))
        (done,) = await until_ended(board, goal)
    assert done.state == "done"
    assert len(model.asked) == 2  # Nobody was told that anything was red.


async def test_a_check_that_is_cut_off_counts_for_as_long_as_it_ran(board: Board, tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    async with worktrees(board, root) as places:
        async with hosting(board, ScriptedModel(WORK), workspaces=places, limits={"stop_seconds": 0.1}) as host:
            goal = await board.put("Write a", check="sleep 60", budget=Budget(seconds=900))

            async def checks() -> bool:
                return (await board.budget(goal.id)).reserved.milliseconds > 600_000

            await until(board, checks)
            assert host.workers
        account = await board.budget(goal.id)
        assert account.reserved.milliseconds == 0
        assert account.spent.milliseconds < 60_000
        assert (await board.find(goal.id)).state == "ready"
