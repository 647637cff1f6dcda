"""What a seed stands for: the tasks, the team, the hosts and the faults of one simulated world. Plain data, so that a
world that failed can be made smaller and run again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from dugnad.types import Budget

from .faults import KINDS

NAMES = ("ada", "ben", "cleo", "dan", "eve")
ROLES = ("coder", "reviewer")
_STEPS = (
    "press", "press", "press", "both", "note", "tell", "tell", "tell", "tell-all", "look", "todo", "inbox", "compact",
    "nobody", "claim", "bash", "ask", "release", "follow dig {n}", "follow dig {n}", "follow dig {n}",
    "behind after {n}", "delegate part {n}",
)  # fmt: skip
_CHILD_STEPS = ("press", "note", "tell", "look", "follow dig {n}", "bash")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldTask:
    title: str
    steps: tuple[str, ...]
    goal: int  # The place of its root among the tasks; its own place: it is one.
    needs: tuple[tuple[int, str | None], ...] = ()  # Places of earlier tasks, with the outcome.
    role: str | None = None
    check: str | None = None
    plan: bool = False
    priority: int = 0
    delay_seconds: float = 0.0
    budget: Budget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    seed: int
    tasks: tuple[WorldTask, ...]
    members: tuple[tuple[str, tuple[str, ...], bool], ...]  # Name, roles, lead.
    hosts: int
    kinds: frozenset[str]
    storm_seconds: float = 1_800.0
    rates: tuple[int | None, int | None] = (None, None)  # Requests and tokens a minute.
    idle_seconds: float = 3_600.0
    asks: bool = False  # Whether a person is asked before a button is pressed.
    scripts: dict[str, tuple[str, ...]] = field(default_factory=dict)  # Of tasks that come up later, by title.

    def without_task(self, place: int) -> WorldPlan | None:
        """The same world without one task, if none is behind it."""
        if any(place in [need for need, _ in each.needs] for each in self.tasks):
            return None
        if any(each.goal == place for number, each in enumerate(self.tasks) if number != place):
            return None
        kept = [each for number, each in enumerate(self.tasks) if number != place]
        moved = [
            replace(
                each,
                goal=each.goal - (each.goal > place),
                needs=tuple((need - (need > place), outcome) for need, outcome in each.needs),
            )
            for each in kept
        ]
        return replace(self, tasks=tuple(moved)) if moved else None


def make_plan(seed: int) -> WorldPlan:
    """Everything about a world that its seed decides in advance."""
    draw = random.Random(f"plan {seed}")
    kinds = frozenset(kind for kind in KINDS if draw.random() < draw.choice((0.0, 0.3, 0.6)))
    scripts = {
        f"{word} {n}": _steps(draw, _CHILD_STEPS, n + 1, 3) for word in ("dig", "after", "part") for n in range(6)
    }
    if "endless follow-ups" in kinds:
        scripts |= {f"dig {n}": (f"follow dig {n + 1}", f"follow dig {n}") for n in range(6)}
        scripts["dig 5"] = ("follow dig 0", "follow dig 0", "follow dig 0")
    tasks: list[WorldTask] = []
    goals: list[int] = []
    # Many small worlds show more in the same time than few large ones; now and then a large one all the same.
    for place in range(draw.randrange(2, 4) if draw.random() < 0.9 else draw.randrange(4, 8)):
        goal = place if not goals or draw.random() < 0.25 else draw.choice(goals)
        if goal == place:
            goals.append(place)
        tasks.append(_task(draw, place, goal, kinds))
    lead = draw.random() < 0.4
    members = tuple(
        (name, () if draw.random() < 0.3 else (draw.choice(ROLES),), lead and number == 0)
        for number, name in enumerate(NAMES[: draw.randrange(2, 6)])
    )
    return WorldPlan(
        seed=seed,
        tasks=tuple(tasks),
        members=members,
        hosts=draw.randrange(1, 4),
        kinds=kinds,
        storm_seconds=draw.choice((600.0, 1_200.0, 1_800.0)),
        rates=draw.choice(((None, None), (None, None), (6, None), (None, 40_000))),
        idle_seconds=draw.choice((3_600.0, 7_200.0, 120.0)),
        asks=draw.random() < 0.12,
        scripts=scripts,
    )


def _steps(draw: random.Random, words: tuple[str, ...], n: int, most: int) -> tuple[str, ...]:
    return tuple(draw.choice(words).format(n=draw.randrange(n, n + 2) % 6) for _ in range(draw.randrange(1, most + 1)))


def _task(draw: random.Random, place: int, goal: int, kinds: frozenset[str]) -> WorldTask:
    needs: dict[int, str | None] = {}
    for earlier in range(place):
        if draw.random() < 0.25:
            needs[earlier] = draw.choice((None, None, None, "approved", "ended", "failed"))
    plan = draw.random() < 0.1
    steps = _steps(draw, _STEPS, 0, 5)
    if draw.random() < 0.05:
        steps = ("todo",) * 16  # It gets nowhere; the bound on turns has to stop it.
    ending = draw.choice(("", "", "", "", "approve", "give-up"))
    budget = None
    if goal == place:
        budget = draw.choice(
            (
                Budget(), Budget(tasks=draw.randrange(3, 12)), Budget(tokens=draw.randrange(20_000, 120_000)),
                Budget(dollars=draw.randrange(20, 200) / 100), Budget(seconds=draw.randrange(900, 4_000)),
                Budget(tasks=30, tokens=draw.randrange(30_000, 300_000)),
            )
        )  # fmt: skip
    return WorldTask(
        title=f"job {place}",
        steps=(("plan",) if plan else ()) + steps + ((ending,) if ending else ()),
        goal=goal,
        needs=tuple(needs.items()),
        role=draw.choice((None, None, *ROLES)),
        check="make check" if draw.random() < 0.3 else None,
        plan=plan,
        priority=draw.randrange(3),
        delay_seconds=draw.choice((0.0, 0.0, 0.0, 120.0)),
        budget=budget,
    )
