"""A simulated world: real boards, hosts, teammates and messages on one virtual loop, first in a storm, then in calm.

Everything a seed needs to run the same way again is in its plan; everything that is judged is in the outcome.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

from dugnad.agent.agent import Agent
from dugnad.board import records
from dugnad.board.store.seam import Topics
from dugnad.board.store.sqlite import SqliteStore, run_now
from dugnad.clock import Sources
from dugnad.errors import DugnadError
from dugnad.settings import AgentLimits, Limits, Patience, TeamLimits
from dugnad.team import Host, RunPlan
from dugnad.tools.policy import Policy
from dugnad.types import Budget, Event, Teammate

from .faults import Storm
from .history import History
from .loop import Process, VirtualLoop
from .oracle import tell
from .plan import WorldPlan
from .port import DatabaseWire, Port, WitnessedBoard
from .provider import Provider
from .shell import OutsideWorld, places_of, sandbox, tools
from .waking import unpushed
from .witness import TEAM, Witness

BEGAN_MS = 1_800_000_000_000
LIMITS = Limits(
    depth_max=4, children_max=4, tasks_per_root_max=25, repeats_max=3, claims_max=15,
    lease_seconds=180.0, lease_seconds_max=400.0, backoff_seconds=5.0,
)  # fmt: skip
PATIENCE = Patience(poll_seconds=120.0)
AGENT_LIMITS = AgentLimits(
    turns_max=12, output_tokens_max=1_000, model_seconds_max=900.0, give_back_seconds=120.0,
    keep_share=0.004,  # Talks are short here, and are to be made shorter all the same.
)  # fmt: skip
_SKEWS = (0, -90_000, 90_000, 3_600_000)


@dataclass
class SimulatedHost:
    """A host, in the process that runs it."""

    process: Process
    board: WitnessedBoard
    host: Host


@dataclass
class World:
    plan: WorldPlan
    machines: list[SimulatedHost] = field(default_factory=list)
    story: list[tuple[float, str, str]] = field(default_factory=list)
    told: list[tuple[object, ...]] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    agent_seconds: float = 0.0
    calls: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seed = self.plan.seed
        self.loop = VirtualLoop(seed)
        self.random = random.Random(f"world {seed}")
        self.jumped_ms = 0  # The database's clock, by how much it is off.
        self.storm = Storm(self.plan.kinds, random.Random(f"storm {seed}"))
        self.history = History(limits=LIMITS, turns_max=AGENT_LIMITS.turns_max)
        self.members = {name: roles for name, roles, _ in self.plan.members}
        self.witness = Witness(self.history, self.loop.time, LIMITS.lease_seconds, self.members)
        self.provider = Provider(
            storm=self.storm,
            random=random.Random(f"provider {seed}"),
            steps={task.title: task.steps for task in self.plan.tasks} | self.plan.scripts,
            names=tuple(self.members),
            witness=self.witness,
            note=self.note,
        )
        self.outside = OutsideWorld(self.witness, self.storm, self.random, self.note)
        sandbox().enter(self.outside)
        true = Sources(now_ms=self._now_ms, new_id=self._ids("database"), chance=self.random.random)
        store = SqliteStore(None, limits=LIMITS, patience=PATIENCE, sources=true, threads=False)
        self.witness.lease_left = self._lease_left
        self.wire = DatabaseWire(
            self.loop, store, self.storm, self._committed, self.note, self.freeze, over_a_wire=bool(seed % 2)
        )

    def note(self, who: str, what: str) -> None:
        self.story.append((round(self.loop.time(), 3), who, what))

    def _now_ms(self) -> int:
        return BEGAN_MS + self.jumped_ms + int(self.loop.time() * 1000)

    def _lease_left(self, host: str) -> int:
        rows = run_now(self.wire.store.read("read_host", id=host))
        return int(rows[0]["lease_until"]) - self._now_ms() if rows else 0

    def _ids(self, name: str) -> _Ids:
        return _Ids(name.replace(" ", "-"))

    def _committed(self, who: str, topics: Topics) -> None:
        """Look at every change at once: a promise that is broken is seen where it breaks."""
        rows = run_now(self.wire.store.read("read_events", after=self.history.last, task=None, page=1_000))
        events = [records.event(row) for row in rows]
        for event in events:
            self.events.append(event)
            if event.kind == "spawned":
                self.members[str(event.data["name"])] = tuple(event.data["roles"])  # type: ignore[arg-type]
            self.witness.event(event)
            tell(self.history, event)
            self.story.append((round(self.loop.time(), 3), event.actor, f"[{who}] {_words(event)}"))
        self.history.found += unpushed(self.history, events, topics)

    # The parts.

    def board_of(self, process: Process, skew_ms: int = 0) -> WitnessedBoard:
        """The board as one process sees it; its clock may differ, the database's is everybody's."""
        sources = Sources(
            now_ms=lambda: self._now_ms() + skew_ms, new_id=self._ids(process.name), chance=self.random.random,
            uptime=self.loop.time, working_ms=lambda: int(self.loop.time() * 1000),
        )  # fmt: skip
        board = WitnessedBoard(Port(self.wire, process), limits=LIMITS, patience=PATIENCE, sources=sources)
        board.told, board.differing, board.calls = self.told, self.differing, self.calls
        board.storm, board.now, board.on_call = self.storm, self.loop.time, self.witness.called
        board.freeze = lambda: self.freeze(process)
        return board

    def start_host(self) -> SimulatedHost:
        process = Process(f"host {len(self.machines) + 1}")
        skew = self.random.choice(_SKEWS) if self.storm.has("clocks that differ") else 0
        if skew:
            self.storm.happened("clocks that differ")
        board = self.board_of(process, skew)

        policy = Policy.of({"press": "ask"} if self.plan.asks else {})

        def mind(member: Teammate, may_act: Callable[[], bool]) -> Agent:
            requests, tokens = self.plan.rates
            return Agent(
                board=board, teammate=member, model=self.provider, tools=tools(), team=TEAM, limits=AGENT_LIMITS,
                requests_per_minute=requests, tokens_per_minute=tokens, sources=board.sources, policy=policy,
                may_act=may_act,
            )  # fmt: skip

        limits = TeamLimits(idle_seconds=self.plan.idle_seconds, sweep_seconds=120.0)
        host = Host(
            board=board, mind=mind, label=process.name,
            plan=RunPlan(
                url="", agents=4, limits=limits, workspaces=places_of(board), knows_neighbours=False,
                budget=Budget(tasks=20, tokens=400_000),
            ),
        )  # fmt: skip
        machine = SimulatedHost(process, board, host)
        self.machines.append(machine)
        process.on_death = lambda: self._died(machine)
        self.loop.start(process, _start(host), process.name)
        return machine

    def _died(self, machine: SimulatedHost) -> None:
        self.note(machine.process.name, "is stopped for good")
        self.storm.happened("a host is gone")
        if machine.board._store in self.wire.ports:
            self.wire.ports.remove(machine.board._store)
        if self.random.random() < 0.6 and len(self.machines) < 12:
            self.later(self.random.uniform(5, 200), self._start_awake)

    def _start_awake(self) -> None:
        if self.sleeping:
            self.later(10.0, self._start_awake)
        else:
            self.start_host()

    @property
    def sleeping(self) -> bool:
        return bool(self.witness.naps) and self.loop.time() < self.witness.naps[-1][1]

    def sleep(self) -> None:
        """Everybody at once, as on a laptop that is closed. The clock of the database runs on."""
        seconds = self.random.uniform(0.3, 3) * LIMITS.lease_seconds
        self.note("everybody", f"sleeps for {seconds:.0f} s")
        self.witness.naps.append([self.loop.time(), self.loop.time() + seconds])
        for machine in self.living:
            self.loop.freeze(machine.process)
            self.later(seconds, self.thaw, machine.process)

    def freeze(self, process: Process) -> None:
        """For some part of a lease, or for several."""
        if not process.frozen:
            seconds = self.random.uniform(0.3, 3) * LIMITS.lease_seconds
            self.note(process.name, f"freezes for {seconds:.0f} s")
            self.loop.freeze(process)
            self.later(seconds, self.thaw, process)

    def thaw(self, process: Process) -> None:
        if process.frozen:
            self.note(process.name, "comes back")
            self.loop.thaw(process)

    def later(self, seconds: float, what: Callable[..., Any], *given: Any) -> None:
        """Done by nobody in particular, so that it happens whoever is frozen or gone by then."""
        self.loop.call_later(seconds, what, *given, context=Context())

    @property
    def living(self) -> list[SimulatedHost]:
        return [each for each in self.machines if each.process.alive]


class _Ids:
    """Ids that are the same in every run, and grow."""

    def __init__(self, name: str) -> None:
        self._name, self._count = name, 0

    def __call__(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count:06d}"


async def _start(host: Host) -> None:
    while True:
        try:
            await host.start()
            return
        except DugnadError:
            await asyncio.sleep(5.0)


def _words(event: Event) -> str:
    about = f" #{event.task}" if event.task is not None else ""
    said = " ".join(f"{name}={value}" for name, value in sorted(event.data.items()) if name in _TOLD and value != "")
    return f"{event.kind}{about} {said}".rstrip()


_TOLD = frozenset(
    {"epoch", "state", "reason", "host", "to", "message_kind", "message", "messages", "number", "name", "title", "held",
     "key", "tokens", "continues", "seat", "due_at"}
)  # fmt: skip
