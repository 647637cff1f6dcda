"""A process that only chats: it opens a board and talks with a lead that somebody else plays."""

from __future__ import annotations

import asyncio
import sys

from dugnad.board import open_board
from dugnad.chat.chat import chat
from dugnad.chat.session import ChatLimits
from dugnad.settings import Limits, Patience


async def main(url: str, pickup_seconds: float) -> None:
    patience = Patience(poll_seconds=0.5)
    limits = ChatLimits(pickup_seconds=pickup_seconds, refresh_seconds=0.05, trouble_seconds=0.2)
    async with await open_board(url, limits=Limits(backoff_seconds=0.01), patience=patience) as board:
        await chat(board, lead="lead", team_name="garden", limits=limits)
    print("left")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 30.0))
