"""An MCP server over HTTP: one POST is one message, and its response is the answer. It is a plain ASGI app.

There is no session: a bearer token says who calls, so it works for both eras of the protocol. The server
around it checks Host and Origin first. Bodies and calls at once are bounded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from .lines import parsed
from .serving import (
    BUSY,
    HANDSHAKE,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MODERN,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    Json,
    Link,
    Offering,
    error,
)

BODY_BYTES_MAX = 1024 * 1024
BODY_SECONDS_MAX = 10.0
AT_ONCE_MAX = 8  # Calls of one token.
TOKEN_CHARS_MAX = 200
_STATUS = {
    PARSE_ERROR: 400, INVALID_REQUEST: 400, INVALID_PARAMS: 400, HEADER_MISMATCH: 400, UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}  # fmt: skip
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _BadPost(Exception):
    def __init__(self, status: int, message: str, code: int = INVALID_REQUEST) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(kw_only=True)
class McpEndpoint:
    """`admit`: what the holder of a token is offered; None: the token is not known."""

    admit: Callable[[str], Awaitable[Offering | None]]
    body_seconds: float = BODY_SECONDS_MAX
    _under_way: Counter[str] = field(default_factory=Counter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = _Headers(scope)
        try:
            if scope["method"] != "POST":
                raise _BadPost(405, "Only POST is answered here; there is no session to listen to or to end.")
            token = headers.bearer()
            offering = await self.admit(token) if token is not None else None
            if token is None or offering is None:
                raise _BadPost(401, "A bearer token of this board is needed; `dugnad mcp token NAME` makes one.")
            if self._under_way[token] >= AT_ONCE_MAX:
                raise _BadPost(429, "Too many calls at once; wait for the answers of some.", BUSY)
            self._under_way[token] += 1
            try:
                await self._answer(offering, headers, receive, send)
            finally:
                self._under_way[token] -= 1
                self._under_way += Counter()  # Without those that are at zero.
        except _BadPost as refused:
            more = [(b"www-authenticate", b"Bearer")] if refused.status == 401 else []
            more += [(b"allow", b"POST")] if refused.status == 405 else []
            more.append((b"connection", b"close"))  # Nobody reads the rest of the body.
            await _respond(send, refused.status, error(None, refused.code, str(refused)), more)

    async def _answer(self, offering: Offering, headers: _Headers, receive: Receive, send: Send) -> None:
        if (headers.only("content-type") or "").partition(";")[0].strip().lower() != "application/json":
            raise _BadPost(415, "The body must be JSON, and the header Content-Type must say so.")
        message = parsed(await _body(headers, receive, self.body_seconds))
        if not isinstance(message, dict):
            raise _BadPost(400, "The body must be one JSON-RPC message.", PARSE_ERROR)
        link = _link(message, headers)
        if "id" not in message:
            await _respond(send, 202, None)
            return
        working = asyncio.ensure_future(offering.answer(message, link))
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                answer = working.result()
                wrong = answer.get("error") if answer is not None else None
                status = _STATUS.get(wrong["code"], 200) if wrong and link.modern else 200
                await _respond(send, status, answer)
        finally:
            for each in (working, gone):
                each.cancel()
            await asyncio.gather(working, gone, return_exceptions=True)


class _Headers:
    """The headers of a request. One that decides something may be there only once."""

    def __init__(self, scope: Scope) -> None:
        self._lines = [(name.lower(), value.decode("latin-1").strip()) for name, value in scope["headers"]]

    def only(self, name: str) -> str | None:
        found = [value for each, value in self._lines if each == name.encode()]
        return found[0] if len(found) == 1 else None

    def count(self, name: str) -> int:
        return sum(each == name.encode() for each, _ in self._lines)

    def bearer(self) -> str | None:
        scheme, _, token = (self.only("authorization") or "").partition(" ")
        token = token.strip()
        return token if scheme.lower() == "bearer" and 0 < len(token) <= TOKEN_CHARS_MAX else None


def _link(message: Json, headers: _Headers) -> Link:
    """What the headers say of the client. They must agree with the body, since others on the way may read them."""
    said, params = headers.only("mcp-protocol-version"), message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    inside = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    if headers.count("mcp-protocol-version") > 1 or headers.count("mcp-method") > 1:
        raise _BadPost(400, "A header of the protocol is there twice.", HEADER_MISMATCH)
    if (said in MODERN or inside is not None) and said != inside and message.get("method") != "initialize":
        raise _BadPost(400, "The header MCP-Protocol-Version and the body do not agree.", HEADER_MISMATCH)
    if (method := headers.only("mcp-method")) is not None and method != message.get("method"):
        raise _BadPost(400, "The header Mcp-Method and the body do not agree.", HEADER_MISMATCH)
    if said is not None and said not in (*HANDSHAKE, *MODERN):
        raise _BadPost(400, "This version of the protocol is not served.", UNSUPPORTED_VERSION)
    # A client of the older era was greeted in another request.
    known = inside is None and message.get("method") != "initialize"
    return Link(version=said or HANDSHAKE[1] if known else "")


async def _body(headers: _Headers, receive: Receive, seconds: float) -> bytes:
    too_large = f"The body has more than {BODY_BYTES_MAX // 1024} KiB."
    said = headers.only("content-length") or "0"
    if not said.isdecimal() or len(said) > 9 or int(said) > BODY_BYTES_MAX:
        raise _BadPost(413, too_large)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            more = True
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise _BadPost(400, "The body did not come.")
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > BODY_BYTES_MAX:
                    raise _BadPost(413, too_large)
    except TimeoutError:
        raise _BadPost(408, f"The body did not come within {seconds:g} seconds.") from None
    return bytes(body)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _respond(
    send: Send, status: int, answer: Json | None, more: list[tuple[bytes, bytes]] | None = None
) -> None:  # fmt: skip
    body = b"" if answer is None else orjson.dumps(answer)
    lines = [(b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store"), *(more or ())]
    lines += [(b"content-type", b"application/json")] if answer is not None else []
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})
