"""A rehearsal gives out the work as the real board does: the same tasks in the same order, at the same moments."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dugnad.board import Board, open_board
from dugnad.clock import Sources
from dugnad.models import ScriptedModel
from dugnad.models.port import Reply, Request
from dugnad.models.scripted import Step
from dugnad.rehearsal.draws import Draws
from dugnad.rehearsal.plan import Estimate, RehearsalPlan
from dugnad.rehearsal.play import Mate, PreparedPlan, rehearse
from dugnad.settings import Limits
from tests.conftest import Opener
from tests.proof import sample
from tests.rehearsal.stage_rehearsal import drive, planned, random_plan, task, team_of
from tests.team.stage_team import hosting, until

TEAM = ("coder", "coder", "tester", "")


def rehearsed(plan: RehearsalPlan, mates: list[Mate], seed: int) -> list[tuple[str, int]]:
    ran = rehearse(PreparedPlan(plan), mates, Draws(plan.tasks, seed), traced=True)
    return sorted(((plan.tasks[bar.task].name, bar.start) for bar in ran.bars), key=lambda each: (each[1], each[0]))


@pytest.mark.parametrize("seed", sample(range(12), lambda seed: seed < 3))
async def test_the_board_gives_out_a_plan_as_rehearsed(opener: Opener, seed: int) -> None:
    plan, mates = random_plan(seed), team_of(*TEAM)
    real = await drive(await opener(), plan, mates, Draws(plan.tasks, seed), [1_000_000])
    assert sorted(real, key=lambda each: (each[1], each[0])) == rehearsed(plan, mates, seed)


@pytest.mark.parametrize("seed", range(6))
async def test_retries_are_due_when_the_board_says(folder: Path, seed: int) -> None:
    """With the board's clock handed in; the back-off without jitter."""
    clock = [1_700_000_000_000]
    limits = Limits(backoff_seconds=0.0, lease_seconds=10**6, lease_seconds_max=10**7)  # One millisecond each.
    sources = Sources(now_ms=lambda: clock[0])
    base = random_plan(seed, retried=0.3)
    plan = RehearsalPlan(name="", tasks=base.tasks, accounts=base.accounts, limits=limits)
    url = f"sqlite:///{folder}/board.db"
    async with await open_board(url, limits=limits, sources=sources, threads=False) as board:
        mates = team_of(*TEAM)
        real = await drive(board, plan, mates, Draws(plan.tasks, seed), clock)
    assert sorted(real, key=lambda each: (each[1], each[0])) == rehearsed(plan, mates, seed)


class Gated:
    """A scripted model that ends a task only when it is let go."""

    def __init__(self) -> None:
        self.inner = ScriptedModel({"*": [Step(say="done")]})
        self.name, self.key, self.facts = self.inner.name, self.inner.key, self.inner.facts
        self.gates: dict[str, asyncio.Event] = {}

    def gate(self, title: str) -> asyncio.Event:
        return self.gates.setdefault(title, asyncio.Event())

    async def ask(self, request: Request) -> Reply:
        await self.gate(request.title).wait()
        return await self.inner.ask(request)

    async def close(self) -> None:
        await self.inner.close()


async def test_a_real_team_takes_what_was_rehearsed_at_every_step(board: Board) -> None:
    """Hosts, lives and agents on the real board: at each end, just the tasks are held that the rehearsal says."""
    plan = planned(
        task(1, role="coder", estimate=Estimate(seconds=300)),
        task(2, role="coder", estimate=Estimate(seconds=50)),
        task(3, estimate=Estimate(seconds=200)),
        task(4, 2, role="tester", estimate=Estimate(seconds=400)),
        task(5, 2, role="coder", priority=3, estimate=Estimate(seconds=90)),
        task(6, 1, 5, role="tester", estimate=Estimate(seconds=70)),
        task(7, estimate=Estimate(seconds=500)),
        task(8, 3, 4, role="coder", estimate=Estimate(seconds=60)),
    )
    mates = team_of("coder", "coder", "tester")
    bars = rehearse(PreparedPlan(plan), mates, Draws(plan.tasks, 3), traced=True).bars
    ids: dict[int, int] = {}
    for each in plan.tasks:
        needs = [ids[need.task] for need in each.needs]
        put = await board.put(each.name, role=each.role, priority=each.priority, needs=needs)
        ids[each.id] = put.id
    for mate, role in zip(mates, ("coder", "coder", "tester"), strict=True):
        await board.spawn(mate.name, roles=[role])
    model = Gated()
    async with hosting(board, model):
        for bar in sorted(bars, key=lambda each: each.end):
            held = {plan.tasks[each.task].name for each in bars if each.start < bar.end <= each.end}

            async def as_rehearsed(held: set[str] = held) -> bool:
                return {each.title for each in await board.list_tasks(states=["claimed"])} == held

            await until(board, as_rehearsed)
            model.gate(plan.tasks[bar.task].name).set()

        async def all_done() -> bool:
            return await board.count_tasks() == {"done": len(plan.tasks)}

        await until(board, all_done)
