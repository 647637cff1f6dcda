"""One /tmp for the commands of an attempt: nobody else's, not that of a check, and gone with the attempt."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.team import requests
from dugnad.team.workspaces.folders import folders
from dugnad.team.workspaces.workspace import shared
from dugnad.workspace.sandbox.profile import Confinement, Machine, strict
from tests.agent.stage_agent import all_told, call, calls
from tests.team import stage_trees
from tests.team.stage_team import hosting, until_ended, until_state
from tests.team.stage_trees import finish, has_no_trees, shell, workshop, worktrees
from tests.team.test_ends import answers
from tests.workspace.repository import new_repository

KEPT = "Your commands share one /tmp as long as you work on this"
LOOK = "cat /tmp/note || echo none; ls -d /tmp/home"


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder that is not beneath /tmp, where the sandbox has its own."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder).resolve()


def steps() -> list[object]:
    return [
        shell("echo kept > /tmp/note"), calls(("bash", {"command": LOOK}), ("run_check", {})),
        call("ask_human", question="Go on?"), shell(LOOK), finish("Done."),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["worktree", "folder", "in place"])
async def test_the_commands_of_an_attempt_share_tmp_and_nobody_else_sees_it(
    board: Board, elsewhere: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_trees, "OWN", ())  # The tests' own Python may lie beneath /tmp.
    root = elsewhere / "p"
    root.mkdir()
    if kind == "worktree":
        new_repository(root)
    await board.spawn("alice")
    model = ScriptedModel({"First": steps(), "Second": [shell(LOOK), finish()]})  # type: ignore[dict-item]
    async with worktrees(board, root) if kind == "worktree" else workshop(board) as made:
        if kind == "worktree":
            places = made
        else:
            places = folders(made, root, root / ".dugnad" / "work") if kind == "folder" else shared(made, root)
        async with hosting(board, model, workspaces=places):
            task = await board.put("First", check="test ! -e /tmp/note")
            await until_state(board, task, "waiting")
            await requests.answer(board, str(task.id), "Yes.")
            (done,) = await until_ended(board, task)
            first = answers(model.asked[-1])
            await until_ended(board, await board.put("Second"))
    assert done.state == "done"
    assert first[1].splitlines()[1:] == ["kept", "/tmp/home"]
    assert first[2].startswith("Green: ")  # A check has its own.
    again = "none" if kind == "in place" else "kept"  # A worktree and a folder keep it while the task waits.
    assert first[4].splitlines()[-2:] == [again, "/tmp/home"]
    assert "none" in answers(model.asked[-1])[0]
    assert KEPT in all_told(model.asked[0])
    left = [name for _, below, _ in os.walk(elsewhere) for name in below if name.endswith(".tmp")]
    assert left == []
    assert kind != "worktree" or has_no_trees(root)


async def test_where_the_tree_lies_beneath_tmp_each_command_has_its_own_and_the_mind_is_told(
    board: Board, tmp_path: Path
) -> None:
    assert tmp_path.is_relative_to("/tmp")
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    model = ScriptedModel({"First": [shell("echo kept > /tmp/note"), shell(LOOK), finish()]})
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        await until_ended(board, await board.put("First"))
    assert "/tmp is empty at the beginning of each command" in all_told(model.asked[0])
    assert "none" in answers(model.asked[-1])[1]


def test_nothing_is_mounted_beneath_a_tmp_that_commands_can_write() -> None:
    """A link that a command left there would lead bubblewrap out of the sandbox when it makes the mount point."""
    scratch = Path("/var/tmp/scratch")
    for tree, readable, is_shared in (
        ("/home/p", (), True), ("/tmp/p", (), False), ("/home/p", (Path("/tmp/tools"),), False),
    ):  # fmt: skip
        policy = Confinement(tree=Path(tree), readable=readable, scratch=scratch)
        arguments = strict(policy, Machine()).arguments
        assert (("--bind", str(scratch), "/tmp") in arguments) is is_shared
        assert any(each[-2:] == ("--tmpfs", "/tmp") for each in arguments) is not is_shared
