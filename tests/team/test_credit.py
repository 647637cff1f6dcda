"""Work that was approved is finished in the name of who did it, and no mind is asked again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dugnad import Team
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.settings import TeamLimits
from tests.agent.stage_agent import END, TITLE, call
from tests.conftest import Opener
from tests.team.stage_team import Paused, hosting, kill, short_lease, until_ended, until_state, within
from tests.team.stage_trees import finish, worktrees, write
from tests.workspace.repository import git, new_repository


def reviewed(request: Request) -> Step:
    return call("finish", outcome="approved", result="Good.") if request.title.startswith("Review") else END


def asks(model: ScriptedModel, title: str) -> int:
    return sum(request.title == title for request in model.asked)


@pytest.mark.parametrize("agents", [1, 3])
async def test_however_many_there_are_the_author_finishes_what_was_approved(url: str, agents: int) -> None:
    """With one at a time the author makes room for the reviewer, and comes back."""
    model = ScriptedModel(reviewed)
    limits = TeamLimits(sweep_seconds=0.3)
    async with Team.open(url, model=model, agents=agents, limits=limits) as team:
        task = await team.put(TITLE, review="reviewer")
        await team.assemble(1)
        report = await within(team.run())
        found = await team.board.find(task.id)
        by = [attempt.teammate for attempt in await team.board.attempts(task.id)]
    assert report.exit_code == 0
    assert (found.state, found.teammate, by) == ("done", "alice", ["alice", "alice"])
    assert asks(model, TITLE) == 1
    assert f"#{task.id} {TITLE} by alice" in str(report)


async def test_when_the_authors_host_is_gone_another_finishes_it_in_the_authors_name(opener: Opener) -> None:
    board = await opener(**short_lease(1.0))
    await board.spawn("alice", roles=["coder"])
    model = ScriptedModel(reviewed)
    async with hosting(board, model, knows_neighbours=False) as first:
        task = await board.put(TITLE, role="coder", review="reviewer")
        await until_state(board, task, "waiting")
        await kill(first)
        await board.spawn("bob", roles=["coder", "reviewer"])
        async with hosting(board, model, knows_neighbours=False):
            (done,) = await until_ended(board, task)
    assert (done.state, done.teammate, asks(model, TITLE)) == ("done", "alice", 1)


async def test_when_the_author_was_shut_down_another_brings_it_in_and_the_commit_names_the_author(
    opener: Opener, tmp_path: Path
) -> None:
    board = await opener()
    root = new_repository(tmp_path / "p")
    await board.spawn("alice", roles=["coder"])

    def step(request: Request) -> Any:
        if request.title.startswith("Review"):
            return finish("Good.", outcome="approved")
        return [write("a", "1\n"), finish("One.")][request.turn - 1]

    model = ScriptedModel(step)
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places, agents=3):
        task = await board.put("Write a", role="coder", review="reviewer")
        await until_state(board, task, "waiting")
        await board.stop_teammate("alice", reason="no more of this")
        (done,) = await until_ended(board, task)
    assert (done.state, done.teammate, asks(model, "Write a")) == ("done", "alice", 2)
    assert (await board.attempts(task.id))[-1].teammate != "alice"
    assert git(root, "log", "-1", "--format=%an", "dugnad/main") == "alice"


@pytest.mark.parametrize("goes_on", ["alice", "bob"])
async def test_what_a_lost_host_left_in_its_tree_is_merged_in_the_name_of_who_did_it(
    opener: Opener, tmp_path: Path, goes_on: str
) -> None:
    board = await opener(**short_lease(1.0))
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    model = Paused({"Write a": [write("a", "1\n"), finish("One.")]}, where=lambda request: request.turn == 2)
    async with worktrees(board, root) as places:
        async with hosting(board, model, workspaces=places, knows_neighbours=False) as host:
            task = await board.put("Write a")
            await within(model.reached.wait())
            await kill(host)
        model.go.set()
        if goes_on == "bob":
            await board.stop_teammate("alice", reason="no more of this")
        await board.spawn(goes_on)
        async with hosting(board, model, workspaces=places):
            (done,) = await until_ended(board, task)
    assert (done.state, (await board.attempts(task.id))[-1].teammate) == ("done", goes_on)
    assert git(root, "log", "-1", "--format=%an <%ae>", "dugnad/main") == "alice <alice@dugnad.invalid>"
