"""What many rehearsals say together: how long, how much, where it waits, how many hands are enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from ..board import rules
from ..errors import BadInput
from ..team.growth import fresh_names
from ..types import Budget
from .draws import Draws
from .plan import AGENTS_MAX, ANYONE, RehearsalPlan, account
from .play import Bar, Loss, Mate, PlayedRun, PreparedPlan, rehearse
from .warnings import cautions

WORTH = 0.05  # A teammate that makes the whole faster by less than this is not worth it.
_PLAYED_MAX = 10_000_000  # Tasks played in all, so that it takes minutes and not hours.
_SEARCHED = 10_000  # Tasks played for each team size that is tried, so that a search takes a second.
_SEEDS_LEAST = 3
_LOSS_SEEDS = 25
_IDLE_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Range:
    """A figure with its spread: a tenth of the runs lie below `low`, a tenth above `high`."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """One piece of the critical path of the median run."""

    task: str
    mate: str
    start: int
    end: int
    why: str  # What it waited for: "", "its need", "a free teammate", "a delay" or "another try".


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    who: str
    waits_for: str
    milliseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LostHost:
    """What the loss of one host adds."""

    makespan: Range
    dollars: Range  # Paid for work that is done twice.


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What the rehearsals of a team of one size say."""

    agents: int
    makespan: Range  # Milliseconds.
    dollars: Range | None
    tokens: Range
    busy: float  # The share of the teammates' time that is work, in the median run.
    finished: float  # The share of runs in which every task ended.
    failed: float  # Tasks that fail, on average.
    skipped: float  # Tasks that are skipped, because a need of theirs ended with another outcome than they ask for.
    path: tuple[PathStep, ...]
    idle: tuple[Idle, ...]
    lost_host: LostHost | None
    bars: tuple[Bar, ...]  # The median run.
    mates: tuple[Mate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    sizes: tuple[Size, ...]
    seeds: int
    shortest: int  # Milliseconds of the longest chain of needs in the median run: no team is faster.
    enough: int  # A larger team is not faster.
    warnings: tuple[str, ...]

    @property
    def shown(self) -> Size:
        """The smallest of these teams that is enough, or else the largest."""
        return next((each for each in self.sizes if each.agents >= self.enough), self.sizes[-1])


def find(plan: RehearsalPlan, agents: Sequence[int], *, seeds: int) -> Findings:
    """Rehearse the plan with teams of these sizes, each in as many futures."""
    agents = sorted(set(agents))
    fits = max(1, _PLAYED_MAX // (len(plan.tasks) * len(agents)))
    if len(plan.tasks) * len(agents) * seeds > _PLAYED_MAX:
        raise BadInput(
            f"{len(plan.tasks):,} tasks for {len(agents)} teams and {seeds:,} seeds would take too long; "
            f"use --seeds {fits} or fewer."
        )
    stage = PreparedPlan(plan)
    teams = [mates_of(plan, count) for count in agents]
    ran: list[list[PlayedRun]] = [[] for _ in agents]
    for seed in range(seeds):
        draws = Draws(plan.tasks, seed)
        for team, found in zip(teams, ran, strict=True):
            found.append(rehearse(stage, team, draws))
    few = [Draws(plan.tasks, seed) for seed in range(min(seeds, max(_SEEDS_LEAST, _SEARCHED // len(plan.tasks))))]
    return Findings(
        sizes=tuple(_size(stage, team, found) for team, found in zip(teams, ran, strict=True)),
        seeds=seeds,
        shortest=int(_shortest(plan, few)),
        enough=_enough(stage, few, min(AGENTS_MAX, 4 * len(plan.tasks))),
        warnings=(*cautions(plan, teams[-1], ran[-1]), *plan.warnings),
    )


def mates_of(plan: RehearsalPlan, count: int) -> list[Mate]:
    """A team of this size: with the plan's roles in the plan's shares, or else with every role for each teammate.

    If there are fewer teammates than roles, some have several. Teammates to whom tasks are assigned are among them.
    """
    roles = sorted({task.role for task in plan.tasks if task.role is not None})
    shares = _shared(plan.agents, count) if plan.agents is not None else [tuple(roles)] * count
    own = [list(plan.names[first::count]) for first in range(count)]
    assigned = {task.assignee for task in plan.tasks if task.assignee is not None}
    strangers = iter(fresh_names(assigned))  # No other teammate gets a name to which tasks are assigned.
    mates = []
    for has, names in zip(shares, own, strict=True):
        name = names[0] if names else next(strangers)
        lanes = (*(f"@{each}" for each in names[1:]), *rules.lanes(name, has))
        mates.append(Mate(name, lanes, ", ".join(has) if plan.agents is not None and has else "anyone"))
    return mates


def _shared(agents: Mapping[str, int], count: int) -> list[tuple[str, ...]]:
    wanted = {role: share for role, share in agents.items() if share}
    total = sum(wanted.values())
    exact = {role: share * count / total for role, share in wanted.items()}
    given = {role: int(share) for role, share in exact.items()}
    # What is left goes to the roles that are furthest below their share; those without anyone first.
    left = count - sum(given.values())
    for role in sorted(wanted, key=lambda each: (given[each] > 0, given[each] - exact[each]))[:left]:
        given[role] += 1
    team: list[tuple[str, ...]] = []
    team += [(role,) if role != ANYONE else () for role, number in given.items() for _ in range(number)]
    for place, role in enumerate(role for role, number in given.items() if number == 0 and role != ANYONE):
        team[place % len(team)] = (*team[place % len(team)], role)
    return team


# Figures.


def _size(stage: PreparedPlan, mates: Sequence[Mate], ran: Sequence[PlayedRun]) -> Size:
    plan = stage.plan
    order = sorted(range(len(ran)), key=lambda seed: ran[seed].makespan)
    middle = order[(len(order) - 1) // 2]
    median = rehearse(stage, mates, Draws(plan.tasks, middle), traced=True)
    priced = any(task.estimate.dollars is not None for task in plan.tasks)
    return Size(
        agents=len(mates),
        makespan=_range([each.makespan for each in ran]),
        dollars=_range([each.microdollars / 1_000_000 for each in ran]) if priced else None,
        tokens=_range([each.tokens for each in ran]),
        busy=median.busy / (len(mates) * median.makespan) if median.makespan else 0.0,
        finished=sum(not each.left for each in ran) / len(ran),
        failed=sum(each.failed for each in ran) / len(ran),
        skipped=sum(each.skipped for each in ran) / len(ran),
        path=_path(plan, mates, median.bars),
        idle=_idle(plan, mates, median),
        lost_host=_lost_host(stage, mates, ran),
        bars=tuple(median.bars),
        mates=tuple(mates),
    )


def _range(values: Sequence[float]) -> Range:
    found = sorted(values)

    def at(share: float) -> float:
        return found[min(len(found) - 1, int(share * (len(found) - 1) + 0.5))]

    return Range(at(0.1), found[(len(found) - 1) // 2], at(0.9))


def _lost_host(stage: PreparedPlan, mates: Sequence[Mate], ran: Sequence[PlayedRun]) -> LostHost | None:
    """The team runs on two hosts, and one of them is lost at a random moment. A single teammate is started again."""
    longer, dollars = [], []
    for seed, before in enumerate(ran[:_LOSS_SEEDS]):
        if not before.makespan:
            continue
        chance = Random(f"loss {seed}")
        gone = frozenset(range(seed % 2, len(mates), 2)) or frozenset({0})
        beat = stage.limits.lease_seconds * 1000 * (1 - chance.random() / 3)  # A host renews it three times a lease.
        loss = Loss(at=int(before.makespan * chance.random()), mates=gone, lease_ms=int(beat))
        after = rehearse(stage, mates, Draws(stage.tasks, seed), loss=loss)
        longer.append(max(0, after.makespan - before.makespan))
        dollars.append(after.again / 1_000_000)
    return LostHost(makespan=_range(longer), dollars=_range(dollars)) if longer else None


def _path(plan: RehearsalPlan, mates: Sequence[Mate], bars: Sequence[Bar]) -> tuple[PathStep, ...]:
    """Goes back from the last end: each piece began when its need ended, or when its teammate was free."""
    if not bars:
        return ()
    ended = {(each.task, each.end): each for each in bars}
    last_of = {each.task: each for each in bars}  # The last attempt at each.
    before = {(each.mate, each.end): each for each in bars}
    steps: list[PathStep] = []
    bar: Bar | None = max(bars, key=lambda each: each.end)
    while bar is not None:
        earlier, why = None, ""
        if bar.start > bar.ready_at:
            earlier, why = before.get((bar.mate, bar.start)), "a free teammate"
        elif bar.ready_by == bar.task:
            tries = [each.end for each in bars if each.task == bar.task and each.end <= bar.start]
            earlier, why = ended[bar.task, max(tries)], "another try"
        elif bar.ready_by is not None:
            # A skipped task has no bar, so the path ends there.
            earlier = last_of.get(bar.ready_by)
            why = "its need" if earlier is None or earlier.end == bar.start else "a delay"
        elif bar.start:
            why = "a delay"
        task = plan.tasks[bar.task].name
        steps.append(PathStep(task=task, mate=mates[bar.mate].name, start=bar.start, end=bar.end, why=why))
        bar = earlier if earlier is not None and earlier.end <= bar.start else None
    return tuple(reversed(steps))


def _idle(plan: RehearsalPlan, mates: Sequence[Mate], ran: PlayedRun) -> tuple[Idle, ...]:
    """Which teammates wait for what in the median run, the longest wait first."""
    sums: Counter[tuple[str, str]] = Counter()
    free = [0] * len(mates)

    def add(mate: int, until: int, what: str) -> None:
        sums[mates[mate].label, what] += max(0, until - free[mate])

    for bar in sorted(ran.bars, key=lambda each: each.start):
        if bar.ready_by is None:
            what = "a delay"
        elif bar.ready_by == bar.task:
            what = "another try"
        else:
            needed = plan.tasks[bar.ready_by]
            what = needed.role or needed.name
        add(bar.mate, bar.start, what)
        free[bar.mate] = bar.end
    for mate in range(len(mates)):
        add(mate, ran.makespan, "the others to finish: there is nothing left to take")
    longest = sums.most_common(_IDLE_SHOWN)
    return tuple(Idle(who=who, waits_for=what, milliseconds=length) for (who, what), length in longest if length)


def _shortest(plan: RehearsalPlan, few: Sequence[Draws]) -> float:
    """What no team can beat: each task begins as soon as its needs and delays allow, without a budget."""
    stage = PreparedPlan(replace(plan, accounts={root: account(root, Budget()) for root in plan.accounts}))
    everything = tuple(sorted({task.lane for task in plan.tasks}))
    return _median(stage, [Mate("", everything)] * len(plan.tasks), few)


def enough_of(plan: RehearsalPlan, most: int) -> int:
    """The smallest team for which no larger team, of at most this size, is faster by a twentieth."""
    return _enough(PreparedPlan(plan), [Draws(plan.tasks, seed) for seed in range(_SEEDS_LEAST)], most)


def _enough(stage: PreparedPlan, few: Sequence[Draws], most: int) -> int:
    low, high = 0, most
    aim = _median(stage, mates_of(stage.plan, high), few) / (1 - WORTH)
    while high - low > 1:
        between = (low + high) // 2
        low, high = (low, between) if _median(stage, mates_of(stage.plan, between), few) <= aim else (between, high)
    return high


def _median(stage: PreparedPlan, team: Sequence[Mate], few: Sequence[Draws]) -> float:
    return _range([rehearse(stage, team, draws).makespan for draws in few]).middle
