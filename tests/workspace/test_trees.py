"""A tree for each attempt: its own, taken over in order, copied from the lost, and cleared away."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.workspace.git.merge_queue import prepare_target
from dugnad.workspace.git.ownership import GitTrouble
from tests.workspace.repository import attempt, finish, git, new_repository, trees_of


async def test_two_attempts_never_share_a_tree(tmp_path: Path) -> None:
    trees = await trees_of(new_repository(tmp_path / "p"))
    first, second = await trees.begin(attempt(1)), await trees.begin(attempt(2))
    (first.path / "README.md").write_text("changed\n")
    assert first.path != second.path
    assert (second.path / "README.md").read_text() == "# A project\n"
    assert (tmp_path / "p" / "README.md").read_text() == "# A project\n"
    assert not any((first.anew, first.carried_over, second.anew, second.carried_over))


async def test_who_goes_on_in_order_finds_all_as_it_was_left_in_the_same_place(tmp_path: Path) -> None:
    trees = await trees_of(new_repository(tmp_path / "p", {"a": "a\n", ".gitignore": "built/\n"}))
    before = await trees.begin(attempt(1))
    (before.path / "a").write_text("b\n")
    (before.path / "built").mkdir()
    (before.path / "built" / "x").write_text("slow to make\n")
    before.let_go()
    after = await trees.begin(attempt(1, epoch=3, born=1))
    assert (after.path, after.anew, after.carried_over) == (before.path, False, False)
    assert (after.path / "built" / "x").exists()
    assert await after.changed()


async def test_a_tree_somebody_holds_is_copied_and_not_shared(tmp_path: Path) -> None:
    trees = await trees_of(new_repository(tmp_path / "p"))
    held = await trees.begin(attempt(1))
    (held.path / "new").write_text("half\n")
    for in_order, epoch in ((True, 2), (False, 3)):  # Not let go; and let go by a host that was lost.
        copy = await trees.begin(attempt(1, epoch=epoch, born=1, in_order=in_order))
        assert copy.path != held.path
        assert (copy.path / "new").read_text() == "half\n"
        assert copy.carried_over
        (held.path / "new").write_text("written late\n")
        assert (copy.path / "new").read_text() == "half\n"
        copy.let_go()
        (held.path / "new").write_text("half\n")


async def test_on_another_machine_it_begins_anew_and_says_so(tmp_path: Path) -> None:
    trees = await trees_of(new_repository(tmp_path / "p"))
    tree = await trees.begin(attempt(1, epoch=4, born=1))
    assert tree.anew
    assert not await tree.changed()


async def test_a_fresh_attempt_begins_from_the_target_and_not_from_what_failed(tmp_path: Path) -> None:
    trees = await trees_of(new_repository(tmp_path / "p"))
    failed = await trees.begin(attempt(1))
    (failed.path / "wrong").write_text("wrong\n")
    branch = await trees.put_away(failed, keep=True)
    assert branch == "dugnad/task-1-abcd1234.1"
    assert git(tmp_path / "p", "show", f"{branch}:wrong") == "wrong"
    fresh = await trees.begin(attempt(1, epoch=2))
    assert not (fresh.path / "wrong").exists()


async def test_half_written_and_nested_things_do_not_get_into_a_commit(tmp_path: Path) -> None:
    trees = await trees_of(new_repository(tmp_path / "p"))
    tree = await trees.begin(attempt(1))
    (tree.path / "deep").mkdir()
    for name in (".dugnad-1.tmp", "deep/.dugnad-2.tmp", "deep/real", "deep/x.pyc"):
        (tree.path / name).write_text("x\n")
    tip = await tree.commit("Work", "alice")
    assert git(tmp_path / "p", "show", "--name-only", "--format=", tip) == "deep/real"
    inner = new_repository(tree.path / "inner")
    with pytest.raises(GitTrouble, match="inner: a git repository of its own"):
        await tree.commit("Work", "alice")
    os.rename(inner / ".git", tmp_path / "gone")
    assert await tree.commit("Work", "alice") != tip


async def test_names_that_look_like_options_and_odd_bytes_are_committed_as_they_are(tmp_path: Path) -> None:
    trees = await trees_of(new_repository(tmp_path / "p"))
    tree = await trees.begin(attempt(1))
    names = [b"-rf", b"--all", b"a b", b"line\nbreak", b":(exclude)x", b"\xff\xfe", "sm\u00f8r".encode()]
    for name in names:
        (tree.path / os.fsdecode(name)).write_text("x\n")
    await finish(trees, tree)
    listed = git(tmp_path / "p", "ls-tree", "-r", "--name-only", "-z", "dugnad/main")
    assert len([each for each in listed.split("\0") if each]) == len(names) + 1


async def test_what_has_ended_is_cleared_away_and_what_failed_is_kept(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    for task in (1, 2, 3, 4):
        tree = await trees.begin(attempt(task))
        (tree.path / f"f{task}").write_text("x\n")
        if task != 4:
            tree.let_go()
    closed = trees.folder / "1-abcd1234.1" / "closed"
    closed.mkdir()
    closed.chmod(0)
    verdicts = {"1-abcd1234": False, "2-abcd1234": True, "4-abcd1234": False}  # The third is open, the fourth held.
    await trees.sweep(verdicts.get)
    assert sorted(trees.names()) == ["3-abcd1234.1", "4-abcd1234.1"]
    assert await trees.branches() == [f"dugnad/task-{task}-abcd1234.1" for task in (2, 3, 4)]
    assert git(root, "show", "dugnad/task-2-abcd1234.1:f2") == "x"
    assert not list((root / ".git" / "worktrees").glob("[12]-*"))


async def test_after_the_merge_nothing_is_left_of_any_attempt(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    first = await trees.begin(attempt(1))
    (first.path / "a").write_text("wrong\n")
    await trees.put_away(first, keep=True)
    second = await trees.begin(attempt(1, epoch=2))
    (second.path / "a").write_text("right\n")
    await finish(trees, second)
    await trees.remove(second)
    await trees.forget(second.attempt.mark)
    assert git(root, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/dugnad/main", "refs/heads/main"]
    assert os.listdir(trees.folder) == []
    assert len(git(root, "worktree", "list").splitlines()) == 1


async def test_a_lock_that_a_killed_git_left_does_not_stop_the_next(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    trees.git = replace(trees.git, stale_seconds=0.2)
    tree = await trees.begin(attempt(1))
    for lock in (
        root / ".git" / "refs" / "heads" / "dugnad" / "main.lock",
        root / ".git" / "refs" / "dugnad" / "fence" / "1-abcd1234.lock",
        tree.own / "index.lock",
    ):
        lock.touch()
        os.utime(lock, (1, 1))
    tree.let_go()
    again = await trees.begin(attempt(1, epoch=2, born=1))
    (again.path / "a").write_text("x\n")
    assert await finish(trees, again)
    trees.target = "dugnad/other"
    (root / ".git" / "refs" / "heads" / "dugnad" / "other.lock").touch()
    assert await prepare_target(trees, "refs/heads/main") == ""
    assert git(root, "show", "dugnad/main:a") == "x"


async def test_a_project_in_a_folder_of_a_repository_and_in_a_worktree_of_the_persons(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"inner/a": "a\n"})
    git(root, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    for where in (root / "inner", tmp_path / "side" / "inner"):
        trees = await trees_of(where)
        assert trees.git.prefix == Path("inner")
        assert trees.git.directory == root / ".git"
        tree = await trees.begin(attempt(1 if where.is_relative_to(root) else 2))
        assert (tree.path / "inner" / "a").exists()


async def test_what_is_written_into_a_tree_does_not_follow_a_link_in_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("as it was\n")
    trees = await trees_of(new_repository(tmp_path / "p"))
    tree = await trees.begin(attempt(1))
    (tree.path / ".git").write_text("gitdir: elsewhere\n")  # As after the project was moved.
    (tree.path / f".git.{os.getpid()}").symlink_to(outside)
    tree.let_go()
    again = await trees.begin(attempt(1, 2, 1))
    assert again.path == tree.path
    assert (again.path / ".git").read_text() == f"gitdir: {again.own}\n"
    assert outside.read_text() == "as it was\n"
    await trees.remove(again)
