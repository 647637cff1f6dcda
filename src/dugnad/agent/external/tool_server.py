"""Our own MCP server for one run: a few tools of the board, for the task that is being worked.

It listens on the loopback of the sandbox, where nobody but the run can reach it, and it wants a token that only this
run is given. It speaks as much HTTP as an MCP client needs: one message is posted, and its answer comes back.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from ...prompts import tell
from ...tools.mcp.serving import PARSE_ERROR, VERSION_KEY, Answer, Call, Link, Offering, ServedTool, error
from ...tools.tool import Tool
from ...workspace.sandbox.destinations import TOOLS_PORT
from .live import LiveRun

BODY_BYTES_MAX = 2 * 1024 * 1024
CONNECTIONS_MAX = 16
_HEAD_BYTES_MAX = 32 * 1024
_HEAD_LINES_MAX = 100
_BODY_SECONDS = 30.0
_PATH = "/mcp"
_REASONS = {200: "OK", 202: "Accepted", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}
_REASONS |= {405: "Method Not Allowed", 411: "Length Required", 413: "Content Too Large"}


class _HttpRefusal(Exception):
    def __init__(self, status: int) -> None:
        self.status = status


class ToolServer:
    """Serves from the moment it is handed a socket until it is closed."""

    def __init__(self, live: LiveRun, *, token: str) -> None:
        self._live, self._token = live, token
        self._offering = Offering(
            version=version("dugnad"), tools=[self._served_tool(each) for each in live.actor.tools.values()],
            instructions=tell("external.tools"),
        )  # fmt: skip
        self._link = Link()  # Of a client that begins with `initialize`; there is one.
        self._port = TOOLS_PORT
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._connections = 0
        self._closed = False

    def told(self) -> Sequence[Mapping[str, Any]]:
        """The server as the session names it; nothing if there is no tool for this run."""
        if not self._offering.tools:
            return ()
        header = {"name": "Authorization", "value": f"Bearer {self._token}"}
        url = f"http://127.0.0.1:{self._port}{_PATH}"
        return ({"type": "http", "name": "dugnad", "url": url, "headers": [header]},)

    def _served_tool(self, tool: Tool) -> ServedTool:
        async def call(made: Call) -> Answer:
            text, refused = await self._live.call(tool.name, json.dumps(made.arguments))
            return Answer(text, refused)

        return ServedTool(spec=tool.spec, call=call, reads=tool.safe)

    def serve(self, listener: socket.socket) -> None:
        self._port = listener.getsockname()[1]
        self._keep(self._listen(listener))

    async def _listen(self, listener: socket.socket) -> None:
        attend = lambda *streams: self._keep(self._attend(*streams))  # noqa: E731
        server = await asyncio.start_server(attend, sock=listener, limit=_HEAD_BYTES_MAX)
        if self._closed:
            server.close()
        self._server = server

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        self._closed = True
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request."""
        self._connections += 1
        try:
            while self._connections <= CONNECTIONS_MAX and await self._take(reader, writer):
                pass
        except (OSError, EOFError, ValueError, TimeoutError):
            pass  # It went away, or it does not speak HTTP.
        finally:
            self._connections -= 1
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer. False: the connection ends."""
        if not (first := await reader.readline()):
            return False
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                headers = await _headers(reader)
                body = await self._body(first, headers, reader)
            status, answer = await self._answered(body)
        except _HttpRefusal as refused:
            status, answer = refused.status, b""
        goes_on = status < 400
        kind = "Content-Type: application/json\r\n" if answer else ""
        end = "" if goes_on else "Connection: close\r\n"
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\n{kind}{end}Content-Length: {len(answer)}\r\n\r\n"
        writer.write(head.encode() + answer)
        await writer.drain()
        return goes_on

    async def _body(self, first: bytes, headers: Mapping[str, str], reader: asyncio.StreamReader) -> bytes:
        method, path, version = first.decode("latin-1").split()
        if not version.startswith("HTTP/1."):
            raise ValueError(version)
        if not hmac.compare_digest(headers.get("authorization", "").encode(), f"Bearer {self._token}".encode()):
            raise _HttpRefusal(401)
        if path != _PATH:
            raise _HttpRefusal(404)
        if method != "POST":  # There is nothing to listen to, and no session to end.
            raise _HttpRefusal(405)
        if not (length := headers.get("content-length", "")).isdecimal() or "transfer-encoding" in headers:
            raise _HttpRefusal(411)
        if len(length) > 12 or int(length) > BODY_BYTES_MAX:
            raise _HttpRefusal(413)
        return await reader.readexactly(int(length))

    async def _answered(self, body: bytes) -> tuple[int, bytes]:
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            return 400, json.dumps(error(None, PARSE_ERROR, "The body is not JSON.")).encode()
        params = message.get("params") if isinstance(message, dict) else None
        meta = params.get("_meta") if isinstance(params, dict) else None
        alone = isinstance(meta, dict) and VERSION_KEY in meta  # Each request of such a client stands alone.
        answer = await self._offering.answer(message, Link() if alone else self._link)
        return (202, b"") if answer is None else (200, json.dumps(answer).encode())


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(_HEAD_LINES_MAX):
        line = (await reader.readline()).decode("latin-1").rstrip("\r\n")
        if not line:
            return found
        name, _, value = line.partition(":")
        found[name.strip().lower()] = value.strip()
    raise _HttpRefusal(400)
