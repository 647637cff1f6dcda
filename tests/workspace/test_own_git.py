"""A git directory of our own beside the user's: it shares objects and names, and lives with the user's git."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.config.project import read_project
from dugnad.errors import BadInput, ToolError
from dugnad.workspace.git import private_repository
from dugnad.workspace.git.command import NO_WALLS
from dugnad.workspace.git.git import Git
from dugnad.workspace.git.merge_queue import Merged
from dugnad.workspace.git.ownership import GitTrouble
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.workspace.repository import at, attempt, finish, git, new_repository, subjects, trees_of
from tests.workspace.running import strict_here

STRANGER = 4_711
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


# Beside the user's git.


async def test_the_users_own_housekeeping_beside_it_loses_nothing(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    kept, merged = await trees.begin(attempt(1)), await trees.begin(attempt(2))
    (merged.path / "b").write_text("b\n")
    (kept.path / "a").write_text("a\n")
    tip = await kept.commit("Work", "alice")
    for words in (("pack-refs", "--all", "--prune"), ("gc", "--quiet", "--prune=now"), ("worktree", "prune")):
        git(root, *words)
    assert await kept.head() == tip
    assert isinstance(await finish(trees, merged), Merged)
    git(root, "gc", "--quiet", "--prune=now")
    assert isinstance(await finish(trees, kept), Merged)
    for tree in (kept, merged):
        await trees.remove(tree)
        await trees.forget(tree.attempt.mark)
    # What was packed is gone from the packed ones too, and our link still leads there.
    assert git(root, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/dugnad/main", "refs/heads/main"]
    assert not (root / ".git" / "packed-refs").is_symlink()
    assert (trees.git.private / "packed-refs").is_symlink()
    assert len(subjects(root)) == 3
    assert git(root, "fsck", "--no-dangling", "--connectivity-only") == ""


async def test_moves_of_the_target_are_in_its_reflog(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tree.path / "a").write_text("a\n")
    await finish(trees, tree)
    assert len(git(root, "reflog", "dugnad/main").splitlines()) == 2


async def test_plain_git_in_the_sandbox_looks_at_history_with_our_settings(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a": "1\n"})
    git(root, "config", "user.name", "Somebody else")
    git(root, "gc", "--quiet")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tree.path / "a").write_text("2\n")
    sandbox = Sandbox(strict_here())
    try:
        script = "git log --format=%s; git status --short; git diff --stat; git config user.name; git commit -qam x"
        ran = await sandbox.run(
            script, tree=tree.path, seconds=60, output_bytes_max=10_000, readable=tree.readable
        )  # fmt: skip
    finally:
        await sandbox.close()
    said = ran.output.decode()
    assert said.startswith("Begin\n M a\n a | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\ndugnad\n")
    assert ran.code != 0
    assert "Somebody" not in said


async def test_line_ends_and_modes_are_kept_as_the_repository_says(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a": "1\r\n2\r\n"})
    git(root, "config", "core.autocrlf", "input")
    git(root, "config", "core.fileMode", "false")
    git(root, "config", "core.eol", "lf\n[core]\nfsmonitor = evil")
    trees = await trees_of(root)
    assert "fsmonitor = evil" not in trees.git.settings
    tree = await trees.begin(attempt(1))
    (tree.path / "b").write_bytes(b"1\r\n")
    (tree.path / "a").chmod(0o755)
    await finish(trees, tree)
    assert git(root, "cat-file", "-p", "dugnad/main:b") == "1"
    assert git(root, "ls-tree", "dugnad/main", "a").startswith("100644")


def test_a_way_to_store_that_is_not_known_is_refused() -> None:
    for theirs, says in (
        ({"extensions.refstorage": "reftable"}, "git refs migrate"),
        ({"extensions.compatobjectformat": "sha256"}, "not known here"),
        ({"core.repositoryformatversion": "2"}, "not known here"),
        ({"extensions.objectformat": 'sha1"\n[core]'}, "not known here"),
    ):
        with pytest.raises(ToolError, match=says):
            private_repository.settings_from(theirs)


async def test_a_project_that_was_moved_keeps_its_trees(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    tree = await (await trees_of(root)).begin(attempt(1))
    (tree.path / "a").write_text("x\n")
    tree.let_go()
    root.rename(tmp_path / "q")
    trees = await trees_of(tmp_path / "q")
    again = await trees.begin(attempt(1, epoch=2, born=1))
    assert (again.path / "a").read_text() == "x\n"
    assert git(again.path, "status", "--short") == "?? a"
    assert isinstance(await finish(trees, again), Merged)


@pytest.mark.parametrize("in_order", [True, False])
async def test_a_tree_that_an_earlier_version_made_is_taken_over(tmp_path: Path, in_order: bool) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    for task in (1, 2):
        path = trees.folder / f"{task}-abcd1234.1"
        git(root, "worktree", "add", "--quiet", "-B", f"dugnad/task-{path.name}", str(path), "main")
        (root / ".git" / "worktrees" / path.name / "dugnad-whole").touch()
        (path / "work").write_text("x\n")
    tree = await trees.begin(attempt(1, epoch=2, born=1, in_order=in_order))
    assert (tree.path / "work").read_text() == "x\n"
    assert isinstance(await finish(trees, tree), Merged)
    await trees.remove(tree)
    await trees.sweep({"1-abcd1234": False, "2-abcd1234": True}.get)
    assert os.listdir(trees.folder) == []
    assert at(root, "dugnad/task-2-abcd1234.1", "work") == "x"
    assert git(root, "worktree", "list").splitlines() == [git(root, "worktree", "list")]


async def test_what_lay_in_our_place_before_is_ours_afterwards(tmp_path: Path) -> None:
    """As in a repository that came in an archive."""
    root = new_repository(tmp_path / "p", {"a": "a\n", ".gitattributes": "a filter=x\n"})
    evil = f"[filter 'x']\n\tclean = touch {tmp_path}/ran\n\tsmudge = touch {tmp_path}/ran\n".replace("'", '"')
    tree = await (await trees_of(root)).begin(attempt(1))
    tree.let_go()
    for own in (tree.own, root / ".git" / "dugnad" / "git"):
        (own / "config").write_text(f"[core]\n\trepositoryformatversion = 0\n{evil}")
        (own / "commondir").write_text("../..")
        (own / "info" / "attributes").write_text("* filter=x\n")
        (own / "objects").unlink()
        (own / "objects").symlink_to(tmp_path)
    (root / ".git" / "config").open("a").write(evil)
    trees = await trees_of(root)
    trees.git = replace(trees.git, behind=NO_WALLS)
    again = await trees.begin(attempt(1, epoch=2, born=1))
    (again.path / "a").write_text("b\n")
    assert isinstance(await finish(trees, again), Merged)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("where", ["", "git", "git/info", "trees"])
async def test_a_link_in_our_place_is_not_written_through(tmp_path: Path, where: str) -> None:
    root = new_repository(tmp_path / "p")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "config").write_text("mine")
    link = root / ".git" / "dugnad" / where
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / "precious")
    with pytest.raises(GitTrouble, match="is a link"):
        await (await trees_of(root)).begin(attempt(1))
    assert (tmp_path / "precious" / "config").read_text() == "mine"
    assert os.listdir(tmp_path / "precious") == ["config"]


async def test_half_a_tree_is_cleared_away(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    await trees.remove(tree)
    trees.git.make_private(tree.own, tree.branch)  # As a host leaves it that dies over it.
    tree.path.mkdir()
    await trees.sweep({"1-abcd1234": True}.get)
    assert os.listdir(trees.folder) == []
    assert not tree.own.exists()


# What may be in a tree.


async def test_a_tree_that_is_too_large_is_refused_and_kept_as_far_as_it_fits(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    trees.bytes_max = 1_000
    tree = await trees.begin(attempt(1))
    (tree.path / "small").write_text("x" * 400)
    (tree.path / "large").write_text("x" * 700)
    with pytest.raises(GitTrouble, match=r"have 1,100 bytes, and 1,000 are allowed.*The largest: large, small"):
        await tree.commit("Work", "alice")
    assert git(root, "count-objects").startswith("4 ")  # Nothing of it was stored, but the fence.
    branch = await trees.put_away(tree, keep=True)
    assert git(root, "ls-tree", "--name-only", str(branch)).split() == ["README.md", "small"]


async def test_what_was_a_folder_and_is_a_link_or_a_file_now_is_committed_as_that(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"one/a": "a\n", "two/b": "b\n", "three": "c\n"})
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_text("not ours\n")
    for name in ("one", "two"):
        shutil.rmtree(tree.path / name)
    (tree.path / "one").symlink_to(tmp_path / "outside")
    (tree.path / "two").write_text("a file\n")
    (tree.path / "three").unlink()
    (tree.path / "three").mkdir()
    (tree.path / "three" / "d").write_text("d\n")
    assert isinstance(await finish(trees, tree), Merged)
    listed = git(root, "ls-tree", "-r", "--format=%(objectmode) %(path)", "dugnad/main").splitlines()
    assert listed == ["120000 one", "100644 three/d", "100644 two"]


async def test_a_check_that_swaps_folders_for_links_writes_nothing_outside(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"one/a": "a\n"})
    tree = await (await trees_of(root)).begin(attempt(1))
    (tmp_path / "outside").mkdir()
    async with tree.checking():
        shutil.rmtree(tree.path / "one")
        (tree.path / "one").symlink_to(tmp_path / "outside")
    assert (tree.path / "one" / "a").read_text() == "a\n"
    assert not (tree.path / "one").is_symlink()
    assert os.listdir(tmp_path / "outside") == []


async def test_a_submodule_stays_in_the_commit_whatever_becomes_of_its_folder(tmp_path: Path) -> None:
    root, inner = new_repository(tmp_path / "p"), new_repository(tmp_path / "inner")
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(root, "commit", "--quiet", "--message", "A submodule")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tree.path / "sub").rmdir()
    (tree.path / "sub").write_text("a file\n")
    with pytest.raises(GitTrouble, match="sub: a submodule"):
        await tree.commit("Work", "alice")
    (tree.path / "sub").unlink()
    (tree.path / "new").write_text("x\n")
    assert isinstance(await finish(trees, tree), Merged)
    assert git(root, "ls-tree", "dugnad/main", "sub").startswith("160000 commit")


@pytest.mark.parametrize("as_what", ["folder", "file", "link"])
async def test_a_repository_in_a_tree_is_refused_and_loses_its_git_when_the_tree_is_given_up(
    tmp_path: Path, as_what: str
) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    inner = new_repository(tree.path / "inner", {"also": "y\n"})
    elsewhere = tmp_path / "elsewhere"
    if as_what != "folder":
        (inner / ".git").rename(elsewhere)
        if as_what == "file":
            (inner / ".git").write_text(f"gitdir: {elsewhere}\n")
        else:
            (inner / ".git").symlink_to(elsewhere)
    with pytest.raises(GitTrouble, match="inner: a git repository of its own"):
        await tree.commit("Work", "alice")
    with pytest.raises(GitTrouble, match="inner: a git repository of its own"):
        async with tree.checking():
            pass
    assert (inner / "also").exists()
    branch = await trees.put_away(tree, keep=True)
    assert at(root, str(branch), "inner/also") == "y"
    assert elsewhere.exists() == (as_what != "folder")


# Whose it is.


@as_root
async def test_what_belongs_to_a_stranger_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    mine = shared / "mine"
    new_repository(shared)
    mine.mkdir()
    (shared / "dugnad.toml").write_text("")
    for owned in (shared / ".git", shared, shared / "dugnad.toml"):
        os.chown(owned, STRANGER, -1)
        with pytest.raises(BadInput, match=f"belongs to user {STRANGER}, not to you.*sudo chown"):
            read_project(mine)
        if owned.name != "dugnad.toml":
            with pytest.raises(ToolError, match=f"{owned} belongs to user {STRANGER}"):
                await Git.find(shared, path=os.environ["PATH"])
        monkeypatch.setenv("SUDO_UID", str(STRANGER))
        assert read_project(mine).root == shared
        assert await Git.find(shared, path=os.environ["PATH"]) is not None
        monkeypatch.delenv("SUDO_UID")
        os.chown(owned, 0, -1)


@as_root
async def test_a_file_that_leads_to_a_strangers_repository_is_not_followed(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    git(root, "worktree", "add", "--quiet", str(tmp_path / "side"))
    for owned in (root / ".git" / "worktrees" / "side", root / ".git"):
        os.chown(owned, STRANGER, -1)
        with pytest.raises(ToolError, match=f"{owned} belongs to user {STRANGER}"):
            await Git.find(tmp_path / "side", path=os.environ["PATH"])
        os.chown(owned, 0, -1)
    assert await Git.find(tmp_path / "side", path=os.environ["PATH"]) is not None


# Locks.


async def test_a_lock_is_stale_only_after_it_was_watched_and_by_no_clock_of_its_own(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    git_found = replace((await trees_of(root)).git, stale_seconds=10.0)
    lock = root / ".git" / "refs" / "heads" / "x.lock"
    for written in (1, 4_000_000_000):  # Long ago, and in the future: what the file says is of no interest.
        lock.touch()
        os.utime(lock, (written, written))
        for now in (100.0, 100.011, 109.9):
            git_found.remove_stale_lock("refs/heads/x", now=now)
            assert lock.exists()
        lock.unlink()
        lock.touch()  # Another git's: it is watched anew.
        for now in (110.0, 119.9):
            git_found.remove_stale_lock("refs/heads/x", now=now)
            assert lock.exists()
        git_found.remove_stale_lock("refs/heads/x", now=120.0)
        assert not lock.exists()


async def test_the_clock_that_watches_a_lock_counts_seconds(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    git_found = replace((await trees_of(root)).git, stale_seconds=100.0)
    lock = root / ".git" / "refs" / "heads" / "x.lock"
    lock.touch()
    git_found.remove_stale_lock("refs/heads/x")
    await asyncio.sleep(0.2)  # In milliseconds, that would be long enough.
    git_found.remove_stale_lock("refs/heads/x")
    assert lock.exists()
