"""Commits that concern one topic of a board, and boards that no longer hear of each other's commits.

As a program it takes a board's address and a topic: it makes everybody deaf, then touches the topic. It imports little,
so it starts soon.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dugnad.board import Board, open_board
from dugnad.types import Budget
from tests.board.raw import run


async def change(board: Board, topics: list[str], seconds: float) -> bool:
    """Wait until a commit of any process touches one of the topics; False when the time is over."""
    with board.watch(topics) as watch:
        return await watch.wait(seconds)


def wake_folder(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///") + ".wake")


async def listeners(url: str) -> set[int]:
    rows = await run(
        url, "SELECT pid FROM pg_stat_activity WHERE query = $1", f'LISTEN "dugnad_{url.partition("=")[2]}"'
    )
    return {row["pid"] for row in rows}


async def deafen(url: str) -> None:
    """Take from every process that has the board open its way of hearing of the others' commits."""
    if url.startswith("sqlite"):
        for socket in wake_folder(url).iterdir():
            socket.unlink()
    else:
        for pid in await listeners(url):
            await run(url, "SELECT pg_terminate_backend($1)", pid)


async def touch(board: Board, topic: str) -> None:
    """A commit that concerns this topic."""
    match topic:
        case "ready:":
            await board.put("more")
        case "ready:coder":
            await board.put("more", role="coder")
        case "ready:@alice":
            await board.put("more", assignee="alice")
        case "inbox:alice":
            await board.tell("human", "alice", "hello")
        case "task:1":
            await (board.retry(1) if (await board.find(1)).state == "cancelled" else board.cancel(1))
        case "budget:1":
            await board.raise_budget(1, Budget(tasks=1))
        case "team":
            await board.spawn("bob")
        case "notes" | "log":
            await board.write_note("alice", "title", "text")


async def main(url: str, topic: str) -> None:
    await deafen(url)
    async with await open_board(url) as board:
        await touch(board, topic)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
