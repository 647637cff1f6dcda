"""A wire between a board and its PostgreSQL server that can be cut at a COMMIT: before the server hears of it, or after
it has committed and before the board hears back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

# As the driver sends it, in a simple query; and the first step of a script, which is a transaction of its own.
COMMITS = (b"COMMIT\0", b"COMMIT; ", b"\0\0\0\5holds", b"\0\0\0\6seated")


class _Link:
    """One connection through the wire."""

    def __init__(self, down: asyncio.StreamWriter, up: asyncio.StreamWriter) -> None:
        self.down = down
        self.up = up
        self.deaf = False  # The server's answers are dropped.
        self.answered = asyncio.Event()

    def cut(self) -> None:
        self.down.transport.abort()
        self.up.transport.abort()


class Wire:
    """Listens on a port of its own on loopback and passes everything on to the server's."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self.cut_at_commit: Literal["before", "after"] | None = None  # Of the next one only.
        self.cuts = 0

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for link in list(self._links):
            link.cut()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, from_board: asyncio.StreamReader, to_board: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            to_board.transport.abort()
            return
        link = _Link(to_board, to_server)
        self._links.add(link)
        with contextlib.suppress(OSError):
            await asyncio.gather(self._upwards(from_board, link), self._downwards(from_server, link))
        link.cut()
        self._links.discard(link)

    async def _upwards(self, from_board: asyncio.StreamReader, link: _Link) -> None:
        while data := await from_board.read(65_536):
            if self.cut_at_commit is not None and any(each in data for each in COMMITS):
                when, self.cut_at_commit = self.cut_at_commit, None
                self.cuts += 1
                if when == "after":
                    link.deaf = True
                    link.up.write(data)
                    await link.answered.wait()
                break
            link.up.write(data)
            await link.up.drain()
        link.cut()

    async def _downwards(self, from_server: asyncio.StreamReader, link: _Link) -> None:
        while data := await from_server.read(65_536):
            if link.deaf:
                link.answered.set()
                continue
            link.down.write(data)
            await link.down.drain()
        link.answered.set()
        link.cut()
