"""Reviews that the board will ask for: work that is done waits for its review, and then ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..types import ENDINGS, Need
from .plan import Estimate, PlannedTask


def finishing(whole: Estimate) -> Estimate:
    """Of an attempt whose work was approved: it asks no model, and ends."""
    return Estimate(seconds=0.001, spread=0.0, dollars=None if whole.dollars is None else 0.0)


def with_reviews(
    tasks: Sequence[PlannedTask], roles: Mapping[int, str], estimate: Callable[[str], Estimate]
) -> tuple[PlannedTask, ...]:
    """The tasks, and behind each task in `roles` a review by that role, and the end of the task after its review.

    A task that needs such a task also needs that end. All get new numbers. Of equal tasks the oldest comes first, so a
    task that goes on keeps its place, and a review comes behind all others.
    """
    if not roles:
        return tuple(tasks)
    youngest = 2 * max(task.id for task in tasks) + 2
    found: list[PlannedTask] = []
    for task in tasks:
        needs = [Need(2 * need.task, need.outcome) for need in task.needs]
        needs += [
            Need(2 * need.task + 1, "ended" if need.outcome in ENDINGS else None)
            for need in task.needs
            if need.task in roles
        ]
        found.append(replace(task, id=2 * task.id, needs=tuple(needs)))
        if (role := roles.get(task.id)) is None:
            continue
        review = PlannedTask(
            id=youngest, name=f"Review {task.name}", role=role, priority=task.priority + 1, chain=task.chain + 1,
            root=task.root, needs=(Need(2 * task.id),), estimate=estimate(role),
        )  # fmt: skip
        youngest += 1
        end = replace(
            task, id=2 * task.id + 1, name=f"{task.name}, after its review", needs=(Need(review.id),), due_ms=0,
            estimate=finishing(task.estimate), outcomes=((None, 1.0),),
        )  # fmt: skip
        found += [review, end]
    return tuple(found)
