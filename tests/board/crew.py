"""Shorthand for tests: a host with teammates, and races between two boards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

from dugnad.board import Board
from dugnad.types import Claim

T = TypeVar("T")


class Crew:
    """A host on a board, with teammates seated at it."""

    def __init__(self, board: Board, host: str) -> None:
        self.board = board
        self.host = host

    async def claim(self, teammate: str = "alice", **options: Any) -> Claim | None:
        return await self.board.claim(teammate, self.host, **options)

    async def must_claim(self, teammate: str = "alice", **options: Any) -> Claim:
        claim = await self.claim(teammate, **options)
        assert claim is not None, f"{teammate} found nothing to claim"
        return claim


async def crew(board: Board, *names: str, roles: Iterable[str] = ()) -> Crew:
    host = await board.start_host("test host")
    for name in names or ("alice",):
        await board.spawn(name, roles=roles)
        await board.seat(host, name=name)
    return Crew(board, host)


async def both(*calls: Awaitable[T]) -> list[T | BaseException]:
    """Run them at the same moment; what each returned or raised."""
    return await asyncio.gather(*calls, return_exceptions=True)
