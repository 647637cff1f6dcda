"""What lies in a repository's own folder is real: no link in it leads our git, or a command, to what lies outside."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.errors import ToolError
from dugnad.workspace.git import private_repository
from dugnad.workspace.git.command import NO_WALLS
from dugnad.workspace.git.git import Git
from dugnad.workspace.git.merge_queue import Merged
from dugnad.workspace.git.ownership import GitTrouble
from dugnad.workspace.sandbox.profile import Confinement
from dugnad.workspace.sandbox.protected_paths import protect, sockets_in
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.workspace.repository import at, attempt, finish, git, new_repository, trees_of
from tests.workspace.running import strict_here

STRANGER = 4_711
WORD = "the-secret-word"
FOLDERS = ("objects", "refs", "logs", "logs/refs", "info", "dugnad", "worktrees")
FILES = ("config", "config.worktree", "packed-refs", "shallow", "info/exclude", "index")


async def found(where: Path) -> Git:
    git_found = await Git.find(where, path=os.environ["PATH"])
    assert git_found is not None
    return git_found


def outside_of(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text(WORD)
    return outside


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() if each.is_file() else b"" for each in sorted(folder.rglob("*"))}


def moved_away(root: Path, name: str, outside: Path) -> Path:
    """Have a link where something of the repository is, to the very same thing elsewhere."""
    path, to = root / ".git" / name, outside / name.replace("/", "-")
    if os.path.lexists(path):
        path.rename(to)
    elif name in FOLDERS:
        to.mkdir()
    else:
        to.write_text("")
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(to)
    return path


@pytest.mark.parametrize("name", [*FOLDERS, *FILES])
async def test_a_link_among_the_names_of_a_repository_is_refused(tmp_path: Path, name: str) -> None:
    root, outside = new_repository(tmp_path / "p"), outside_of(tmp_path)
    path = moved_away(root, name, outside)
    before = everything_in(outside)
    with pytest.raises(GitTrouble, match=f"{path} is a link"):
        await found(root)
    assert everything_in(outside) == before


@pytest.mark.parametrize("name", FILES)
async def test_a_pipe_in_a_files_place_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    root = new_repository(tmp_path / "p")
    path = root / ".git" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(GitTrouble, match=f"{path} is not a regular file"):
        await found(root)


@pytest.mark.parametrize("name", ["objects", "refs", "packed-refs", "shallow"])
async def test_a_link_that_is_put_there_later_is_not_handed_to_a_sandbox(tmp_path: Path, name: str) -> None:
    root, outside = new_repository(tmp_path / "p"), outside_of(tmp_path)
    tree = await (await trees_of(root)).begin(attempt(1))
    assert all(not each.is_symlink() for each in tree.readable)
    moved_away(root, name, outside)
    with pytest.raises(GitTrouble, match="is a link"):
        print(tree.readable)


async def test_a_command_reads_nothing_through_the_name_of_a_shallow_clone(tmp_path: Path) -> None:
    root, outside = new_repository(tmp_path / "p"), outside_of(tmp_path)
    (root / ".git" / "shallow").symlink_to(outside)
    sandbox, said = Sandbox(strict_here()), b""
    try:
        tree = await (await trees_of(root)).begin(attempt(1))
        script = f"cat {shlex.quote(str(root))}/.git/shallow/secret"
        ran = await sandbox.run(script, tree=tree.path, seconds=60, output_bytes_max=10_000, readable=tree.readable)
        said = ran.output
    except GitTrouble as trouble:
        said = str(trouble).encode()  # Refused before there is a tree.
    finally:
        await sandbox.close()
    assert WORD not in said.decode()
    assert "shallow is a link" in said.decode()


async def test_what_is_excluded_is_not_read_through_a_link(tmp_path: Path) -> None:
    root, outside = new_repository(tmp_path / "p"), outside_of(tmp_path)
    tree = await (await trees_of(root)).begin(attempt(1))
    exclude = root / ".git" / "info" / "exclude"
    exclude.unlink(missing_ok=True)
    exclude.symlink_to(outside / "secret")
    with pytest.raises(GitTrouble, match="exclude is a link"):
        tree.git.make_private(tree.own, None)
    assert private_repository.read(exclude) is None
    assert WORD not in (tree.own / "info" / "exclude").read_text()


def test_a_socket_behind_a_link_is_covered_where_a_command_sees_it(tmp_path: Path) -> None:
    tree = tmp_path / "p" / ".dugnad" / "trees" / "t"
    tree.mkdir(parents=True)
    (tmp_path / "real").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "real" / "socket"))
        listener.listen()
        (tmp_path / "folder").symlink_to(tmp_path / "real")
        (tmp_path / "one").symlink_to(tmp_path / "real" / "socket")
        for readable, seen in (("real", "real/socket"), ("folder", "folder/socket"), ("one", "one")):
            policy = Confinement(tree=tree, readable=(tmp_path / readable,))
            assert sockets_in(policy) == (tmp_path / seen,)


# Names and their logs.


@pytest.mark.parametrize("walls", [True, False])
@pytest.mark.parametrize("where", ["logs/refs/heads/dugnad/main", "logs/refs/heads/dugnad", "refs/heads/dugnad"])
async def test_no_name_is_moved_and_no_log_written_through_a_link(tmp_path: Path, where: str, walls: bool) -> None:
    root, outside = new_repository(tmp_path / "p"), outside_of(tmp_path)
    trees = await trees_of(root)
    trees.git = trees.git if walls else replace(trees.git, behind=NO_WALLS)
    tree = await trees.begin(attempt(1))
    (tree.path / "a").write_text("a\n")
    tip = await tree.commit("Work", "alice")
    path, to = root / ".git" / where, outside / "it"
    if path.is_dir():
        shutil.copytree(path, to)
        shutil.rmtree(path)
    else:
        to.write_text("mine\n")
        path.unlink()
    path.symlink_to(to)
    before, main = everything_in(outside), git(root, "rev-parse", "dugnad/main")
    with pytest.raises(GitTrouble, match=f"{path} is a link"):
        await trees.git.move([("refs/heads/dugnad/main", main, tip)])
    assert everything_in(outside) == before


async def test_git_itself_may_not_write_through_a_link_in_place_of_a_folder(tmp_path: Path) -> None:
    """Where somebody swaps it after it was looked at, the walls hold."""
    root, outside = new_repository(tmp_path / "p"), outside_of(tmp_path)
    asked = await found(root)
    if asked.behind is NO_WALLS:
        pytest.skip("This kernel has no Landlock, so there is no wall around git to test.")
    moved_away(root, "objects", outside)
    before = everything_in(outside)
    with pytest.raises(GitTrouble):
        await asked.blob("something new\n")
    assert everything_in(outside).keys() == before.keys()


async def test_links_in_our_own_git_directory_are_taken_away(tmp_path: Path) -> None:
    root, outside = new_repository(tmp_path / "p"), outside_of(tmp_path)
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    tree.let_go()
    before = everything_in(outside)
    for name in ("index", "logs/HEAD"):
        (tree.own / name).unlink(missing_ok=True)
        (tree.own / name).symlink_to(outside / "secret")
    trees.git = replace(trees.git, behind=NO_WALLS)
    again = await trees.begin(attempt(1, epoch=2, born=1))
    await again.run("read-tree", "--reset", "HEAD")
    (again.path / "a").write_text("a\n")
    assert isinstance(await finish(trees, again), Merged)
    assert everything_in(outside) == before


# Which repository it is.


@pytest.mark.parametrize("how", ["file", "link", "commondir", "own worktree"])
async def test_a_repository_that_does_not_know_the_project_is_left_alone(tmp_path: Path, how: str) -> None:
    other, root = new_repository(tmp_path / "other"), tmp_path / "p"
    root.mkdir()
    if how == "file":
        (root / ".git").write_text("gitdir: ../other/.git\n")
    elif how == "link":
        (root / ".git").symlink_to("../other/.git")
    else:
        (root / ".git").mkdir()
        (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (root / ".git" / "commondir").write_text("../../other/.git\n")
        if how == "own worktree":
            (root / ".git" / "gitdir").write_text(f"{root}/.git\n")
    before = everything_in(other)
    with pytest.raises(GitTrouble, match=f"{root}/.git leads to .*, which does not name {root} as its checkout"):
        await found(root)
    assert everything_in(other) == before


async def test_worktrees_of_others_are_not_taken_for_ones_own(tmp_path: Path) -> None:
    other, root = new_repository(tmp_path / "other"), tmp_path / "p"
    git(other, "worktree", "add", "--quiet", str(tmp_path / "side"))
    root.mkdir()
    shutil.copyfile(tmp_path / "side" / ".git", root / ".git")
    with pytest.raises(GitTrouble, match="does not name"):
        await found(root)
    assert (await found(tmp_path / "side")).own == other / ".git" / "worktrees" / "side"


async def test_a_repository_kept_elsewhere_is_worked_in_once_it_names_its_checkout(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    git(root, "init", "--quiet", "--separate-git-dir", str(tmp_path / "kept elsewhere"))
    with pytest.raises(GitTrouble) as trouble:
        await found(root)
    command = shlex.split(str(trouble.value).split("`")[1])
    git(root, *command[1:])
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tree.path / "a").write_text("a\n")
    assert isinstance(await finish(trees, tree), Merged)
    assert at(root, "dugnad/main", "a") == "a"


async def test_submodules_and_moved_worktrees_are_found_again(tmp_path: Path) -> None:
    root, inner = new_repository(tmp_path / "p"), new_repository(tmp_path / "inner")
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(root / "sub", "sparse-checkout", "set", ".")  # It takes core.worktree into a file of its own.
    assert (await found(root / "sub")).directory == root / ".git" / "modules" / "sub"
    git(root, "worktree", "add", "--quiet", str(tmp_path / "side"))
    (tmp_path / "side").rename(tmp_path / "there")
    with pytest.raises(GitTrouble, match="git worktree repair"):
        await found(tmp_path / "there")
    git(tmp_path / "there", "worktree", "repair")
    assert (await found(tmp_path / "there")).directory == root / ".git"


# Whose it is, and what a teammate leaves.


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can change the owner of one file.")
@pytest.mark.parametrize("name", ["objects", "refs", "info", "config", "dugnad", "packed-refs"])
async def test_no_part_of_a_repository_is_a_strangers(tmp_path: Path, name: str) -> None:
    root = new_repository(tmp_path / "p")
    git(root, "pack-refs", "--all")
    await found(root)
    (root / ".git" / "info").mkdir(exist_ok=True)
    os.chown(root / ".git" / name, STRANGER, -1)
    with pytest.raises(ToolError, match=f"{name} belongs to user {STRANGER}"):
        await found(root)


def test_a_command_in_the_projects_own_folder_cannot_plant_what_later_runs_read(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    policy, held = protect(Confinement(tree=root))
    for name in ("shallow", "info", "config", "dugnad", "worktrees"):
        assert root / ".git" / name in policy.read_only
        assert str(root / ".git" / name) in dict(held)


async def test_what_the_last_commit_holds_is_tracked_whatever_the_index_says(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a": "a\n", "in/b": "b\n"})
    git(root, "rm", "--quiet", "--cached", "-r", "a", "in")
    asked = await found(root)
    assert [await asked.is_tracked(name) for name in ("a", "in", "in/b", "c")] == [True, True, True, False]
