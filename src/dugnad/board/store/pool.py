"""The few connections with which a process reads a PostgreSQL board.

The driver's own pool resets a connection after each use, which costs about as much as the query. Readers leave nothing
behind that needs a reset, and a connection in doubt is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any


class Readers:
    """Connections are made when they are needed, up to `most`; the one used last is used first."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], most: int) -> None:
        self._connect = connect
        self._free = asyncio.Semaphore(most)
        self._resting: list[Any] = []
        self._all: set[Any] = set()

    async def fetch(self, queries: Sequence[tuple[str, Sequence[object]]]) -> list[Sequence[Any]]:
        """The rows of each query. Several queries see the database at one moment."""
        async with self._free:
            connection = await self._take()
            try:
                if len(queries) == 1:
                    rows = [await connection.fetch(queries[0][0], *queries[0][1])]
                else:
                    async with connection.transaction(isolation="repeatable_read", readonly=True):
                        rows = [await connection.fetch(text, *given) for text, given in queries]
            except BaseException:  # Cancelled, refused or gone: its state is not known.
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
