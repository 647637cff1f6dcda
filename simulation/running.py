"""Runs a world: storm first, then calm, then everything must come to rest; and says what was wrong with it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from dataclasses import dataclass

from dugnad.types import Budget

from .faults import KINDS
from .loop import DeadWait, Process
from .oracle import left_open
from .person import Person
from .plan import WorldPlan
from .port import WitnessedBoard
from .promises import Fault
from .verdict import against_tables, unheard
from .world import SimulatedHost, World

# What events of the log show to have happened.
OF_EVENTS = {
    "taken_back": "task taken over", "budget_reached": "budget exhausted", "skipped": "task skipped",
    "failed": "task failed", "repeated": "equal follow-up met", "host_back": "host came back",
    "cooled": "provider key cooled down", "shown": "message shown", "waiting": "waited", "retried": "retried by hand",
    "forfeited": "reservation forfeited",
}  # fmt: skip
# Over a sweep of some length, each of these must be seen, or the sweep shows less than it says.
EXPECTED = (
    *(f"fault: {kind}" for kind in KINDS), *OF_EVENTS.values(), "stale holder refused", "follow-up", "command run",
    "a host is gone", "woken by a push", "call allowed by a person",
)  # fmt: skip
_CALM_SECONDS_MAX = 12 * 3_600.0  # A task that gets nowhere is let go on by a person a few times.
_CALM_STEPS_MAX = 100_000  # Of the loop: who goes round in circles is not waited for that long. Most worlds take 3,000.
_QUIET_SECONDS = 300.0
_QUIET_CALLS_MAX = 300  # Of one host in that time: heartbeats, upkeep and sweeps.
_TICK_SECONDS = 30.0
_JUMPS_MS = (-3_600_000, -90_000, 90_000, 600_000, 3_600_000, 4 * 3_600_000)
_AT_ONCE_SECONDS = 1.0  # A push takes milliseconds, the sweep behind it up to `poll_seconds`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a world went."""

    seed: int
    hash: str
    faults: tuple[Fault, ...]
    sometimes: Counter[str]
    agent_seconds: float
    seconds: float
    story: tuple[tuple[float, str, str], ...]


def run(plan: WorldPlan) -> Outcome:
    """One world from its beginning to its end."""
    world = World(plan)
    stage = _Course(world)
    found: list[Fault] = []
    try:
        found = world.loop.run_until_complete(stage.play())
    except DeadWait as dead:
        found = [Fault(4, str(dead))]
    except Exception as bug:  # Of the play itself: shown with its seed, like everything else.
        found = [*world.history.found, *world.witness.found, Fault(0, f"{type(bug).__name__}: {bug}")]
    finally:
        stage.close()
    return Outcome(
        seed=plan.seed,
        hash=hashlib.sha256(repr((world.story, found)).encode()).hexdigest()[:32],
        faults=tuple(found),
        sometimes=stage.sometimes(),
        agent_seconds=world.agent_seconds,
        seconds=world.loop.time(),
        story=tuple(world.story),
    )


