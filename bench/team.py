"""Measures a whole team beside what a perfect runtime would take, with a scripted model at 200 ms a turn.

    python bench/team.py [--json] [--quick]

makespan_ratio    120 tasks in layers with fan-out and fan-in, two turns each, 8 teammates in one process: from the
                  start of the run until the last task ended, over greedy list scheduling of the same tasks by 8
                  hands that cost nothing (bench/bounds.py), in the board's own order.
followups         one goal, each task puts two more in its first turn, to depth 6, with a cap of 100 task runs: how
                  many ran, and the time over its bound, which is computed in the same way. The worse of both databases.
pickup_ms         from asking for a put to the claim of an idle teammate in another process. The worse of both.
takeover_seconds_after_lease
                  a host is killed with -9 in the middle of four tasks: from the end of its lease until all four are
                  claimed again by another host. The worse of both.
round_trips_per_task
                  to PostgreSQL for a task of two turns with one tool call, by one teammate alone: counted at the
                  socket, with all that the process asks meanwhile (bench/round_trips.py). In a chain, and side by side.
thousand          1,000 teammates in one process, all in one 2 s call of the model at the same time: memory at its peak
                  above the process before, and CPU each. SQLite.

Of the ratios the best round counts: what disturbs a round only adds to it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

import bounds
from dugnad import tool
from dugnad.board import open_board
from dugnad.models.port import Request
from dugnad.models.scripted import ScriptedModel, Step
from dugnad.settings import Limits, TeamLimits
from dugnad.team import Team
from dugnad.types import Budget, Need, NewTask
from round_trips import relay
from team_worker import LEASE_SECONDS, VICTIM_LIMITS
from tests.postgres_server import PostgresServer

TEAMMATES = 8
TURN_SECONDS = 0.2
DEPTH = 6
RUNS = 100
WORKER = Path(__file__).with_name("team_worker.py")
Url = Callable[[str], str]


@tool(safe=True)
async def look(at: str) -> str:
    """Look at something."""
    return f"It is there: {at}."


def two_turns(request: Request) -> Step:
    if request.turn == 1:
        return Step(say="I look.", calls=(("look", {"at": request.title}),), seconds=TURN_SECONDS)
    return Step(say=f"{request.title} is done.", seconds=TURN_SECONDS)


def two_turns_at_once(request: Request) -> Step:
    return replace(two_turns(request), seconds=0.0)


def two_more(request: Request) -> Step:
    """A task's place in the tree is its title: goal, goal.1, goal.1.2."""
    if request.turn == 1 and request.title.count(".") < DEPTH:
        calls = tuple(("schedule_followup", {"title": f"{request.title}.{number}"}) for number in (1, 2))
        return Step(say="There is more.", calls=calls, seconds=TURN_SECONDS)
    if request.turn == 1:
        return Step(say="I look.", calls=(("look", {"at": request.title}),), seconds=TURN_SECONDS)
    return Step(say=f"{request.title} is done.", seconds=TURN_SECONDS)


@asynccontextmanager
async def team_of(url: str, script: Callable[[Request], Step]) -> AsyncIterator[Team]:
    async with Team.open(url, model=ScriptedModel(script), board_limits=Limits(children_max=1_000)) as team:
        for number in range(TEAMMATES):
            await team.spawn(f"mate{number}", tools=[look])
        yield team


async def makespan(url: str) -> float:
    """The time of the whole run over its bound."""
    needs = bounds.layered()
    async with team_of(url, two_turns) as team:
        entries = [NewTask(title="all of it", assignee="human", budget=Budget())]
        for place, each in enumerate(needs):
            edges = tuple(Need(-2 - needed) for needed in each)
            entries.append(NewTask(title=f"task {place}", parent=-1, needs=edges))
        root = (await team.board.put_many(entries))[0]
        await team.board.cancel(root.id)
        began_ms = time.time() * 1000
        report = await team.run()
        done = [task for task in report.tasks if task.state == "done"]
        assert len(done) == len(needs), report
        took = (max(task.ended_at or 0 for task in done) - began_ms) / 1000
    return took / bounds.dag_seconds(needs, teammates=TEAMMATES, seconds_each=2 * TURN_SECONDS)


