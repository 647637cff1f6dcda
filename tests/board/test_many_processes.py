"""Many real processes on one board, killed with kill -9 and frozen at random: nothing is lost, none is done twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dugnad.board import Board, open_board
from dugnad.types import ENDED, OPEN, Budget, Need, NewTask
from tests.board import oracle
from tests.board.worker import LIMITS, PATIENCE

ROOT = Path(__file__).parents[2]
FREEZE_SECONDS = LIMITS.lease_seconds * 1.6
LEAVE_SECONDS_MAX = 120


@dataclass(frozen=True)
class Plan:
    tasks: int
    roots: int
    processes: int
    kills: int
    freezes: int
    seconds_max: float


def plan_for(chaos: bool) -> Plan:
    if not chaos:
        return Plan(tasks=200, roots=10, processes=4, kills=6, freezes=1, seconds_max=120)
    tasks, kills = int(os.environ.get("WORKER_TASKS", "2000")), int(os.environ.get("WORKER_KILLS", "60"))
    seconds = 60 + tasks / 10 + kills * 3
    return Plan(tasks=tasks, roots=40, processes=8, kills=kills, freezes=max(3, kills // 6), seconds_max=seconds)


def goal(number: int, size: int, chance: random.Random) -> list[NewTask]:
    """A root with a budget and, behind it, diamonds in a row: top, left and right, join. What is left stands loose.

    A third of the roots have too few task runs, a third too few tokens: somebody has to raise them.
    """
    budget = (Budget(tasks=size, tokens=10**9), Budget(tasks=10**6, tokens=size * 60), Budget(tokens=10**9))[number % 3]
    entries = [NewTask(title=f"goal {number}", key=f"goal {number}", budget=budget)]
    behind = -1

    def add(title: str, *needs: Need | int) -> int:
        entries.append(NewTask(title=title, parent=-1, needs=needs, priority=chance.randint(0, 2)))
        return -len(entries)

    while size - len(entries) >= 4:
        top = add("top", behind)
        left, right = add("left", top), add("right", top)
        behind = add("join", left, Need(right, "ended") if chance.random() < 0.3 else right)
    while len(entries) < size:
        add("loose", -1)
    return entries


@dataclass
class Crowd:
    """The worker processes of a test. Only these are ever signalled, each by its own pid."""

    url: str
    folder: Path
    plan: Plan
    chance: random.Random
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    frozen: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        points = range(int(self.plan.tasks * 0.9))
        self._kill_at = sorted(self.chance.choices(points, k=self.plan.kills))
        self._freeze_at = sorted(self.chance.choices(points, k=self.plan.freezes))
        for number in range(self.plan.processes):
            self._start(f"w{number}")

    def _start(self, name: str) -> None:
        self.counts["starts"] += 1
        seed = str(self.counts["starts"])
        with (self.folder / f"{name}-{seed}.err").open("wb") as errors:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.board.worker", self.url, name, seed, self.folder],
                cwd=ROOT,
                stdout=errors,
                stderr=errors,
            )

    def trouble(self, ended: int) -> None:
        """Whatever is due when so many tasks have ended. What was killed comes back, under its old name or a new."""
        awake = [name for name in self.running if name not in self.frozen]
        if awake and self._kill_at and self._kill_at[0] <= ended:
            name = self.chance.choice(awake)
            self._kill_at.pop(0)
            self.counts["kills"] += 1
            gone = self.running.pop(name)
            gone.kill()
            gone.wait()
            self._start(name if self.chance.random() < 0.5 else f"{name[:8]}x{self.counts['starts']}")
        elif len(awake) > 1 and self._freeze_at and self._freeze_at[0] <= ended:
            name = self.chance.choice(awake)
            self._freeze_at.pop(0)
            self.counts["freezes"] += 1
            self.running[name].send_signal(signal.SIGSTOP)
            # By a timer of its own: the frozen one may hold the board, and then whoever waits for the board waits too.
            self.frozen[name] = asyncio.get_running_loop().call_later(FREEZE_SECONDS, self._thaw, name)

    def _thaw(self, name: str) -> None:
        self.frozen.pop(name).cancel()
        self.running[name].send_signal(signal.SIGCONT)

    def complaints(self) -> list[str]:
        """What workers that ended badly, by themselves, had to say."""
        return [
            f"{name} ended with {process.returncode}:\n{self._said(name)}"
            for name, process in self.running.items()
            if process.poll() not in (None, 0)
        ]

    def _said(self, name: str) -> str:
        return "\n".join(path.read_text()[-3000:] for path in self.folder.glob(f"{name}-*.err"))

    def leave(self) -> None:
        """All work is done, so every worker leaves by itself."""
        for process in self.running.values():
            process.wait(LEAVE_SECONDS_MAX)

    def end(self) -> None:
        for timer in self.frozen.values():
            timer.cancel()
        for process in self.running.values():
            process.kill()
            process.wait()

    def heard(self) -> list[list[object]]:
        """What was acknowledged to whom; a line cut short by the kill says nothing."""
        lines: list[str] = []
        for path in sorted(self.folder.glob("*.txt")):
            *whole, _ = path.read_text().split("\n")
            lines += whole
        return [json.loads(line) for line in lines]


async def watch_over(board: Board, crowd: Crowd, roots: list[int]) -> None:
    """Until all is done: make trouble, and raise what is held, as a person would."""
    async with asyncio.timeout(crowd.plan.seconds_max):
        while (counts := await board.count_tasks()).keys() & OPEN:
            crowd.trouble(sum(counts.get(state, 0) for state in ENDED))
            assert not crowd.complaints(), crowd.complaints()[0]
            for root in roots:
                if (await board.budget(root)).held is not None:
                    await board.raise_budget(root, Budget(tasks=5, tokens=500))
                    crowd.counts["raises"] += 1
            await asyncio.sleep(0.05)


@pytest.mark.timeout(3_600)  # The long version.
async def test_workers_killed_at_random_lose_nothing_and_do_nothing_twice(
    url: str, folder: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_for(chaos=request.config.getoption("--chaos"))
    chance = random.Random(7)
    began = time.monotonic()
    async with await open_board(url, limits=LIMITS, patience=PATIENCE) as board:
        put = [await board.put_many(goal(n, plan.tasks // plan.roots, chance)) for n in range(plan.roots)]
        acknowledged: list[list[object]] = [["put", task.id] for batch in put for task in batch]
        crowd = Crowd(url, folder, plan, chance)
        try:
            await watch_over(board, crowd, [batch[0].id for batch in put])
            await asyncio.to_thread(crowd.leave)
            assert not crowd.complaints(), crowd.complaints()[0]
        finally:
            crowd.end()
        acknowledged += crowd.heard()
        assert await oracle.verdict(board, acknowledged) == []
        events = await oracle.read_log(board)
        kinds = Counter(event.kind for event in events)
        counts = await board.count_tasks()
    stale = sum(each[0] == "stale" for each in acknowledged)
    with capsys.disabled():
        print(
            f"\n{url.split(':', maxsplit=1)[0]}: {sum(counts.values())} tasks {counts}, {kinds['claimed']} claims, "
            f"{dict(crowd.counts)}, {kinds['taken_back']} takeovers, {stale} stale refusals, "
            f"{len(acknowledged)} acknowledged, {sum(kinds.values())} events, {time.monotonic() - began:.1f} s"
        )
    assert crowd.counts["kills"] == plan.kills
    assert kinds["taken_back"] > 0
    assert oracle.groundless(events) <= max(1, kinds["taken_back"] // 5)
    assert counts["done"] > plan.tasks // 2
    assert not request.config.getoption("--chaos") or stale > 0
