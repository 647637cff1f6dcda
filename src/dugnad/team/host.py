"""A process that runs teammates: one heartbeat for all, and what keeps the team going when others fall away.

Three things run here besides the teammates' lives: the beat (renew the lease; whatever the board says is no longer
ours is dropped before anything else), the upkeep (take back what dead hosts held, seat who is wanted, end who was asked
to leave, let the team grow), and nothing else. It may be killed at any instruction.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..agent import Mind
from ..board import Board
from ..board.records import Moment
from ..board.store.watch import Watch
from ..errors import BoardTrouble, DugnadError, HostLost, NotReady, UnknownHost
from ..logs import logger, traceback_text, without_secrets
from ..tools.message_tools import GONE
from ..types import MESSAGES, Released, Teammate
from .errands import Errands
from .growth import MADE_ROOM, Joins, joining, may_come_back
from .lost_hosts import Silence, dead_neighbours, own_label
from .plan import RunPlan
from .worker import Worker

# Makes the mind of a teammate. The second argument is what it asks before it acts on the world: False means that the
# host's lease ran out, so that the claim may be another's by now.
_LOG = logger(__name__)
MindOf = Callable[[Teammate, Callable[[], bool]], Mind]
Newcomer = Callable[[Joins], dict[str, Any]]  # What else `spawn` should say of one who joins: its prompt and model.


@dataclass(kw_only=True)
class Host:
    """Runs any number of teammates on one event loop."""

    board: Board
    mind: MindOf
    plan: RunPlan
    grows: bool = True  # False: only who was spawned is run.
    newcomer: Newcomer = lambda joins: {}
    scope: tuple[int, ...] | None = None  # Only work under these roots is taken; None: all there is.
    payer: int | None = None  # The root that pays for answering messages about no task of its own; None: each its own.
    label: str = ""
    id: str = ""
    lives: dict[str, Worker] = field(default_factory=dict)
    worked: dict[str, None] = field(default_factory=dict)  # Everybody who has had a seat here, in order.
    own_trouble: str = ""  # Why the board cannot be reached at the moment.
    failed: dict[str, str] = field(default_factory=dict)  # Teammates that failed here, and why.
    broken_models: dict[str, str] = field(default_factory=dict)  # Why nobody should be spawned with a model.
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _loops: list[asyncio.Task[None]] = field(default_factory=list)
    _lease_until: float = 0.0  # By a clock that counts sleep: the board's runs on, too.
    _renewing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _silence: Silence = field(init=False)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _upkeep_watch: Watch | None = None
    _look_at: float = 0.0  # When hosts are looked at next, if nothing happens before.
    _asked: dict[str, float] = field(default_factory=dict)  # Requests to leave, and when we first saw them.
    _somebody_rested: bool = False
    _stopping: bool = False

    def __post_init__(self) -> None:
        self._silence = Silence(self.board.limits.lease_seconds)

    async def start(self) -> None:
        """Register, and begin."""
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
        """By our own clock, from before the last renewal was asked for: never longer than the board thinks."""
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
        return self.own_trouble or next((life.trouble for life in self.lives.values() if life.trouble), "")

    def works_on(self, roots: set[int]) -> bool:
        """Whether one of our teammates holds a task under these roots; no look at the board is needed to know."""
        return any(life.claim is not None and life.claim.task.root in roots for life in self.lives.values())

    def _on_move(self) -> None:
        self._moved.set()
        room = self.grows and len(self.lives) < self.plan.limits.agents_max
        if self._upkeep_watch is not None and (room or self._somebody_rested):
            self._upkeep_watch.wake("moved")  # Else there is nobody who could join, however much work waits.

    # The beat.

    async def _beat(self) -> None:
        every = self.board.limits.lease_seconds / 3
        while True:
            await asyncio.sleep(every if not self.own_trouble else min(every, 1.0))
            await self._renew()

    async def _renew(self) -> None:
        async with self._renewing:
            held_before = {(life.claim.task.id, life.claim.epoch): life for life in self.lives.values() if life.claim}
            began = self.board.sources.uptime()
            beat = asyncio.ensure_future(self.board.heartbeat(self.id))
            # After a sleep the lease is over before the beat is asked for, and most often nobody took anything from us.
            await asyncio.wait({beat}, timeout=max(self.board.limits.lease_seconds / 3, self._lease_until - began))
            if not beat.done():  # A board that hangs: the lease runs out without word, so we stop by ourselves.
                self._drop_all("its host's lease ran out")
            try:
                held = set(await beat)
            except (HostLost, UnknownHost):  # Somebody stopped us. What we held is no longer ours.
                self._drop_all("its host was stopped")
                await self._start_anew()
                return
            except BoardTrouble as trouble:
                self.own_trouble = str(trouble)
                if not self.lease_runs():
                    self._drop_all("its host's lease ran out")
                return
            self.own_trouble = ""
            for place, life in held_before.items():
                if place not in held and life.claim and (life.claim.task.id, life.claim.epoch) == place:
                    life.drop("it was lost")  # Fenced already, by whoever took it; now the work itself stops.
            self._lease_until = began + self.board.limits.lease_seconds

    def _drop_all(self, why: str) -> None:
        for life in self.lives.values():
            life.drop(why)

    async def _start_anew(self) -> None:
        """Under a new id: teammates that nobody took meanwhile are seated again by the upkeep."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self.lives.clear()
        self._running.clear()
        try:
            await self._register()
        except BoardTrouble as trouble:
            self.own_trouble = str(trouble)

    # The upkeep.

    async def _upkeep(self) -> None:
        """At every change of the team, when a lease runs out, and now and then in any case."""
        with self.board.watch(["team"]) as watch:
            self._upkeep_watch = watch
            changed = {"team"}
            while True:
                try:
                    if "team" in changed or self._now() >= self._look_at:
                        await self._look_at_hosts()
                        await self._see_to_members()
                        await self._see_to_shutdowns()
                    if not self._stopping:
                        await self._grow()
                except (BoardTrouble, HostLost) as trouble:
                    self.own_trouble = str(trouble)
                    await asyncio.sleep(1.0)
                    changed = {"team"}
                    continue
                changed = await watch.changes(max(0.02, self._look_at - self._now()))

    async def _look_at_hosts(self) -> None:
        """Give back what hosts held that are gone. Of this machine's, we can tell before the lease does."""
        hosts = await self.board.hosts()
        if not any(each.id == self.id and each.alive for each in hosts):
            await self._renew()  # We slept, or the board's clock jumped. Before others are judged, we beat.
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
        """Take who is wanted, and who lost their host; they go on where they were. Whether there was anybody."""
        free = self.plan.seats_max - len(self.lives)
        if self._stopping or free <= 0:
            return False
        taken = await self.board.seat(self.id, count=free)
        for member in taken:
            if (old := self.lives.get(member.name)) is not None:
                await self._end(old, "it was seated anew")
            await self._begin(member)
        return bool(taken)

    async def _begin(self, member: Teammate) -> None:
        try:
            agent = self.mind(member, self.lease_runs)
        except Exception as trouble:  # A model that cannot be opened, or whoever made the mind made a mistake.
            self.broken_models[member.model] = self.failed[member.name] = str(trouble)
            await self.board.fail_teammate(member.name, by=member.name, reason=str(trouble), seat=member.seat)
            self._on_move()
            return
        name, plan = member.name, self.plan
        errands = Errands(board=self.board, teammate=name, plan=plan, scope=self.scope, payer=self.payer)
        life = Worker(
            board=self.board, host=self.id, agent=agent, errands=errands, plan=plan, on_move=self._on_move
        )  # fmt: skip
        self.lives[name], self.worked[name] = life, None
        self._running[name] = task = asyncio.create_task(life.live(), name=f"teammate {name}")
        task.add_done_callback(lambda done: self._gone(life, done))

    def _gone(self, life: Worker, done: asyncio.Task[None]) -> None:
        if self.lives.get(life.name) is life:
            del self.lives[life.name]
            self._running.pop(life.name, None)
        if life.failed:
            self.failed[life.name] = life.failed
        if life.model_is_wrong:
            self.broken_models[life.agent.teammate.model] = life.failed
        if not done.cancelled() and (bug := done.exception()) is not None:
            life.failed = self.failed[life.name] = without_secrets(f"{type(bug).__name__}: {bug}")
            self._loops.append(asyncio.create_task(self._bury(life, bug)))
        self._on_move()

    async def _bury(self, life: Worker, bug: BaseException) -> None:
        """A life that died of a bug outside its work: shown as failed, what it held given back."""
        _LOG.error("bug", exc_info=bug)
        try:
            if life.claim is not None:
                with contextlib.suppress(DugnadError):  # The task is in other hands, or a bug is kept already.
                    await self.board.keep_traceback(life.claim, traceback_text(bug))
                await self.board.settle(life.claim, Released(f"{life.name} failed: {life.failed}", resume=True))
            await self.board.fail_teammate(life.name, by=life.name, reason=life.failed, seat=life.agent.teammate.seat)
        except DugnadError as trouble:
            self.own_trouble = str(trouble)

    async def _see_to_members(self) -> None:
        """Take who is free; end who was shut down by force; begin with who has a seat here but no life, the answer
        having been lost."""
        team = await self.board.team()
        if any(member.status in ("wanted", "lost") for member in team) and await self._seat():
            team = await self.board.team()
        self._somebody_rested = any(map(may_come_back, team))
        for member in team:
            life = self.lives.get(member.name)
            if life is not None and member.status in GONE:
                await self._end(life, f"{member.name} was shut down: {member.reason or 'no reason given'}")
            elif life is None and member.host == self.id and not self._stopping:
                await self._begin(member)
            elif life is not None and member.host and (member.host, member.seat) != (self.id, life.agent.teammate.seat):
                # It was seated elsewhere, or here, and the answer was lost. With an old seat it could not even rest,
                # and would be woken in the place of one who can take the work.
                await self._end(life, f"{member.name} was seated anew")

    async def _see_to_shutdowns(self) -> None:
        """Remind who was asked to leave; end who did not answer in time."""
        for asked in await self.board.shutdown_requests(self.id):
            life = self.lives.get(asked.teammate)
            if life is None or asked.accepted is False:
                continue
            left = self.plan.limits.shutdown_seconds + self._asked.setdefault(asked.request, self._now()) - self._now()
            if left > 0:
                life.asked_to_stop = True
                life.wake()
                self._look_at = min(self._look_at, self._now() + left)
                continue
            why = f"shut down by {asked.sender}: no answer within {self.plan.limits.shutdown_seconds:g} seconds"
            await self.board.stop_teammate(asked.teammate, by=asked.sender, reason=why)
            await self._end(life, why)

    async def _end(self, life: Worker, why: str) -> None:
        """It can claim nothing more by now. Its work is stopped, then what it held is given back."""
        life.leave(why)
        life.drop(why)
        running = self._running.get(life.name)
        if running is not None:
            await asyncio.wait({running}, timeout=self.plan.limits.cancel_seconds + 1)
            running.cancel()

    async def _grow(self) -> None:
        """Who rested comes back, and others join, while ready work waits that those who are there will not take."""
        if not await self.board.ready_work(roots=self.scope):
            return
        now = await self.board.moment(scope=self.scope)  # Together: what one of them took meanwhile calls for nobody.
        ready, team = now.ready, {member.name: member for member in now.team}
        for joins in self.joining(ready, now.team):
            old = team.get(joins.name)
            settings = as_before(old) if old else self.newcomer(joins)
            if settings.get("model", "") in self.broken_models:
                continue  # It would fail as the last one did.
            try:
                if joins.instead_of is not None:
                    await self.board.stop_teammate(
                        joins.instead_of, by="board", reason=f"{MADE_ROOM}{joins.name}", if_quiet=True
                    )
                await self.board.spawn(joins.name, roles=joins.roles, host=self.id, by="board", **settings)
            except NotReady:
                continue  # Somebody was quicker.
        for lane in ready:
            if lane.startswith("@") and lane[1:] in team and team[lane[1:]].status in GONE:
                await self._free_work_of(team[lane[1:]])

    def joining(self, ready: Mapping[str, int], team: Sequence[Teammate]) -> list[Joins]:
        if (roles := self.plan.only_roles) is not None:
            fits = [each for each in ready if each.partition("!")[0] in ("", *roles) or each.startswith("@")]
            ready = {lane: ready[lane] for lane in fits}
        return joining(ready, team, host=self.id, agents_max=self.plan.limits.agents_max, strangers=self.grows)

    def can_grow(self, now: Moment) -> bool:
        """Whether somebody would join for the work that is ready."""
        return not self.broken_models and bool(self.joining(now.ready, now.team))

    async def _free_work_of(self, member: Teammate) -> None:
        """Nobody can answer in the place of one who was shut down; the goal it belongs to must not wait for it. What
        it was to go on with after a review is for others now."""
        if may_come_back(member):
            return
        for task in await self.board.list_tasks(states=["ready", "scheduled"], page=1_000):
            if task.assignee == member.name and task.kind in MESSAGES:
                await self.board.cancel(task.id, by="board", why=f"{member.name} was shut down")
            elif task.assignee is None and task.teammate == member.name and task.state == "ready":
                with contextlib.suppress(NotReady):  # Somebody was quicker.
                    await self.board.assign(task.id, None, by="board")

    # The end.

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    async def stop(self, why: str = "its host was stopped") -> None:
        """Let the turns under way be recorded, give back what is held, and leave in order."""
        self._stopping = True
        for life in self.lives.values():
            life.leave(why)
        running = list(self._running.values())
        if running:
            await asyncio.wait(running, timeout=self.plan.limits.stop_seconds)
        await asyncio.gather(*(self._end(life, why) for life in list(self.lives.values())))  # Who did not make it.
        for task in [*self._loops, *self._running.values()]:
            task.cancel()
        await asyncio.gather(*self._loops, *self._running.values(), return_exceptions=True)
        try:
            async with asyncio.timeout(self.plan.limits.cancel_seconds):
                await self.board.stop_host(self.id)
        except (DugnadError, TimeoutError) as trouble:  # Its lease runs out, or its process is seen to be gone.
            self.own_trouble = str(trouble)


def as_before(member: Teammate) -> dict[str, Any]:
    """One who comes back is who it was."""
    return {"prompt": member.prompt, "model": member.model, "plan": member.plan, "lead": member.lead}