class _Course:
    """The course of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.desk = Process("person")
        self.board: WitnessedBoard = world.board_of(self.desk)

    async def play(self) -> list[Fault]:
        world, loop = self.world, self.world.loop
        person = Person(self.board, world.plan, world.storm, world.random, world.history, world.note)
        await loop.start(self.desk, person.put_goals())
        for _ in range(world.plan.hosts):
            world.start_host()
        self.person = loop.start(self.desk, person.live(), "person")
        await self._storm()
        await self._calm()
        if not self._broken and await self._comes_to_rest():
            await self._probe_idle()
            await self._comes_to_rest()  # One who was called back may have read what it was sent before.
        for machine in world.living:
            await loop.start(machine.process, machine.host.stop("the play is over"))
        return await self._judge()

    def _defects(self) -> list[Fault]:
        """What failed for a reason that has no name."""
        found = [
            f"{name} at {machine.process.name}: {why}"
            for machine in self.world.machines
            for name, why in machine.host.failed.items()
        ]
        running = [(self.person, "the person")]
        running += [(loop, each.process.name) for each in self.world.machines for loop in each.host._loops]
        for task, name in running:
            if task.done() and not task.cancelled() and (bug := task.exception()) is not None:
                found.append(f"{name}: {type(bug).__name__}: {bug}")
        return [Fault(0, each) for each in found]

    @property
    def _broken(self) -> bool:
        return bool(self.world.history.found or self.world.witness.found or self.world.differing)

    async def _storm(self) -> None:
        world = self.world
        until = world.loop.time() + world.plan.storm_seconds
        while world.loop.time() < until and not self._broken:
            await self._tick(world.random.uniform(10, 100))
            self._strike()
            if self._is_over():
                return

    def _strike(self) -> None:
        """What befalls whole processes, and the clock."""
        world, storm, chance = self.world, self.world.storm, self.world.random
        if not world.living:
            world.start_host()
        if not (able := [each for each in world.living if not each.process.frozen]):
            return
        machine = chance.choice(able)
        if storm.draws("stopped at an await", 80):
            machine.process.steps_left = chance.randrange(400)
        elif storm.draws("freeze", 100):
            if len(able) == len(world.living) and chance.random() < 0.4:
                world.sleep()
            else:
                world.freeze(machine.process)
        elif storm.draws("clock that jumps", 40):
            world.jumped_ms += chance.choice(_JUMPS_MS)
            world.witness.jumps.append(world.loop.time())
            world.note("the database's clock", f"is off by {world.jumped_ms / 1000:g} s")
        elif chance.random() < 0.01:
            world.note(machine.process.name, "is told to stop in order")
            world.loop.start(machine.process, self._leave(machine))

    async def _leave(self, machine: SimulatedHost) -> None:
        await machine.host.stop("told to stop")
        machine.process.kill()

    async def _calm(self) -> None:
        """No fault begins any more; what was begun ends."""
        world = self.world
        world.storm.lasts = False
        world.note("the storm", "is over")
        if world.sleeping:
            world.witness.naps[-1][1] = world.loop.time()
        for machine in world.living:
            machine.process.steps_left = None
            world.thaw(machine.process)
        if not [each for each in world.living if not each.host.is_stopping]:
            world.start_host()

    async def _tick(self, seconds: float) -> None:
        before = self.world.loop.time()
        await asyncio.sleep(seconds)
        workers = sum(len(machine.host.workers) for machine in self.world.living)
        self.world.agent_seconds += workers * (self.world.loop.time() - before)

    def _is_over(self) -> bool:
        """Every task has ended, and everybody has read what they were sent."""
        history = self.world.history
        return all(task.ended for task in history.tasks.values()) and not any(
            number not in history.shown and history.teammates.get(message["to"]) in ("wanted", "seated")
            for number, message in history.messages.items()
        )

    async def _comes_to_rest(self) -> bool:
        loop = self.world.loop
        until, steps_max = loop.time() + _CALM_SECONDS_MAX, loop.steps + _CALM_STEPS_MAX
        while loop.time() < until and loop.steps < steps_max and not self._broken:
            if self._is_over():
                return True
            await self._tick(_TICK_SECONDS)
            if not self.world.living:
                self.world.start_host()
        return False

    async def _probe_idle(self) -> None:
        """At rest nothing is asked of a model and little of the board; then one push brings a teammate to work."""
        world, witness = self.world, self.world.witness
        await self._tick(_TICK_SECONDS)
        asked, called = world.provider.asked, world.wire.reads + sum(world.calls.values())
        await self._tick(_QUIET_SECONDS)
        called = world.wire.reads + sum(world.calls.values()) - called
        if world.provider.asked != asked:
            witness.fault(10, f"a model was asked {world.provider.asked - asked} times, and there was nothing to do")
        if called > _QUIET_CALLS_MAX * (1 + len(world.living)):
            witness.fault(10, f"{called} calls of the board in {_QUIET_SECONDS:g} quiet seconds")
        idle = [
            life.name
            for machine in world.living
            for life in machine.host.workers.values()
            if life.claim is None and not life.agent.teammate.lead and not life.agent.stop
        ]
        if not idle or not self._is_over():
            return
        world.storm.happened("woken by a push")
        task = await world.loop.start(self.desk, self.board.put("the last job", budget=Budget()))
        await self._tick(_AT_ONCE_SECONDS)
        if not world.history.tasks[task.id].claims:
            witness.fault(10, f"{', '.join(idle)} had nothing to do, and were not woken for #{task.id}")
        await self._comes_to_rest()

    async def _judge(self) -> list[Fault]:
        world = self.world
        found = [*world.history.found, *world.witness.found]
        found += [*(Fault(4, each) for each in world.differing), *self._defects()]
        if not found:
            found += world.witness.at_rest() + left_open(world.history)
            found += unheard(world.events, world.told, at_rest=False)
        return found + await world.loop.start(self.desk, against_tables(self.board, world.events, at_rest=False))

    def sometimes(self) -> Counter[str]:
        """What was seen at least once."""
        world = self.world
        counts = world.history.counts
        seen = Counter({f"fault: {kind}": count for kind, count in world.storm.seen.items() if kind in KINDS})
        seen.update({what: count for what, count in world.storm.seen.items() if what not in KINDS})
        seen["stale holder refused"] = sum(each[0] == "stale" for each in world.told)
        seen["follow-up"] = sum(task.depth > 0 for task in world.history.tasks.values())
        seen["command run"] = world.witness.counts["command run"]
        for kind, what in OF_EVENTS.items():
            seen[what] = counts[kind]
        return +seen

    def close(self) -> None:
        world = self.world
        for process in (self.desk, *(machine.process for machine in world.machines)):
            process.alive = False
        for task in asyncio.all_tasks(world.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        try:
            world.wire.store.writer.close()
        finally:
            for process in (self.desk, *(machine.process for machine in world.machines)):
                world.loop.bury(process)
            world.loop.close()
