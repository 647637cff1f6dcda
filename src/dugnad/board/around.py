"""What is around a task when a teammate begins it, from one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .. import types
from ..errors import UnknownTask
from . import records
from .roots import root_name
from .store.seam import Asked, Row, as_json, ids_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    needs: Sequence[tuple[types.Need, str]]  # Each with open, met or broken.
    behind: Sequence[tuple[int, str | None]]  # The tasks that wait for it, each with the outcome it asks for, if any.
    tasks: Mapping[int, types.Task]  # Those of both, its goal, and the task it follows from.
    team: Sequence[types.Teammate]
    notes: Sequence[types.Note]
    talk: Sequence[types.Message]
    requests: Sequence[types.Message]


@dataclass(frozen=True, slots=True)
class Beginning:
    """What the board has of a claim when a mind begins with it."""

    attempts: Sequence[types.Attempt]
    behind: Sequence[tuple[int, str | None]]  # The tasks that wait for the task, as above.
    turns: Sequence[types.Turn]  # The first page of the claim's own.
    spending: types.Spending


def asks(task: types.Task, teammate: str, page: int, team: Asked, notes: Asked) -> list[Asked]:
    others = ids_json({task.root, task.asked_in or task.root})
    return [
        ("needs_of", {"task": task.id}), ("needs_behind", {"ids": ids_json([task.id])}),
        ("tasks_around", {"task": task.id, "others": others}), team, notes,
        ("recent_talk", {"name": teammate, "page": page}), ("open_requests", {"recipient": teammate}),
    ]  # fmt: skip


def found(answers: Sequence[Sequence[Row]]) -> Surroundings:
    """The answers to `asks`."""
    needed, waiting, tasks, team, notes, talk, requests = answers
    return Surroundings(
        needs=needs(needed), behind=behind(waiting), tasks={row["id"]: records.task(row) for row in tasks},
        team=[records.teammate(row) for row in team], notes=[records.note(row) for row in notes],
        talk=[records.message(row) for row in talk][::-1], requests=[records.message(row) for row in requests],
    )  # fmt: skip


def needs(rows: Sequence[Row]) -> list[tuple[types.Need, str]]:
    """Each with open, met or broken."""
    return [(types.Need(row["needs_id"], row["outcome"]), row["state"]) for row in rows]


def behind(rows: Sequence[Row]) -> list[tuple[int, str | None]]:
    return [(row["task_id"], row["outcome"]) for row in rows]


def account(root: int, rows: Sequence[Row]) -> types.Spending:
    for row in rows:
        return records.spending(row)
    raise UnknownTask(f"{root_name(root)} has no budget of its own; a follow-up uses the budget of its goal.")


def listing(states: Iterable[str] | None, root: int | None, **given: object) -> Asked:
    """A page of tasks. Those in some states, or under a root, are found state by state."""
    if states is None and root is None:
        return "list_tasks", given
    given |= {"states": named(types.OPEN | types.ENDED if states is None else states), "root": root}
    return "list_tasks_in" if root is None else "list_tasks_under", given


def named(states: Iterable[str]) -> str:
    return as_json([{"state": state} for state in sorted(set(states))])


def ready(most: int, roots: Iterable[int] | None) -> Asked:
    """The reads that count ready work; with `roots`, only under these."""
    if roots is None:
        return "ready_counts", {"most": most}
    return "ready_counts_under", {"most": most, "roots": ids_json(roots)}
