"""The merge queue: one at a time, checked as it will stand, never an overtaken attempt, never half a target."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dugnad.errors import StaleClaim
from dugnad.workspace.git.merge_queue import Conflict, Merged, RedAfterMerge, prepare_target
from dugnad.workspace.git.ownership import GitTrouble
from tests.proof import sample
from tests.workspace.repository import at, attempt, finish, git, new_repository, subjects, trees_of


async def test_finished_work_is_one_commit_of_the_target_and_the_checkout_is_not_touched(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tree.path / "a.py").write_text("a = 1\n")
    came = await finish(trees, tree)
    assert isinstance(came, Merged)
    assert git(root, "rev-parse", "dugnad/main") == came.commit
    assert at(root, "dugnad/main", "a.py") == "a = 1"
    assert git(root, "log", "-1", "--format=%an %ae", "dugnad/main") == "alice alice@dugnad.invalid"
    assert git(root, "rev-parse", "HEAD") != came.commit
    assert (git(root, "status", "--porcelain"), (root / "a.py").exists()) == ("", False)


async def test_what_others_merged_meanwhile_is_merged_with_it_and_checked_again(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    first, second = await trees.begin(attempt(1)), await trees.begin(attempt(2))
    (first.path / "a.py").write_text("a = 1\n")
    (second.path / "b.py").write_text("b = 1\n")
    seen: list[list[str]] = []

    async def look() -> str | None:
        seen.append(sorted(each.name for each in second.path.glob("*.py")))
        return None

    await finish(trees, first)
    assert isinstance(await finish(trees, second, look), Merged)
    assert seen == [["a.py", "b.py"]]  # Together, as they stand in the target.
    assert git(root, "log", "--format=%p", "dugnad/main").split() == [
        git(root, "rev-parse", "--short", each) for each in ("dugnad/main~1", "dugnad/main~2")
    ]


async def test_green_alone_and_red_together_is_not_merged(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    first, second = await trees.begin(attempt(1)), await trees.begin(attempt(2))
    (first.path / "a.py").write_text("a = 1\n")
    (second.path / "b.py").write_text("import c\n")
    await finish(trees, first)
    before = git(root, "rev-parse", "dugnad/main")

    async def red() -> str | None:
        (second.path / "left.txt").write_text("by the check\n")
        return "1 failed"

    came = await finish(trees, second, red)
    assert isinstance(came, RedAfterMerge)
    assert came.output == "1 failed"
    assert len(came.others) == 1
    assert git(root, "rev-parse", "dugnad/main") == before
    assert (second.path / "b.py").exists()
    assert not (second.path / "a.py").exists()  # Back to what was its own.


async def test_a_conflict_is_named_and_nobody_resolves_it(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a.py": "a = 0\n", ".gitattributes": "*.py merge=union\n"})
    trees = await trees_of(root)
    first, second = await trees.begin(attempt(1)), await trees.begin(attempt(2))
    (first.path / "a.py").write_text("a = 1\n")
    (second.path / "a.py").write_text("a = 2\n")
    await finish(trees, first)
    came = await finish(trees, second)
    assert isinstance(came, Conflict)
    assert came.files == ("a.py",)
    assert [each.split(" ", 1)[1] for each in came.others] == ["Some work (by alice)"]
    assert at(root, "dugnad/main", "a.py") == "a = 1"


async def test_nothing_to_add_is_merged_without_a_commit(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    first, second = await trees.begin(attempt(1)), await trees.begin(attempt(2))
    for tree in (first, second):
        (tree.path / "a.py").write_text("a = 1\n")
    await finish(trees, first)
    assert await finish(trees, second) == Merged(commit=None)
    assert subjects(root) == ["Some work", "Begin"]


async def test_an_attempt_that_was_overtaken_cannot_merge(tmp_path: Path) -> None:
    """Also if the board was asked just before: the fence is in the step itself."""
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    late = await trees.begin(attempt(1))
    (late.path / "a.py").write_text("a = 1\n")

    async def overtaken() -> None:
        assert await trees.begin(attempt(1, epoch=2, born=1, in_order=False))

    with pytest.raises(StaleClaim):
        await finish(trees, late, is_ours=overtaken)
    assert subjects(root) == ["Begin"]
    with pytest.raises(StaleClaim):
        await trees.begin(attempt(1))


async def test_what_the_board_says_stops_a_merge(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tree.path / "a.py").write_text("a = 1\n")

    async def lost() -> None:
        raise StaleClaim

    with pytest.raises(StaleClaim):
        await finish(trees, tree, is_ours=lost)
    assert subjects(root) == ["Begin"]


async def test_a_merge_nobody_lived_to_tell_of_is_found_and_not_made_twice(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a.py": "a = 0\n"})
    trees = await trees_of(root)
    first = await trees.begin(attempt(1))
    (first.path / "a.py").write_text("a = 1\n")
    merged = await finish(trees, first)
    other = await trees.begin(attempt(2))
    (other.path / "a.py").write_text("a = 2\n")
    assert isinstance(await finish(trees, other), Merged)
    # The host of the first was lost before it could say so; merged again, its work would conflict with its own.
    again = await trees.begin(attempt(1, epoch=2, born=1, in_order=False))
    assert await finish(trees, again) == merged
    assert len(subjects(root)) == 3


async def test_a_commit_a_person_puts_on_the_target_meanwhile_is_kept(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tree.path / "a.py").write_text("a = 1\n")
    theirs = git(root, "commit-tree", "HEAD^{tree}", "-p", "dugnad/main", "-m", "By hand")

    async def meddle() -> None:
        if git(root, "rev-parse", "dugnad/main") != theirs:
            git(root, "update-ref", "refs/heads/dugnad/main", theirs)

    assert isinstance(await finish(trees, tree, is_ours=meddle), Merged)
    assert subjects(root) == ["Some work", "By hand", "Begin"]


async def test_many_merge_at_once_and_each_lands_on_the_one_before(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    at_once: list[int] = []

    async def one(task: int) -> None:
        tree = await trees.begin(attempt(task))
        (tree.path / f"f{task}.py").write_text(f"f = {task}\n")

        async def check() -> str | None:
            at_once.append(1)
            assert sum(at_once) == 1
            await asyncio.sleep(0)
            at_once.append(-1)
            return None

        assert isinstance(await finish(trees, tree, check), Merged)

    await asyncio.gather(*(one(task) for task in range(1, 9)))
    assert len(subjects(root)) == 9
    assert len(git(root, "ls-tree", "--name-only", "dugnad/main").split()) == 9


async def test_the_target_follows_the_persons_branch_and_is_never_one_that_is_checked_out(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    git(root, "commit", "--allow-empty", "-m", "More")
    assert await prepare_target(trees, "refs/heads/main") == ""
    assert subjects(root) == ["More", "Begin"]
    tree = await trees.begin(attempt(1))
    (tree.path / "a.py").write_text("a = 1\n")
    await finish(trees, tree)
    git(root, "commit", "--allow-empty", "-m", "Even more")
    assert "lacks commits of main" in await prepare_target(trees, "refs/heads/main")
    assert subjects(root) == ["Some work", "More", "Begin"]
    trees.target = "main"
    with pytest.raises(GitTrouble, match="is checked out in"):
        await prepare_target(trees, "refs/heads/main")


async def test_without_a_commit_there_is_nothing_to_work_from(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main", ".")
    with pytest.raises(GitTrouble, match="no commit yet"):
        await trees_of(tmp_path)


KILLED = """
import asyncio, os, signal, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.workspace.repository import finish, attempt, trees_of
import dugnad.workspace.git.git as module