async def warm_up(url: str) -> None:
    """What a process loads once, however long it runs, is not what is measured."""
    async with team_of(url, lambda request: Step(say="Done.")) as team:
        await team.put("warm up")
        await team.run()


async def followups(url: str) -> tuple[int, float]:
    """How many tasks ran, and the time over its bound."""
    async with team_of(url, two_more) as team:
        began_ms = time.time() * 1000
        report = await team.run("goal", budget=Budget(tasks=RUNS))
        runs = sum(account.runs for account in report.accounts.values())
        took = (max(task.ended_at or 0 for task in report.in_state("done")) - began_ms) / 1000
    bound = bounds.tree_seconds(teammates=TEAMMATES, turn_seconds=TURN_SECONDS, depth=DEPTH, runs=RUNS)
    return runs, took / bound


class Other:
    """A process of `team_worker.py`, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def hears(self, name: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            if name in (said := json.loads(line)):
                return said
        raise RuntimeError(f"The other process ended without a word of {name!r}.")

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def other(kind: str, url: str) -> AsyncIterator[Other]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(WORKER), kind, url, stdout=asyncio.subprocess.PIPE
    )
    started = Other(process)
    try:
        yield started
    finally:
        await started.kill()


async def pickup(url: str, count: int) -> list[float]:
    """Milliseconds from asking for each put to its claim in the other process."""
    took = []
    async with await open_board(url) as board, other("idle", url) as idle:
        await idle.hears("ready")
        for number in range(count + 5):
            with board.watch(["log"]) as watch:
                began = time.monotonic_ns()
                task = await board.put(f"pick up {number}")
                said = await idle.hears("claimed")
                assert said["claimed"] == task.id
                took.append((said["at"] - began) / 1e6)
                while not (await board.find(task.id)).ended:
                    await watch.wait(1)
            await asyncio.sleep(0.03)  # Until it rests again.
    return took[5:]


async def takeover(url: str) -> float:
    """Seconds from the end of a dead host's lease until another host has claimed all it had."""
    model = ScriptedModel({"*": [Step(say="Done.")]})
    async with other("victim", url) as victim:
        settings = {"board_limits": VICTIM_LIMITS, "limits": TeamLimits(idle_seconds=3_600), "knows_neighbours": False}
        async with Team.open(url, model=model, **settings) as team:
            board = team.board
            await victim.hears("beat")  # Its teammates are seated by now.
            tasks = [task.id for task in await board.put_many([NewTask(title=f"task {n}") for n in range(4)])]
            while (beat := await victim.hears("beat"))["held"] < len(tasks):
                pass
            last = await board.last_event()
            await team.start()
            await victim.kill()
            claimed: set[int | None] = set()
            async for event in board.follow(last):
                if event.kind == "claimed":
                    claimed.add(event.task)
                    if claimed == set(tasks):
                        break
            return (time.monotonic_ns() - beat["beat"]) / 1e9 - LEASE_SECONDS


async def round_trips(server: str, *, chain: bool) -> float:
    """What 30 tasks take more than 10, for each of the 20: so what a run takes once does not count."""
    counts = []
    async with (
        relay(server) as wire,
        Team.open(wire.url(f"trips{chain:d}"), model=ScriptedModel(two_turns_at_once)) as team,
    ):
        await team.spawn("mate", tools=[look])
        for tasks in (5, 10, 30):
            entries = [NewTask(title="all of it", assignee="human", budget=Budget())]
            for place in range(tasks):
                needs = (Need(-1 - place),) if chain and place else ()
                entries.append(NewTask(title=f"task {place}", parent=-1, needs=needs))
            await team.board.cancel((await team.board.put_many(entries))[0].id)
            before = wire.count
            report = await team.run()
            assert len(report.in_state("done")) == tasks, report
            counts.append(wire.count - before)
    return round((counts[2] - counts[1]) / 20, 1)


