"""`run_check` and `update_tree`: what a mind can do before it finishes, with real git and a real sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.team.workspaces.folders import folders
from tests.agent.stage_agent import call, calls
from tests.team.stage_team import Paused, hosting, until_ended, within
from tests.team.stage_trees import finish, shell, workshop, worktrees, write
from tests.team.test_ends import answers
from tests.workspace.repository import at, new_repository, subjects

CHECK = "grep -q 'a = 1' a.py && touch left-by-the-check"


async def test_run_check_says_what_finish_will_and_leaves_nothing(board: Board, tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    steps = [
        call("run_check"), write("a.py", "a = 1\n"), call("run_check"), shell("ls"), finish("a is 1."),
    ]  # fmt: skip
    model = ScriptedModel({"Write a": steps})
    async with (
        worktrees(board, root, "test -f README.md") as places,
        hosting(board, model, workspaces=places),
    ):
        (done,) = await until_ended(board, await board.put("Write a", check=CHECK))
    red, _, green, listed, *_ = answers(model.asked[-1])
    assert red.startswith(f"Red: `{CHECK}`\n[exit code 2]")
    assert green.startswith("Green: ")
    assert "test -f README.md" in green  # The project's own check is named, too.
    assert "left-by-the-check" not in listed
    assert (done.state, subjects(root)) == ("done", ["Write a", "Begin"])


async def test_run_check_works_in_a_folder_and_without_a_check_says_so(board: Board, tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    await board.spawn("alice")
    model = ScriptedModel({"Write": [call("run_check"), write("ok", "x"), call("run_check"), finish()],
                           "Look": [call("run_check"), finish()]})  # fmt: skip
    async with workshop(board) as shop:
        places = folders(shop, project, project / ".dugnad" / "work")
        async with hosting(board, model, workspaces=places):
            await until_ended(board, await board.put("Write", check="test -f ok"))
            first = answers(model.asked[-1])
            await until_ended(board, await board.put("Look"))
    assert [each.split(":")[0] for each in (first[0], first[2])] == ["Red", "Green"]
    assert answers(model.asked[-1]) == ["There is nothing to run: neither this task nor the project has a check."]


@pytest.mark.parametrize("tool", ["run_check", "update_tree"])
async def test_neither_runs_while_a_job_may_change_the_tree(board: Board, tmp_path: Path, tool: str) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    begun = Step(calls=(("bash", {"command": "sleep 600", "background": True}), (tool, {}), ("jobs", {"stop": "b1"})))
    model = ScriptedModel({"Wait": [begun, call(tool), finish()]})
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        await until_ended(board, await board.put("Wait", check="true"))
    said = answers(model.asked[-1])
    assert said[1].startswith("Error: b1 still runs in the background")
    assert not said[3].startswith("Error")


async def test_update_tree_brings_in_what_others_merged_and_marks_conflicts(board: Board, tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a": "0\n"})
    await board.spawn("alice")
    await board.spawn("bob")
    second = [
        calls(("write_file", {"path": "a", "text": "2\n"}), ("update_tree", {})),
        calls(("update_tree", {}), ("bash", {"command": "cat a b; git diff dugnad/main --stat"})),
        finish("Too early."),
        shell("echo 1 and 2 > a"),
        calls(("update_tree", {}), ("run_check", {}), ("finish", {"result": "It is both."})),
    ]
    first = [
        calls(("write_file", {"path": "a", "text": "1\n"}), ("write_file", {"path": "b", "text": "b\n"})),
        finish(),
    ]
    model = Paused({"First": first, "Second": second}, where=lambda request: _is(request, "Second", 2))
    async with worktrees(board, root, "true") as places, hosting(board, model, workspaces=places):
        task = await board.put("Second")
        await within(model.reached.wait())
        (one,) = await until_ended(board, await board.put("First"))
        model.go.set()
        (two,) = await until_ended(board, task)
    assert (one.state, two.state) == ("done", "done")
    said = answers(next(each for each in reversed(model.asked) if each.title == "Second"))
    assert said[1] == "Your tree has everything that dugnad/main has. `git diff dugnad/main` shows what you changed."
    assert f"First (#{one.id}, by {one.teammate})" in said[2]
    assert "It conflicts with your work in a." in said[2]
    assert ("<<<<<<<" in said[3], "b" in said[3]) == (True, True)
    assert said[4].startswith("Not done: ")
    assert "are still in a." in said[4]
    assert (at(root, "dugnad/main", "a"), at(root, "dugnad/main", "b")) == ("1 and 2", "b")
    assert subjects(root) == ["Second", "First", "Begin"]
    assert len(await board.attempts(task.id)) == 1


def _is(request: Request, title: str, turn: int) -> bool:
    return request.title == title and request.turn == turn
