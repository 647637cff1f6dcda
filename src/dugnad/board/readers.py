"""The few connections a process reads a PostgreSQL board with.

The driver's own pool does more than is needed here, at about the cost of the queries themselves: readers hold no
transaction and leave nothing behind, so there is nothing to reset, and whatever is in doubt is thrown away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any


class Readers:
    """Made when they are needed, at most so many; the one used last is used first."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], most: int) -> None:
        self._connect = connect
        self._free = asyncio.Semaphore(most)
        self._resting: list[Any] = []
        self._all: set[Any] = set()

    async def fetch(self, text: str, *arguments: object) -> Sequence[Any]:
        async with self._free:
            connection = await self._take()
            try:
                rows: Sequence[Any] = await connection.fetch(text, *arguments)
            except BaseException:  # Cancelled, refused or gone: its state is not known for sure.
                self._all.discard(connection)
                connection.terminate()
                raise
            self._resting.append(connection)
            return rows

    async def _take(self) -> Any:
        while self._resting:
            connection = self._resting.pop()
            if not connection.is_closed():
                return connection
            self._all.discard(connection)
        connection = await self._connect()
        self._all.add(connection)
        return connection

    def terminate(self) -> None:
        for connection in self._all:
            connection.terminate()
        self._all.clear()
        self._resting.clear()
