"""Repositories that are damaged, or laid out to mislead: one sentence says what is wrong, and nothing is written to."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from dugnad.workspace.git import private_repository
from dugnad.workspace.git.git import Git
from dugnad.workspace.git.merge_lock import open_lock
from dugnad.workspace.git.merge_queue import Merged
from dugnad.workspace.git.ownership import GitTrouble
from tests.workspace.repository import attempt, finish, git, new_repository, trees_of


@pytest.mark.parametrize("said", ["a\0b\n", "a" * 500_000, "a" * 5_000, ""])
async def test_a_git_file_that_names_no_path_leads_to_no_repository(tmp_path: Path, said: str) -> None:
    (tmp_path / ".git").write_text(f"gitdir: {said}")
    with pytest.raises(GitTrouble) as refused:
        await Git.find(tmp_path, path=os.environ["PATH"])
    assert str(refused.value) == f"{tmp_path} cannot be asked as a git repository: its .git leads to none."


async def test_a_worktree_that_names_no_path_is_not_ones_own(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    git(root, "worktree", "add", "--quiet", str(tmp_path / "w"))
    (root / ".git" / "worktrees" / "w" / "gitdir").write_text("a\0b\n")
    with pytest.raises(GitTrouble, match="does not name"):
        await Git.find(tmp_path / "w", path=os.environ["PATH"])
    assert await (await trees_of(root)).git.checked_out()


@pytest.mark.parametrize(
    ("name", "text", "says"), [("packed-refs", "garbage\n", "unexpected line"), ("shallow", "zzz\n", "bad shallow")]
)
async def test_what_git_says_of_a_damaged_repository_is_told(tmp_path: Path, name: str, text: str, says: str) -> None:
    root = new_repository(tmp_path / "p")
    (root / ".git" / name).write_text(text)
    with pytest.raises(GitTrouble, match=says):
        await trees_of(root)


async def test_a_repository_without_a_commit_is_still_told_apart(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main", ".")
    with pytest.raises(GitTrouble, match="no commit yet"):
        await trees_of(tmp_path)


def a_pipe(head: Path) -> None:
    os.mkfifo(head)


def a_link(head: Path) -> None:
    head.symlink_to("/etc/passwd")


@pytest.mark.parametrize("make", [a_pipe, a_link, Path.mkdir, Path.touch])
async def test_a_head_that_names_nothing_is_told_of(tmp_path: Path, make: Callable[[Path], None]) -> None:
    root = new_repository(tmp_path / "p")
    (root / ".git" / "HEAD").unlink()
    make(root / ".git" / "HEAD")
    with pytest.raises(GitTrouble, match="HEAD does not say what is checked out"):
        await Git.find(root, path=os.environ["PATH"])


async def test_a_branch_whose_name_is_no_text_can_be_moved_and_is_no_target(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    found, name = (await trees_of(root)).git, "refs/heads/a\udcff"
    head = await found.own_head() or ""
    assert await found.move([(name, "", head)])
    assert await found.commit_of(name) == head
    with pytest.raises(GitTrouble, match="cannot be the name of a branch here; name another one with --into"):
        await trees_of(root, "dugnad/a\udcff")


async def test_a_split_index_is_worked_with(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a": "a\n", "tracked/b": "b\n"})
    git(root, "update-index", "--split-index")
    assert list((root / ".git").glob("sharedindex.*"))
    found = (await trees_of(root)).git
    assert await found.changes() == []
    assert await found.is_tracked("tracked")
    (root / "a").write_text("changed\n")
    assert await found.changes() == ["a"]
    (root / "new").touch()
    assert await found.changes() == ["a", "new"]


async def test_an_index_too_large_to_be_one_is_not_copied(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    found = (await trees_of(root)).git
    os.truncate(root / ".git" / "index", 50 * 1024**3)
    with pytest.raises(GitTrouble, match="index is too large; `git read-tree HEAD` makes it anew"):
        await found.changes()
    assert [each.name for each in found.private.iterdir() if each.name.startswith("index.")] == []


# Files of ours.


def hard_linked(path: Path, precious: Path) -> None:
    os.link(precious, path)


def linked(path: Path, precious: Path) -> None:
    path.symlink_to(precious)


def piped(path: Path, _: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path, _: Path) -> None:
    path.mkdir()


def a_socket(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


IN_THE_WAY = [hard_linked, linked, piped, a_folder, a_socket]


@pytest.mark.parametrize("make", IN_THE_WAY)
async def test_a_lock_is_a_new_file_of_ours_whatever_was_there(
    tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    (root / ".git" / "dugnad" / "main.lock").unlink()
    make(root / ".git" / "dugnad" / "main.lock", precious)
    trees.folder.mkdir(parents=True, exist_ok=True)
    make(trees.folder / "1-abcd1234.1.lock", precious)
    tree = await trees.begin(attempt(1))
    (tree.path / "a").write_text("a\n")
    assert isinstance(await finish(trees, tree), Merged)
    assert precious.read_text() == "precious"
    assert json.loads((root / ".git" / "dugnad" / "main.lock").read_bytes())["pid"] == os.getpid()


def test_a_lock_of_ours_stays_the_same_file(tmp_path: Path) -> None:
    first, second = open_lock(tmp_path / "lock"), open_lock(tmp_path / "lock")
    assert os.path.samestat(os.fstat(first), os.fstat(second))
    os.close(first)
    os.close(second)


@pytest.mark.parametrize("name", ["logs/HEAD", "index", "HEAD", "config", "dugnad-whole"])
async def test_a_file_of_ours_that_is_another_name_of_somebody_elses_is_replaced(tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    found = (await trees_of(new_repository(tmp_path / "p"))).git
    (found.private / name).unlink(missing_ok=True)
    os.link(precious, found.private / name)
    found.make_private(found.private, "refs/heads/dugnad/none")
    assert os.stat(precious).st_nlink == 1
    assert precious.read_text() == "precious"


async def test_nothing_but_ours_stays_in_a_git_directory_of_ours(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    await trees.begin(attempt(1))
    own = root / ".git" / "dugnad" / "trees" / "1-abcd1234.1"
    before = sorted(str(each.relative_to(own)) for each in own.rglob("*"))
    for name in (".gitattributes", "commondir", "config.worktree", "info/grafts", "info/attributes", "FETCH_HEAD"):
        (own / name).write_text("x")
    (own / "hooks").mkdir()
    os.mkfifo(own / "main")
    trees.git.make_private(own, None)
    assert sorted(str(each.relative_to(own)) for each in own.rglob("*")) == before
    assert private_repository.head_of(own) == "refs/heads/dugnad/task-1-abcd1234.1"
