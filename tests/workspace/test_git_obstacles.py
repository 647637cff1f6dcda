"""Git is let near nothing that would keep it waiting or use up the machine, and no git outlives its host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from dugnad.workspace.git import command
from dugnad.workspace.git import git as asking
from dugnad.workspace.git.command import GitCall, ask
from dugnad.workspace.git.git import Git
from dugnad.workspace.git.merge_queue import Merged
from dugnad.workspace.git.merging import try_merge
from dugnad.workspace.git.ownership import GitTooSlow, GitTrouble
from dugnad.workspace.git.worktree import Tree
from tests.workspace.repository import at, attempt, finish, git, new_repository, trees_of
from tests.workspace.running import until

HERE = str(Path(__file__).parents[2])


def a_pipe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def a_large_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, 700 * 1024 * 1024)


def a_repository_elsewhere(path: Path) -> None:
    """A file named .git that leads to a folder with a pipe in it."""
    a_pipe(path.parent.parent / "elsewhere" / "HEAD")
    path.parent.mkdir()
    path.write_text("gitdir: ../elsewhere\n")


AT = ("sub/.gitignore", "sub/.gitattributes", "sub/.git/HEAD", "sub/.git/commondir", ".gitmodules")
ODD: list[tuple[str, Callable[[Path], None], str]] = [
    *((name, a_pipe, "a named pipe") for name in AT),
    ("sub/.gitignore", a_large_file, "734,003,200 bytes"),
    ("sub/.git", a_repository_elsewhere, "a named pipe"),
]


async def begun(where: Path) -> Tree:
    tree = await (await trees_of(where)).begin(attempt(1))
    (tree.path / "work.txt").write_text("work\n")
    return tree


@pytest.mark.parametrize(("name", "make", "says"), ODD)
async def test_what_git_would_wait_for_is_named_and_not_opened(
    tmp_path: Path, name: str, make: Callable[[Path], None], says: str
) -> None:
    tree = await begun(new_repository(tmp_path / "p"))
    make(tree.path / name)
    with pytest.raises(GitTrouble, match=f"{name}: it (is|has) {says}"):
        await tree.commit("Work", "alice")
    with pytest.raises(GitTrouble, match=f"{name}: it (is|has) {says}"):
        async with tree.checking():
            pass


@pytest.mark.parametrize(("name", "make", "says"), ODD)
async def test_what_was_given_up_is_kept_without_what_git_would_wait_for(
    tmp_path: Path, name: str, make: Callable[[Path], None], says: str
) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await begun(root)
    make(tree.path / name)
    branch = await trees.put_away(tree, keep=True)
    assert branch is not None
    assert at(root, branch, "work.txt") == "work"


@pytest.mark.parametrize(("name", "make", "says"), ODD)
async def test_what_a_lost_host_left_is_taken_over_without_it(
    tmp_path: Path, name: str, make: Callable[[Path], None], says: str
) -> None:
    root = new_repository(tmp_path / "p")
    make((await begun(root)).path / name)
    tree = await (await trees_of(root)).begin(attempt(1, 2, 1, in_order=False))
    assert (tree.path / "work.txt").read_text() == "work\n"


@pytest.mark.parametrize("name", AT)
async def test_what_a_check_leaves_in_gits_way_is_cleared_away(tmp_path: Path, name: str) -> None:
    root = new_repository(tmp_path / "p", {"a": "a\n", "sub/.gitattributes": "a text\n", ".gitmodules": ""})
    trees = await trees_of(root)
    tree = await begun(root)
    async with tree.checking():
        a_pipe(tree.path / name)
    assert isinstance(await finish(trees, tree), Merged)
    assert at(root, "dugnad/main", "sub/.gitattributes") == "a text"


async def test_an_ordinary_tree_has_nothing_in_gits_way(tmp_path: Path) -> None:
    tree = await begun(new_repository(tmp_path / "p", {".gitignore": "kept/\n", "sub/.gitattributes": "a text\n"}))
    git(tree.path.parent, "init", "--quiet", str(tree.path / "kept" / "inner"))  # Ignored, so nobody looks at it.
    (tree.path / "link").mkdir()
    (tree.path / "link" / ".gitignore").symlink_to("/dev/zero")  # Git follows no such link.
    await tree.commit("Work", "alice")


@pytest.mark.parametrize(
    "name",
    [
        "objects/info/alternates",
        "objects/info/commit-graph",
        "refs/heads/any",
        "refs/tags/deep/any",
        "objects/pack/a.idx",
    ],
)
async def test_a_pipe_anywhere_in_a_repository_is_named_and_not_opened(tmp_path: Path, name: str) -> None:
    root = new_repository(tmp_path / "p")
    a_pipe(root / ".git" / name)
    with pytest.raises(GitTrouble, match=f"{root}/.git/{name} cannot be in a repository: it is a named pipe"):
        await Git.find(root, path=os.environ["PATH"])


async def test_a_pipe_among_the_objects_that_a_repository_borrows_is_named(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    git(tmp_path, "clone", "--quiet", "--shared", str(root), str(tmp_path / "clone"))
    assert await Git.find(tmp_path / "clone", path=os.environ["PATH"])
    a_pipe(root / ".git" / "objects" / "pack" / "a.idx")
    with pytest.raises(GitTrouble, match=f"{root}/.git/objects/pack/a.idx cannot .* named in objects/info/alternates"):
        await Git.find(tmp_path / "clone", path=os.environ["PATH"])


@pytest.mark.parametrize("name", ["s/.gitignore", "s/.gitattributes"])
async def test_a_pipe_in_the_persons_checkout_is_named_and_not_opened(tmp_path: Path, name: str) -> None:
    root = new_repository(tmp_path / "p")
    found = await Git.find(root, path=os.environ["PATH"])
    assert found is not None
    a_pipe(root / ".dugnad" / "trees" / name)  # Git ignores it there.
    assert await found.changes() == []
    a_pipe(root / name)
    with pytest.raises(GitTrouble, match=f"{root}/{name} cannot be in a checkout: it is a named pipe"):
        await found.is_dirty()


async def test_patterns_that_take_too_long_are_told_of_and_left_out_when_the_tree_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await begun(root)
    (tree.path / ".gitignore").write_text("**/*a*a*a*a*a*a*a*a*a*b/**/*c*c*c*c*c*d\n" * 6_000)
    (tree.path / "d").mkdir()
    for number in range(3_000):
        (tree.path / "d" / ("a" * 60 + str(number))).touch()
    with monkeypatch.context() as patched:
        patched.setattr(asking, "_SECONDS_MAX", 1.0)
        with pytest.raises(GitTooSlow, match=r"ls-files .* 1 seconds.* Simplify the patterns in \.gitignore"):
            await tree.commit("Work", "alice")
    branch = await trees.put_away(tree, keep=True)
    assert branch is not None
    assert at(root, branch, "work.txt") == "work"


def test_a_git_that_uses_the_processor_for_too_long_is_ended() -> None:
    lifeline, ours = os.pipe()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        command._bound(busy.pid, 1.0, lifeline)
    assert busy.returncode == -signal.SIGXCPU
    os.close(lifeline)
    os.close(ours)


async def test_a_git_that_was_ended_for_that_is_told_of(tmp_path: Path) -> None:
    ended = replace((await trees_of(new_repository(tmp_path / "p"))).git, program="/bin/sh")
    with pytest.raises(GitTooSlow, match="used the processor for more than 60 seconds"):
        await ended.run("-c", "kill -XCPU $$", may_fail=True)


async def test_a_git_has_no_more_memory_than_it_may(tmp_path: Path) -> None:
    asks = "import os; os.read(0, 1); bytearray(3 * 1024**3)"
    call = GitCall(argv=(sys.executable, "-c", asks), environment={}, folder=tmp_path, stdin=b"go")
    code, _, errors = await ask(call, seconds=60, behind=command.NO_WALLS)
    assert (code, b"MemoryError" in errors) == (1, True)


async def test_a_git_that_was_killed_gave_no_answer(tmp_path: Path) -> None:
    found = (await trees_of(new_repository(tmp_path / "p"))).git
    killed = replace(found, program="/bin/sh")
    with pytest.raises(GitTrouble, match="was ended by SIGKILL"):
        await killed.run("-c", "kill -KILL $$", may_fail=True)


async def test_a_person_is_told_which_git_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_TELL_SECONDS", 0.0)
    told: list[str] = []
    root = new_repository(tmp_path / "p")
    found = await Git.find(root, path=os.environ["PATH"], tell=told.append)
    assert found is not None
    assert await found.is_dirty() is False
    assert f"Waiting for git diff-index in {root}." in told
    assert told[-1] == ""


STARTS = """
import asyncio, os, sys
sys.path.insert(0, {here!r})
from pathlib import Path
from tests.workspace.repository import attempt, trees_of

