"""A server on loopback, and a browser's side of its streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from dugnad.board import Board
from dugnad.web.following import FollowedBoard, followed
from dugnad.web.serving import RunningServer, listen, serving
from tests.web.asking import caught_up

SECONDS = 120.0  # At most, for anything.


@dataclass(frozen=True)
class Told:
    """One message of a stream."""

    event: str
    id: int | None
    data: Any


@dataclass
class Site:
    """A running server, and a client with a session for it."""

    server: RunningServer
    client: httpx2.AsyncClient
    boards: list[FollowedBoard]

    @property
    def board(self) -> str:
        return f"/api/boards/{self.boards[0].id}"

    async def begin(self, link: str) -> Any:
        """Exchange a link for a session, as the page does."""
        key = link.partition("=")[2]
        answer = await self.client.post("/api/session", json={"key": key}, headers=self.own)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @property
    def own(self) -> dict[str, str]:
        return {"origin": self.server.url, "x-dugnad": "1"}

    async def post(self, name: str, **given: Any) -> Any:
        answer = await self.client.post(f"{self.board}/{name}", json=given, headers=self.own)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @asynccontextmanager
    async def stream(self, after: int | None = None, **headers: str) -> AsyncIterator[Reader]:
        query = "" if after is None else f"?after={after}"
        async with self.client.stream("GET", f"{self.board}/stream{query}", headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            yield Reader(answer.aiter_lines())


@dataclass
class Reader:
    lines: AsyncIterator[str]

    async def next(self, event: str | None = None) -> Told:
        """The next message, or the next of this event."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(SECONDS):
            async for line in self.lines:
                name, _, value = line.partition(": ")
                if line and name:
                    fields[name] = value
                elif not line and "data" in fields:
                    told = Told(
                        fields.get("event", "message"), int(fields["id"]) if "id" in fields else None,
                        json.loads(fields["data"]),
                    )  # fmt: skip
                    fields = {}
                    if event in (None, told.event):
                        return told
                elif not line:
                    fields = {}
        raise EOFError

    async def until(self, true: Callable[[Told], bool]) -> list[Told]:
        """The messages up to the first for which this is true."""
        found = [await self.next()]
        while not true(found[-1]):
            found.append(await self.next())
        return found


@asynccontextmanager
async def site(*boards: Board, folder: Path, root: Path | None = None, scope: str = "steer") -> AsyncIterator[Site]:
    """A server for these boards, and a client that has exchanged a link."""
    environment = {"XDG_STATE_HOME": str(folder / "state")}
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(followed(board, name="board", where="here", root=root)) for board in boards
        ]
        for each in made:
            await caught_up(each)
        listener = stack.enter_context(listen(port=0))
        server = await stack.enter_async_context(
            serving(made, listener=listener, who="eve", environment=environment)
        )  # fmt: skip
        limits = httpx2.Limits(max_connections=500)
        client = await stack.enter_async_context(
            httpx2.AsyncClient(base_url=server.url, limits=limits, timeout=SECONDS, trust_env=False)
        )
        found = Site(server, client, made)
        await found.begin(server.steer_link() if scope == "steer" else server.look_link)
        yield found