async def thousand(url: str) -> dict[str, float]:
    async with other("thousand", url) as crowd:
        return await crowd.hears("mb_above_bare")


def share(values: Iterable[float], part: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 2)


async def measure(urls: dict[str, Url], server: str, quick: bool) -> dict[str, Any]:
    rounds = 1 if quick else 3
    spans: dict[str, float] = {}
    growth: dict[str, tuple[int, float]] = {}
    picked: dict[str, list[float]] = {}
    taken: dict[str, float] = {}
    for kind, url in urls.items():
        await warm_up(url("warm"))
        spans[kind] = min([await makespan(url(f"span{n}")) for n in range(rounds)])
        grown = [await followups(url(f"grow{n}")) for n in range(rounds)]
        growth[kind] = max(runs for runs, _ in grown), min(ratio for _, ratio in grown)
        picked[kind] = await pickup(url("pickup"), 50 if quick else 300)
        taken[kind] = statistics.median([await takeover(url(f"takeover{n}")) for n in range(rounds)])
    return {
        "makespan_ratio": {kind: round(ratio, 3) for kind, ratio in spans.items()},
        "followups": {
            "run": max((runs for runs, _ in growth.values()), key=lambda runs: abs(runs - RUNS)),
            "ratio": round(max(ratio for _, ratio in growth.values()), 3),
        },
        "pickup_ms": {
            "p50": max(share(each, 0.5) for each in picked.values()),
            "p99": max(share(each, 0.99) for each in picked.values()),
        },
        "takeover_seconds_after_lease": round(max(taken.values()), 3),
        "round_trips_per_task": {
            "postgres": await round_trips(server, chain=False),
            "postgres_chain": await round_trips(server, chain=True),
        },
        "thousand": await thousand(urls["sqlite"]("thousand")),
        "by_database": {
            kind: {
                "followups_ratio": round(growth[kind][1], 3),
                "pickup_ms": {"p50": share(picked[kind], 0.5), "p99": share(picked[kind], 0.99)},
                "takeover_seconds_after_lease": round(taken[kind], 3),
            }
            for kind in urls
        },
    }


def show(found: dict[str, Any]) -> None:
    for kind, ratio in found["makespan_ratio"].items():
        print(f"120 tasks, 8 teammates: {ratio:.3f} of the list-scheduling bound on {kind}")
    print(
        f"self-scheduling: {found['followups']['run']} of {RUNS} runs, {found['followups']['ratio']:.3f} of its bound"
    )
    print(f"picked up after {found['pickup_ms']['p50']} ms (p99 {found['pickup_ms']['p99']} ms) by another process")
    print(f"a killed host's tasks are claimed again {found['takeover_seconds_after_lease']} s after its lease")
    trips = found["round_trips_per_task"]
    print(f"a task takes {trips['postgres']} round trips to PostgreSQL, {trips['postgres_chain']} in a chain")
    crowd = found["thousand"]
    print(f"1,000 teammates take {crowd['mb_above_bare']} MB and {crowd['cpu_ms_each']} ms of CPU each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--quick", action="store_true", help="the same in under a minute")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="dugnad-bench-"))
    server = PostgresServer(in_memory=False)  # On a real disk: the flush is part of what is measured.
    try:
        server.start()
        urls: dict[str, Url] = {
            "sqlite": lambda name: f"sqlite:///{folder}/{name}.db",
            "postgres": lambda name: f"{server.url}?board={name}",
        }
        found = asyncio.run(measure(urls, server.url, options.quick))
    finally:
        server.remove()
        shutil.rmtree(folder)
    if options.json:
        print(json.dumps(found))
        return
    show(found)


if __name__ == "__main__":
    main()
