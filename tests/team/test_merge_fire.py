"""The merge queue under fire: overlapping work, hosts killed with -9, and a target that holds at every commit."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import psutil
import pytest

from dugnad.board import Board
from dugnad.team.workspaces.worktrees import Worktrees
from dugnad.types import NewTask
from tests.board import oracle
from tests.conftest import Opener
from tests.team.merge_worker import FILES, LIMITS
from tests.team.stage_trees import has_no_trees
from tests.workspace.repository import git, new_repository, trees_of

SMALL, LARGE = (10, 2), (40, 8)  # Tasks and kills.
HOSTS = (("alice", "bob", "carol"), ("dave", "erin", "frank"), ("grace", "heidi"))
SECONDS_MAX = 600.0
ROOT = Path(__file__).parents[2]


class Hosts:
    """Three processes with eight teammates; whoever is killed comes again."""

    def __init__(self, url: str, root: Path) -> None:
        self._url, self._root = url, root
        self.running: list[subprocess.Popen[bytes]] = [self._start(names) for names in HOSTS]

    def _start(self, names: tuple[str, ...]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.team.merge_worker", self._url, str(self._root), *names]
        log = self._root.parent / "hosts.log"
        with log.open("ab") as out:
            return subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)

    def kill(self, place: int) -> None:
        self.end(place)
        self.running[place] = self._start(HOSTS[place])

    def end(self, place: int) -> None:
        self.running[place].send_signal(signal.SIGKILL)
        self.running[place].wait(120)


async def ended(board: Board) -> int:
    counts = await board.count_tasks()
    return sum(counts.get(state, 0) for state in ("done", "failed", "cancelled", "skipped"))


async def fire(board: Board, hosts: Hosts, tasks: int, kills: int, chance: random.Random) -> int:
    """Kill at moments spread over the work, until it is all done. Returns how many were killed."""
    killed = 0
    async with asyncio.timeout(SECONDS_MAX):
        while (count := await ended(board)) < tasks:
            if killed < kills and count >= killed * tasks // (kills + 1):
                await asyncio.sleep(chance.uniform(0.0, 1.0))
                hosts.kill(chance.randrange(len(HOSTS)))
                killed += 1
            await asyncio.sleep(0.1)
    return killed


def commits_that_do_not_hold(root: Path) -> list[str]:
    """Every commit of the target, from the first to the last, in a tree of its own, by its own check."""
    bad = []
    with tempfile.TemporaryDirectory() as made:
        git(root, "worktree", "add", "--quiet", "--detach", made, "main")
        for commit in git(root, "rev-list", "--reverse", "main..dugnad/main").split():
            git(Path(made), "checkout", "--quiet", "--force", commit)
            ran = subprocess.run([sys.executable, "check.py"], cwd=made, capture_output=True, text=True, check=False)
            if ran.returncode:
                bad.append(f"{commit}: {ran.stderr[-200:]}")
        git(root, "worktree", "remove", "--force", made)
    return bad


async def orphans_ended(root: Path) -> None:
    """The killed leave calls of git behind that still take away, or make, what a sweep would look at."""

    def lives(process: psutil.Process) -> bool:
        try:
            return any(str(root) in each for each in (*process.cmdline(), process.cwd()))
        except psutil.Error:
            return False

    async with asyncio.timeout(120):
        while any(map(lives, psutil.process_iter())):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=str)
async def test_nothing_is_lost_or_merged_twice_and_every_commit_holds(
    opener: Opener, url: str, tmp_path: Path, size: tuple[int, int]
) -> None:
    tasks, kills = size
    board = await opener(limits=LIMITS)
    root = new_repository(tmp_path / "p", FILES)
    await trees_of(root)
    await board.put_many([NewTask(title=f"add {number}") for number in range(1, tasks + 1)])
    hosts = Hosts(url, root)
    try:
        killed = await fire(board, hosts, tasks, kills, random.Random(1))
    finally:
        for place in range(len(HOSTS)):
            hosts.end(place)
    await orphans_ended(root)
    log = (tmp_path / "hosts.log").read_text()
    found = {each.title: each for each in await board.list_tasks(page=1_000)}
    assert {each.state for each in found.values()} == {"done"}, log
    subjects = Counter(git(root, "log", "--format=%s", "main..dugnad/main").splitlines())
    if missing := found.keys() - subjects.keys():
        attempts = [str(each) for title in missing for each in await board.attempts(found[title].id)]
        raise AssertionError("\n".join([*(str(found[title].result) for title in missing), *attempts, log]))
    assert subjects == dict.fromkeys(found, 1), log
    assert commits_that_do_not_hold(root) == []
    assert git(root, "rev-list", "--merges", "dugnad/main") == ""
    assert killed == kills
    assert await oracle.verdict(board) == []
    # What the killed left is taken away by whoever comes next, and the person's checkout was never touched.
    places = Worktrees(board=board, trees=await trees_of(root), shop=None)  # type: ignore[arg-type]
    await places.sweep()
    assert has_no_trees(root)
    assert git(root, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/dugnad/main", "refs/heads/main"]
    assert git(root, "status", "--porcelain") == ""
