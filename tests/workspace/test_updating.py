"""Bringing the moved target into a tree: nothing of either side is lost, and conflicts are marked, never resolved."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dugnad.workspace.git.git import Git
from dugnad.workspace.git.merge_queue import Conflict, Merged, Work, merge
from dugnad.workspace.git.merging import came_between, try_merge
from dugnad.workspace.git.worktree import Tree
from dugnad.workspace.git.worktrees import Trees
from tests.workspace.repository import at, attempt, finish, git, green, new_repository, ours, subjects, trees_of


class Killed(BaseException):
    """The process ends here."""


async def moved(root: Path, files: dict[str, str]) -> tuple[Trees, Tree]:
    """A tree that began before another task changed these files in the target."""
    trees = await trees_of(root)
    tree, other = await trees.begin(attempt(1)), await trees.begin(attempt(2))
    for name, text in files.items():
        (other.path / name).write_text(text)
    await finish(trees, other)
    return trees, tree


async def test_what_others_merged_is_in_the_tree_with_its_own_work(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a": "0\n"})
    trees, tree = await moved(root, {"b": "theirs\n"})
    (tree.path / "a").write_text("1\n")
    (tree.path / "new").write_text("new\n")
    trial = await trees.update(tree, "alice")
    assert trial is not None
    assert trial.files == ()
    assert {each: (tree.path / each).read_text() for each in ("a", "b", "new")} == {
        "a": "1\n", "b": "theirs\n", "new": "new\n",
    }  # fmt: skip
    assert await trees.update(tree, "alice") is None
    assert isinstance(await finish(trees, tree), Merged)
    assert subjects(root) == ["Some work", "Some work", "Begin"]  # One commit for each task.
    assert git(root, "show", "--name-only", "--format=", "dugnad/main").split() == ["a", "new"]


async def test_a_tree_without_work_has_nothing_of_its_own_afterwards(tmp_path: Path) -> None:
    trees, tree = await moved(new_repository(tmp_path / "p"), {"b": "theirs\n"})
    await trees.update(tree, "alice")
    assert not await tree.is_ahead(trees.target_name, await tree.head())
    assert not await tree.changed()


async def test_a_conflict_is_marked_and_told_and_counts_as_resolved_when_the_marks_are_gone(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a": "0\n", "gone": "0\n"})
    trees, tree = await moved(root, {"a": "theirs\n", "gone": "changed\n"})
    (tree.path / "a").write_text("mine\n")
    (tree.path / "gone").unlink()
    trial = await trees.update(tree, "alice")
    assert trial is not None
    assert trial.files == ("a", "gone")
    assert any("modify/delete" in each for each in trial.said)
    marked = (tree.path / "a").read_text()
    assert marked.startswith("<<<<<<< ")
    assert ("theirs\n" in marked, "mine\n" in marked) == (True, True)
    assert await tree.unresolved(trees.target_name) == ["a"]
    (tree.path / "a").write_text("both\n")
    assert await tree.unresolved(trees.target_name) == []
    assert isinstance(await finish(trees, tree), Merged)
    assert (at(root, "dugnad/main", "a"), at(root, "dugnad/main", "gone")) == ("both", "changed")


async def test_attributes_of_the_tree_hide_no_marks(tmp_path: Path) -> None:
    files = {"a": "0\n", ".gitattributes": "a -diff\n"}
    trees, tree = await moved(new_repository(tmp_path / "p", files), {"a": "theirs\n"})
    (tree.path / "a").write_text("mine\n")
    await trees.update(tree, "alice")
    assert (tree.path / "a").read_text().startswith("<<<<<<< ")
    assert await tree.unresolved(trees.target_name) == ["a"]


async def test_marks_that_a_project_has_of_its_own_are_no_conflict(tmp_path: Path) -> None:
    mark = f"<<<<<<< {'a' * 40}\n"
    trees, tree = await moved(new_repository(tmp_path / "p", {"doc": mark}), {"b": "theirs\n"})
    (tree.path / "doc").write_text(f"{mark}{mark}")
    await trees.update(tree, "alice")
    assert await tree.unresolved(trees.target_name) == []


async def test_the_marks_are_known_when_a_lost_hosts_tree_is_carried_over(tmp_path: Path) -> None:
    trees, tree = await moved(new_repository(tmp_path / "p", {"a": "0\n"}), {"a": "theirs\n"})
    (tree.path / "a").write_text("mine\n")
    await trees.update(tree, "alice")
    tree.let_go()
    copy = await trees.begin(attempt(1, epoch=2, born=1, in_order=False))
    assert await copy.unresolved(trees.target_name) == ["a"]


@pytest.mark.parametrize("step", range(0, 20))
async def test_stopped_at_any_step_it_loses_nothing_and_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    root = new_repository(tmp_path / "p", {"a": "0\n", "c": "0\n"})
    trees, tree = await moved(root, {"b": "theirs\n", "c": "theirs\n"})
    (tree.path / "a").write_text("1\n")
    (tree.path / "new").write_text("new\n")
    left, real = [step], Git.run

    async def stops(of: Git, *words: str, **more: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            raise Killed
        return await real(of, *words, **more)

    monkeypatch.setattr(Git, "run", stops)
    with suppress(Killed):
        await trees.update(tree, "alice")
    monkeypatch.setattr(Git, "run", real)
    tree.let_go()
    again = await trees.begin(attempt(1, epoch=2, born=1, in_order=step % 2 == 0))
    await trees.update(again, "alice")
    assert isinstance(await finish(trees, again), Merged)
    assert git(root, "show", "--name-only", "--format=", "dugnad/main").split() == ["a", "new"]
    assert (at(root, "dugnad/main", "b"), at(root, "dugnad/main", "c")) == ("theirs", "theirs")


async def test_those_who_changed_the_same_are_named_with_their_task(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a": "0\n", "b": "0\n"})
    trees = await trees_of(root)
    tree, one, two = [await trees.begin(attempt(each)) for each in (1, 2, 3)]
    for other, name in ((one, "a"), (two, "b")):
        (other.path / name).write_text("theirs\n")
        tip = await other.commit(f"Change {name}\n\nDugnad-Task: #{other.attempt.mark[0]}", "bob")
        await merge_of(trees, other, tip, f"Change {name}\n\nDugnad-Task: #{other.attempt.mark[0]}")
    (tree.path / "a").write_text("mine\n")
    came = await finish(trees, tree)
    assert isinstance(came, Conflict)
    assert [each.split(" ", 1)[1] for each in came.others] == ["Change a (#2, by bob)"]
    trial = await try_merge(trees.git, await trees.target_head(), await tree.head())
    assert len(await came_between(trees.git, trial)) == 2


async def merge_of(trees: Trees, tree: Tree, tip: str, message: str) -> None:
    assert isinstance(
        await merge(trees, tree, Work(tip=tip, message=message, author="bob"), check=green, is_ours=ours), Merged
    )
