"""Work behind a cap is put on a shelf, out of everybody's way; when the cap is raised, all of it must come down."""

from __future__ import annotations

import asyncio

from dugnad.board import Board
from dugnad.errors import BudgetSpent
from dugnad.types import OPEN, Amount, Budget, Done, NewTask, NewTurn, Waiting
from tests.board import oracle
from tests.board.crew import Crew, crew
from tests.conftest import Opener

ROOTS = 8
TASKS = 12  # Of each root.
BOARDS = 3
SECONDS_MAX = 120


async def live(team: Crew, name: str) -> None:
    """Claim and settle until nothing is open; put down what the budget does not allow."""
    board = team.board
    while (await board.count_tasks()).keys() & OPEN:
        claim = await team.claim(name)
        if claim is None:
            await asyncio.sleep(0.002)
            continue
        try:
            key = await board.reserve(claim, Amount(tokens=10))
        except BudgetSpent:
            await board.settle(claim, Waiting(on="budget", amount=Amount(tokens=10)))
            continue
        await board.record(claim, NewTurn(number=1, kind="reply", body="1", used=Amount(tokens=10), reservation=key))
        await board.settle(claim, Done())


async def raise_caps(board: Board, roots: list[int]) -> None:
    """As a person would, a little at a time, whenever something is held."""
    while (await board.count_tasks()).keys() & OPEN:
        for root in roots:
            if (await board.budget(root)).held is not None:
                await board.raise_budget(root, Budget(tasks=2, tokens=20))
        await asyncio.sleep(0)


async def test_no_task_is_left_on_the_shelf_when_caps_are_raised_while_others_claim(opener: Opener) -> None:
    boards = [await opener() for _ in range(BOARDS)]
    roots = []
    for number in range(ROOTS):
        budget = Budget(tasks=1, tokens=1_000) if number % 2 else Budget(tokens=10)
        children = [NewTask(title=f"part {part}", parent=-1) for part in range(TASKS - 1)]
        put = await boards[0].put_many([NewTask(title=f"root {number}", budget=budget), *children])
        roots.append(put[0].id)
    try:
        async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
            for number, board in enumerate(boards):
                names = [f"m{number}{letter}" for letter in "abc"]
                team = await crew(board, *names)
                for name in names:
                    group.create_task(live(team, name))
            group.create_task(raise_caps(boards[0], roots))
    except TimeoutError:
        left = await boards[0].list_tasks(states=["ready", "waiting", "scheduled", "claimed"])
        held = {root: (await boards[0].budget(root)).held for root in {task.root for task in left}}
        raise AssertionError(f"left behind: {[(task.id, task.state) for task in left]}, roots held: {held}") from None
    assert (await boards[0].count_tasks()) == {"done": ROOTS * TASKS}
    assert await oracle.verdict(boards[0]) == []
