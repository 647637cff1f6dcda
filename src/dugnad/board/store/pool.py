"""The address of a PostgreSQL board, and the few connections with which a process writes and reads it.

The driver's own pool resets a connection after each use, which costs about as much as the query. Readers leave nothing
behind that needs a reset, and a connection in doubt is dropped.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from ...errors import BadBoardURL


def split_url(url: str) -> tuple[str, str]:
    """The address for the driver, and the schema: `?board=name`, or `dugnad` without one."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # Raises ValueError if it is not a port.
    except ValueError:  # The message does not repeat what is wrong: it may be a piece of the password.
        raise BadBoardURL(
            "The board's address cannot be read: write postgresql://user:password@host:port/database, the port "
            "a number, and signs like / or @ in the password as %2F or %40."
        ) from None
    options = parse_qsl(parts.query, keep_blank_values=True)
    board = dict(options).get("board", "dugnad")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", board) or board.startswith("pg_") or board == "information_schema":
        raise BadBoardURL(
            f"The board name {board!r} must be small letters, digits and _, at most 41, beginning with a letter, "
            "and not one of the server's own."
        )
    rest = urlencode([(name, value) for name, value in options if name != "board"])
    return urlunsplit(parts._replace(query=rest)), board


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


@dataclass(slots=True)
class Writer:
    """A connection that writes one transaction at a time."""

    connection: Any = None
    has_scripts: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_open(self) -> bool:
        return self.connection is not None and not self.connection.is_closed()


class Connection(asyncpg.Connection):  # type: ignore[misc]
    def notice_silence(self, seconds: float) -> None:
        """Without this, a partition is noticed only when the kernel gives up, after about fifteen minutes."""
        wire = self._transport.get_extra_info("socket")
        if wire is None or wire.family not in (socket.AF_INET, socket.AF_INET6):
            return
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        limits = {"TCP_USER_TIMEOUT": int(seconds * 1000), "TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
        for option, value in limits.items():
            if hasattr(socket, option):
                wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
