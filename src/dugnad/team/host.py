"""A process that runs teammates: one heartbeat for all, and the upkeep of the team.

Two loops run here besides the workers. The beat renews the lease, and drops the work that the board says is no longer
ours. The upkeep takes back what dead hosts held, seats teammates that are wanted, ends those that were asked to leave,
and lets the team grow. The process may be killed at any instruction.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..agent.mind import Mind, OutsideMind
from ..board import Board
from ..board.records import Moment
from ..board.store.watch import Watch
from ..errors import BoardTrouble, DugnadError, HostLost, NotReady, StoppedTeammate, UnknownHost
from ..prompts import tell
from ..tools.message_tools import GONE, MADE_ROOM, may_come_back
from ..types import MESSAGES, Claim, Teammate
from .errands import Errands
from .growth import Joins, joining
from .lost_hosts import Silence, dead_neighbours, own_label
from .plan import RunPlan
from .worker import Worker

# Makes the mind of a teammate. The mind asks the second argument before it acts on the world: False means that the
# host's lease ran out, so another host may have the claim by now.
MindOf = Callable[[Teammate, Callable[[], bool]], Mind]

_GROW_SECONDS = 1.0  # Between two looks at ready work, which a teammate of a small team may have put meanwhile.


@dataclass(kw_only=True)
class Host:
    """Runs any number of teammates on one event loop."""

    board: Board
    mind: MindOf
    plan: RunPlan
    scope: tuple[int, ...] | None = None  # Teammates here take only work under these roots; None: any work.
    payer: int | None = None  # The root that pays for errands about no task; None: each errand is a root of its own.
    label: str = ""
    id: str = ""
    workers: dict[str, Worker] = field(default_factory=dict)
    worked: dict[str, None] = field(default_factory=dict)  # All teammates that have had a seat here, in order.
    roots: set[int] = field(default_factory=set)  # Of all tasks that they had.
    own_trouble: str = ""  # Why the board cannot be reached at the moment.
    failed: dict[str, str] = field(default_factory=dict)  # Teammates that failed here, and why.
    is_stopping: bool = False
    _broken_models: set[str] = field(default_factory=set)
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _loops: list[asyncio.Task[None]] = field(default_factory=list)
    _lease_until: float = 0.0  # By a clock that counts sleep, because the board's clock runs on, too.
    _renewing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _silence: Silence = field(init=False)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _upkeep_watch: Watch | None = None
    _look_at: float = 0.0  # When the upkeep looks at hosts again, if nothing happens before.
    _asked: dict[str, float] = field(default_factory=dict)  # Shutdown requests, and when we first saw them.
    _somebody_rested: bool = False

    def __post_init__(self) -> None:
        self._silence = Silence(self.board.limits.lease_seconds)

    async def start(self) -> None:
        self.label = self.label or own_label()
        await self._register()
        self._loops = [asyncio.create_task(self._beat()), asyncio.create_task(self._upkeep())]

    async def _register(self) -> None:
        began = self.board.sources.uptime()
        self.id = await self.board.start_host(self.label, scope=self.scope)
        self._lease_until = began + self.board.limits.lease_seconds

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def lease_runs(self) -> bool:
        """By our own clock, counted from before the last renewal, so our lease never ends later than the board's."""
        return self.board.sources.uptime() < self._lease_until

    async def wait_for_move(self, seconds: float) -> None:
        """Until a task came to or went from one of our teammates, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._moved.wait()
        self._moved.clear()

    @property
    def trouble(self) -> str:
        """Why the board cannot be reached at the moment, as the host or one of its teammates found."""
        return self.own_trouble or next((worker.trouble for worker in self.workers.values() if worker.trouble), "")

    def works_on(self, roots: set[int]) -> bool:
        """Whether one of our teammates holds a task under these roots; no look at the board is needed to know."""
        return any(each.claim is not None and each.claim.task.root in roots for each in self.workers.values())

    def _on_move(self) -> None:
        self._moved.set()
        self.roots.update(each.claim.task.root for each in self.workers.values() if each.claim)
        if self._upkeep_watch is not None and (len(self.workers) < self.plan.agents or self._somebody_rested):
            self._upkeep_watch.wake("moved")  # Otherwise nobody could join, however much work waits.

    # The beat.

    async def _beat(self) -> None:
        every = self.board.limits.lease_seconds / 3
        while True:
            await asyncio.sleep(every if not self.own_trouble else min(every, 1.0))
            await self._renew()

    async def _renew(self) -> None:
        async with self._renewing:
            held_before = {_held(each.claim): each for each in self.workers.values() if each.claim}
            began = self.board.sources.uptime()
            beat = asyncio.ensure_future(self.board.heartbeat(self.id))
            # After a sleep the lease is over before we ask, and most often no host took anything from us.
            await asyncio.wait({beat}, timeout=max(self.board.limits.lease_seconds / 3, self._lease_until - began))
            if not beat.done():  # The board hangs. The lease runs out without an answer, so we stop by ourselves.
                self._drop_all("its host's lease ran out")
            try:
                held = set(await beat)
            except (HostLost, UnknownHost):  # Somebody stopped this host. What it held is no longer ours.
                self._drop_all("its host was stopped")
                await self._start_anew()
                return
            except BoardTrouble as trouble:
                self.own_trouble = str(trouble)
                if not self.lease_runs():
                    self._drop_all("its host's lease ran out")
                return
            self.own_trouble = ""
            for claim, worker in held_before.items():
                if claim not in held and worker.claim and _held(worker.claim) == claim:
                    worker.drop("it was lost")  # The board refuses its writes already; now the work itself stops.
            self._lease_until = began + self.board.limits.lease_seconds

    def _drop_all(self, why: str) -> None:
        for worker in self.workers.values():
            worker.drop(why)

    async def _start_anew(self) -> None:
        """Register under a new id. The upkeep seats the teammates again that no other host took meanwhile."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self.workers.clear()
        self._running.clear()
        try:
            await self._register()
        except BoardTrouble as trouble:
            self.own_trouble = str(trouble)

    # The upkeep.

    async def _upkeep(self) -> None:
        """Look at every change of the team, when a lease runs out, and now and then in any case."""
        with self.board.watch(["team"]) as watch:
            self._upkeep_watch = watch
            changed = {"team"}
            while True:
                try:
                    if "team" in changed or self._now() >= self._look_at:
                        await self._look_at_hosts()
                        await self._see_to_members()
                        await self._see_to_shutdowns()
                    if not self.is_stopping:
                        await self._grow()
                except (BoardTrouble, HostLost) as trouble:
                    self.own_trouble = str(trouble)
                    await asyncio.sleep(1.0)
                    changed = {"team"}
                    continue
                most = _GROW_SECONDS if self.plan.enough and len(self.workers) < self.plan.agents else math.inf
                changed = await watch.changes(max(0.02, min(most, self._look_at - self._now())))

    async def _look_at_hosts(self) -> None:
        """Free what lost hosts held. A dead host of this machine shows before its lease ends."""
        hosts = await self.board.hosts()
        if not any(each.id == self.id and each.alive for each in hosts):
            await self._renew()  # We slept, or the board's clock jumped. We renew our lease before we judge others.
            hosts = await self.board.hosts()
        silent = self._silence.watch([each for each in hosts if each.id != self.id], self._now())
        for neighbour in dead_neighbours(hosts, self.label) if self.plan.knows_neighbours else []:
            await self.board.stop_host(neighbour.id)
        lapse = await self.board.next_lapse()
        if lapse is not None and lapse <= 0:
            await self.board.take_back(silent=silent)
            lapse = await self.board.next_lapse()
        soon = min(self.plan.limits.sweep_seconds, self.board.limits.lease_seconds / 6)
        if lapse is not None and lapse > 0:
            soon = min(soon, max(0.02, lapse + 0.02))
        self._look_at = self._now() + soon

    async def _seat(self) -> bool:
        """Take teammates that are wanted or lost their host; they continue. True: there were some."""
        free = self.plan.seats_max - len(self.workers)
        if self.is_stopping or free <= 0:
            return False
        taken = await self.board.seat(self.id, count=free)
        for member in taken:
            if (old := self.workers.get(member.name)) is not None:
                await self._end(old, "it was seated anew")
            await self._begin(member)
        return bool(taken)

    async def _begin(self, member: Teammate) -> None:
        try:
            agent = self.mind(member, self.lease_runs)
        except Exception as trouble:  # The model cannot be opened, or a user's `tools_for` has a bug.
            self._broken_models.add(member.model)
            self.failed[member.name] = str(trouble)
            await self.board.fail_teammate(member.name, by=member.name, reason=str(trouble), seat=member.seat)
            self._on_move()
            return
        name, plan = member.name, self.plan
        errands = Errands(board=self.board, teammate=name, plan=plan, scope=self.scope, payer=self.payer)
        worker = Worker(board=self.board, host=self.id, agent=agent, errands=errands, plan=plan, on_move=self._on_move)
        if isinstance(agent, OutsideMind):
            agent.client.seat(worker.wake)
        self.workers[name], self.worked[name] = worker, None
        self._running[name] = task = asyncio.create_task(worker.live(), name=f"teammate {name}")
        task.add_done_callback(lambda _: self._gone(worker))

    def _gone(self, worker: Worker) -> None:
        if self.workers.get(worker.name) is worker:
            del self.workers[worker.name]
            self._running.pop(worker.name, None)
        if isinstance(worker.agent, OutsideMind):
            worker.agent.client.unseat(worker.wake)
        if worker.failed:
            self.failed[worker.name] = worker.failed
        if worker.model_is_wrong:
            self._broken_models.add(worker.agent.teammate.model)
        self._on_move()

    async def _see_to_members(self) -> None:
        """Take teammates that are free, and end those that were shut down by force. A teammate may have a seat here
        without a worker, because the answer of `seat` was lost; start its worker."""
        team = await self.board.team()
        if any(member.status in ("wanted", "lost") for member in team) and await self._seat():
            team = await self.board.team()
        self._somebody_rested = any(map(may_come_back, team))
        for member in team:
            worker = self.workers.get(member.name)
            if worker is not None and member.status in GONE:
                await self._end(worker, f"{member.name} was shut down: {member.reason or 'no reason given'}")
            elif worker is None and member.host == self.id and not self.is_stopping:
                await self._begin(member)
            elif worker and member.host and (member.host, member.seat) != (self.id, worker.agent.teammate.seat):
                # It was seated elsewhere, or here, and the answer was lost. With an old seat it could not even rest,
                # and it would be woken instead of a teammate that can take the work.
                await self._end(worker, f"{member.name} was seated anew")

    async def _see_to_shutdowns(self) -> None:
        """Remind teammates that were asked to leave, and end those that did not answer in time."""
        for asked in await self.board.shutdown_requests(self.id):
            worker = self.workers.get(asked.teammate)
            if worker is None or asked.accepted is False:
                continue
            left = self.plan.limits.shutdown_seconds + self._asked.setdefault(asked.request, self._now()) - self._now()
            if left > 0:
                worker.asked_to_stop = True
                worker.wake()
                self._look_at = min(self._look_at, self._now() + left)
                continue
            why = f"shut down by {asked.sender}: no answer within {self.plan.limits.shutdown_seconds:g} seconds"
            await self.board.stop_teammate(asked.teammate, by=asked.sender, reason=why)
            await self._end(worker, why)

    async def _end(self, worker: Worker, why: str) -> None:
        """Stop its work, then give back what it held. It can claim nothing more by now."""
        worker.leave(why)
        worker.drop(why)
        running = self._running.get(worker.name)
        if running is not None:
            await asyncio.wait({running}, timeout=self.plan.limits.cancel_seconds + 1)
            running.cancel()

    async def _grow(self) -> None:
        """Bring back teammates that rested, and let others join, while work waits that those present will not take."""
        if not self.plan.seats_max or not await self.board.ready_work(roots=self.scope):
            return
        now = await self.board.moment(scope=self.scope)  # One snapshot: a task that was just taken calls for nobody.
        ready, team = now.ready, {member.name: member for member in now.team}
        if (wanted := self.joining(ready, now.team)) and self.plan.enough is not None:  # It plays the work through.
            wanted = self.joining(ready, now.team, await self.plan.enough(self.board, self.scope, self.plan.agents))
        joined: list[Joins] = []
        for joins in wanted:
            old = team.get(joins.name)
            settings = self.plan.joins_as(joins.roles, old)
            if settings.get("model", "") in self.broken_models():
                continue  # It would fail as the last one did.
            try:
                if joins.instead_of is not None:
                    await self.board.stop_teammate(
                        joins.instead_of, by="board", reason=f"{MADE_ROOM}{joins.name}", if_quiet=True
                    )
                await self.board.spawn(joins.name, roles=joins.roles, host=self.id, by="board", **settings)
            except NotReady:
                continue  # Somebody was quicker.
            joined.append(joins)
        await self._tell_leads(joined, now.team)
        for lane in ready:
            if lane.startswith("@") and lane[1:] in team and team[lane[1:]].status in GONE:
                await self._free_work_of(team[lane[1:]])

    async def _tell_leads(self, joined: Sequence[Joins], team: Sequence[Teammate]) -> None:
        """One notice about all that joined. Nobody has to answer it: a lead reads it with its next turn."""
        leads = [each.name for each in team if each.lead]
        lines = [
            tell("delivery.joined", name=each.name, roles=", ".join(each.roles) or "any work", why=each.why)
            for each in joined
            if each.name not in leads
        ]
        for lead in leads if lines else ():
            with contextlib.suppress(StoppedTeammate):
                await self.board.tell(lead, lead, "\n".join(lines), kind="notice")

    def joining(self, ready: Mapping[str, int], team: Sequence[Teammate], enough: int | None = None) -> list[Joins]:
        if (roles := self.plan.only_roles) is not None:
            fits = [each for each in ready if each.partition("!")[0] in ("", *roles) or each.startswith("@")]
            ready = {lane: ready[lane] for lane in fits}
        return joining(
            ready, team, host=self.id, agents_max=self.plan.agents, strangers=self.plan.agents > 0,
            asked=self.plan.agents_asked, enough=enough,
        )  # fmt: skip

    def can_grow(self, now: Moment) -> bool:
        """Whether somebody would join for the work that is ready."""
        return not self.broken_models() and bool(self.joining(now.ready, now.team))

    def broken_models(self) -> set[str]:
        """Models that no newcomer gets."""
        wrong = {each.agent.teammate.model for each in self.workers.values() if each.model_is_wrong}
        return self._broken_models | wrong

    async def _free_work_of(self, member: Teammate) -> None:
        """Cancel the errands of a teammate that was shut down: nobody else can answer for it, and the goal must not
        wait. Its tasks that continue after a review go to others."""
        if may_come_back(member):
            return
        for task in await self.board.list_tasks(states=["ready", "scheduled"], page=1_000):
            if task.assignee == member.name and task.kind in MESSAGES:
                await self.board.cancel(task.id, by="board", why=f"{member.name} was shut down")
            elif task.assignee is None and task.teammate == member.name and task.state == "ready":
                with contextlib.suppress(NotReady):  # Somebody was quicker.
                    await self.board.assign(task.id, None, by="board")

    # The end.

    async def stop(self, why: str = "its host was stopped") -> None:
        """Let running turns be recorded, give back what is held, and leave."""
        self.is_stopping = True
        for worker in self.workers.values():
            worker.leave(why)
        running = list(self._running.values())
        if running:
            await asyncio.wait(running, timeout=self.plan.limits.stop_seconds)
        await asyncio.gather(*(self._end(each, why) for each in list(self.workers.values())))  # Those still at work.
        for task in [*self._loops, *self._running.values()]:
            task.cancel()
        await asyncio.gather(*self._loops, *self._running.values(), return_exceptions=True)
        try:
            async with asyncio.timeout(self.plan.limits.cancel_seconds):
                await self.board.stop_host(self.id)
        except (DugnadError, TimeoutError) as trouble:  # Others see its lease run out, or its process gone.
            self.own_trouble = str(trouble)


def _held(claim: Claim) -> tuple[int, int]:
    """A claim as `Board.heartbeat` names it."""
    return claim.task.id, claim.epoch
