"""Reading a plan.toml: tasks by name, who works on them, what is expected and what may be spent."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..board import rules
from ..config.user import FileLocation, Kind, line, nearest, number, read_text, shown, table, tables, texts, whole
from ..errors import BadInput, BadText
from ..settings import Limits
from ..types import ENDINGS, Budget, Need
from .learn import TASKS_MAX, Assumed, Experience, shares
from .plan import AGENTS_MAX, ANYONE, Estimate, PlannedTask, RehearsalPlan, account

_BYTES_MAX = 8 * 1024 * 1024
_TURNS_MAX = 10_000
_MINUTES_MAX = 366 * 24 * 60
_SHARE = number(zero=True, most=1.0)
_EXPECTED: dict[str, Kind] = {
    "turns": number(most=_TURNS_MAX), "minutes": number(most=_MINUTES_MAX), "dollars": number(zero=True),
    "retries": _SHARE,
}  # fmt: skip


def read_plan(
    path: Path, *, environment: Mapping[str, str], limits: Limits, assumed: Callable[[Mapping[str, Any]], Assumed],
    experience: Experience,
) -> RehearsalPlan:  # fmt: skip
    """The plan in a file. `assumed` makes what holds where nothing is known from what the file's top level says."""
    given = _parse(path, read_text(path, str(path), environment=environment, bytes_max=_BYTES_MAX))
    known = _kinds()(FileLocation(str(path)), given)
    rows: Sequence[Mapping[str, Any]] = known.get("tasks", ())
    if not rows:
        raise BadInput(f'{path}: there is nothing to rehearse; write [[tasks]] with name = "...", once a task.')
    guess = assumed(known)
    places = _places(path, rows)
    needs = [_needs(path, row, places) for row in rows]
    for row, each in zip(rows, needs, strict=True):
        if len(each) > limits.needs_max:
            raise BadInput(f"{path}: task {row['name']!r} has {len(each)} needs, and {limits.needs_max} is the most.")
    _refuse_circles(rows, needs, places)
    asked: dict[int, list[str]] = {}
    for each in needs:
        for need in each:
            if need.outcome is not None and need.outcome not in ENDINGS:
                asked.setdefault(need.task, []).append(need.outcome)
    edges = {task: each for row, each in zip(rows, needs, strict=True) for task in places[row["name"]]}
    chains = rules.chains({task: [need.task for need in each] for task, each in edges.items()}, limits.chain_max)
    roles = known.get("roles", {})
    tasks = []
    for row, each in zip(rows, needs, strict=True):
        role = None if row.get("role") in (None, ANYONE) else row["role"]
        expected = _expected(experience, guess, role, roles.get(role or ANYONE, {}), row)
        for copy, task in enumerate(places[row["name"]], start=1):
            tasks.append(
                PlannedTask(
                    id=task,
                    name=row["name"] if len(places[row["name"]]) == 1 else f"{row['name']} {copy}",
                    role=role,
                    assignee=row.get("to"),
                    priority=row.get("priority", 0),
                    chain=chains[task],
                    needs=each,
                    due_ms=round(row.get("delay_minutes", 0.0) * 60_000),
                    estimate=expected,
                    outcomes=_outcomes(path, row) or shares(asked.get(task, ()), experience.outcomes.get(role)),
                )
            )
    agents = _agents(path, known.get("agents"))
    budget = dict(known.get("budget", {}))
    caps = Budget(seconds=budget.pop("minutes") * 60 if "minutes" in budget else None, **budget)
    unsaid = {task.role for task in tasks if not {"minutes", "turns"} & roles.get(task.role or ANYONE, {}).keys()}
    said = (
        ["The plan itself says how long some of it takes."] if len(unsaid) < len({task.role for task in tasks}) else []
    )
    return RehearsalPlan(
        name=str(path),
        tasks=tuple(tasks),
        accounts={0: account(0, caps)},
        agents=agents if isinstance(agents, dict) else None,
        size=None if agents is None else agents if isinstance(agents, int) else sum(agents.values()),
        names=tuple(sorted({task.assignee for task in tasks if task.assignee})),
        limits=limits,
        basis=(*said, *experience.basis(unsaid, guess)),
    )


