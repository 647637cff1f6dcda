"""Counts the round trips to a PostgreSQL server, at the socket: a relay between the driver and the server.

A round trip begins when the driver sends something on a connection after the server has said something there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit


class Relay:
    """Passes bytes on between clients and one server, and counts."""

    def __init__(self, url: str) -> None:
        self._server = urlsplit(url)
        self.port = 0
        self.count = 0

    def url(self, board: str) -> str:
        where = f"{self._server.username}@127.0.0.1:{self.port}"
        return urlunsplit(self._server._replace(netloc=where, query=f"board={board}"))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection(self._server.hostname, self._server.port)
        answered = True

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, *, asks: bool) -> None:
            nonlocal answered
            try:
                while data := await source.read(1 << 20):
                    self.count += asks and answered
                    answered = not asks
                    target.write(data)
                    await target.drain()
            except OSError:
                pass
            finally:
                target.close()

        with suppress(asyncio.CancelledError):  # The loop ends before the connections do.
            await asyncio.gather(pass_on(reader, here, asks=True), pass_on(there, writer, asks=False))


@asynccontextmanager
async def relay(url: str) -> AsyncIterator[Relay]:
    made = Relay(url)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
