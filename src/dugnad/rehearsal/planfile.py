"""Reading a plan.toml: tasks by title, who works on them, what is expected and what may be spent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from ..board import rules
from ..config.kinds import BudgetTable, Line, board_name
from ..config.reader import FileLocation, kind_of, nearest, read, read_toml, said
from ..errors import BadInput
from ..settings import Limits
from ..types import Need
from .learn import TASKS_MAX, Assumed, Experience, asked_for, shares
from .plan import AGENTS_MAX, ANYONE, Estimate, PlannedTask, RehearsalPlan, account

_BYTES_MAX = 8 * 1024 * 1024
_MINUTES_MAX = 366 * 24 * 60
_PRIORITY_MAX = 1_000_000
_Role = Annotated[str, partial(board_name, "role")]
_Turns = Annotated[float, (None, 10_000)]
_Share = Annotated[float, (0, 1)]
_Dollars = Annotated[float, 0]


def _outcome(place: FileLocation, word: str) -> str | None:
    """None: it is just done."""
    try:
        return None if word == "done" else rules.outcome_word(word, Limits())
    except BadInput as trouble:
        raise BadInput(f"{place}: {trouble}") from None


def _agents(place: FileLocation, value: Any) -> int | Mapping[str, int]:
    """agents = 4, or [agents] with a number for each role."""
    found = kind_of(Mapping[_Role, Annotated[int, 0]] if isinstance(value, dict) else int)(place, value)
    count = sum(found.values()) if isinstance(value, dict) else found
    if not 1 <= count <= AGENTS_MAX:
        raise BadInput(f"{place.file}: there must be between 1 and {AGENTS_MAX:,} agents, not {count:,}.")
    return found  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expected:
    """[roles.NAME], and a part of [[tasks]]: what one attempt takes."""

    turns: _Turns | None = None
    minutes: Annotated[float, (None, _MINUTES_MAX)] | None = None
    dollars: _Dollars | None = None
    retries: _Share | None = None

    @property
    def has_length(self) -> bool:
        return self.turns is not None or self.minutes is not None

    def over(self, found: Estimate, assumed: Assumed) -> Estimate:
        """What is written here, and for the rest what was found."""
        if self.has_length:
            seconds = None if self.minutes is None else self.minutes * 60
            said_here = assumed.estimate(turns=self.turns, seconds=seconds)
            found = replace(said_here, retried=found.retried, failed=found.failed)
        if self.dollars is not None:
            found = replace(found, dollars=self.dollars)
        return found if self.retries is None else replace(found, retried=self.retries, failed=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskTable(_Expected):
    title: Annotated[Line, "title", "name"]  # Plans written for earlier versions say `name`.
    needs: tuple[str, ...] = ()
    role: _Role | None = None
    to: Annotated[str | None, partial(board_name, "teammate's name")] = None
    priority: Annotated[int, (-_PRIORITY_MAX, _PRIORITY_MAX)] = 0
    delay_minutes: Annotated[float, (0, _MINUTES_MAX)] = 0.0
    count: int = 1
    outcomes: Mapping[Annotated[str | None, _outcome], _Share] | None = None

    def __post_init__(self) -> None:
        total = sum((self.outcomes or {}).values())
        if self.outcomes is not None and abs(total - 1) > 0.001:
            raise BadInput(f"outcomes add up to {total:g}; they are shares, and must add up to 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanFile:
    turn_seconds: Annotated[float, (None, 86_400)] | None = None
    turns: _Turns | None = None
    turn_dollars: _Dollars | None = None
    agents: Annotated[int | Mapping[str, int] | None, _agents] = None
    budget: BudgetTable = field(default_factory=BudgetTable)
    roles: Mapping[_Role, _Expected] = field(default_factory=dict)
    tasks: tuple[_TaskTable, ...] = ()


def read_plan(
    path: Path, *, environment: Mapping[str, str], limits: Limits, assumed: Callable[[Mapping[str, Any]], Assumed],
    experience: Experience,
) -> RehearsalPlan:  # fmt: skip
    """The plan in a file. `assumed` makes the assumptions from what the top level of the file says."""
    place = FileLocation(file=str(path), environment=environment)
    plan = read(_PlanFile, place, read_toml(path, place, bytes_max=_BYTES_MAX, dots_max=_BYTES_MAX))
    if not plan.tasks:
        raise BadInput(f'{path}: there is nothing to rehearse; write [[tasks]] with title = "...", once a task.')
    guess = assumed(said(plan))
    numbers = _numbers(path, plan.tasks)
    needs = {row.title: _needs(path, row, numbers, limits) for row in plan.tasks}
    titles = {task: title for title, tasks in numbers.items() for task in tasks}
    edges = {task: [need.task for need in needs[title]] for task, title in titles.items()}
    if way := rules.circle(edges):
        rules.refuse_circle([repr(titles[task]) for task in way])
    asked = asked_for(need for each in needs.values() for need in each)
    chains = rules.chains(edges, limits.chain_max)
    tasks = []
    for row in plan.tasks:
        role = None if row.role == ANYONE else row.role
        estimate = plan.roles.get(role or ANYONE, _Expected()).over(experience.estimate(role, guess), guess)
        for copy, task in enumerate(numbers[row.title], start=1):
            tasks.append(
                PlannedTask(
                    id=task,
                    name=row.title if row.count == 1 else f"{row.title} {copy}",
                    role=role,
                    assignee=row.to,
                    priority=row.priority,
                    chain=chains[task],
                    needs=needs[row.title],
                    due_ms=round(row.delay_minutes * 60_000),
                    estimate=row.over(estimate, guess),
                    outcomes=tuple((row.outcomes or {}).items())
                    or shares(asked.get(task, ()), experience.outcomes.get(role)),
                )
            )
    roles = {task.role for task in tasks}
    unsaid = {role for role in roles if not plan.roles.get(role or ANYONE, _Expected()).has_length}
    told = ["The plan itself says how long some of it takes."] if unsaid < roles else []
    agents = plan.agents
    return RehearsalPlan(
        name=str(path),
        tasks=tuple(tasks),
        accounts={0: account(0, plan.budget.caps())},
        agents=agents if isinstance(agents, Mapping) else None,
        size=sum(agents.values()) if isinstance(agents, Mapping) else agents,
        names=tuple(sorted({task.assignee for task in tasks if task.assignee})),
        limits=limits,
        basis=(*told, *experience.basis(unsaid, guess)),
    )


def _numbers(path: Path, rows: Sequence[_TaskTable]) -> dict[str, list[int]]:
    """The numbers of each title's tasks, in the order in which they stand."""
    found: dict[str, list[int]] = {}
    total = 0
    for row in rows:
        if row.title in found:
            raise BadInput(f"{path}: two tasks are called {row.title!r}; give one of them another title.")
        if total + row.count > TASKS_MAX:
            raise BadInput(f"{path}: there are more than {TASKS_MAX:,} tasks; rehearse a part of them.")
        found[row.title] = list(range(total + 1, total + row.count + 1))
        total += row.count
    return found


def _needs(path: Path, row: _TaskTable, numbers: Mapping[str, Sequence[int]], limits: Limits) -> tuple[Need, ...]:
    found: dict[int, Need] = {}
    where = f"{path}: task {row.title!r}"
    for each in row.needs:
        title, outcome = (each, None) if each in numbers else (each.rpartition(":")[0], each.rpartition(":")[2])
        if title not in numbers:
            raise BadInput(f"{where} needs {each!r}, which is no task; {nearest(title or each, numbers)}")
        for task in numbers[title]:
            if task in found:
                raise BadInput(f"{where} needs {title!r} twice; one need between two is all there is.")
            found[task] = rules.edge(Need(task, outcome))
    if len(found) > limits.needs_max:
        raise BadInput(f"{where} has {len(found)} needs, and {limits.needs_max} is the most.")
    return tuple(found.values())
