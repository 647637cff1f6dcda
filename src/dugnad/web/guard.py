"""What every request passes before a handler sees it. Pure ASGI, and closed unless a line here opens it.

In this order: the method, the Host, the path, the Origin and Sec-Fetch-Site, the session, its scope and its boards, the
headers of a write, and its body. A route that is added needs a session, and a write needs one that steers: only
`_OPEN` makes exceptions. No answer has a CORS header, so no other site can read one or send a write.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import BadInput, BoardTrouble, DugnadError, Refused, ToolError
from ..logs import logger
from .sessions import SESSION_SECONDS, Sessions, WebSession

_LOG = logger(__name__)
BODY_BYTES_MAX = 64 * 1024
BODY_SECONDS_MAX = 10.0
_COOKIES_MAX = 8  # Of our name: another server on this machine may have set some.
_OPEN = {("GET", "/"), ("HEAD", "/"), ("POST", "/api/session")}  # And below /static, to read.
_LOOK_MAY = {"/api/session/end"}  # The one write that needs no session that steers.
_PATH = re.compile(r"/|(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+")
_BOARD = re.compile(r"/api/boards/([^/]*)(/.*)?")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
    ("permissions-policy", "camera=(), clipboard-read=(), display-capture=(), geolocation=(), hid=(), microphone=(), "
                           "payment=(), serial=(), usb=()"),
)  # fmt: skip


class WebRefusal(Exception):
    """A request that is refused, with the status, a word and a sentence."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The names of one server: what a request may call it, and where its page may come from."""

    hosts: frozenset[str]  # Values of Host.
    origin: str | None = None  # With TLS in front; None: that of a loopback name.
    cookie: str

    def is_own(self, origin: str, host: str) -> bool:
        return origin == (self.origin or f"http://{host}")

    def set_cookie(self, id: str) -> str:
        """The value of Set-Cookie; with an empty id it removes the cookie."""
        seconds = SESSION_SECONDS if id else 0
        secure = "; Secure" if self.origin else ""
        return f"{self.cookie}={id}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def site_of(port: int, origin: str | None = None, *, address: str = "127.0.0.1") -> Site:
    """The site of a server at this port of this machine, and with TLS in front at this origin. Another address than the
    loopback's is no name of it: browsers use the origin."""
    hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
    if ip_address(address).is_loopback:
        hosts.add(f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
    if origin is None:
        return Site(hosts=frozenset(hosts), cookie=f"dugnad-{port}")
    return Site(
        hosts=frozenset(hosts | {urlsplit(origin).netloc}), origin=origin, cookie=f"__Host-dugnad-{port}"
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What the guard found out about a request. Handlers read it as `scope["dugnad"]`."""

    session: WebSession | None
    given: Mapping[str, Any] = field(default_factory=dict)  # The body of a write.


@dataclass(frozen=True, slots=True)
class Guard:
    """The middleware."""

    app: ASGIApp
    site: Site
    sessions: Sessions
    boards: Mapping[str, str]  # The identities of the boards, by the id that stands in an address.
    mounts: Mapping[str, ASGIApp] = field(default_factory=dict)  # By path; each knows by itself who may call it.
    body_seconds: float = BODY_SECONDS_MAX

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await _GuardedCall(self, scope, receive, send).run()
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    def check(self, scope: Scope) -> WebSession | None:
        """Refuse a request, or say whose it is. None: it needs no session."""
        method, path, headers = scope["method"], route_path(scope), _HeaderLines(scope)
        if method not in ("GET", "HEAD", "POST"):
            raise WebRefusal(405, "BadMethod", "Only GET and POST are answered here.")
        host = (headers.only("host") or "").lower()
        if host not in self.site.hosts:
            raise WebRefusal(421, "BadHost", "This server does not have that name; use the link that it printed.")
        if not _PATH.fullmatch(path) or not _is_plain(scope, path):
            raise WebRefusal(404, "NotFound", "There is nothing at this address.")
        origins = headers.all("origin")
        if origins and not (len(origins) == 1 and self.site.is_own(origins[0], host)):
            raise WebRefusal(403, "BadOrigin", "Another site asked for this, and only this page may.")
        is_static = path.startswith("/static/") and method in ("GET", "HEAD")
        if not is_static and path != "/":
            self._check_site(headers)
        if path in self.mounts:
            return None
        session = None
        if not is_static and (method, path) not in _OPEN:
            if method == "HEAD":
                raise WebRefusal(405, "BadMethod", "Only GET and POST are answered here.")
            session = self._session(headers)
            self._check_scope(session, method, path)
        if method == "POST":
            _check_write(headers, has_bearer=session is not None and headers.only("authorization") is not None)
        return session

    def _check_site(self, headers: _HeaderLines) -> None:
        if not set(headers.all("sec-fetch-site")) <= {"same-origin", "none"}:
            raise WebRefusal(403, "BadOrigin", "Another site asked for this, and only this page may.")

    def _session(self, headers: _HeaderLines) -> WebSession:
        """The session of a bearer token, or else of a cookie. Of several cookies, one that steers comes first."""
        if (given := headers.all("authorization")) != []:
            scheme, _, id = given[0].partition(" ")
            ids = [id.strip()] if scheme.lower() == "bearer" and len(given) == 1 else []
        else:
            ids = headers.cookies(self.site.cookie)[:_COOKIES_MAX]
        found = [each for each in map(self.sessions.find, ids) if each is not None and self._serves(each)]
        if not found:
            raise WebRefusal(401, "NoSession", "There is no session; open the link that `dugnad web` printed.")
        return max(found, key=lambda each: each.steers)

    def _serves(self, session: WebSession) -> bool:
        """Whether one of its boards is here. A session outlives the server, which may serve other boards now."""
        return not set(session.boards).isdisjoint(self.boards.values())

    def _check_scope(self, session: WebSession, method: str, path: str) -> None:
        if (named := _BOARD.fullmatch(path)) and self.boards.get(named[1]) not in session.boards:
            raise WebRefusal(404, "UnknownBoard", "There is no such board here.")
        if method == "POST" and path not in _LOOK_MAY and not session.steers:
            raise WebRefusal(
                403, "LookOnly", "This session may only look; Enter in the terminal prints a link to steer."
            )


class _GuardedCall:
    """One request, and what is sent for it: every answer has the headers."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard, self._scope, self._receive, self._send = guard, scope, receive, send
        self._begun = False
        self._has_body = scope["method"] == "POST"  # Which nobody has read yet.

    async def run(self) -> None:
        try:
            session = self._guard.check(self._scope)
            if (mount := self._guard.mounts.get(route_path(self._scope))) is not None:
                await mount(self._scope, self._receive, self.send)
                return
            given = await self._body() if self._scope["method"] == "POST" else {}
            self._scope["dugnad"] = Admitted(session=session, given=given)
            await self._guard.app(self._scope, self._receive, self.send)
        except (WebRefusal, DugnadError) as refused:
            await self._refuse(refused)
        except ClientGone:
            pass
        except Exception as bug:
            _LOG.error("request-failed path=%s", route_path(self._scope), exc_info=bug)
            await self._refuse(WebRefusal(500, "Bug", "The server has a bug; its log has the traceback."))

    async def _refuse(self, why: Exception) -> None:
        if self._begun:
            raise why
        refused = why if isinstance(why, WebRefusal) else refusal_of(why)
        _LOG.info("refused status=%d kind=%s path=%s", refused.status, refused.kind, route_path(self._scope))
        body = orjson.dumps({"error": {"kind": refused.kind, "message": str(refused)}})
        lines = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if self._has_body and self._scope["http_version"].startswith("1"):
            lines.append((b"connection", b"close"))  # Nobody will read the rest of the body.
        await self.send({"type": "http.response.start", "status": refused.status, "headers": lines})
        await self.send({"type": "http.response.body", "body": body})

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begun = True
            more = [(name.encode(), value.encode()) for name, value in _HEADERS]
            if route_path(self._scope).startswith("/api"):
                more.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await self._send(message)

    async def _body(self) -> Mapping[str, Any]:
        """A JSON object, small and in time."""
        said = _HeaderLines(self._scope).only("content-length") or "0"
        if not said.isdecimal() or len(said) > 9 or int(said) > BODY_BYTES_MAX:
            raise WebRefusal(413, "TooLarge", f"The body has more than {BODY_BYTES_MAX // 1024} KiB.")
        body = bytearray()
        try:
            async with asyncio.timeout(self._guard.body_seconds):
                more = True
                while more:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        raise ClientGone
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > BODY_BYTES_MAX:
                        raise WebRefusal(413, "TooLarge", f"The body has more than {BODY_BYTES_MAX // 1024} KiB.")
        except TimeoutError:
            late = f"The body did not come within {self._guard.body_seconds:g} seconds."
            raise WebRefusal(408, "TooSlow", late) from None
        self._has_body = False
        try:
            given = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise WebRefusal(400, "BadInput", "The body is not JSON.") from None
        if not isinstance(given, dict):
            raise WebRefusal(400, "BadInput", "The body must be a JSON object.")
        return given


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class _HeaderLines:
    """The headers of a request. A header that decides something may be there only once."""

    def __init__(self, scope: Scope) -> None:
        self._lines: Collection[tuple[bytes, bytes]] = scope["headers"]

    def all(self, name: str) -> list[str]:
        own = name.encode()
        return [value.decode("latin-1").strip() for each, value in self._lines if each.lower() == own]

    def only(self, name: str) -> str | None:
        found = self.all(name)
        return found[0] if len(found) == 1 else None

    def cookies(self, name: str) -> list[str]:
        pairs = [each.strip().partition("=") for line in self.all("cookie") for each in line.split(";")]
        return list(dict.fromkeys(value.strip() for own, _, value in pairs if own == name and value))


def _check_write(headers: _HeaderLines, *, has_bearer: bool) -> None:
    """A form or a script of another site cannot send these headers together."""
    if not has_bearer and headers.only("origin") is None:
        raise WebRefusal(403, "BadOrigin", "A write needs the header Origin, or a bearer token.")
    if headers.only("x-dugnad") != "1":
        raise WebRefusal(403, "NoHeader", "A write needs the header `X-Dugnad: 1`.")
    if headers.only("content-type") != "application/json" or headers.all("content-encoding"):
        raise WebRefusal(415, "BadType", "A write needs the header `Content-Type: application/json`, and no encoding.")


def route_path(scope: Scope) -> str:
    """The path below the place where the app is mounted, as the router sees it."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        return path[len(root) :] or "/"
    return path


def _is_plain(scope: Scope, path: str) -> bool:
    """Whether the address was written just so: our addresses need no percent sign, no `..` and no `//`."""
    raw = scope.get("raw_path")
    whole = ".." not in path and "//" not in path
    return whole and (raw is None or bytes(raw).split(b"?")[0].endswith(path.encode()) or path == "/")


def refusal_of(error: Exception) -> WebRefusal:
    """An error of dugnad as an answer, in its own words."""
    status = 400 if isinstance(error, BadInput) else 409 if isinstance(error, Refused | ToolError) else 500
    if isinstance(error, BoardTrouble):
        status = 503
    return WebRefusal(status, type(error).__name__, str(error))
