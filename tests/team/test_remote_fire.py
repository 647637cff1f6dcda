"""Three machines, each with its own clone, over PostgreSQL and a bare repository, under fire.

Hosts are killed, frozen beyond their lease, and cut off from the board or from the remote. In the end every commit of
the target passes its check, each task is one commit, nothing is lost and nothing is there twice.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from dugnad.board import Board, open_board
from dugnad.types import NewTask, Task
from tests.board import oracle
from tests.team.hosts_stage import IMPATIENT, freeze
from tests.team.merge_worker import FILES, LIMITS
from tests.team.test_merge_fire import commits_that_do_not_hold, ended
from tests.team.test_partition import Lab, a_lab
from tests.workspace.remotes import machines
from tests.workspace.repository import git

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 600.0
TEAMS = (("alice", "bob"), ("carol", "dave"), ("erin", "frank"))
SMALL = (4, ("cut from the remote", "kill"))
LARGE = (
    40, ("kill", "cut from the remote", "freeze", "cut from the board", "kill", "cut from the remote", "freeze", "kill",
         "cut from the board", "cut from the remote", "kill", "freeze"),
)  # fmt: skip


class Machine:
    """One machine: a clone, and a host in a network namespace with a wire to the board and another to the remote."""

    numbers = count(1)

    def __init__(self, lab: Lab, clone: Path, remote: Path, names: tuple[str, ...]) -> None:
        self.lab, self.clone, self.remote, self.names = lab, clone, remote, names
        self.log = clone.parent / "hosts.log"
        self.start()

    def start(self) -> None:
        self.to_board, self.to_remote = next(self.numbers) % 250 + 1, next(self.numbers) % 250 + 1
        environment = {
            **os.environ, "REMOTE": f"lab:{self.remote}", "WIRE": str(self.to_board),
            "GIT_SSH_COMMAND": self.lab.ssh(self.to_remote),
            "GIT_SSH_VARIANT": "simple",
        }  # fmt: skip
        worker = (sys.executable, "-m", "tests.team.merge_worker", self.lab.url(self.to_board), str(self.clone))
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [*self.lab.on_wire(self.to_board, self.to_remote), *worker, *self.names],
                cwd=ROOT, env=environment, stdout=out, stderr=out,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(60)


@contextmanager
def running(lab: Lab, clones: list[Path], remote: Path) -> Iterator[list[Machine]]:
    found: list[Machine] = []
    try:
        for clone, names in zip(clones, TEAMS, strict=False):
            found.append(Machine(lab, clone, remote, names))
        yield found
    finally:
        for each in found:
            each.end()


async def works(machine: Machine) -> None:
    """Until a host that was just started works. Cut off before that, it would end: it knows no board yet."""
    async with asyncio.timeout(120):
        while f"started on {machine.to_board}\n" not in machine.log.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def troubles(lab: Lab, board: Board, chance: random.Random) -> dict[str, Callable[[Machine], Awaitable[None]]]:
    async def kill(machine: Machine) -> None:
        machine.end()
        machine.start()

    async def stop(machine: Machine) -> None:
        await freeze(board, machine)  # type: ignore[arg-type]
        await asyncio.sleep(LIMITS.lease_seconds * chance.uniform(1.5, 3))
        machine.signal(signal.SIGCONT)

    async def cut_from_board(machine: Machine) -> None:
        await works(machine)
        await lab.cut(machine.to_board, board)
        await asyncio.sleep(LIMITS.lease_seconds * chance.uniform(1.5, 3))
        lab.wire(machine.to_board, "up")

    async def cut_from_remote(machine: Machine) -> None:
        await works(machine)
        lab.wire(machine.to_remote, "down")
        await asyncio.sleep(LIMITS.lease_seconds * chance.uniform(1.5, 3))
        lab.wire(machine.to_remote, "up")

    return {"kill": kill, "freeze": stop, "cut from the board": cut_from_board, "cut from the remote": cut_from_remote}


async def fire(board: Board, lab: Lab, hosts: list[Machine], tasks: int, plan: tuple[str, ...], seed: int = 1) -> None:
    """Each trouble at a moment of its own while the work goes on, until it is all done."""
    chance = random.Random(seed)
    acts, left = troubles(lab, board, chance), list(plan)
    async with asyncio.timeout(SECONDS_MAX):
        while (done := await ended(board)) < tasks or left:
            if left and done >= (len(plan) - len(left)) * tasks // (len(plan) + 1):
                await asyncio.sleep(chance.uniform(0.0, 1.0))
                await acts[left.pop(0)](chance.choice(hosts))
            await asyncio.sleep(0.1)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("size", [SMALL, pytest.param(LARGE, marks=pytest.mark.proof)], ids=["small", "large"])
async def test_nothing_is_lost_or_landed_twice_over_three_machines(
    tmp_path: Path, size: tuple[int, tuple[str, ...]]
) -> None:
    await under_fire(tmp_path, *size)


async def history(board: Board, task: Task) -> str:
    """How a task came to its end: its result, its attempts, and all that its minds were told and said."""
    lines = [str(task.result)]
    for attempt in await board.attempts(task.id):
        lines += [str(attempt), *map(str, await board.transcript(task.id, attempt.epoch))]
    return "\n".join(lines)


async def under_fire(tmp_path: Path, tasks: int, plan: tuple[str, ...], seed: int = 1) -> None:
    remote, clones = machines(tmp_path, 3, FILES)
    with a_lab() as (lab, here):
        async with await open_board(here, limits=LIMITS, patience=IMPATIENT) as board:
            await board.put_many([NewTask(title=f"add {number}") for number in range(1, tasks + 1)])
            with running(lab, clones, remote) as hosts:
                await fire(board, lab, hosts, tasks, plan, seed)
            log = (tmp_path / "hosts.log").read_text()
            found = {each.title: each for each in await board.list_tasks(page=1_000)}
            assert {each.state for each in found.values()} == {"done"}, log
            subjects = Counter(git(remote, "log", "--format=%s", "main..dugnad/main").splitlines())
            missing = [found[title] for title in found.keys() - subjects.keys()]
            assert missing == [], "\n".join([log, *[await history(board, each) for each in missing]])
            assert subjects == dict.fromkeys(found, 1), log
            assert "Traceback" not in log, log
            assert await oracle.verdict(board) == []
    assert git(remote, "rev-list", "--merges", "dugnad/main") == ""
    git(clones[0], "fetch", "--quiet", str(remote), "+dugnad/main:dugnad/main")
    assert commits_that_do_not_hold(clones[0]) == []
    assert [git(clone, "status", "--porcelain") for clone in clones] == ["", "", ""]
