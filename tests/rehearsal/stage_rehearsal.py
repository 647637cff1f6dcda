"""Plans for the tests of rehearsals, and the real board driven through one in virtual time."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from dugnad.board import Board
from dugnad.rehearsal.draws import DONE, RETRY, Draws
from dugnad.rehearsal.plan import Estimate, PlannedTask, RehearsalPlan, account
from dugnad.rehearsal.play import Mate
from dugnad.types import Budget, Done, Failed, Need, NewTask

MINUTE = Estimate(seconds=60, turns=6, tokens=600, dollars=0.6)
EXACT = Estimate(seconds=60, spread=0.0, turns=6, tokens=600, dollars=0.6)  # Just so, each time.


def planned(*tasks: PlannedTask, budget: Budget | None = None, **fields: Any) -> RehearsalPlan:
    """A plan of tasks under one root, their chains counted as the board counts them."""
    from dugnad.board import rules

    chains = rules.chains({task.id: [need.task for need in task.needs] for task in tasks}, 100)
    told = [
        PlannedTask(**{**{name: getattr(task, name) for name in task.__dataclass_fields__}, "chain": chains[task.id]})
        for task in tasks
    ]
    return RehearsalPlan(name="test", tasks=tuple(told), accounts={0: account(0, budget or Budget())}, **fields)


def task(number: int, *needs: int | Need, **fields: Any) -> PlannedTask:
    given = {"name": f"t{number}", "estimate": EXACT, **fields}
    return PlannedTask(
        id=number, needs=tuple(each if isinstance(each, Need) else Need(each) for each in needs), **given
    )


def random_plan(seed: int, *, count: int = 30, retried: float = 0.0) -> RehearsalPlan:
    """Roles, priorities, needs, outcomes and sometimes a cap on runs, as chance would have them."""
    chance = Random(seed)
    tasks = []
    for number in range(1, count + 1):
        needed = chance.sample(range(1, number), min(number - 1, chance.choice((0, 0, 1, 1, 2))))
        wanted = (None, None, None, "good", "ended", "failed")
        tasks.append(
            task(
                number,
                *(Need(each, chance.choice(wanted)) for each in needed),
                role=chance.choice(("coder", "tester", None)),
                priority=chance.choice((0, 0, 0, 1, 5)),
                estimate=Estimate(
                    seconds=chance.randrange(20, 600), turns=5, tokens=10, dollars=0.1, retried=retried, failed=0.1
                ),
                outcomes=(("good", 0.6), (None, 0.4)),
            )
        )
    cap = chance.choice((None, count // 2, count * 4))
    return planned(*tasks, budget=Budget(tasks=cap))


def team_of(*roles: str) -> list[Mate]:
    return [Mate(f"m{number}", (f"@m{number}", *([role] if role else []), "")) for number, role in enumerate(roles)]


async def drive(
    board: Board, plan: RehearsalPlan, mates: Sequence[Mate], draws: Draws, clock: list[int]
) -> list[tuple[str, int]]:
    """Let the real board give out the plan's work to teammates who take just as long: who claimed what, and when.

    All that decides here is the board; the driver only ends what ends next, and lets whoever rests ask again.
    """
    places = await _put(board, plan)
    host = await board.start_host("rehearsal")
    for mate in mates:
        await board.spawn(mate.name, roles=[lane for lane in mate.lanes if lane and not lane.startswith("@")])
        await board.seat(host, name=mate.name)
    began, claimed, tries = clock[0], [], dict.fromkeys(range(len(plan.tasks)), 0)
    resting = deque(mates)
    under_way: list[tuple[int, int, Mate, Any, Mapping[str, Any]]] = []
    for _ in range(20 * len(plan.tasks)):
        asked, resting = list(resting), deque()
        for mate in asked:
            claim = await board.claim(mate.name, host)
            if claim is None:
                resting.append(mate)
                continue
            place = places[claim.task.id]
            tries[place] += 1
            milliseconds, end, outcome = draws.attempt(place, tries[place])
            claimed.append((plan.tasks[place].name, clock[0] - began))
            heapq.heappush(under_way, (clock[0] + milliseconds, len(claimed), mate, claim, {"end": end, "as": outcome}))
        due = [each.due_at for each in await board.list_tasks(states=["scheduled"]) if (each.due_at or 0) > clock[0]]
        if not under_way and not due:
            return claimed
        clock[0] = min([*due, *(each[0] for each in under_way[:1])])
        await board.heartbeat(host)
        while under_way and under_way[0][0] == clock[0]:
            _, _, mate, claim, how = heapq.heappop(under_way)
            done = how["end"] == DONE
            await board.settle(claim, Done("", how["as"]) if done else Failed("x", retry=how["end"] == RETRY))
            resting.append(mate)
    raise AssertionError("the board gives out work without end")


async def _put(board: Board, plan: RehearsalPlan) -> dict[int, int]:
    """Under one goal that nobody takes, so that its caps are of the plan's own tasks."""
    caps = plan.accounts[0]
    root = await board.put("goal", assignee="nobody", budget=Budget(tasks=caps["tasks_max"]))
    order = {each.id: -(number + 1) for number, each in enumerate(plan.tasks)}
    put = await board.put_many(
        [
            NewTask(
                title=each.name,
                parent=root.id,
                role=each.role,
                priority=each.priority,
                needs=tuple(Need(order[need.task], need.outcome) for need in each.needs),
            )
            for each in plan.tasks
        ]
    )
    return {made.id: place for place, made in enumerate(put)}
