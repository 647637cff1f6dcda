"""Reviews that the board will ask for: work that is done waits until another has looked at it, and then ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..types import ENDINGS, Need
from .plan import Estimate, PlannedTask


def finishing(whole: Estimate) -> Estimate:
    """Of an attempt that was approved: it is taken up again, asks no model, and ends."""
    return Estimate(seconds=0.001, spread=0.0, dollars=None if whole.dollars is None else 0.0)


def with_reviews(
    tasks: Sequence[PlannedTask], roles: Mapping[int, str], estimate: Callable[[str], Estimate]
) -> tuple[PlannedTask, ...]:
    """The tasks, and behind each of `roles` a review by one of that role, then the end of it.

    Whoever waits for such a task waits for that end too. All are numbered anew: of equal tasks the oldest comes first,
    so what is taken up again must stand where it stood, and a review behind all there are.
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
