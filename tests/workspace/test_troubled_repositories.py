"""Repositories as people have them, and as somebody who means harm leaves them: each works, or is told of."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dugnad.workspace.git.git import Git
from dugnad.workspace.git.merge_queue import Merged, prepare_target
from dugnad.workspace.git.ownership import GitTrouble
from dugnad.workspace.git.worktrees import Trees
from tests.workspace.repository import at, attempt, finish, git, new_repository, ours, subjects, trees_of


async def found(where: Path) -> Git:
    git_found = await Git.find(where, path=os.environ["PATH"])
    assert git_found is not None
    return git_found


async def trees_in(where: Path, target: str = "dugnad/main") -> Trees:
    """Over a repository of any kind, from what is checked out there."""
    asked = await found(where)
    trees = Trees(git=asked, folder=where / ".dugnad" / "trees", target=target)
    await prepare_target(trees, await asked.own_head())
    return trees


async def work_in(where: Path) -> None:
    """A whole piece of work, and nothing left of it but a commit."""
    trees = await trees_in(where)
    tree = await trees.begin(attempt(1))
    (tree.path / "new").write_text("x\n")
    assert isinstance(await finish(trees, tree), Merged)
    await trees.remove(tree)
    await trees.forget(tree.attempt.mark)
    assert at(where, "dugnad/main", "new") == "x"
    assert await trees.branches() == []


def copied(root: Path, name: str, *options: str) -> Path:
    git(root.parent, "clone", "--quiet", *options, f"file://{root}", str(root.parent / name))
    return root.parent / name


async def test_repositories_of_every_kind_are_worked_in(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a/x": "1\n", "b/y": "1\n"})
    git(root, "commit", "--allow-empty", "--message", "More")
    await work_in(copied(root, "shallow", "--depth", "1"))
    git(tmp_path, "clone", "--quiet", "--shared", str(root), str(tmp_path / "shared"))
    await work_in(tmp_path / "shared")
    bare = copied(root, "bare.git", "--bare")
    git(bare, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "of-bare"), "main")
    await work_in(tmp_path / "of-bare")
    packed = copied(root, "packed")
    git(packed, "pack-refs", "--all")
    await work_in(packed)
    (tmp_path / "long").mkdir()
    git(tmp_path / "long", "init", "--quiet", "--object-format=sha256", "--initial-branch=main", ".")
    git(tmp_path / "long", "commit", "--allow-empty", "--message", "Begin")
    await work_in(tmp_path / "long")
    outer = new_repository(tmp_path / "outer")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(root), "inner")
    await work_in(outer / "inner")


async def test_a_sparse_checkout_is_the_persons_and_a_tree_has_everything(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a/x": "1\n", "b/y": "1\n"})
    git(root, "sparse-checkout", "set", "a")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    assert (tree.path / "b" / "y").exists()
    (tree.path / "b" / "z").write_text("2\n")
    assert isinstance(await finish(trees, tree), Merged)
    assert at(root, "dugnad/main", "b/z") == "2"
    assert not (root / "b").exists()


async def test_nothing_is_fetched_in_passing_by_a_program_the_settings_name(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    git(root, "config", "uploadpack.allowFilter", "true")
    partial = copied(root, "partial", "--no-checkout", "--filter=blob:none")
    (tmp_path / "run").write_text(f'#!/bin/sh\ntouch {tmp_path}/told\nexec git-upload-pack "$@"\n')
    (tmp_path / "run").chmod(0o755)
    git(partial, "config", "remote.origin.uploadpack", str(tmp_path / "run"))
    trees = await trees_in(partial)
    with pytest.raises(GitTrouble, match=r"is a partial clone.*--refetch --no-filter"):
        await trees.begin(attempt(1))
    assert not (tmp_path / "told").exists()
    git(partial, "fetch", "--quiet", "--refetch", "--no-filter")
    (tmp_path / "told").unlink()  # The control: this is how it would have been run.
    assert (await trees.begin(attempt(1, epoch=2))).path.exists()


async def test_a_filter_with_an_odd_name_is_not_run_either(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a": "1\n", ".gitattributes": "a filter=x=y\n"})
    git(root, "config", "filter.x=y.smudge", f"touch {tmp_path}/told; cat")
    await work_in(root)
    assert not (tmp_path / "told").exists()


async def test_settings_that_hide_new_files_do_not_hide_them_from_the_check(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    git(root, "config", "status.showUntrackedFiles", "no")
    tree = await (await trees_of(root)).begin(attempt(1))
    (tree.path / "new").write_text("x\n")
    assert await tree.changed()


async def test_names_that_stand_for_two_things_are_the_branches(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    git(root, "tag", "main")
    assert await (await found(root)).head_branch() == "main"
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    git(root, "tag", tree.branch.removeprefix("refs/heads/"))
    assert await trees.branches("1-abcd1234") == [tree.branch.removeprefix("refs/heads/")]


async def test_a_branch_in_the_way_is_named(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    git(root, "branch", "dugnad")
    for target in ("dugnad/main", "elsewhere"):
        with pytest.raises(GitTrouble, match=r"a branch named dugnad.*`git branch -m dugnad dugnad-old`"):
            await trees_of(root, target)
    git(root, "branch", "-m", "dugnad", "side")
    with pytest.raises(GitTrouble, match="a branch named side"):
        await trees_of(root, "side/line")


async def test_a_branch_of_the_persons_begins_where_they_left_it(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    git(root, "branch", "release")
    git(root, "commit", "--allow-empty", "--message", "More")
    trees = await trees_of(root, "release")
    assert subjects(root, "release") == ["Begin"]
    assert "release lacks commits of main" in await prepare_target(trees, "refs/heads/main")


async def test_what_is_checked_out_without_a_branch_is_that_of_the_very_checkout(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    side = tmp_path / "side"
    git(root, "worktree", "add", "--quiet", "--detach", str(side))
    git(side, "commit", "--allow-empty", "--message", "Mine")
    await trees_in(side, "dugnad/work")
    assert subjects(root, "dugnad/work") == ["Mine", "Begin"]


async def test_a_target_that_is_checked_out_meanwhile_does_not_move_under_the_person(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tree.path / "a").write_text("x\n")
    git(root, "switch", "--quiet", "dugnad/main")
    with pytest.raises(GitTrouble, match="is checked out in"):
        await finish(trees, tree)
    assert git(root, "status", "--porcelain") == ""
    git(root, "switch", "--quiet", "main")
    assert isinstance(await finish(trees, tree), Merged)


async def test_a_target_that_is_gone_says_how_to_have_it_again(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tree.path / "a").write_text("x\n")
    git(root, "branch", "-D", "dugnad/main")
    for asked in (finish(trees, tree), trees.begin(attempt(2))):
        with pytest.raises(GitTrouble, match="`git branch dugnad/main` makes it again"):
            await asked
    git(root, "branch", "dugnad/main")
    assert isinstance(await finish(trees, tree), Merged)


async def test_a_project_that_only_lies_beneath_a_repository_is_not_in_it(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "home", {"dotfile": "x\n", "inside/a": "a\n"})
    (root / "project").mkdir()
    assert await Git.find(root / "project", path=os.environ["PATH"]) is None
    assert (await found(root / "inside")).prefix == Path("inside")


async def test_a_folder_of_ours_may_be_a_link_to_a_larger_disk(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    (root / ".dugnad").rename(tmp_path / "large")
    (root / ".dugnad").symlink_to(tmp_path / "large")
    await work_in(root)


def test_a_repository_that_cannot_be_written_is_told_of(tmp_path: Path) -> None:
    """In a mount namespace of its own, since root may write anything that is not mounted otherwise."""
    root = new_repository(tmp_path / "p")
    program = (
        "import asyncio, os, sys; from pathlib import Path; from dugnad.workspace.git.git import Git\n"
        "try: asyncio.run(Git.find(Path(sys.argv[1]), path=os.environ['PATH']))\n"
        "except Exception as trouble: print(type(trouble).__name__, trouble)"
    )
    shell = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", shell, "sh", str(root), sys.executable, program]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode:
        pytest.skip(f"no mount namespace: {ran.stderr}")
    assert ran.stdout.startswith("GitTrouble Worktrees need to write to")
    assert "Read-only file system" in ran.stdout


# What a teammate leaves in its tree.


async def test_what_the_team_works_under_is_not_the_teams_to_change(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"inner/dugnad.toml": "checks = ['true']\n", "inner/a": "a\n"})
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    for path in ("inner/dugnad.toml", "inner/.dugnad/board.db", "other/Dugnad.TOML"):
        (tree.path / path).parent.mkdir(exist_ok=True)
        (tree.path / path).write_text("mine\n")
        with pytest.raises(GitTrouble, match=f"{path}.*may not change the rules"):
            await tree.commit("Work", "alice")
        git(tree.path, "checkout", "--quiet", ".")
        git(tree.path, "clean", "--quiet", "-fdx")
    (tree.path / "inner" / "a").write_text("b\n")
    assert isinstance(await finish(trees, tree), Merged)


async def test_files_in_a_submodule_are_not_lost_without_a_word(tmp_path: Path) -> None:
    root, inner = new_repository(tmp_path / "p"), new_repository(tmp_path / "inner")
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(root, "commit", "--quiet", "--message", "A submodule")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tree.path / "sub" / "new").write_text("x\n")
    with pytest.raises(GitTrouble, match="sub: a submodule"):
        await tree.commit("Work", "alice")
    (tree.path / "sub" / "new").rename(tree.path / "new")
    assert isinstance(await finish(trees, tree), Merged)
    assert git(root, "ls-tree", "dugnad/main", "sub").startswith("160000 commit")


async def test_what_failed_is_kept_whatever_lies_beside_it(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tree.path / "good").write_text("x\n")
    inner = tree.path / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet", ".")  # Without a commit git refuses to add anything at all.
    (inner / "also").write_text("y\n")
    (tree.path / "README.md").unlink()
    os.mkfifo(tree.path / "README.md")
    with pytest.raises(GitTrouble):
        await tree.commit("Work", "alice")
    branch = await trees.put_away(tree, keep=True)
    assert branch is not None
    assert (at(root, branch, "good"), at(root, branch, "inner/also")) == ("x", "y")
    assert os.listdir(trees.folder) == []


async def test_folders_deeper_than_any_path_are_taken_away(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    folder = os.open(tree.path, os.O_RDONLY)
    for _ in range(1_100):
        os.mkdir("long", dir_fd=folder)
        inner = os.open("long", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    (tree.path / "a").write_text("x\n")
    assert isinstance(await finish(trees, tree), Merged)
    await trees.put_away(tree, keep=True)
    assert os.listdir(trees.folder) == []


async def test_a_repository_that_a_check_made_is_cleared_away_with_all_else_it_left(tmp_path: Path) -> None:
    tree = await (await trees_of(new_repository(tmp_path / "p"))).begin(attempt(1))
    (tree.path / "a").write_text("x\n")
    async with tree.checking():
        new_repository(tree.path / "made-by-a-test")
        (tree.path / "a").unlink()
    assert sorted(os.listdir(tree.path)) == [".git", "README.md", "a"]


# Stopped in the middle.


class Stopped(Exception):
    pass


@pytest.mark.parametrize("in_order", [True, False])
async def test_who_was_stopped_in_a_check_leaves_nothing_of_it_to_the_next(tmp_path: Path, in_order: bool) -> None:
    trees = await trees_of(new_repository(tmp_path / "p"))
    tree = await trees.begin(attempt(1))
    (tree.path / "work").write_text("x\n")
    with suppress(Stopped):
        async with tree.checking():
            (tree.path / "litter").write_text("of the check\n")
            (tree.path / "work").write_text("spoiled\n")
            raise Stopped
    tree.let_go()
    after = await trees.begin(attempt(1, epoch=2, born=1, in_order=in_order))
    assert sorted(os.listdir(after.path)) == [".git", "README.md", "work"]
    assert (after.path / "work").read_text() == "x\n"


@pytest.mark.parametrize("in_order", [True, False])
async def test_who_was_stopped_in_a_merge_has_the_same_work_again(tmp_path: Path, in_order: bool) -> None:
    """Under the same name, so that whoever approved it has approved it."""
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    other, tree = await trees.begin(attempt(2)), await trees.begin(attempt(1))
    (other.path / "other").write_text("x\n")
    await finish(trees, other)
    (tree.path / "work").write_text("x\n")
    tip = await tree.commit("Some work", "alice")

    async def stopped() -> str | None:
        (tree.path / "litter").write_text("of the check\n")
        raise Stopped

    with pytest.raises(Stopped):
        await finish(trees, tree, stopped)
    tree.let_go()
    after = await trees.begin(attempt(1, epoch=2, born=1, in_order=in_order))
    assert await after.commit("Some work", "alice") == tip
    assert sorted(os.listdir(after.path)) == [".git", "README.md", "work"]
    assert isinstance(await finish(trees, after, is_ours=ours), Merged)
    assert subjects(root) == ["Some work", "Some work", "Begin"]


async def test_half_a_copy_does_not_stop_the_next(tmp_path: Path) -> None:
    trees = await trees_of(new_repository(tmp_path / "p"))
    tree = await trees.begin(attempt(1))
    (tree.path / "work").write_text("x\n")
    for name in ("1-abcd1234.1.index", "1-abcd1234.1.index.lock"):  # As a host leaves them that dies over it.
        (trees.folder / name).write_text("")
    after = await trees.begin(attempt(1, epoch=2, born=1, in_order=False))
    assert (after.path / "work").exists()


async def test_what_git_cannot_take_in_stays_in_its_tree(tmp_path: Path) -> None:
    """As with a full disk. Here objects cannot be written, since a file is where their folder should be."""
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    for number in range(100):  # One whose folder another object did not make already.
        (tree.path / "work").write_text(f"{number}\n")
        name = git(root, "hash-object", str(tree.path / "work"))
        if not (root / ".git" / "objects" / name[:2]).exists():
            break
    (root / ".git" / "objects" / name[:2]).write_text("in the way")
    with pytest.raises(GitTrouble):
        await trees.put_away(tree, keep=True)
    tree.let_go()
    await trees.sweep({"1-abcd1234": True}.get)
    assert (tree.path / "work").read_text() == f"{number}\n"
    (root / ".git" / "objects" / name[:2]).unlink()
    await trees.sweep({"1-abcd1234": True}.get)
    assert at(root, tree.branch, "work") == str(number)
    assert os.listdir(trees.folder) == []
