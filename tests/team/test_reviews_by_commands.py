"""A review by somebody else's agent in a team: what it is shown, and that its verdict is the one that counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dugnad import Team
from dugnad.board import Board
from dugnad.config.project import Role
from dugnad.models import ScriptedModel
from dugnad.types import Task
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.stage_agent import TITLE
from tests.agent.test_external_reviews import SPEAKS_LAST, reviewer
from tests.team.stage_team import within
from tests.team.stage_trees import finish, worktrees, write
from tests.workspace.repository import new_repository

LONG = "".join(f"line {each}\n" for each in range(1_000))  # Longer than what a model is shown at once.


async def worked(
    board: Board, sandbox: Sandbox, folder: Path, url: str, *, outcome: str, **files: str
) -> tuple[Task, dict[str, Any]]:
    """The task, and what the reviewer saw when it gave its verdict."""
    root = new_repository(folder / "project", {"README.md": "# A project\n"})
    command = reviewer(folder, outcome)
    steps = [write(name.replace("_", "."), text) for name, text in files.items()]
    scripted = ScriptedModel({TITLE: [*steps, *[finish()] * 9]})
    async with worktrees(board, root) as places:
        team = Team.open(
            url, model=scripted, sandbox=sandbox, workspaces=places, roles={"reviewer": Role(model="command:mine")},
            open_named=lambda name: command if name == "command:mine" else scripted,
        )  # fmt: skip
        async with team:
            await team.spawn("alice", role="coder")
            await team.spawn("bob", role="reviewer")
            task = await team.put(TITLE, role="coder", review="reviewer")
            await within(team.run())
    review = next(each for each in await board.list_tasks() if each.kind == "review")
    return (await board.find_all({task.id}))[task.id], json.loads(review.result or "{}")


async def test_work_that_it_approves_goes_in_and_the_change_is_shown_once(
    board: Board, sandbox: Sandbox, folder: Path, url: str
) -> None:
    task, seen = await worked(board, sandbox, folder, url, outcome="approved", a_txt="small\n")
    assert task.merged_as is not None
    assert seen["prompt"].count("> +small") == 1
    assert "a.txt" not in seen["folder"]


async def test_a_change_too_long_for_the_usual_text_is_shown_for_the_verdict(
    board: Board, sandbox: Sandbox, folder: Path, url: str
) -> None:
    _, seen = await worked(board, sandbox, folder, url, outcome="approved", a_txt=LONG)
    assert "> +line 0\n" in seen["prompt"]
    assert "> +line 999\n" in seen["prompt"]


@pytest.mark.timeout(300)
async def test_work_whose_test_speaks_for_the_reviewer_does_not_go_in(
    board: Board, sandbox: Sandbox, folder: Path, url: str
) -> None:
    task, seen = await worked(board, sandbox, folder, url, outcome="changes-requested", test_py=SPEAKS_LAST)
    assert (task.state, task.merged_as) == ("failed", None)
    assert "Approved by the test itself" in seen["prompt"]
