"""The other process of the wake benchmark: waits for work of one role, and says when it woke."""

from __future__ import annotations

import asyncio
import sys
import time

from dugnad.board import open_board
from dugnad.settings import Patience


async def main(url: str) -> None:
    board = await open_board(url, patience=Patience(poll_seconds=3_600))  # The push is measured, not the sweep.
    for _ in range(100_000):
        with board.watch(["ready:waker"]) as watch:
            print("waiting", flush=True)
            while not await watch.wait(60):
                pass
            print(time.monotonic_ns(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
