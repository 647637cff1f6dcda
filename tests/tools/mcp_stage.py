"""What the tests of MCP servers share: servers of ours, real ones, in the sandbox and on loopback."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from dugnad.team.servers import piped
from dugnad.tools.mcp.client import LineLimits, McpConnection
from dugnad.tools.mcp.offer import Server, text_of
from dugnad.workspace.sandbox.sandbox import Sandbox

HERE = Path(__file__).parent
PYTHON = "/usr/bin/python3"
MARK = f"of-{os.getpid()}"  # Tells our servers from those of tests that run beside.
PATIENT = LineLimits(list_seconds=30)  # The machine may be busy with other tests.


def plain(kind: str, **more: Any) -> Server:
    """The server of mcp_plain.py that behaves in this way."""
    command = (PYTHON, str(HERE / "mcp_plain.py"), kind, MARK)
    return Server(**{"name": "tried", "command": command, "readable": (str(HERE),), "seconds": 20.0, **more})


def running(kind: str) -> list[int]:
    """Servers of this kind that are alive."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline()[-2:] == [kind, MARK] and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            pass
    return found


def line_to(
    server: Server, sandbox: Sandbox, *, approved: str | None = None, limits: LineLimits = PATIENT
) -> McpConnection:
    return McpConnection(server, approved=approved, open_piped=partial(piped, server, sandbox, None), limits=limits)


async def approved_text(server: Server, sandbox: Sandbox) -> str:
    line = line_to(server, sandbox)
    try:
        return text_of(server, await line.offers())
    finally:
        await line.close()


@asynccontextmanager
async def over_http(again: str = "") -> AsyncIterator[str]:
    """The address of a server made with the SDK, on loopback; that of an earlier one, if it is to be had again."""
    port = str(urlsplit(again).port or 0)
    running = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "mcp_sdk.py"), "http", port, stdout=asyncio.subprocess.PIPE
    )
    assert running.stdout is not None
    try:
        async with asyncio.timeout(120):
            url = (await running.stdout.readline()).decode().strip()
        yield url
    finally:
        running.kill()
        await running.wait()


class Asked:
    """A plain HTTP server that answers everything in one way, and remembers what it was sent."""

    def __init__(self, status: str, headers: str = "", body: bytes = b"") -> None:
        self.answer = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body
        self.heads: list[str] = []

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head.decode())
                fields = dict(each.split(": ", 1) for each in head.decode().lower().split("\r\n")[1:] if each)
                await reader.readexactly(int(fields.get("content-length", "0")))
                writer.write(self.answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def answering(asked: Asked) -> AsyncIterator[str]:
    server = await asyncio.start_server(asked.take, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
