"""Work in git: a tree for each attempt, done only when it is merged, looked at by another where that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.settings import Limits
from dugnad.team import requests
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
    within,
)
from tests.team.stage_trees import finish, has_no_trees, shell, worktrees, write
from tests.team.test_ends import answers
from tests.workspace.repository import at, git, new_repository, subjects

SOON = Limits(backoff_seconds=0.01)


async def test_a_task_is_done_when_its_work_is_in_the_target(board: Board, tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    model = ScriptedModel({"Write a": [write("a.py", "a = 1\n"), finish("a is 1.")]})
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        (done,) = await until_ended(board, await board.put("Write a", check="grep -q 'a = 1' a.py"))
        assert done.state == "done"
        assert (done.result, done.merged_into) == ("a is 1.", "dugnad/main")
        assert done.merged_as == git(root, "rev-parse", "dugnad/main")
        assert "on a branch from dugnad/main" in all_told(model.asked[0])
    assert subjects(root) == ["Write a", "Begin"]
    assert at(root, "dugnad/main", "a.py") == "a = 1"
    assert git(root, "status", "--porcelain") == ""
    assert has_no_trees(root)
    assert git(root, "branch", "--format=%(refname:short)").split() == ["dugnad/main", "main"]


async def test_a_mind_is_told_what_lies_at_the_top_of_its_tree(board: Board, tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"src/a.py": "a = 1\n", "odd\nname": "", "README": "", "dugnad.toml": ""})
    await board.spawn("alice")
    model = ScriptedModel({"Look around": [finish("All is well.")]})
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        await until_ended(board, await board.put("Look around"))
    assert "Your tree holds README, odd name, src/." in all_told(model.asked[0])


async def test_a_task_that_changes_nothing_needs_no_merge_and_no_check_of_the_project(
    board: Board, tmp_path: Path
) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    model = ScriptedModel({"Look around": [finish("All is well.")]})
    async with worktrees(board, root, "false") as places, hosting(board, model, workspaces=places):
        (done,) = await until_ended(board, await board.put("Look around"))
    assert (done.state, done.result) == ("done", "All is well.")
    assert subjects(root) == ["Begin"]
    assert has_no_trees(root)


async def test_the_check_of_a_task_is_run_although_nothing_was_changed(board: Board, tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    model = ScriptedModel({"Write a": [finish("It was there."), write("a.py", "a = 1\n"), finish("Now it is.")]})
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        (done,) = await until_ended(board, await board.put("Write a", check="grep -q 'a = 1' a.py"))
    assert "Not done: the check is red" in all_told(model.asked[1])
    assert (done.state, at(root, "dugnad/main", "a.py")) == ("done", "a = 1")


async def test_the_check_of_the_project_holds_for_every_change_and_leaves_nothing(board: Board, tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    model = ScriptedModel({"Write a": [write("a.py", "a = = 1\n"), finish(), write("a.py", "a = 1\n"), finish()]})
    check = "python3 -c 'import ast; ast.parse(open(\"a.py\").read())' && touch left-by-the-check"
    async with worktrees(board, root, check) as places, hosting(board, model, workspaces=places):
        (done,) = await until_ended(board, await board.put("Write a"))
    assert done.state == "done"
    assert "SyntaxError" in all_told(model.asked[2])
    assert git(root, "ls-tree", "--name-only", "dugnad/main").split() == ["README.md", "a.py"]


async def test_in_the_sandbox_git_can_look_and_not_write_and_sees_no_settings(board: Board, tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    git(root, "config", "remote.origin.url", "https://user:secret-token@example.org/")
    await board.spawn("alice")
    command = (
        "git log --format=%s; git status --short; git diff dugnad/main --stat; git commit --allow-empty -m x; "
        "git config --list; cat .git; ls -a; echo ref > .git/refs/heads/x; git -C .. status"
    )
    model = ScriptedModel({"Look": [write("a", "a\n"), shell(command), finish()]})
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        (done,) = await until_ended(board, await board.put("Look"))
    said = all_told(model.asked[2])
    assert "Begin" in said
    assert "?? a" in said
    assert "Read-only file system" in said or "cannot" in said.lower()
    assert "secret-token" not in said
    assert done.state == "done"
    assert subjects(root) == ["Look", "Begin"]
    assert git(root, "branch", "--format=%(refname:short)").split() == ["dugnad/main", "main"]


async def test_after_a_conflict_the_author_goes_on_in_a_tree_with_the_conflict_in_it(
    opener: Opener, tmp_path: Path
) -> None:
    board = await opener(limits=SOON)
    root = new_repository(tmp_path / "p", {"a": "0\n"})
    await board.spawn("alice")
    await board.spawn("bob")
    second = [write("a", "2\n"), finish("It is 2."), shell("cat a; echo 1 and 2 > a"), finish("It is both.")]
    model = Paused(
        {"First": [write("a", "1\n"), finish()], "Second": second},
        where=lambda request: request.title == "Second" and request.turn == 2,
    )
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        task = await board.put("Second")
        await within(model.reached.wait())
        (first,) = await until_ended(board, await board.put("First"))
        model.go.set()
        (done,) = await until_ended(board, task)
    assert (first.state, done.state, done.tries, done.result) == ("done", "done", 0, "It is both.")
    assert len(await board.attempts(task.id)) == 1
    _, verdict, shown, *_ = answers(next(each for each in reversed(model.asked) if each.title == "Second"))
    assert verdict.startswith("Not done: your work conflicts with what others merged into dugnad/main meanwhile.")
    assert f"First (#{first.id}, by {first.teammate})" in verdict
    assert "It conflicts with your work in a." in verdict
    assert [line[:7] for line in shown.splitlines()[1:]] == ["<<<<<<<", "1", "=======", "2", ">>>>>>>"]
    assert (at(root, "dugnad/main", "a"), subjects(root)) == ("1 and 2", ["Second", "First", "Begin"])
    assert has_no_trees(root)


async def test_a_conflict_uses_up_no_round_and_says_so(opener: Opener, tmp_path: Path) -> None:
    """There is only one round here, so without that the next attempt would begin in a tree without the conflict."""
    board = await opener(limits=SOON)
    root = new_repository(tmp_path / "p", {"a": "0\n"})
    await board.spawn("alice")
    await board.spawn("bob")
    mended = [shell("cat a; echo 1 and 2 > a"), finish("It is both.")]
    model = Paused(
        {"First": [write("a", "1\n"), finish()], "Second": [write("a", "2\n"), finish("It is 2."), *mended]},
        where=lambda request: request.title == "Second" and request.turn == 2,
    )
    async with (
        worktrees(board, root) as places,
        hosting(board, model, workspaces=places, limits={"check_rounds_max": 0}),
    ):
        task = await board.put("Second")
        await within(model.reached.wait())
        await until_ended(board, await board.put("First"))
        model.go.set()
        (done,) = await until_ended(board, task)
    assert (done.state, done.tries, len(await board.attempts(task.id))) == ("done", 0, 1)
    _, verdict, shown, *_ = answers(next(each for each in reversed(model.asked) if each.title == "Second"))
    assert verdict.endswith("A conflict is no failed try: you can finish 1 more time before this attempt fails.")
    assert "<<<<<<<" in shown
    assert (at(root, "dugnad/main", "a"), subjects(root)) == ("1 and 2", ["Second", "First", "Begin"])


async def test_red_only_together_with_the_work_of_others_is_mended_where_both_are(
    opener: Opener, tmp_path: Path
) -> None:
    board = await opener(limits=SOON)
    root = new_repository(tmp_path / "p", {"a": "0\n"})
    await board.spawn("alice")
    await board.spawn("bob")
    model = Paused(
        {"First": [write("one", "1\n"), finish()],
         "Second": [write("two", "2\n"), finish(), shell("ls; rm two; echo 2 > three"), finish("Mended.")]},
        where=lambda request: request.title == "Second" and request.turn == 2,
    )  # fmt: skip
    check = "test ! -e one || test ! -e two"
    async with worktrees(board, root, check) as places, hosting(board, model, workspaces=places):
        task = await board.put("Second")
        await within(model.reached.wait())
        await until_ended(board, await board.put("First"))
        model.go.set()
        (done,) = await until_ended(board, task)
    assert (done.state, len(await board.attempts(task.id))) == ("done", 1)
    _, verdict, listed, *_ = answers(next(each for each in reversed(model.asked) if each.title == "Second"))
    assert "the check is red when it is merged with what others put into dugnad/main meanwhile" in verdict
    assert "First (#2, by " in verdict
    assert verdict.endswith("You can finish 3 more times before this attempt fails.")
    assert ("one" in listed, "two" in listed) == (True, True)
    assert git(root, "ls-tree", "--name-only", "dugnad/main").split() == ["a", "one", "three"]


async def test_what_fails_in_the_end_is_kept_on_its_branches_and_named(opener: Opener, tmp_path: Path) -> None:
    board = await opener(limits=Limits(backoff_seconds=0.01, attempts_max=2))
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    model = ScriptedModel({"Break it": [write("a.py", "a = 1\n"), finish()]})
    async with (
        worktrees(board, root) as places,
        hosting(board, model, workspaces=places, limits={"check_rounds_max": 0}),
    ):
        (failed,) = await until_ended(board, await board.put("Break it", check="false"))
        assert failed.state == "failed"
        delivered = await places.deliveries([failed])
    assert (delivered.target, delivered.commits) == ("dugnad/main", 0)
    assert len(delivered.kept[failed.id]) == 2
    assert all(at(root, branch, "a.py") == "a = 1" for branch in delivered.kept[failed.id])
    assert has_no_trees(root)


async def test_a_task_that_waits_finds_its_tree_as_it_left_it(board: Board, tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    await board.spawn("bob")
    asks = call("ask_human", question="Which one?")
    model = ScriptedModel({"Write a": [write("a", "1\n"), asks, shell("cat a && echo 2 >> a"), finish()]})
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        task = await until_state(board, await board.put("Write a"), "waiting")
        assert not has_no_trees(root)
        await requests.answer(board, str(task.id), "This one.")
        (done,) = await until_ended(board, task)
    assert done.state == "done"
    assert at(root, "dugnad/main", "a") == "1\n2"
    assert has_no_trees(root)


@pytest.mark.parametrize("moved", [False, True])
async def test_a_lost_hosts_changes_are_carried_over_and_named(opener: Opener, tmp_path: Path, moved: bool) -> None:
    board = await opener(**short_lease(1.0))
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    script = {"Write a": [write("a", "1\n"), shell("echo 2 >> a"), finish()]}
    model = Paused(script, where=lambda request: request.turn == 2)
    async with worktrees(board, root) as places:
        async with hosting(board, model, workspaces=places, knows_neighbours=False) as host:
            task = await board.put("Write a")
            await within(model.reached.wait())
            await kill(host)
        if moved:
            theirs = git(root, "commit-tree", "dugnad/main^{tree}", "-p", "dugnad/main", "-m", "By hand")
            git(root, "update-ref", "refs/heads/dugnad/main", theirs)
        model.go.set()
        await board.spawn("bob")
        async with hosting(board, model, workspaces=places):
            (done,) = await until_ended(board, task)
        assert done.state == "done"
    told = all_told(model.asked[-1])
    assert "Carried over into this tree: 1 file, a." in told
    assert "and a reply that was not recorded yet." in told
    expected = "dugnad/main has 1 commit that your tree lacks" if moved else "Your tree has all that dugnad/main has"
    assert expected in told
    assert at(root, "dugnad/main", "a") == "1\n2"
    assert subjects(root)[0] == "Write a"


async def test_a_lost_host_that_changed_nothing_is_told_so(opener: Opener, tmp_path: Path) -> None:
    board = await opener(**short_lease(1.0))
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    model = Paused({"Look": [shell("ls"), finish()]}, where=lambda request: request.turn == 2)
    async with worktrees(board, root) as places:
        async with hosting(board, model, workspaces=places, knows_neighbours=False) as host:
            task = await board.put("Look")
            await within(model.reached.wait())
            await kill(host)
        model.go.set()
        await board.spawn("bob")
        async with hosting(board, model, workspaces=places):
            await until_ended(board, task)
    assert "Carried over into this tree: nothing." in all_told(model.asked[-1])


async def test_cancelled_work_is_stopped_and_kept(board: Board, tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice")
    model = Paused({"Write a": [write("a", "1\n"), finish()]}, where=lambda request: request.turn == 2)
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        task = await board.put("Write a")
        await within(model.reached.wait())
        await board.cancel(task.id)
        model.go.set()
        (other,) = await until_ended(board, await board.put("Something else"))
        assert other.state == "done"
        await places.sweep()
        kept = (await places.deliveries([await board.find(task.id)])).kept
    assert at(root, kept[task.id][0], "a") == "1"
    assert has_no_trees(root)


# Reviews.


async def test_work_that_asks_for_it_is_merged_only_when_another_approved(opener: Opener, tmp_path: Path) -> None:
    board = await opener(limits=SOON)
    root = new_repository(tmp_path / "p")
    await board.spawn("alice", roles=["coder", "reviewer"])
    await board.spawn("bob", roles=["reviewer"])
    looked: list[str] = []

    def review(turn: int) -> object:
        wrong = turn == 1 and not looked
        looked.append(str(turn))
        return finish("Say two.", outcome="changes-requested") if wrong else finish("Good.", outcome="approved")

    def step(request: object) -> object:
        title, turn = request.title, request.turn  # type: ignore[attr-defined]
        if title.startswith("Review"):
            return [shell("cat a; git diff dugnad/main...HEAD"), None][turn - 1] or review(1)
        return [write("a", "1\n"), finish("One."), write("a", "2\n"), finish("Two.")][turn - 1]

    model = ScriptedModel(step)  # type: ignore[arg-type]
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        (done,) = await until_ended(board, await board.put("Write a", role="coder", review="reviewer"))
    reviews = [each for each in await board.list_tasks() if each.title.startswith("Review")]
    assert [(each.teammate, each.outcome) for each in reviews] == [("bob", "changes-requested"), ("bob", "approved")]
    assert done.state == "done"
    assert "Say two." in all_told(next(each for each in model.asked if each.title == "Write a" and each.turn == 3))
    assert "+1" in all_told(next(each for each in model.asked if each.title.startswith("Review") and each.turn == 2))
    assert (at(root, "dugnad/main", "a"), subjects(root)) == ("2", ["Write a", "Begin"])
    assert [each for each in model.asked if each.title == "Write a"][-1].turn == 4
    assert has_no_trees(root)


async def test_the_attempts_at_a_task_are_read_once_for_each_attempt(opener: Opener, tmp_path: Path) -> None:
    """Also when it goes on after a review, which the workspace, the mind and the delivery all want to know."""
    board = await opener(limits=SOON)
    read: list[int] = []
    counting = Between(board, "beginning", busy, where=lambda claim: bool(read.append(claim.task.id)))
    root = new_repository(tmp_path / "p")
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])
    script = {"Write a": [write("a", "1\n"), finish("One.")], "*": [finish("Good.", outcome="approved")]}
    async with worktrees(counting, root) as places, hosting(counting, ScriptedModel(script), workspaces=places):
        (done,) = await until_ended(board, await board.put("Write a", role="coder", review="reviewer"))
    assert done.state == "done"
    assert read.count(done.id) == len(await board.attempts(done.id)) == 2


async def test_a_review_ends_with_a_word_and_the_rounds_are_bounded(opener: Opener, tmp_path: Path) -> None:
    board = await opener(limits=Limits(backoff_seconds=0.01, attempts_max=1))
    root = new_repository(tmp_path / "p")
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])

    def step(request: object) -> object:
        title, turn = request.title, request.turn  # type: ignore[attr-defined]
        if title.startswith("Review"):
            return finish("No.", outcome="changes-requested") if turn > 1 else finish("I do not like it.")
        return write("a", f"{turn}\n") if turn % 2 else finish(f"Now {turn}.")

    model = ScriptedModel(step)  # type: ignore[arg-type]
    async with (
        worktrees(board, root) as places,
        hosting(board, model, workspaces=places, limits={"review_rounds_max": 2}, reviewer="reviewer"),
    ):
        (failed,) = await until_ended(board, await board.put("Write a", role="coder"))
    assert failed.state == "failed"
    assert failed.reason is not None
    assert "2 reviews did not approve it; the last said: No." in failed.reason
    reviews = [each for each in await board.list_tasks() if each.title.startswith("Review")]
    assert [each.outcome for each in reviews] == ["changes-requested"] * 2
    assert subjects(root) == ["Begin"]


async def test_what_is_changed_in_answering_a_person_is_reviewed_like_any_other_work(
    board: Board, tmp_path: Path
) -> None:
    root = new_repository(tmp_path / "p")
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])
    script = {
        "Answer human": [write("a", "1\n"), finish("I made it.")],
        "Review #1: Answer human": [finish("Good.", outcome="approved")],
    }
    async with (
        worktrees(board, root) as places,
        hosting(board, ScriptedModel(script), workspaces=places, reviewer="reviewer"),
    ):
        await board.tell("human", "alice", "Please make a.")
        await until(board, lambda: board.inbox("human"))
        answer = await until_state(board, 1, "done", "failed")
    review = await board.find(2)
    assert (answer.state, at(root, "dugnad/main", "a")) == ("done", "1")
    assert (review.title, review.outcome, review.teammate) == ("Review #1: Answer human", "approved", "bob")