def _parse(path: Path, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(source.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as trouble:
        raise BadInput(f"{path} is not TOML: {trouble}.") from None
    except RecursionError:
        raise BadInput(f"{path} is nested too deeply; nothing in it needs more than three levels.") from None


def _kinds() -> Kind:
    task: dict[str, Kind] = {
        **_EXPECTED, "name": line, "needs": texts, "role": _name("role"), "to": _name("teammate's name"),
        "priority": _priority, "delay_minutes": number(zero=True, most=_MINUTES_MAX), "count": whole(),
        "outcomes": _shares,
    }  # fmt: skip
    return table(
        {
            "turn_seconds": number(most=86_400),
            "turns": number(most=_TURNS_MAX),
            "turn_dollars": number(zero=True),
            "agents": _counts,
            "budget": table({"tasks": whole(), "tokens": whole(), "dollars": number(), "minutes": number()}),
            "roles": tables(_name("role"), _EXPECTED),
            "tasks": _rows(task),
        }
    )


def _rows(known: Mapping[str, Kind]) -> Kind:
    each = table(known)

    def read(place: FileLocation, value: Any) -> list[dict[str, Any]]:
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise BadInput(f"{place} must be written as [[tasks]], once a task, not as {shown(value)}.")
        rows = []
        for count, row in enumerate(value, start=1):
            name = row.get("name")
            where = place.under(name if isinstance(name, str) and name.strip() else str(count))
            rows.append(each(where, row))
            if "name" not in row:
                raise BadInput(f'{place.file}: task {count} has no name; write name = "...".')
        return rows

    return read


def _name(what: str) -> Kind:
    def read(place: FileLocation, value: Any) -> str:
        try:
            return rules.name(what, value if isinstance(value, str) else "", Limits())
        except BadText as trouble:
            raise BadInput(f"{place}: {trouble}") from None

    return read


def _priority(place: FileLocation, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 1_000_000:
        raise BadInput(f"{place} must be a whole number, not {shown(value)}.")
    return value


def _counts(place: FileLocation, value: Any) -> int | dict[str, int]:
    """agents = 4, or [agents] with so many of each role."""
    if not isinstance(value, dict):
        return int(whole()(place, value))
    role = _name("role")
    return {role(place, key): int(whole(0)(place.under(key), count)) for key, count in value.items()}


def _shares(place: FileLocation, value: Any) -> dict[str, float]:
    if not isinstance(value, dict) or not value:
        raise BadInput(f"{place} must be a table such as {{ approved = 0.8, rejected = 0.2 }}, not {shown(value)}.")
    outcome = _name("outcome")
    found = {outcome(place, key): float(_SHARE(place.under(key), share)) for key, share in value.items()}
    if abs(sum(found.values()) - 1) > 0.001:
        raise BadInput(f"{place} add up to {sum(found.values()):g}; they are shares, and must add up to 1.")
    return found


def _outcomes(path: Path, row: Mapping[str, Any]) -> tuple[tuple[str | None, float], ...]:
    for word in row.get("outcomes", {}):
        try:
            rules.outcome_word(word, Limits())
        except BadInput as trouble:
            if word != "done":
                raise BadInput(f"{path}: task {row['name']!r}: {trouble}") from None
    return tuple((None if word == "done" else word, share) for word, share in row.get("outcomes", {}).items())


def _agents(path: Path, given: int | dict[str, int] | None) -> int | dict[str, int] | None:
    count = sum(given.values()) if isinstance(given, dict) else given
    if count is not None and not 1 <= count <= AGENTS_MAX:
        raise BadInput(f"{path}: there must be between 1 and {AGENTS_MAX:,} agents, not {count:,}.")
    return given


def _places(path: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """The numbers of each name's tasks, in the order in which they stand."""
    places: dict[str, list[int]] = {}
    total = 0
    for row in rows:
        if row["name"] in places:
            raise BadInput(f"{path}: two tasks are called {row['name']!r}; give one of them another name.")
        count = row.get("count", 1)
        if total + count > TASKS_MAX:
            raise BadInput(f"{path}: there are more than {TASKS_MAX:,} tasks, and no more can be rehearsed.")
        places[row["name"]] = list(range(total + 1, total + count + 1))
        total += count
    return places


def _needs(path: Path, row: Mapping[str, Any], places: Mapping[str, Sequence[int]]) -> tuple[Need, ...]:
    found: dict[int, Need] = {}
    for each in row.get("needs", ()):
        name, outcome = (each, None) if each in places else (each.rpartition(":")[0], each.rpartition(":")[2])
        if name not in places:
            raise BadInput(
                f"{path}: task {row['name']!r} needs {each!r}, which is no task; {nearest(name or each, places)}"
            )
        for task in places[name]:
            if task in found:
                raise BadInput(
                    f"{path}: task {row['name']!r} needs {name!r} twice; one need between two is all there is."
                )
            found[task] = rules.edge(Need(task, outcome))
    return tuple(found.values())


def _refuse_circles(
    rows: Sequence[Mapping[str, Any]], needs: Sequence[Sequence[Need]], places: Mapping[str, Sequence[int]]
) -> None:
    names = {places[row["name"]][0]: row["name"] for row in rows}
    edges = {
        places[row["name"]][0]: [need.task for need in each if need.task in names]
        for row, each in zip(rows, needs, strict=True)
    }
    if way := rules.circle(edges):
        rules.refuse_circle([repr(names[task]) for task in way])


def _expected(
    experience: Experience, assumed: Assumed, role: str | None, of_role: Mapping[str, Any], of_task: Mapping[str, Any]
) -> Estimate:
    """What the task says, else its role, else what was learned, else what is assumed."""
    found = experience.estimate(role, assumed)
    for said in (of_role, of_task):
        if "minutes" in said or "turns" in said:
            seconds = said["minutes"] * 60 if "minutes" in said else None
            found = replace(
                assumed.estimate(turns=said.get("turns"), seconds=seconds), retried=found.retried, failed=found.failed
            )
        if "dollars" in said:
            found = replace(found, dollars=said["dollars"])
        if "retries" in said:
            found = replace(found, retried=said["retries"], failed=0.0)
    return found