left = int(sys.argv[2])
real = module.Git.run

async def run(self, *words, **options):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return await real(self, *words, **options)

async def main():
    root = Path(sys.argv[1])
    trees = await trees_of(root)
    epoch = int(sys.argv[3])
    tree = await trees.begin(attempt(1, epoch=epoch, born=1, in_order=False))
    (tree.path / "a.py").write_text("a = 1\\n")
    print(await finish(trees, tree))

module.Git.run = run
asyncio.run(main())
"""


@pytest.mark.parametrize("step", sample([1, 6], (6).__eq__))
def test_killed_before_any_call_of_git_the_target_is_whole_and_the_next_goes_on(tmp_path: Path, step: int) -> None:
    """The work is merged once, however often it was begun."""
    program = KILLED.format(root=str(Path(__file__).parents[2]))
    died = finished = 0
    for call in range(1, 60, step):
        root = new_repository(tmp_path / str(call))

        def work(left: int, epoch: int, root: Path = root) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-c", program, str(root), str(left), str(epoch)]
            return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

        ran = work(call, 1)
        if ran.returncode == -signal.SIGKILL:
            died += 1
            assert subjects(root, "main") == ["Begin"]
            assert git(root, "fsck", "--no-dangling", "--connectivity-only") == ""
            ran = work(0, 2)
        assert ran.returncode == 0, ran.stderr
        assert "Merged" in ran.stdout
        assert subjects(root) == ["Some work", "Begin"], f"killed before call {call}"
        assert at(root, "dugnad/main", "a.py") == "a = 1"
        if ran.args[4] == str(call):
            finished += 1
            break  # It needs fewer calls than that.
    assert died > 15 // step
    assert finished == 1
