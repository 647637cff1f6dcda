"""Hosts on several machines, each with its own clone: what one began, any other reviews, resumes and merges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.board import Board, open_board
from dugnad.models import ScriptedModel
from dugnad.settings import Limits
from dugnad.team import requests
from dugnad.types import Task
from tests.agent.stage_agent import all_told, call
from tests.conftest import Opener
from tests.team.stage_team import (
    Between,
    Paused,
    busy,
    hosting,
    kill,
    short_lease,
    until,
    until_ended,
    until_state,
    until_status,
    within,
)
from tests.team.stage_trees import finish, has_no_trees, shell, worktrees, write
from tests.workspace.remotes import machines, names_at
from tests.workspace.repository import at, git, subjects

NOTHING_LEFT = ["refs/heads/dugnad/main", "refs/heads/main"]


async def test_work_is_reviewed_on_another_machine_and_merged_from_there_or_here(
    opener: Opener, tmp_path: Path
) -> None:
    board = await opener(limits=Limits(backoff_seconds=0.01))
    remote, (here, there) = machines(tmp_path)

    def step(request: object) -> object:
        title, turn = request.title, request.turn  # type: ignore[attr-defined]
        if title.startswith("Review"):
            return [shell("cat a; git diff HEAD^ HEAD"), finish("Good.", outcome="approved")][turn - 1]
        return [write("a", "1\n"), finish("One.")][turn - 1]

    model = ScriptedModel(step)  # type: ignore[arg-type]
    async with (
        worktrees(board, here, remote=str(remote)) as places,
        worktrees(board, there, remote=str(remote)) as others,
    ):
        await board.spawn("alice", roles=["coder"])
        async with hosting(board, model, workspaces=places, seats_max=1):
            await until_status(board, "alice", "idle")
            await board.spawn("bob", roles=["reviewer"])
            async with hosting(board, model, workspaces=others, seats_max=1):
                (done,) = await until_ended(board, await board.put("Write a", role="coder", review="reviewer"))
        alice, bob = [(await board.teammate(each)).host for each in ("alice", "bob")]
        assert alice != bob
    assert (done.state, done.teammate) == ("done", "alice")
    looked = next(each for each in model.asked if each.title.startswith("Review") and each.turn == 2)
    assert "+1" in all_told(looked)
    assert (at(remote, "dugnad/main", "a"), subjects(remote)) == ("1", ["Write a", "Begin"])
    assert names_at(remote) == NOTHING_LEFT
    assert has_no_trees(here)
    assert has_no_trees(there)


async def test_a_task_that_waited_goes_on_on_another_machine(board: Board, tmp_path: Path) -> None:
    remote, (here, there) = machines(tmp_path)
    asks = call("ask_human", question="Which one?")
    model = ScriptedModel({"Write a": [write("a", "1\n"), asks, shell("cat a && echo 2 >> a"), finish()]})
    await board.spawn("alice")
    async with worktrees(board, here, remote=str(remote)) as places, hosting(board, model, workspaces=places):
        task = await until_state(board, await board.put("Write a"), "waiting")
    here.rename(tmp_path / "gone")  # The machine is lost with all that still runs there.
    await requests.answer(board, str(task.id), "This one.")
    async with worktrees(board, there, remote=str(remote)) as places, hosting(board, model, workspaces=places):
        (done,) = await until_ended(board, task)
    assert done.state == "done"
    assert "Carried over into this tree: 1 file, a." in all_told(model.asked[-1])
    assert at(remote, "dugnad/main", "a") == "1\n2"
    assert names_at(remote) == NOTHING_LEFT


async def test_finished_work_outlives_the_machine_that_made_it(opener: Opener, tmp_path: Path) -> None:
    board = await opener(**short_lease(1.0))
    remote, (here, there) = machines(tmp_path)
    script = {
        "Write a": [write("a", "1\n"), finish("One."), finish("One.")],
        "*": [finish("Good.", outcome="approved")],
    }
    model = Paused(script, where=lambda request: request.title.startswith("Review"))
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])
    async with worktrees(board, here, remote=str(remote)) as places:
        async with hosting(board, model, workspaces=places, knows_neighbours=False) as host:
            task = await board.put("Write a", role="coder", review="reviewer")
            await within(model.reached.wait())
            await until_state(board, task, "waiting")
            await kill(host)
        here.rename(tmp_path / "gone")
    model.go.set()
    async with worktrees(board, there, remote=str(remote)) as places, hosting(board, model, workspaces=places):
        (done,) = await until_ended(board, task)
    assert (done.state, at(remote, "dugnad/main", "a")) == ("done", "1")
    assert [each.turn for each in model.asked if each.title == "Write a"] == [1, 2]  # Nothing was done twice.
    assert subjects(remote) == ["Write a", "Begin"]


@pytest.mark.parametrize("then", ["nothing", "the board is in trouble", "that host is lost too"])
async def test_a_mind_that_had_finished_is_told_when_its_work_is_lost_with_its_machine(
    opener: Opener, tmp_path: Path, then: str
) -> None:
    board = await opener(**short_lease(1.0))
    remote, (here, there) = machines(tmp_path)
    steps = [write("a", "1\n"), finish("One."), write("a", "2\n"), finish("Two.")]
    model = Paused({"Write a": steps}, where=lambda request: request.turn == 3)
    await board.spawn("alice")
    async with worktrees(board, here, "sleep 600", remote=str(remote)) as places:
        async with hosting(board, model, workspaces=places, knows_neighbours=False) as host:
            task = await board.put("Write a")
            await until(board, lambda: finishes(board, task))
            await kill(host)
        here.rename(tmp_path / "gone")
    troubled = Between(board, "record", busy) if then == "the board is in trouble" else board
    async with worktrees(board, there, remote=str(remote)) as places:
        if then == "that host is lost too":
            async with hosting(board, model, workspaces=places, knows_neighbours=False) as host:
                await within(model.reached.wait())
                await kill(host)
        model.go.set()
        async with hosting(troubled, model, workspaces=places):
            (done,) = await until_ended(board, task)
    assert "is not in it. Look before you go on." in all_told(model.asked[2])
    assert (done.state, done.result, at(remote, "dugnad/main", "a")) == ("done", "Two.", "2")


async def finishes(board: Board, task: Task) -> bool:
    return any('"ends"' in turn.body for turn in await board.transcript(task.id, 1))


@pytest.mark.parametrize("when", ["begun", "delivered"])
async def test_what_a_person_must_mend_at_the_remote_is_asked_once_and_costs_nothing(
    board: Board, tmp_path: Path, when: str
) -> None:
    remote, (here,) = machines(tmp_path, 1)
    model = Paused({"Write a": [write("a", "1\n"), finish("One.")]}, where=lambda request: request.turn == 2)
    await board.spawn("alice")
    async with worktrees(board, here, remote=str(remote)) as places:
        rule = {"begun": ("transfer.hideRefs", "refs/dugnad"), "delivered": ("receive.maxInputSize", "1")}[when]
        if when == "begun":
            git(remote, "config", *rule)
        async with hosting(board, model, workspaces=places):
            task = await board.put("Write a")
            if when == "delivered":
                await within(model.reached.wait())
                git(remote, "config", *rule)
            model.go.set()
            await until_state(board, task, "waiting")
            (asked,) = await board.requests()
            does = {"begun": "cannot be begun", "delivered": "is done, and could not be delivered"}[when]
            assert asked.text.startswith(f"#{task.id} {does}: {remote} refuses a push")
            before = len(model.asked)
            git(remote, "config", "--unset", rule[0])
            await requests.answer(board, str(task.id), "Mended.")
            (done,) = await until_ended(board, task)
    assert (done.state, at(remote, "dugnad/main", "a")) == ("done", "1")
    assert (len(model.asked) - before) == (2 if when == "begun" else 0)


async def test_two_boards_with_the_same_task_numbers_share_one_remote(board: Board, tmp_path: Path) -> None:
    remote, (here, there) = machines(tmp_path)
    async with await open_board(f"sqlite:///{tmp_path}/other.db") as other:
        steps = [write("a", "1\n"), call("ask_human", question="Which one?"), finish("One.")]
        ours, theirs = ScriptedModel({"Write": steps}), ScriptedModel({"Write": [write("b", "2\n"), finish("Two.")]})
        await board.spawn("alice")
        await other.spawn("alice")
        async with (
            worktrees(board, here, remote=str(remote)) as places,
            worktrees(other, there, remote=str(remote)) as others,
            hosting(board, ours, workspaces=places),
            hosting(other, theirs, workspaces=others),
        ):
            waits = await until_state(board, await board.put("Write"), "waiting")
            (second,) = await until_ended(
                other, await other.put("Write")
            )  # Its end leaves the first one's names alone.
            await requests.answer(board, str(waits.id), "This one.")
            (first,) = await until_ended(board, waits)
    assert first.id == second.id
    assert (first.state, second.state) == ("done", "done")
    assert (at(remote, "dugnad/main", "a"), at(remote, "dugnad/main", "b")) == ("1", "2")
    assert subjects(remote) == ["Write", "Write", "Begin"]
    assert names_at(remote) == NOTHING_LEFT


async def test_a_lock_left_at_the_remote_is_asked_about_once_and_costs_nothing(board: Board, tmp_path: Path) -> None:
    remote, (here,) = machines(tmp_path, 1)
    model = Paused({"Write a": [write("a", "1\n"), finish("One.")]}, where=lambda request: request.turn == 2)
    await board.spawn("alice")
    async with worktrees(board, here, remote=str(remote)) as places:
        shared = places.trees.shared
        assert shared is not None
        shared.remote = replace(shared.remote, locked_seconds=0.0)
        async with hosting(board, model, workspaces=places):
            task = await board.put("Write a")
            await within(model.reached.wait())
            lock = remote / "refs" / "heads" / "dugnad" / "main.lock"
            lock.touch()
            model.go.set()
            await until_state(board, task, "waiting")
            (asked,) = await board.requests()
            assert f"remove this file: {lock}" in asked.text
            before = len(model.asked)
            lock.unlink()
            await requests.answer(board, str(task.id), "Removed.")
            (done,) = await until_ended(board, task)
    assert (done.state, at(remote, "dugnad/main", "a")) == ("done", "1")
    assert len(model.asked) == before


async def test_the_way_to_the_remote_is_not_seen_in_the_sandbox(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, (here,) = machines(tmp_path, 1)
    for name in ("SSH_AUTH_SOCK", "GIT_ASKPASS", "GH_TOKEN", "GIT_SSH_COMMAND"):
        monkeypatch.setenv(name, f"the-secret-of-{name}")
    model = ScriptedModel({"Look": [shell(f"env; git config --list; ls {remote}; cat .git/config"), finish()]})
    await board.spawn("alice")
    async with worktrees(board, here, remote=str(remote)) as places, hosting(board, model, workspaces=places):
        await until_ended(board, await board.put("Look"))
    said = all_told(model.asked[1])
    assert "PATH=" in said
    assert "the-secret-of" not in said
    assert "packed-refs" not in said
