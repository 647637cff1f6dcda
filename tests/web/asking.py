"""Asking the app directly, as a server would, so that a test can send anything: raw paths, slow bodies, any header."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette

from dugnad.board import Board
from dugnad.web.app import board_app
from dugnad.web.following import FollowedBoard, followed
from dugnad.web.guard import Site, site_of
from dugnad.web.sessions import Scope, Sessions

PORT = 7373
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"
OWN = (("origin", ORIGIN), ("x-dugnad", "1"), ("content-type", "application/json"))  # What the page sends with a write.
Headers = Sequence[tuple[str, str]]


@dataclass
class WebClock:
    """A clock that a test moves."""

    now: int = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


@dataclass
class Answer:
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    ended: bool = False

    def header(self, name: str) -> str | None:
        return next((value for own, value in self.headers if own == name), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def kind(self) -> str:
        return str(self.json["error"]["kind"])


async def ask(
    app: Starlette, method: str, path: str, headers: Headers = (), body: Sequence[bytes] = (), *,
    host: str | None = HOST, slow: bool = False, root_path: str = "",
) -> Answer:  # fmt: skip
    """One request. The client leaves after the first piece of an answer that does not end. `slow`: the body is never
    complete."""
    raw, _, query = path.partition("?")
    lines = ([("host", host)] if host is not None else []) + list(headers)
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "scheme": "http",
        "method": method, "path": unquote(raw), "raw_path": raw.encode(), "query_string": query.encode(),
        "root_path": root_path, "server": ("127.0.0.1", PORT), "client": ("127.0.0.1", 1), "state": {},
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in lines],
    }  # fmt: skip
    answer, left = Answer(), asyncio.Event()
    pieces = list(body) or [b""]

    async def receive() -> dict[str, Any]:
        if pieces:
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces) or slow}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = [(name.decode(), value.decode()) for name, value in message["headers"]]
            return
        answer.body += message.get("body", b"")
        answer.ended = not message.get("more_body", False)
        left.set()

    async with asyncio.timeout(120):
        await app(scope, receive, send)
    return answer


@dataclass
class Desk:
    """An app, and sessions for it."""

    app: Starlette
    sessions: Sessions
    clock: WebClock
    boards: Sequence[FollowedBoard]
    site: Site

    def session(self, scope: Scope = "steer", *boards: FollowedBoard, who: str = "eve") -> str:
        """The id of a new session, for these boards or for all."""
        identities = [each.identity for each in boards or self.boards]
        found = self.sessions.exchange(self.sessions.new_key(scope, boards=identities, who=who))
        assert found is not None
        return found[0]

    def cookie(self, id: str) -> tuple[str, str]:
        return ("cookie", f"{self.site.cookie}={id}")

    async def get(self, path: str, *, id: str | None = None, board: FollowedBoard | None = None) -> Answer:
        """Read something of a board, as a page does."""
        own = [self.cookie(id or self.session("look"))]
        return await ask(self.app, "GET", f"/api/boards/{(board or self.boards[0]).id}/{path}", own)

    async def post(self, write: str, /, *, id: str | None = None, **given: Any) -> Answer:
        """Write something to the first board, as a page does."""
        own = [self.cookie(id or self.session("steer")), *OWN]
        path = f"/api/boards/{self.boards[0].id}/{write}"
        return await ask(self.app, "POST", path, own, [json.dumps(given).encode()])


@asynccontextmanager
async def desk(*boards: Board, site: Site | None = None, body_seconds: float = 10.0) -> AsyncIterator[Desk]:
    """An app for these boards, which has read their logs."""
    clock, site = WebClock(), site or site_of(PORT)
    sessions = Sessions(now_ms=clock)
    made: list[FollowedBoard] = []
    async with AsyncExitStack() as stack:
        for number, board in enumerate(boards):
            made.append(await stack.enter_async_context(followed(board, name=f"board {number}", where="here")))
        for each in made:
            await caught_up(each)
        app = board_app(made, sessions, site, environment={}, body_seconds=body_seconds)
        yield Desk(app, sessions, clock, made, site)


async def caught_up(followed: FollowedBoard) -> None:
    """Wait until the history has every event that is committed now."""
    last = await followed.board.last_event()
    news = asyncio.Event()
    with followed.listening(news):
        while followed.reading is not None or followed.history.last < last:
            async with asyncio.timeout(120):
                await news.wait()
            news.clear()
