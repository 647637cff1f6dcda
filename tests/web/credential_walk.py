"""Walks the route table of the app and tries each route with everything that must not work.

`walk` returns how many routes there are, and a sentence for each thing that was answered and should not have been. It
looks at the real table, so a route that is added is tried too.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.routing import Route

from dugnad.board import Board, open_board
from tests.web.asking import HOST, ORIGIN, OWN, PORT, Answer, Desk, Headers, ask, desk

OPEN = {("GET", "/"), ("GET", "/static/{file:path}"), ("POST", "/api/session")}
SIZE = 64 * 1024
ALWAYS = {
    "content-security-policy", "x-content-type-options", "referrer-policy", "cross-origin-opener-policy",
    "cross-origin-resource-policy", "permissions-policy",
}  # fmt: skip
STRANGE_ORIGINS = (
    "https://evil.example", "null", "", f"https://{HOST}", f"http://127.0.0.1:{PORT + 1}", f"{ORIGIN}.evil.example",
    f"http://localhost:{PORT}", f"{ORIGIN}/", ORIGIN.upper(),
)  # fmt: skip
STRANGE_HOSTS = (
    None, "", "evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", f"127.0.0.1.evil:{PORT}",
    f"localhost.evil.example:{PORT}", f"127.0.0.1:{PORT}@evil", f"0.0.0.0:{PORT}", f"2130706433:{PORT}",
)  # fmt: skip
STRANGE_TYPES = (
    None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json5",
    "application/json; charset=utf-7", "text/plain; application/json", "application/jsonp", "*/*",
)  # fmt: skip
BAD_BODIES = {
    "empty": b"", "no JSON": b"{", "a list": b"[]", "null": b"null", "a text": b'"x"', "not UTF-8": b'{"a":"\xff"}',
    "deep": b'{"a":' * 20_000, "deep and closed": b"[" * 30_000 + b"]" * 30_000, "not a number": b'{"a":NaN}',
    "two": b"{}{}", "a form": b"key=1&text=2",
}  # fmt: skip
OTHER_METHODS = ("OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "CONNECT", "PROPFIND", "get", "")


@dataclass
class Walk:
    desk: Desk
    open: list[str] = field(default_factory=list)
    routes: int = 0

    @property
    def app(self) -> Starlette:
        return self.desk.app

    async def each(self, *methods: str) -> Iterator[tuple[str, str, str]]:
        found = []
        for route in self.app.routes:
            assert isinstance(route, Route), f"{route} is no plain route: the walk does not know how to try it"
            for method in sorted((route.methods or set()) - {"HEAD"}):
                found.append((method, route.path, self.filled(route.path)))
        self.routes = len(found)
        return iter(each for each in found if each[0] in methods)

    def filled(self, path: str) -> str:
        values = {"board": self.desk.boards[0].id, "task": "1", "epoch": "1", "number": "1"}
        for name, value in values.items():
            path = path.replace(f"{{{name}}}", value)
        return path.replace("{file:path}", next(iter(self.app.state.files)))

    async def refused(self, what: str, asking: Awaitable[Answer], *expected: int) -> None:
        """Note it if this was answered in another way than by one of these refusals."""
        answer = await asking
        if answer.status not in expected:
            self.open.append(f"{what}: answered {answer.status}, not {' or '.join(map(str, expected))}")
        missing = ALWAYS - {name for name, _ in answer.headers}
        if missing or any(name.startswith("access-control-") for name, _ in answer.headers):
            self.open.append(f"{what}: its headers are not those of every answer")
        if any(each.identity.encode() in answer.body or each.id.encode() in answer.body for each in self.desk.boards):
            self.open.append(f"{what}: the refusal names a board")

    async def try_route(self, method: str, route: str, path: str) -> None:
        desk, app = self.desk, self.app
        body = [b"{}"] if method == "POST" else []

        def asked(
            *headers: tuple[str, str], with_method: str = method, at: str = path, **more: str | None
        ) -> Awaitable[Answer]:
            return ask(app, with_method, at, headers, body, **more)  # type: ignore[arg-type]

        own: Headers = OWN if method == "POST" else ()
        steer, look = desk.cookie(desk.session("steer")), desk.cookie(desk.session("look"))
        name = f"{method} {route}"
        for host in STRANGE_HOSTS:
            await self.refused(f"{name} as {host}", asked(steer, *own, host=host), 421)
        await self.refused(f"{name} with two names", asked(("host", HOST), steer, *own), 421)
        for origin in STRANGE_ORIGINS:
            rest = [each for each in own if each[0] != "origin"]
            await self.refused(f"{name} from {origin!r}", asked(steer, ("origin", origin), *rest), 403)
        await self.refused(f"{name} from two", asked(steer, ("origin", ORIGIN), ("origin", ORIGIN), *own[1:]), 403)
        for other in OTHER_METHODS:
            await self.refused(f"{other} {route}", asked(steer, *own, with_method=other), 405)
        for trick in tricks(path):
            await self.refused(f"{method} {trick}", asked(steer, *own, at=trick), 404, 405)
        if (method, route) not in OPEN:
            await self.try_credentials(name, method, path, own, body)
            steer, look = desk.cookie(desk.session("steer")), desk.cookie(desk.session("look"))  # It is late.
            await self.refused(f"HEAD {route}", asked(steer, with_method="HEAD"), 405)
        if route.startswith("/api"):
            for site in ("cross-site", "same-site", "odd"):
                await self.refused(f"{name} from {site}", asked(steer, ("sec-fetch-site", site), *own), 403)
        if method == "POST":
            if (method, route) not in OPEN and route != "/api/session/end":
                await self.refused(f"{name} to look", asked(look, *own), 403)
                bearer = ("authorization", f"Bearer {look[1].partition('=')[2]}")
                await self.refused(f"{name} to look by bearer", asked(bearer, *own), 403)
            await self.try_writes(name, path, steer)

    async def try_credentials(self, name: str, method: str, path: str, own: Headers, body: list[bytes]) -> None:
        """A session that is not there, has ended, is of another board, or of another server."""
        desk, app = self.desk, self.app

        async def with_(*headers: tuple[str, str]) -> Answer:
            return await ask(app, method, path, [*headers, *own], body)

        await self.refused(f"{name} without a session", with_(), 401)
        for wrong in ("x", "", "A" * 43, "A" * 5_000, "../../etc/passwd", "null", "\xff"):
            await self.refused(f"{name} with {wrong[:20]!r}", with_(desk.cookie(wrong)), 401)
            await self.refused(f"{name} with bearer {wrong[:20]!r}", with_(("authorization", f"Bearer {wrong}")), 401)
        steer = desk.session("steer")
        await self.refused(f"{name} of another port", with_(("cookie", f"dugnad-{PORT + 1}={steer}")), 401)
        await self.refused(f"{name} under another name", with_(("cookie", f"x{desk.site.cookie}={steer}")), 401)
        await self.refused(f"{name} with a wrong scheme", with_(("authorization", f"Basic {steer}")), 401)
        both = (desk.cookie(steer), ("authorization", "Bearer wrong"))
        await self.refused(f"{name} with a wrong bearer and a cookie", with_(*both), 401)
        key = desk.sessions.new_key("look", boards=[desk.boards[0].identity])
        await self.refused(f"{name} with a key", with_(desk.cookie(key)), 401)
        ended = desk.session("steer")
        found = desk.sessions.find(ended)
        assert found is not None
        desk.sessions.end(found)
        await self.refused(f"{name} after the end", with_(desk.cookie(ended)), 401)
        old = desk.session("steer")
        desk.clock.now += 12 * 3_600_000
        await self.refused(f"{name} when it is too late", with_(desk.cookie(old)), 401)
        if "/boards/" in path:
            elsewhere = desk.cookie(desk.session("steer", desk.boards[1]))
            await self.refused(f"{name} of another board", with_(elsewhere), 404)
            await self.refused(f"{name} of no board", ask(app, method, path.replace(desk.boards[0].id, "0" * 12), [
                desk.cookie(desk.session("steer")), *own], body), 404)  # fmt: skip

    async def try_writes(self, name: str, path: str, steer: tuple[str, str]) -> None:
        """A write with a header missing, or with a body that is none."""

        def sent(headers: Headers, body: list[bytes], *, slow: bool = False) -> Awaitable[Answer]:
            return ask(self.app, "POST", path, [steer, *headers], body, slow=slow)

        def without(left: str) -> list[tuple[str, str]]:
            return [each for each in OWN if each[0] != left]

        await self.refused(f"{name} without Origin", sent(without("origin"), [b"{}"]), 403)
        await self.refused(f"{name} without X-Dugnad", sent(without("x-dugnad"), [b"{}"]), 403)
        await self.refused(f"{name} with X-Dugnad 0", sent([*without("x-dugnad"), ("x-dugnad", "0")], [b"{}"]), 403)
        for kind in STRANGE_TYPES:
            headers = without("content-type") + ([("content-type", kind)] if kind is not None else [])
            await self.refused(f"{name} as {kind}", sent(headers, [b"{}"]), 415)
        await self.refused(f"{name} packed", sent([*OWN, ("content-encoding", "gzip")], [b"{}"]), 415)
        for what, body in BAD_BODIES.items():
            expected = 413 if len(body) > SIZE else 400
            await self.refused(f"{name} with {what}", sent(OWN, [body]), expected)
        large = json.dumps({"text": "x" * SIZE}).encode()
        await self.refused(f"{name} with much", sent(OWN, [large]), 413)
        await self.refused(f"{name} with pieces", sent(OWN, [b" " * 1_000] * 70, slow=True), 413)
        for length in (str(SIZE + 1), "9" * 30, "-1", "x", "1e3", "٣"):
            with_length = [*OWN, ("content-length", length)] if length.isascii() else [*OWN, ("content-length", "x")]
            await self.refused(f"{name} that says {length[:9]}", sent(with_length, [b"{}"], slow=True), 413)
        await self.refused(f"{name} that is slow", sent(OWN, [b"{"], slow=True), 408)


def tricks(path: str) -> list[str]:
    """Other ways to write an address, which a careless server takes for the same."""
    last = path.rpartition("/")[2]
    found = [
        f"/{path}", f"{path}//", f"{path}/.", f"/.{path}", f"/x/..{path}", f"/%2e%2e{path}", f"/static/..{path}",
        f"/static/%2e%2e{path}", f"{path}%00", f"{path}%2f", f"{path}%20", f"/..%2f{path}", f"{path};x", f"{path}\\",
        f"http://evil.example{path}",
    ]  # fmt: skip
    if path != "/":
        found += [f"{path}/", path.replace("/", "//", 1), path.replace("/", "%2F"), path.replace("/", "\\")]
        found += [path[: len(path) - len(last)] + f"%{ord(last[0]):02x}{last[1:]}", f"/static{path}"]
    return found


class Walked(NamedTuple):
    """How many routes there are, and a sentence for each thing that was open."""

    routes: int
    found: list[str]

    @property
    def open(self) -> int:
        return len(self.found)


async def walk() -> Walked:
    """Walk over an app with two new boards."""
    with tempfile.TemporaryDirectory(prefix="dugnad-walk-") as folder:
        async with (
            await open_board(f"sqlite:///{folder}/first.db") as first,
            await open_board(f"sqlite:///{folder}/second.db") as second,
        ):
            await first.put("goal")
            return await walk_boards(first, second)


async def walk_desk(app_desk: Desk) -> Walked:
    """Try every route. `app_desk` has two boards, and sessions whose clock can be moved."""
    walker = Walk(app_desk)
    before = [await each.board.last_event() for each in app_desk.boards]
    for method, route, path in await walker.each("GET", "POST"):
        await walker.try_route(method, route, path)
    websocket = await _websocket(walker.app)
    if websocket != ["websocket.close"]:
        walker.open.append(f"a websocket was answered with {websocket}")
    if [await each.board.last_event() for each in app_desk.boards] != before:
        walker.open.append("something that was refused changed a board")
    return Walked(walker.routes, walker.open)


async def walk_boards(first: Board, second: Board) -> Walked:
    """The same, with an app of its own for these two boards."""
    async with desk(first, second, body_seconds=0.05) as made:
        return await walk_desk(made)


async def _websocket(app: Starlette) -> list[str]:
    sent: list[str] = []
    scope = {
        "type": "websocket", "path": "/api/session", "raw_path": b"/api/session", "query_string": b"", "root_path": "",
        "headers": [(b"host", HOST.encode()), (b"origin", ORIGIN.encode())], "subprotocols": [],
    }  # fmt: skip

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, str]) -> None:
        sent.append(message["type"])

    await app(scope, receive, send)  # type: ignore[arg-type]
    return sent
