"""Clients over HTTP: each call says with its token which teammate of which board it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from ..board.verbs.members import CLIENT_LEFT
from ..errors import DugnadError
from ..tools.mcp.http_endpoint import McpEndpoint
from ..tools.mcp.serving import Link, Offering
from .seats import Seat
from .serve import ClientHost, offered
from .tokens import TokenHolder, Tokens

OpenHost = Callable[[], AbstractAsyncContextManager[ClientHost]]
_SWEEP_SECONDS = 30.0
_OPEN_SECONDS = 8.0  # In one call; it goes on behind it.


@dataclass(kw_only=True)
class HttpClients:
    """The hosts of some boards, each opened with the first call for it, and the clients that have called."""

    open_host: Mapping[str, OpenHost]  # By the board's identity.
    tokens: Tokens
    _hosts: dict[str, ClientHost] = field(default_factory=dict)
    _seats: dict[tuple[str, str], Seat] = field(default_factory=dict)
    _offerings: dict[tuple[str, str], Offering] = field(default_factory=dict)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _wanted: asyncio.Queue[tuple[str, asyncio.Future[ClientHost]]] = field(default_factory=asyncio.Queue)

    async def admit(self, token: str) -> Offering | None:
        """What the holder of this token is offered. None: it is not a token for a board here."""
        holder = self.tokens.find(token)
        if holder is None or holder.board not in self.open_host:
            return None
        return self._offering(holder)

    def _offering(self, holder: TokenHolder) -> Offering:
        key = (holder.board, holder.teammate)
        if key not in self._offerings:

            async def seat() -> Seat:
                return await self._seated(holder)

            async def host() -> ClientHost:
                return await self._host(holder.board)

            async def met(link: Link) -> None:
                if not link.modern:
                    await seat()

            self._offerings[key] = replace(offered(seat, host), met=met)
        return self._offerings[key]

    async def _seated(self, holder: TokenHolder) -> Seat:
        key = (holder.board, holder.teammate)
        async with self._opening:
            if (seat := self._seats.get(key)) is None:
                host = await self._host(holder.board)
                seat = await host.seat(holder.teammate, roles=holder.roles, exactly=True)
                self._seats[key] = seat
        seat.client.heard_at = asyncio.get_running_loop().time()
        await seat.taken()
        return seat

    async def _host(self, board: str) -> ClientHost:
        if board not in self._hosts:
            answer: asyncio.Future[ClientHost] = asyncio.get_running_loop().create_future()
            self._wanted.put_nowait((board, answer))
            async with asyncio.timeout(_OPEN_SECONDS):
                return await answer
        return self._hosts[board]

    async def run(self) -> None:
        """Open hosts as they are wanted, and keep them until this is cancelled."""
        async with AsyncExitStack() as stack:
            sweeping = asyncio.create_task(self._sweep())
            stack.callback(sweeping.cancel)
            while True:
                board, answer = await self._wanted.get()
                try:
                    if board not in self._hosts:
                        self._hosts[board] = await stack.enter_async_context(self.open_host[board]())
                except DugnadError as trouble:
                    if not answer.done():
                        answer.set_exception(trouble)
                    continue
                if not answer.done():
                    answer.set_result(self._hosts[board])

    async def _sweep(self) -> None:
        """A client that has not called for long, and holds nothing, leaves its seat. Its next call takes it again."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for key, seat in list(self._seats.items()):
                quiet = asyncio.get_running_loop().time() - seat.client.heard_at
                if quiet > seat.host.plan.limits.quiet_seconds and seat.client.work is None and not seat.client.asking:
                    with suppress(DugnadError):
                        await seat.board.stop_teammate(seat.name, by="board", reason=CLIENT_LEFT)
                    self._hosts[key[0]].clients.pop(seat.name, None)
                    self._seats.pop(key, None)


@asynccontextmanager
async def mcp_over_http(open_host: Mapping[str, OpenHost], tokens: Tokens) -> AsyncIterator[McpEndpoint]:
    """The endpoint for these boards, as long as the block lasts."""
    clients = HttpClients(open_host=open_host, tokens=tokens)
    running = asyncio.create_task(clients.run())
    try:
        yield McpEndpoint(admit=clients.admit)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
