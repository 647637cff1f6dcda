"""A large board: ten thousand tasks under ten goals, with a log of a hundred thousand events."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

from dugnad.board import Board, open_board
from dugnad.settings import Limits, Patience
from dugnad.types import Amount, Budget, Claim, Done, Failed, Need, NewTask, NewTurn

TASKS = 10_000
EVENTS = 100_000
GOALS = 10
ROLES = ("coder", "tester", "reviewer", "writer")
_TEAMMATES = 50
_LIMITS = Limits(lease_seconds=3_600, lease_seconds_max=10**9, attempts_max=3, backoff_seconds=0)


def large_board(path: Path, *, tasks: int = TASKS, events: int = EVENTS) -> str:
    """The address of such a board in this file."""
    asyncio.run(_make(path, tasks, events))
    return f"sqlite:///{path}"


def copied(made: Path, path: Path) -> str:
    """The address of a copy, for a test that changes it."""
    shutil.copyfile(made, path)
    return f"sqlite:///{path}"


async def _make(path: Path, tasks: int, events: int) -> None:
    patience = Patience(poll_seconds=600)
    async with await open_board(f"sqlite:///{path}", limits=_LIMITS, patience=patience) as board:
        host = await board.start_host("harbour:4711:a1")
        names = [f"t{number:02}" for number in range(_TEAMMATES)]
        await asyncio.gather(*(board.spawn(name, roles=[ROLES[n % 4]]) for n, name in enumerate(names)))
        await board.seat(host, count=_TEAMMATES)
        for goal in range(GOALS):
            await _put(board, goal, tasks // GOALS)
        while await board.last_event() < events - 2 * _TEAMMATES:
            left = events - await board.last_event()
            worked = await asyncio.gather(*(_work(board, name, host, n, left) for n, name in enumerate(names)))
            if not any(worked):
                break
        for name in names[:20]:
            await board.claim(name, host)
        while (left := events - await board.last_event()) > 0:
            await asyncio.gather(
                *(board.remark("human", "unsandboxed", machine="harbour") for _ in range(min(200, left)))
            )


async def _put(board: Board, goal: int, count: int) -> None:
    """A goal with tasks in layers: each needs one or two of those before it."""
    first = NewTask(
        title=f"Goal {goal}: tables for coast {goal}", budget=Budget(dollars=200, tasks=5_000), role="writer"
    )
    new = [first]
    for number in range(1, count):
        needs = tuple(Need(-place) for place in {number // 3 + 1, number // 2 + 1} if 1 < place <= number)
        new.append(
            NewTask(
                title=f"Table {goal}-{number:04} of harbour {number % 97}", role=ROLES[number % 4], parent=-1,
                needs=needs if number % 5 else (), priority=number % 3,
            )
        )  # fmt: skip
    await board.put_many(new)


async def _work(board: Board, name: str, host: str, place: int, left: int) -> bool:
    claim = await board.claim(name, host)
    if claim is None:
        return False
    for number in range(1, 4):
        if left < 500:
            break
        await _turn(board, claim, number)
    fails = claim.task.id % 41 == 0 and claim.number == 1
    await board.settle(
        claim, Failed("the tide was out", retry=claim.task.id % 2 == 0) if fails else Done(f"Table {place}.")
    )
    return True


async def _turn(board: Board, claim: Claim, number: int) -> None:
    used = Amount(tokens=900, microdollars=4_000, milliseconds=1_500)
    kept = await board.reserve(claim, Amount(tokens=2_000, microdollars=9_000, milliseconds=9_000))
    reply = {
        "text": f"Turn {number}.",
        "calls": [],
        "usage": [800, 100, 0, 0],
        "stop": "end",
        "model": "scripted:large",
    }
    body = json.dumps({"said": "", "reply": reply})
    await board.record(claim, NewTurn(number=number, kind="reply", body=body, used=used, reservation=kept))
