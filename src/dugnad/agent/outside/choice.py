"""Which tasks a client may take that does not say what it costs: none under a cap in dollars."""

from __future__ import annotations

import asyncio

from ...board import Board

_LOOKED_AT = 500  # Tasks, the oldest first.


async def payable(board: Board) -> list[int] | None:
    """The tasks that no cap in dollars covers, those with the highest priority first. None: no such cap is in the way,
    so any task will do. A task that is not due yet may be among them; the board refuses it."""
    found = await board.list_tasks(states=["ready", "scheduled"], page=_LOOKED_AT)
    roots = sorted({task.root for task in found})
    accounts = await asyncio.gather(*map(board.budget, roots))
    capped = {root for root, each in zip(roots, accounts, strict=True) if each.microdollars_max is not None}
    if not capped:
        return None
    free = [task for task in found if task.root not in capped]
    return [task.id for task in sorted(free, key=lambda task: (-task.priority, -task.chain, task.id))]
