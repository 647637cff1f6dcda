"""Real hosts, lives and agents on the real board in virtual time, with a model that takes just as long as was drawn."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field, replace

from dugnad.agent.agent import Agent
from dugnad.board import Board
from dugnad.board.store.sqlite import SqliteStore
from dugnad.clock import Sources
from dugnad.models import ScriptedModel
from dugnad.models.port import Facts, Price, Reply, Request, Usage
from dugnad.models.scripted import Step
from dugnad.rehearsal.draws import Draws
from dugnad.rehearsal.plan import Estimate, RehearsalPlan
from dugnad.settings import AgentLimits, Limits, Patience, TeamLimits
from dugnad.team import Host, RunPlan
from dugnad.types import ENDED, Need, NewTask, Teammate
from simulation.faults import Storm
from simulation.loop import Process, VirtualLoop
from simulation.port import DatabaseWire, Port

REVIEWER = "reviewer"
REVIEW = Estimate(seconds=60, spread=0.0, turns=1, dollars=0.1)
_BEGAN_MS = 1_800_000_000_000


class Timed:
    """Ends each task of a plan after its turns, which together take what was drawn; a review approves in a minute."""

    name = key = "scripted:timed"
    facts = Facts(window_tokens=1_000_000, price=Price(input=1.0, output=1.0))

    def __init__(self, plan: RehearsalPlan, draws: Draws) -> None:
        self._plan, self._draws = plan, draws
        self._places = {task.name: place for place, task in enumerate(plan.tasks)}
        self._script = ScriptedModel(self._step)

    def _step(self, request: Request) -> Step:
        place = self._places.get(request.title)
        if place is None:
            return Step(calls=(("finish", {"result": "fine", "outcome": "approved"}),))
        if request.turn < self._plan.tasks[place].estimate.turns:
            return Step(calls=(("todo", {"items": [f"[ ] {request.turn}"]}),))
        return Step(calls=(("finish", {"result": "done"}),))

    async def ask(self, request: Request) -> Reply:
        place = self._places.get(request.title)
        expected = REVIEW if place is None else self._plan.tasks[place].estimate
        seconds = REVIEW.seconds if place is None else self._draws.attempt(place, 1)[0] / 1000 / expected.turns
        await asyncio.sleep(seconds)
        said = await self._script.ask(request)
        paid = (expected.dollars or 0.0) * seconds / expected.seconds
        usage = Usage(input_tokens=round(paid * 1_000_000))  # At a dollar for a million.
        return Reply(text=said.text, calls=said.calls, stop=said.stop, usage=usage)

    async def close(self) -> None: ...


@dataclass(kw_only=True)
class Reality:
    """A plan on a board, and a team of so many, each with every role, on one host or two."""

    plan: RehearsalPlan
    draws: Draws
    agents: int
    reviews: Mapping[int, str] = field(default_factory=dict)
    lost_at: int | None = None  # When, in milliseconds, the first host is gone; one that was alone is started again.
    limits: Limits = field(default_factory=Limits)

    def run(self) -> tuple[int, float]:
        """How long it really takes, in milliseconds, and what it costs in micro-dollars."""
        self.loop, self._chance, self._hosts = VirtualLoop(0), random.Random(0), list[tuple[Process, Host]]()
        self.model, desk = Timed(self.plan, self.draws), Process("person")
        store = SqliteStore(None, limits=self.limits, patience=Patience(), sources=self._sources("db"), threads=False)
        storm = Storm(frozenset(), self._chance)
        self.wire = DatabaseWire(
            self.loop, store, storm, lambda who, topics: None, lambda who, what: None, lambda process: None
        )
        try:
            return self.loop.run_until_complete(self.loop.start(desk, self._play(self._board(desk))))
        finally:
            processes = [desk, *(process for process, _ in self._hosts)]
            for process in processes:
                process.alive = False
            for task in asyncio.all_tasks(self.loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            store.writer.close()
            for process in processes:
                self.loop.bury(process)
            self.loop.close()

    def _sources(self, name: str) -> Sources:
        ids = (f"{name}-{number}" for number in range(10**9))
        return Sources(
            now_ms=lambda: _BEGAN_MS + int(self.loop.time() * 1000),
            new_id=lambda: next(ids),
            chance=self._chance.random,
            uptime=self.loop.time,
            working_ms=lambda: int(self.loop.time() * 1000),
        )

    def _board(self, process: Process) -> Board:
        sources = self._sources(process.name.replace(" ", "-"))
        return Board(Port(self.wire, process), limits=self.limits, patience=Patience(), sources=sources)

    def _start_host(self, seats: int) -> None:
        process = Process(f"host {len(self._hosts) + 1}")
        board = self._board(process)
        patient = AgentLimits(model_seconds_max=1e6)

        def mind(member: Teammate, may_act: Callable[[], bool]) -> Agent:
            return Agent(
                board=board,
                teammate=member,
                model=self.model,
                tools=(),
                limits=patient,
                sources=board.sources,
                may_act=may_act,
            )

        host = Host(
            board=board, mind=mind, label=process.name,
            plan=RunPlan(url="", limits=TeamLimits(idle_seconds=1e6), knows_neighbours=False, seats_max=seats),
        )  # fmt: skip
        self._hosts.append((process, host))
        self.loop.start(process, host.start(), process.name)

    def _lose_host(self) -> None:
        self._hosts[0][0].kill()
        for _, host in self._hosts[1:]:
            host.plan = replace(host.plan, seats_max=self.agents)
        if len(self._hosts) == 1:
            self._start_host(self.agents)

    async def _play(self, board: Board) -> tuple[int, float]:
        order = {task.id: -place for place, task in enumerate(self.plan.tasks, start=1)}
        put = await board.put_many(
            [
                NewTask(
                    title=task.name, role=task.role, priority=task.priority, review=self.reviews.get(task.id),
                    needs=tuple(Need(order[need.task], need.outcome) for need in task.needs),
                )
                for task in self.plan.tasks
            ]
        )  # fmt: skip
        roles = {*self.reviews.values(), *(task.role for task in self.plan.tasks if task.role)}
        for number in range(self.agents):
            await board.spawn(f"m{number}", roles=sorted(roles))
        began = await board.now_ms()
        for half in filter(None, (self.agents - self.agents // 2, self.agents // 2)):
            self._start_host(half)
        if self.lost_at is not None:
            self.loop.call_later(self.lost_at / 1000, self._lose_host, context=Context())
        async for _ in board.follow(0):
            if not set(await board.count_tasks()) - ENDED:
                break
        ended = [task.ended_at or 0 for task in await board.list_tasks(page=1_000)]
        spent = [(await board.budget(task.id)).spent.microdollars for task in put]
        return max(ended) - began, sum(spent)
