"""Makes a failing world small enough to be read: fewer faults, tasks, teammates and hosts, while it fails alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from .plan import WorldPlan
from .running import Outcome, run

_RUNS_MAX = 150
_LINES_MAX = 120
_TASK = re.compile(r"#(\d+)")


def shrink(
    plan: WorldPlan, *, play: Callable[[WorldPlan], Outcome] = run, runs_max: int = _RUNS_MAX
) -> tuple[WorldPlan, Outcome]:
    """The smallest world that was found to break the same promise, and how it went."""
    outcome = play(plan)
    if not outcome.faults:
        return plan, outcome
    promise, runs = outcome.faults[0].promise, 0
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(plan):
            if runs >= runs_max:
                return plan, outcome
            runs += 1
            tried = play(smaller)
            if tried.faults and tried.faults[0].promise == promise:
                plan, outcome, progress = smaller, tried, True
                break
    return plan, outcome


def _smaller(plan: WorldPlan) -> Iterator[WorldPlan]:
    """Worlds with a little less in them; what takes most away comes first."""
    kinds = sorted(plan.kinds)
    if len(kinds) > 3:
        yield replace(plan, kinds=frozenset(kinds[::2]))
        yield replace(plan, kinds=frozenset(kinds[1::2]))
    for place in reversed(range(len(plan.tasks))):
        if (without := plan.without_task(place)) is not None:
            yield without
    for kind in kinds:
        yield replace(plan, kinds=plan.kinds - {kind})
    if plan.hosts > 1:
        yield replace(plan, hosts=plan.hosts - 1)
    for name in plan.members[:0:-1]:
        yield replace(plan, members=tuple(each for each in plan.members if each != name))
    if plan.rates != (None, None):
        yield replace(plan, rates=(None, None))
    if plan.asks:
        yield replace(plan, asks=False)
    for place, task in enumerate(plan.tasks):
        for step in range(len(task.steps)):
            shorter = replace(task, steps=task.steps[:step] + task.steps[step + 1 :])
            yield replace(plan, tasks=(*plan.tasks[:place], shorter, *plan.tasks[place + 1 :]))


def small_story(plan: WorldPlan, *, play: Callable[[WorldPlan], Outcome] = run) -> str:
    """What happened, who, when: of the smallest world that fails as this one does."""
    small, outcome = shrink(plan, play=play)
    return tell(small, outcome)


def tell(plan: WorldPlan, outcome: Outcome) -> str:
    """A timeline for people. Of a long one, what the broken promise is about, and its end."""
    faults = ", ".join(sorted(plan.kinds)) or "none"
    team = ", ".join(f"{name}{' (lead)' if lead else ''}" for name, _, lead in plan.members)
    head = [
        f"Seed {plan.seed}, made as small as it still fails: tasks: {len(plan.tasks)}, hosts at first: {plan.hosts}, "
        f"team: {team}. Faults: {faults}.",
        *(f"  {task.title}: {' > '.join(task.steps) or 'says it is done'}" for task in plan.tasks),
        "",
    ]
    if not outcome.faults:
        return "\n".join([f"Seed {plan.seed} breaks no promise.", *head[1:]])
    about = set(_TASK.findall(" ".join(outcome.faults)))
    lines = [f"{_clock(at)}  {who:<10} {what}" for at, who, what in outcome.story]
    if len(lines) > _LINES_MAX:
        kept = [line for line in lines if not (found := set(_TASK.findall(line))) or found & about or not about]
        left_out = max(0, len(kept) - _LINES_MAX)
        lines = [f"... {len(lines) - min(len(kept), _LINES_MAX)} lines about other things are left out ..."]
        lines += kept[left_out:]
    broken = [f"  {fault.named}" for fault in outcome.faults]
    again = f"python -m simulation --seed {plan.seed} --story"
    return "\n".join([*head, *lines, "", "Broken:", *broken, "", f"Run it again: {again}"])


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes) // 60:02d}:{int(minutes) % 60:02d}:{rest:06.3f}"
