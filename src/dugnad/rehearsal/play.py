"""One rehearsal: a plan, a team and one set of drawn durations, played from the first claim to the last end.

This is a discrete-event simulation in whole milliseconds. It calls the board's own pure rules for the order of claims,
for needs, retries, lost hosts and budgets; only the bookkeeping around them is written a second time. Messages,
follow-ups and compaction are not rehearsed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from random import Random
from typing import Any

from ..board import rules
from ..board.rules import Candidate
from ..board.verbs.settle import decide, when_lost
from ..types import Amount, Failed
from .draws import DONE, RETRY, Draws
from .plan import PlannedTask, RehearsalPlan


@dataclass(frozen=True, slots=True)
class Mate:
    """A teammate that takes work from these lanes."""

    name: str
    lanes: tuple[str, ...]
    label: str = "anyone"  # What people call its kind.


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One host is lost with these teammates. They come back when its lease has run out."""

    at: int
    mates: frozenset[int]
    lease_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    task: int  # Its place in the plan.
    mate: int
    start: int
    end: int
    ended_as: str
    ready_at: int
    ready_by: int | None  # The task whose end made it ready; itself, if it was tried again; None: a delay, or nothing.


@dataclass(slots=True, kw_only=True)
class PlayedRun:
    """What one rehearsal came to."""

    makespan: int = 0
    microdollars: float = 0.0
    tokens: float = 0.0
    busy: int = 0
    again: float = 0.0  # Micro-dollars that were paid for what a lost host had done already.
    left: int = 0  # Tasks that never ended.
    failed: int = 0
    skipped: int = 0
    stops: list[tuple[int, int, str]] = field(default_factory=list)  # When which root ran out of what.
    bars: list[Bar] = field(default_factory=list)


class PreparedPlan:
    """A plan made ready to be played many times. A task is named by its place in the plan."""

    def __init__(self, plan: RehearsalPlan) -> None:
        self.plan, self.tasks, self.limits = plan, plan.tasks, plan.limits
        place = {task.id: number for number, task in enumerate(plan.tasks)}
        self.candidates = [Candidate(task.id, task.lane, task.priority, task.chain, task.root) for task in plan.tasks]
        self.entries = [(each.order, number) for number, each in enumerate(self.candidates)]
        self.behind: list[list[tuple[int, str | None]]] = [[] for _ in plan.tasks]
        for number, task in enumerate(plan.tasks):
            for need in task.needs:
                self.behind[place[need.task]].append((number, need.outcome))
        self.open_needs = [len(task.needs) for task in plan.tasks]
        self.runs_left = {root: rules.runs_left(row) for root, row in plan.accounts.items()}
        self.held = {root for root, row in plan.accounts.items() if row["held"] is not None}
        caps = [f"{column}_max" for column, _, _ in rules.KINDS]
        self.capped = {root: row for root, row in plan.accounts.items() if any(row[cap] is not None for cap in caps)}
        self.microdollars = [_per_ms(task, task.estimate.dollars or 0.0) * 1_000_000 for task in plan.tasks]
        self.tokens = [_per_ms(task, task.estimate.tokens) for task in plan.tasks]


def _per_ms(task: PlannedTask, amount: float) -> float:
    return amount / max(1.0, task.estimate.seconds * 1000)


def rehearse(
    stage: PreparedPlan, mates: Sequence[Mate], draws: Draws, *, loss: Loss | None = None, traced: bool = False
) -> PlayedRun:
    """Play it once. With `traced`, every attempt is written down."""
    return _Player(stage, mates, draws, loss, traced).play()


