"""Runs a worker process to its end, or to the step where it is to die, while a person answers what is asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from dugnad.board import Board, open_board
from dugnad.types import HUMAN
from tests.crash import ten_turns
from tests.crash.ten_turns import ANSWER, BUDGET, ERRAND, FOLLOW_UP, HINT, LIMITS, PATIENCE, WORKER

ROOT = Path(__file__).parents[2]
ANSWER_SECONDS_MAX = 150
DIED = -signal.SIGKILL


class Workers:
    """A process that forks a worker for every order; the one process of this test group."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(self, **order: str) -> int:
        """How the worker ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            return int(await self._process.stdout.readline())


@contextlib.asynccontextmanager
async def workers() -> AsyncIterator[Workers]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.crash.crash_worker", cwd=ROOT, stdin=pipe, stdout=pipe
    )
    try:
        yield Workers(process)
    finally:
        process.kill()
        async with asyncio.timeout(120):
            await process.wait()


@contextlib.asynccontextmanager
async def errand_board(url: str) -> AsyncIterator[tuple[Board, int]]:
    """A board with the errand on it, and a person who answers."""
    async with await open_board(url, limits=LIMITS, patience=PATIENCE) as board:
        for name in (WORKER, "bob"):
            await board.spawn(name)
        await board.tell(HUMAN, WORKER, HINT)
        root = await board.put(ERRAND, body="Do it.", budget=BUDGET)
        person = asyncio.create_task(answer(board))
        try:
            yield board, root.id
        finally:
            person.cancel()
            await asyncio.gather(person, return_exceptions=True)


async def answer(board: Board) -> None:
    """Answers when the follow-up has ended: whoever works it does not see the answer to another task's question."""
    while True:
        with board.watch([f"inbox:{HUMAN}"]) as watch:
            for request in await board.requests():
                await _until_followed_up(board)
                await board.reply(request.request or "", HUMAN, ANSWER)
            await watch.wait(1)


async def _until_followed_up(board: Board) -> None:
    (task,) = [task for task in await board.list_tasks() if task.title == FOLLOW_UP]
    while True:
        with board.watch([f"task:{task.id}"]) as watch:
            if (await board.find(task.id)).ended:
                return
            await watch.wait(1)


def complaint(folder: Path) -> str:
    """What a worker that ended badly had to say."""
    return "\n".join(ten_turns.lines_of(folder / "errors"))[-2_000:]
