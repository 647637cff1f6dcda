"""What goes wrong between "I am done" and done: told, waited out or given back, and nobody is lost over it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.settings import Limits
from dugnad.types import HUMAN, Budget
from tests.agent.stage_agent import all_told
from tests.conftest import Opener
from tests.team.stage_team import Between, Paused, busy, hosting, until_ended, until_state, within
from tests.team.stage_trees import finish, has_no_trees, shell, worktrees, write
from tests.workspace.repository import at, git, new_repository, subjects

SOON = Limits(backoff_seconds=0.01)


@pytest.mark.parametrize(
    ("spoils", "mends", "says"),
    [
        ("mkdir in && cd in && git init -q . && echo x > f", "rm -rf in/.git", "a git repository of its own"),
        ("rm README.md && mkfifo README.md", "rm README.md", "can only add regular files"),
        ("mkdir -p deep/.dugnad && echo x > deep/.dugnad/x", "rm -r deep", "the team may not change the rules"),
        ("echo x > inner/dugnad.toml", "rm inner/dugnad.toml", "the team may not change the rules"),
    ],
)
async def test_what_cannot_be_committed_goes_back_to_whoever_left_it(
    board: Board, tmp_path: Path, spoils: str, mends: str, says: str
) -> None:
    root = new_repository(tmp_path / "p", {"README.md": "x\n", "inner/a": "a\n"})
    await board.spawn("alice")
    model = ScriptedModel({"Write a": [write("a", "a\n"), shell(spoils), finish(), shell(mends), finish()]})
    async with worktrees(board, root, "true") as places, hosting(board, model, workspaces=places):
        (done,) = await until_ended(board, await board.put("Write a"))
    assert done.state == "done"
    assert says in all_told(model.asked[3])
    assert (await board.teammate("alice")).status != "failed"
    assert at(root, "dugnad/main", "a") == "a"


async def test_a_conflict_in_a_file_whose_name_is_no_text_is_told_of(opener: Opener, tmp_path: Path) -> None:
    board = await opener(limits=SOON)
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    await board.spawn("bob")

    def step(request: Request) -> Step:
        return shell(f"echo {request.title} {request.turn} > $'\\xff\\n'") if request.turn % 2 else finish()

    model = Paused(step, where=lambda request: request.title == "Second" and request.turn == 2)
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        second = await board.put("Second")
        await within(model.reached.wait())
        await until_ended(board, await board.put("First"))
        model.go.set()
        (second,) = await until_ended(board, second)
    assert second.state == "done"
    assert "conflicts with what others merged" in all_told([each for each in model.asked if each.title == "Second"][-1])


@pytest.mark.parametrize("verb", ["beginning", "find", "find_all", "needs_of", "follow_up"])
async def test_a_board_in_trouble_is_waited_for(opener: Opener, tmp_path: Path, verb: str) -> None:
    board = await opener(limits=SOON)
    root = new_repository(tmp_path / "p")
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])

    def step(request: Request) -> Step:
        if request.title.startswith("Review"):
            return finish("Good.", outcome="approved")
        return write("a", "a\n") if request.turn == 1 else finish()

    shaky = Between(board, verb, busy)
    async with worktrees(shaky, root) as places, hosting(shaky, ScriptedModel(step), workspaces=places):
        (done,) = await until_ended(board, await board.put("Write a", role="coder", review="reviewer"))
    assert (done.state, done.tries, shaky.happened) == ("done", 0, 1)
    assert {each.status for each in await board.team()} & {"failed"} == set()
    assert subjects(root) == ["Write a", "Begin"]


async def test_a_target_that_a_person_has_checked_out_is_asked_about_once_and_costs_nothing(
    board: Board, tmp_path: Path
) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    model = Paused({"Write a": [write("a", "a\n"), finish()]}, where=lambda request: request.turn == 2)
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        task = await board.put("Write a", budget=Budget(tasks=1))
        await within(model.reached.wait())
        git(root, "switch", "--quiet", "dugnad/main")
        model.go.set()
        task = await until_state(board, task, "waiting")
        (asked,) = await board.requests()
        assert "could not be delivered: The branch dugnad/main is checked out" in asked.text
        assert git(root, "status", "--porcelain") == ""
        git(root, "switch", "--quiet", "main")
        assert asked.request is not None
        await board.reply(asked.request, "human", "It is free.")
        (done,) = await until_ended(board, task)
        assert (await board.budget(task.id)).runs == 1
    assert done.state == "done"
    assert len(model.asked) == 2  # Nobody had to think about it again.
    assert subjects(root) == ["Write a", "Begin"]
    assert has_no_trees(root)


async def test_what_only_a_person_can_mend_is_asked_about_once_and_leaves_nothing_behind(
    board: Board, tmp_path: Path
) -> None:
    root = new_repository(tmp_path / "p")
    blob = git(root, "rev-parse", "HEAD:README.md")
    missing = root / ".git" / "objects" / blob[:2] / blob[2:]
    await board.spawn("alice")
    model = ScriptedModel({"Write a": [write("a", "a\n"), finish()]})
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        missing.rename(tmp_path / "aside")
        task = await until_state(board, await board.put("Write a", budget=Budget(tasks=1)), "waiting")
        (asked,) = await board.requests()
        assert (
            f"cannot be begun: git read-tree failed: error: unable to read sha1 file of README.md ({blob}" in asked.text
        )
        assert git(root, "for-each-ref", "refs/heads/dugnad/task-*") == ""
        assert has_no_trees(root)
        assert os.listdir(root / ".git" / "dugnad" / "trees") == []
        (tmp_path / "aside").rename(missing)
        assert asked.request is not None
        await board.reply(asked.request, HUMAN, "It is there again.")
        (done,) = await until_ended(board, task)
        assert (await board.budget(task.id)).runs == 1
    assert (done.state, done.tries) == ("done", 0)


@pytest.mark.parametrize(("least", "is_paid"), [(0.0, True), (3_600.0, False)])
async def test_the_goal_pays_for_the_time_of_git(board: Board, tmp_path: Path, least: float, is_paid: bool) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    spoils = shell("mkdir sub && mkfifo sub/.gitignore")
    model = ScriptedModel({"Write a": [write("a", "a\n"), spoils, finish(), shell("rm sub/.gitignore"), finish()]})
    async with worktrees(board, root) as places:
        places.shop = replace(places.shop, paid_seconds_min=least)
        async with hosting(board, model, workspaces=places):
            (done,) = await until_ended(board, await board.put("Write a"))
    assert done.state == "done"
    assert "sub/.gitignore: it is a named pipe" in all_told(model.asked[3])
    spent = [each for each in await board.events() if each.kind == "spent"]
    assert any(not each.data["tokens"] for each in spent) == is_paid  # A reply has tokens, and git has none.


# Reviews.


def reviewed(*verdicts: Step, works: tuple[Step, ...] = ()) -> ScriptedModel:
    """Reviews end with these verdicts, one after another; the last of them for ever."""
    left = list(verdicts)

    def step(request: Request) -> Step:
        if request.title.startswith("Review"):
            return left.pop(0) if len(left) > 1 else left[0]
        if works:
            return works[request.turn - 1]
        return write("a", f"{request.turn}\n") if request.turn % 2 else finish()

    return ScriptedModel(step)


NO, YES = finish("No.", outcome="changes-requested"), finish("Good.", outcome="approved")


async def reviews_on(board: Board) -> list[str | None]:
    return [each.outcome for each in await board.list_tasks() if each.title.startswith("Review")]


async def test_after_a_retry_by_a_person_the_rounds_begin_anew(opener: Opener, tmp_path: Path) -> None:
    board = await opener(limits=SOON)
    root = new_repository(tmp_path / "p")
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])
    limits = {"review_rounds_max": 2}
    async with (
        worktrees(board, root) as places,
        hosting(board, reviewed(NO, NO, YES), workspaces=places, limits=limits),
    ):
        (failed,) = await until_ended(board, await board.put("Write a", role="coder", review="reviewer"))
        assert failed.state == "failed"
        await board.retry(failed.id)
        (done,) = await until_ended(board, await board.find(failed.id))
    assert done.state == "done"
    assert await reviews_on(board) == ["changes-requested", "changes-requested", "approved"]
    assert len(subjects(root)) == 2


async def test_what_changes_the_project_in_answering_a_message_is_reviewed_too(opener: Opener, tmp_path: Path) -> None:
    board = await opener(limits=SOON)
    root = new_repository(tmp_path / "p")
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])
    model = reviewed(YES)
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places, reviewer="reviewer"):
        await board.tell(HUMAN, "alice", "Please write a.")
        errand = await _named(board, "Answer")
        (done,) = await until_ended(board, errand)
    assert done.state == "done"
    assert await reviews_on(board) == ["approved"]
    assert at(root, "dugnad/main", "a") == "1"


async def _named(board: Board, beginning: str):  # type: ignore[no-untyped-def]
    async def found():  # type: ignore[no-untyped-def]
        with board.watch(["task"]) as watch:
            while True:
                for each in await board.list_tasks():
                    if each.title.startswith(beginning):
                        return each
                await watch.wait(0.1)

    return await within(found())


async def test_nobody_looks_at_what_was_cancelled_meanwhile(opener: Opener, tmp_path: Path) -> None:
    board = await opener(limits=SOON)
    root = new_repository(tmp_path / "p")
    await board.spawn("alice", roles=["coder"])
    model = reviewed(YES)
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        task = await until_state(board, await board.put("Write a", role="coder", review="reviewer"), "waiting")
        await board.cancel(task.id)
        await board.spawn("bob", roles=["reviewer"])
        (review,) = [each for each in await board.list_tasks() if each.title.startswith("Review")]
        (review,) = await until_ended(board, review)
        await places.sweep()
    assert (review.state, review.outcome) == ("done", "changes-requested")
    assert "has ended as cancelled; there is nothing to look at" in str(review.result)
    assert not [each for each in model.asked if each.title.startswith("Review")]
    assert has_no_trees(root)


async def test_a_review_that_is_cancelled_fails_the_task_and_keeps_its_work(opener: Opener, tmp_path: Path) -> None:
    board = await opener(limits=SOON)
    root = new_repository(tmp_path / "p")
    await board.spawn("alice", roles=["coder"])
    async with worktrees(board, root) as places, hosting(board, reviewed(YES), workspaces=places):
        await until_state(board, await board.put("Write a", role="coder", review="reviewer"), "waiting")
        (review,) = [each for each in await board.list_tasks() if each.title.startswith("Review")]
        await board.cancel(review.id, why="no time")
        (failed,) = await until_ended(board, await board.find(1))
        kept = (await places.deliveries([failed])).kept
    assert failed.state == "failed"
    assert "ended as cancelled: no time" in str(failed.reason)
    assert at(root, kept[1][0], "a") == "1"
    assert os.listdir(root / ".dugnad" / "trees") == []


async def test_a_reviewer_cannot_change_what_it_looks_at(opener: Opener, tmp_path: Path) -> None:
    board = await opener(limits=SOON)
    root = new_repository(tmp_path / "p")
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])

    def step(request: Request) -> Step:
        if request.title.startswith("Review"):
            return shell("echo mine > a; echo mine > b; rm README.md") if request.turn == 1 else YES
        return write("a", "a\n") if request.turn == 1 else finish()

    async with worktrees(board, root) as places, hosting(board, ScriptedModel(step), workspaces=places):
        await until_ended(board, await board.put("Write a", role="coder", review="reviewer"))
    assert at(root, "dugnad/main", "a") == "a"
    assert git(root, "ls-tree", "--name-only", "dugnad/main").split() == ["README.md", "a"]
    assert has_no_trees(root)
