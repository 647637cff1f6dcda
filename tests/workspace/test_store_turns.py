"""Merges take turns; who waits says for whom, and nobody waits for one that gives no sign of life."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from dugnad.workspace.git.merge_lock import turn
from dugnad.workspace.git.merge_queue import Merged, prepare_target
from tests.workspace.repository import attempt, finish, git, new_repository, subjects, trees_of

HOLDS = """
import asyncio, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.workspace.repository import finish, attempt, trees_of

async def hold():
    print("holds", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

async def main():
    trees = await trees_of(Path(sys.argv[1]))
    tree = await trees.begin(attempt(7))
    (tree.path / "theirs").write_text("x")
    print(await finish(trees, tree, is_ours=hold))

asyncio.run(main())
"""


def holder(root: Path) -> subprocess.Popen[str]:
    """A process that merges #7 as alice, and waits in the middle of it for a word."""
    command = [sys.executable, "-c", HOLDS.format(root=str(Path(__file__).parents[2])), str(root)]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "holds\n"
    return started


async def test_who_waits_is_told_for_whom_and_that_it_is_over(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    trees.tell_seconds = 0.2
    tree = await trees.begin(attempt(1))
    (tree.path / "ours").write_text("x\n")
    with await asyncio.to_thread(holder, root) as other:
        assert other.stdin is not None
        told: list[str] = []

        def tell(text: str) -> None:
            told.append(text)
            if text:
                print(file=other.stdin, flush=True)

        trees.on_wait = tell
        assert isinstance(await finish(trees, tree), Merged)
        assert told[0] == (
            f"Waiting for the merge queue: alice merges #7 (process {other.pid} on {os.uname().nodename})."
        )
        assert told[1:] == [""]
    assert len(subjects(root)) == 3


async def test_a_holder_that_was_stopped_is_passed_over_and_cannot_undo_what_came_after(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    trees.lease_seconds = 0.3
    both = [await trees.begin(attempt(task)) for task in (1, 2)]
    with await asyncio.to_thread(holder, root) as other:
        assert other.stdin is not None
        os.kill(other.pid, signal.SIGSTOP)
        for tree in both:
            (tree.path / tree.name).write_text("x\n")
        merged = await asyncio.gather(*(finish(trees, tree) for tree in both))
        assert all(isinstance(each, Merged) for each in merged)
        assert len(subjects(root)) == 3
        os.kill(other.pid, signal.SIGCONT)
        for _ in range(3):  # The target has moved, so it is asked again.
            print(file=other.stdin, flush=True)
        said, _ = await asyncio.to_thread(other.communicate)
        assert "Merged" in said
    assert len(subjects(root)) == 4
    assert {"1-abcd1234.1", "2-abcd1234.1", "theirs"} <= set(git(root, "ls-tree", "--name-only", "dugnad/main").split())


async def test_where_nothing_has_to_move_the_turn_is_not_taken(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    with await asyncio.to_thread(holder, root) as other:
        assert await prepare_target(trees, "refs/heads/main") == ""
        other.kill()


async def test_one_at_a_time_holds_it_and_its_end_is_its_process_end(tmp_path: Path) -> None:
    path, told, at_once = tmp_path / "x.lock", [], []  # type: ignore[var-annotated]

    async def one(number: int) -> None:
        async with turn(path, f"number {number}", lease_seconds=30.0, tell=told.append):
            at_once.append(1)
            assert sum(at_once) == 1
            assert json.loads(path.read_text())["what"] == f"number {number}"
            await asyncio.sleep(0)
            at_once.append(-1)

    await asyncio.gather(*(one(number) for number in range(5)))
    assert len(at_once) == 10
    with path.open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert told == []