async def main():
    tree = await (await trees_of(Path(sys.argv[1]))).begin(attempt(1))
    os.mkfifo(tree.path / "pipe")
    asked = asyncio.ensure_future(tree.run("hash-object", "pipe"))
    print("begun", flush=True)
    await asked

asyncio.run(main())
"""


async def test_no_git_outlives_its_host_and_the_tree_is_held_until_it_ended(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    program = [sys.executable, "-c", STARTS.format(here=HERE), str(root)]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as host:  # noqa: ASYNC220
        assert host.stdout is not None
        assert host.stdout.readline() == b"begun\n"
        trees = await trees_of(root)
        pipe = os.open(trees.folder / "1-abcd1234.1" / "pipe", os.O_WRONLY)  # Once git reads from it.
        (started,) = psutil.Process(host.pid).children()
        started.suspend()
        # Before it has stopped, the signal of its host's end would come first.
        await until(lambda: started.status() == psutil.STATUS_STOPPED)
        host.kill()
        host.wait()
    assert trees._locked("1-abcd1234.1") is None
    started.resume()  # The pipe is still open, so it would read on for ever.
    await until(lambda: not started.is_running() or started.status() == psutil.STATUS_ZOMBIE)
    lock = trees._locked("1-abcd1234.1")
    assert lock is not None
    os.close(lock)
    os.close(pipe)


async def test_a_merge_knows_no_attributes_of_any_folder(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a": "begin\n"})
    git(root, "switch", "--quiet", "--create", "other")
    (root / "a").write_text("other\n")
    git(root, "commit", "--quiet", "--all", "--message", "Other")
    git(root, "switch", "--quiet", "main")
    (root / "a").write_text("main\n")
    git(root, "commit", "--quiet", "--all", "--message", "Main")
    found = (await trees_of(root)).git
    for folder in (".", "empty", "info"):
        (found.private / folder / ".gitattributes").write_text("* merge=union\n")
    (found.private / "info" / "attributes").write_text("* merge=union\n")
    found = (await trees_of(root)).git
    names = [await found.commit_of(f"refs/heads/{each}") for each in ("main", "other")]
    trial = await try_merge(found, str(names[0]), str(names[1]))
    assert trial.files == ("a",)
    assert not list(found.private.rglob(".gitattributes"))