class _Player:
    def __init__(
        self, stage: PreparedPlan, mates: Sequence[Mate], draws: Draws, loss: Loss | None, traced: bool
    ) -> None:
        count = len(stage.tasks)
        self.stage, self.draws, self.loss, self.traced = stage, draws, loss, traced
        self.now = 0
        self.ran = PlayedRun(left=count)
        self.events: list[tuple[int, int, Callable[..., None], tuple[int, ...]]] = []  # When, in which order, what.
        self.numbers = 0
        self.chance = Random(0)  # For the back-off after a failure or a lost host.
        # Tasks.
        self.ready: dict[str, list[Any]] = {each.lane: [] for each in stage.candidates}
        self.waiting = 0  # How many stand in `ready`.
        self.open_needs = list(stage.open_needs)
        self.ended = [False] * count
        self.claims = [task.claims for task in stage.tasks]
        self.tries = [task.tries for task in stage.tasks]
        self.drawn = [0] * count
        self.ready_at = [0] * count
        self.ready_by: list[int | None] = [None] * count
        self.rest: dict[int, int] = {}  # What is left of a lost attempt, in milliseconds.
        self.runs_left = dict(stage.runs_left)
        self.accounts = {root: dict(row) for root, row in stage.capped.items()}
        self.stopped = set(stage.held)
        # Teammates. Those with the same lanes stand in one queue; the one that has waited longest is first.
        self.epochs = [0] * len(mates)
        self.holds: list[tuple[int, int, int, int, str | None] | None] = [None] * len(mates)
        queues: dict[tuple[str, ...], deque[tuple[int, int]]] = {}
        self.queue_of: list[deque[tuple[int, int]]] = []
        for number, mate in enumerate(mates):
            queue = queues.setdefault(tuple(lane for lane in mate.lanes if lane in self.ready), deque())
            queue.append((0, number))
            self.queue_of.append(queue)
        self.queues = list(queues.items())

    def play(self) -> PlayedRun:
        for number, needs in enumerate(self.open_needs):
            if not needs:
                self._ready_or_due(number)
        if self.loss is not None:
            self._later(self.loss.at, self._lose_host)
        self._hand_out()
        while self.events:
            self.now = self.events[0][0]
            while self.events and self.events[0][0] == self.now:
                _, _, happen, given = heappop(self.events)
                happen(*given)
            self._hand_out()
        return self.ran

    def _later(self, at: int, happen: Callable[..., None], *given: int) -> None:
        self.numbers += 1
        heappush(self.events, (at, self.numbers, happen, given))

    # Claiming.

    def _hand_out(self) -> None:
        while self.waiting:
            best = None
            for lanes, queue in self.queues:
                if queue and (best is None or queue[0] < best[1][0]) and any(map(self.ready.__getitem__, lanes)):
                    best = (lanes, queue)
            if best is None:
                return
            if (number := self._next_for(best[0])) is not None:
                self._begin(best[1].popleft()[1], number)

    def _next_for(self, lanes: tuple[str, ...]) -> int | None:
        """The task that a claim gets. None: a task was removed because its root may do no more work; look again."""
        # The order within a lane and between lanes is the same, so no other task can be given.
        _, number = min([heap[0] for lane in lanes if (heap := self.ready[lane])])
        candidate = self.stage.candidates[number]
        heappop(self.ready[candidate.lane])
        self.waiting -= 1
        if self.runs_left[candidate.root] is not None:
            candidate = replace(candidate, fresh=number not in self.rest)
            _, passed = rules.match((lanes,), (candidate,), self.runs_left)
            if passed:
                self._stop(candidate.root, "tasks")
                return None
        return number if not self.accounts or self._affords(number) else None

    def _affords(self, number: int) -> bool:
        root = self.stage.tasks[number].root
        account = self.accounts.get(root)
        if account is None:
            return True
        milliseconds, _, _ = self._next_attempt(number)
        ask = Amount(
            tokens=round(self.stage.tokens[number] * milliseconds),
            microdollars=round(self.stage.microdollars[number] * milliseconds),
            milliseconds=milliseconds,
        )
        if refusal := rules.too_much(account, ask):
            self._stop(root, refusal[0])
            return False
        for column, _, _ in rules.KINDS:
            account[column] += getattr(ask, column)
        return True

    def _stop(self, root: int, kind: str) -> None:
        """Begin nothing more under this root. Only a person could raise its budget."""
        self.runs_left[root] = 0 if kind == "tasks" else -1
        if root not in self.stopped:
            self.stopped.add(root)
            self.ran.stops.append((self.now, root, kind))

    def _next_attempt(self, number: int) -> tuple[int, int, str | None]:
        """A new attempt, or after the loss of a host the rest of the attempt before."""
        if number in self.rest:
            _, end, outcome = self.draws.attempt(number, self.drawn[number])
            return self.rest[number], end, outcome
        return self.draws.attempt(number, self.drawn[number] + 1)

    def _begin(self, mate: int, number: int) -> None:
        milliseconds, end, outcome = self._next_attempt(number)
        self.claims[number] += 1
        self.drawn[number] += number not in self.rest
        self.epochs[mate] += 1
        self.holds[mate] = (number, self.now, milliseconds, end, outcome)
        self._later(self.now + milliseconds, self._end_attempt, mate, self.epochs[mate])

    # Ending.

    def _end_attempt(self, mate: int, epoch: int) -> None:
        held = self.holds[mate]
        if held is None or self.epochs[mate] != epoch:
            return  # Its host was lost.
        number, start, milliseconds, end, outcome = held
        self.holds[mate] = None
        self.queue_of[mate].append((self.now, mate))
        self.rest.pop(number, None)
        self.ran.makespan = self.now
        self._pay(number, milliseconds)
        if end == DONE:
            if self.traced:
                self._write(mate, number, start, "done")
            self._end_task(number, "done", outcome)
            return
        row: Any = {
            "id": self.stage.tasks[number].id, "state": "claimed", "epoch": 0,
            "claims": self.claims[number], "tries": self.tries[number],
        }  # fmt: skip
        move = decide(row, Failed("rehearsed", retry=end == RETRY), self.stage.limits, self.chance.random())
        self.tries[number] += move.tried
        if self.traced:
            self._write(mate, number, start, move.ended_as)
        if move.ended:
            self._end_task(number, "failed", None)
        else:
            self.ready_by[number] = number
            self._later(self.now + move.delay, self._now_ready, number)

    def _pay(self, number: int, milliseconds: int) -> None:
        self.ran.busy += milliseconds
        self.ran.microdollars += self.stage.microdollars[number] * milliseconds
        self.ran.tokens += self.stage.tokens[number] * milliseconds

    def _write(self, mate: int, number: int, start: int, ended_as: str) -> None:
        self.ran.bars.append(
            Bar(
                task=number, mate=mate, start=start, end=self.now, ended_as=ended_as,
                ready_at=self.ready_at[number], ready_by=self.ready_by[number],
            )
        )  # fmt: skip

    def _end_task(self, number: int, state: str, outcome: str | None) -> None:
        """Count down the needs of the tasks behind it. Skip a task whose need cannot be met, and those behind it."""
        over = [(number, state, outcome)]
        while over:
            number, state, outcome = over.pop()
            if self.ended[number]:
                continue
            self.ended[number] = True
            self.ran.left -= 1
            self.ran.failed += state == "failed"
            self.ran.skipped += state == "skipped"
            for other, wanted in self.stage.behind[number]:
                plainly = wanted is None and state == "done"  # Most needs ask for this; the rule decides all others.
                if not plainly and rules.judge(wanted, state, outcome) != "met":
                    over.append((other, "skipped", None))
                    continue
                self.open_needs[other] -= 1
                if not self.open_needs[other] and not self.ended[other]:
                    self.ready_by[other] = number
                    self._ready_or_due(other)

    def _ready_or_due(self, number: int) -> None:
        due = self.stage.tasks[number].due_ms
        if due > self.now:
            self._later(due, self._now_ready, number)
        else:
            self._now_ready(number)

    def _now_ready(self, number: int) -> None:
        self.ready_at[number] = self.now
        heappush(self.ready[self.stage.candidates[number].lane], self.stage.entries[number])
        self.waiting += 1

    # Losing a host.

    def _lose_host(self) -> None:
        """Finished turns are kept. The turn in which each teammate was has to be taken again."""
        assert self.loss is not None
        for _, queue in self.queues:
            kept = [each for each in queue if each[1] not in self.loss.mates]
            queue.clear()
            queue.extend(kept)
        for mate in self.loss.mates:
            self.epochs[mate] += 1
            held = self.holds[mate]
            if held is None:
                continue
            number, start, milliseconds, _, _ = held
            whole, _, _ = self.draws.attempt(number, self.drawn[number])
            turn = max(1, round(whole / max(1.0, self.stage.tasks[number].estimate.turns)))
            worked = self.now - start
            done = worked - worked % turn
            self.rest[number] = milliseconds - done
            # The provider may have billed the call that was under way, so the board counts it as spent.
            paid = min(milliseconds, done + turn)
            self._pay(number, paid)
            self.ran.busy -= paid - worked
            self.ran.again += self.stage.microdollars[number] * (paid - done)
            if (account := self.accounts.get(self.stage.tasks[number].root)) is not None:
                unused = milliseconds - paid
                account["milliseconds"] -= unused
                account["tokens"] -= round(self.stage.tokens[number] * unused)
                account["microdollars"] -= round(self.stage.microdollars[number] * unused)
        self._later(self.now + self.loss.lease_ms, self._come_back)

    def _come_back(self) -> None:
        """The lease ran out: the tasks are taken back, and another host has seated the teammates."""
        assert self.loss is not None
        for mate in sorted(self.loss.mates):
            held, self.holds[mate] = self.holds[mate], None
            self.queue_of[mate].append((self.now, mate))
            if held is None:
                continue
            number = held[0]
            row: Any = {"tries": self.tries[number], "claims": self.claims[number]}
            state, delay = when_lost(row, self.stage.limits, self.chance.random())
            self.tries[number] += 1
            if state == "failed":
                self.ran.makespan = max(self.ran.makespan, self.now)
                self._end_task(number, "failed", None)
            else:
                self._later(self.now + delay, self._now_ready, number)
