"""How many teammates the open work calls for, as a team that grows by itself asks while it works."""

from __future__ import annotations

from collections.abc import Sequence

from ..board import Board
from ..types import MESSAGES, OPEN, Task
from .findings import enough_of
from .learn import Assumed, learn, plan_for

_TASKS_SEEN = 200  # The first of the open tasks, so that a look takes milliseconds.
_ATTEMPTS_SEEN = 200


async def enough_now(board: Board, roots: Sequence[int] | None, most: int, *, reviewer: str | None = None) -> int:
    """The smallest team, of at most this size, that ends the open work under these roots as fast as any larger one.

    It is rehearsed with the durations that were seen on this board, or else with the assumed ones.
    """
    tasks: list[Task] = []
    for root in roots if roots is not None else (None,):
        tasks += await board.list_tasks(states=sorted(OPEN), root=root, page=_TASKS_SEEN)  # type: ignore[arg-type]
    tasks = [task for task in tasks if task.kind not in (*MESSAGES, "budget")][:_TASKS_SEEN]
    if len(tasks) < 2 or most < 2:
        return 1
    experience = learn(await board.past_attempts(most=_ATTEMPTS_SEEN))
    plan = await plan_for(board, tasks, name="", experience=experience, assumed=Assumed(), reviewer=reviewer)
    return enough_of(plan, most)
