"""What a rehearsal warns of: work without a teammate, a chain that needs no team, a budget that is too small."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from graphlib import TopologicalSorter

from ..text import counted, length
from .plan import RehearsalPlan
from .play import Mate, PlayedRun

_CHAIN = 1.15  # Tasks are a chain if the whole work takes at most this much longer than its longest way.


def cautions(plan: RehearsalPlan, mates: Sequence[Mate], ran: Sequence[PlayedRun]) -> list[str]:
    """What the largest rehearsed team runs into, in sentences that say what to do."""
    return [*_nobody(plan, mates), *_chain(plan), *_priceless(plan), *_budget(plan, ran)]


def _nobody(plan: RehearsalPlan, mates: Sequence[Mate]) -> list[str]:
    taken = {lane for mate in mates for lane in mate.lanes}
    left = Counter(task.lane for task in plan.tasks if task.lane not in taken)
    return [
        f"Nobody would take {counted(count, 'task')} for "
        + (
            f"{lane[1:]}, who is not there; `dugnad spawn {shlex.quote(lane[1:])}` changes that."
            if lane.startswith("@")
            else f"the role {lane}, which nobody has; give it somebody under [agents]."
        )
        for lane, count in sorted(left.items())
    ]


def _chain(plan: RehearsalPlan) -> list[str]:
    total = sum(task.estimate.seconds for task in plan.tasks)
    longest = _longest_way(plan)
    if len(plan.tasks) < 3 or not longest or total / longest > _CHAIN:
        return []
    return ["The tasks are one chain, each waiting for the one before: one teammate is as fast as a team."]


def _longest_way(plan: RehearsalPlan) -> float:
    """Through the needs, in seconds, as expected. A delay is no work, so it makes nothing a chain."""
    tasks = {task.id: task for task in plan.tasks}
    needs = {task.id: [need.task for need in task.needs] for task in plan.tasks}
    ends: dict[int, float] = {}
    for number in TopologicalSorter(needs).static_order():
        ends[number] = max((ends[each] for each in needs[number]), default=0.0) + tasks[number].estimate.seconds
    return max(ends.values(), default=0.0)


def _priceless(plan: RehearsalPlan) -> list[str]:
    """A budget of dollars holds nothing back where the costs are not known."""
    capped = {root for root, row in plan.accounts.items() if row["microdollars_max"] is not None}
    free = sum(task.root in capped and task.estimate.dollars is None for task in plan.tasks)
    if not free:
        return []
    return [
        f"What {free} of {len(plan.tasks)} tasks cost is not known, so the budget of dollars is not rehearsed there; "
        "--model PROVIDER:MODEL takes a price."
    ]


def _budget(plan: RehearsalPlan, ran: Sequence[PlayedRun]) -> list[str]:
    """What the largest team runs out of."""
    short = [each for each in ran if each.stops]
    if not short:
        return []
    (at, root, kind), left = sorted((min(each.stops), each.left) for each in short)[(len(short) - 1) // 2]
    whose = f" of #{root}" if root else ""
    return [
        f"The budget of {kind}{whose} runs out in {len(short) / len(ran):.0%} of the runs, typically after "
        f"{length(at)} with {left} of {len(plan.tasks)} tasks left; times and costs are of what is done until then."
    ]
