"""The other processes of the team benchmark: an idle teammate, a host to be killed, a thousand teammates.

    python bench/team_worker.py (idle | victim | thousand) URL

Stamps are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from dugnad.models.port import Reply, Request
from dugnad.models.scripted import ScriptedModel, Step
from dugnad.settings import Limits, TeamLimits
from dugnad.team import Team
from dugnad.types import Claim, NewTask

LEASE_SECONDS = 2.0
VICTIM_LIMITS = Limits(lease_seconds=LEASE_SECONDS)
THOUSAND = 1_000
PATIENT = Limits(lease_seconds=60, tasks_per_root_max=10_000, children_max=10_000)


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def stamp_claims(team: Team) -> None:
    """Say when a claim arrived; the board itself is as it is."""
    claim = team.board.claim

    async def stamped(*given: Any, **options: Any) -> Claim | None:
        found = await claim(*given, **options)
        if found is not None:
            say(claimed=found.task.id, at=time.monotonic_ns())
        return found

    team.board.claim = stamped  # type: ignore[method-assign]


async def idle(url: str) -> None:
    """One teammate that rests until there is work."""
    model = ScriptedModel({"*": [Step(say="Done.")]})
    async with Team.open(url, model=model, limits=TeamLimits(idle_seconds=3_600)) as team:
        stamp_claims(team)
        await team.spawn("idle")
        await team.start()
        say(ready=True)
        await asyncio.sleep(3_600)


async def victim(url: str) -> None:
    """Four teammates in the middle of a long call. Says when its lease was renewed: the earliest it may have been."""
    model = ScriptedModel({"*": [Step(say="Done.", seconds=600)]})
    team = Team.open(url, model=model, board_limits=VICTIM_LIMITS, knows_neighbours=False)
    async with team:
        stamp_claims(team)
        heartbeat = team.board.heartbeat

        async def stamped(host: str) -> list[tuple[int, int]]:
            began = time.monotonic_ns()
            held = await heartbeat(host)
            say(beat=began, held=len(held))
            return held

        team.board.heartbeat = stamped  # type: ignore[method-assign]
        for number in range(4):
            await team.spawn(f"victim{number}")
        await team.start()
        await asyncio.sleep(3_600)


def memory_mb(field: str = "VmRSS") -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Together(ScriptedModel):
    """Answers nobody before all have asked: so they really wait at the same time."""

    def __init__(self, count: int) -> None:
        super().__init__({"*": [Step(say="Done.", seconds=2.0)]})
        self._missing = count
        self._all_here = asyncio.Event()

    async def ask(self, request: Request) -> Reply:
        self._missing -= 1
        if self._missing <= 0:
            self._all_here.set()
        await self._all_here.wait()
        return await super().ask(request)


async def thousand(url: str) -> None:
    """All of them in one call of a model at the same time. What the process takes at its peak, and in CPU."""
    model = Together(THOUSAND)
    async with Team.open(url, model=model, board_limits=PATIENT) as team:
        bare = memory_mb()
        began = time.process_time()
        wall = time.perf_counter()
        names = [f"mate{number}" for number in range(THOUSAND)]
        await asyncio.gather(*(team.spawn(name) for name in names))
        await team.board.put_many([NewTask(title=f"task {number}") for number in range(THOUSAND)])
        prepared = time.process_time()
        report = await team.run()
        spent = time.process_time()
        assert len(report.in_state("done")) == THOUSAND
        most = memory_mb("VmHWM")
        say(
            mb_above_bare=round(most - bare, 1), cpu_ms_each=round((spent - prepared) / THOUSAND * 1000, 2),
            mb_bare=round(bare, 1), cpu_ms_each_to_prepare=round((prepared - began) / THOUSAND * 1000, 2),
            seconds=round(time.perf_counter() - wall, 1),
        )  # fmt: skip


if __name__ == "__main__":
    asyncio.run({"idle": idle, "victim": victim, "thousand": thousand}[sys.argv[1]](sys.argv[2]))
