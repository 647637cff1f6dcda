"""The server of a run's tools, and requests that no good client sends."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dugnad.agent.conversation import Conversation
from dugnad.agent.external.answer import tools_at_hand
from dugnad.agent.external.live import LiveRun
from dugnad.agent.external.tool_server import BODY_BYTES_MAX, CONNECTIONS_MAX, ToolServer
from dugnad.agent.tool_calls import Actor
from dugnad.board import Board
from dugnad.settings import AgentLimits
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.acp_agent import acp_agent
from tests.agent.test_acp import stage_of

GOOD = "Authorization: Bearer right\r\n"
PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})


@pytest.fixture
async def port(board: Board, sandbox: Sandbox, tree: Path, folder: Path) -> AsyncIterator[int]:
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    claim = await stage.begin()
    talk = Conversation(outside=True)
    actor = Actor(
        board=board, claim=claim, teammate=stage.agent.teammate, talk=talk, tools=tools_at_hand(look=False),
        limits=AgentLimits(), now_ms=board.sources.working_ms, doing=lambda text: None,
    )  # fmt: skip
    live = LiveRun(board=board, claim=claim, talk=talk, said=None, actor=actor, command="acp:x", note=lambda text: None)
    server = ToolServer(live, token="right")
    listener = socket.create_server(("127.0.0.1", 0))
    server.serve(listener)
    yield listener.getsockname()[1]
    server.close()


async def answered(port: int, *requests: str) -> str:
    """What comes back until the connection ends, or is not used any more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("".join(requests).encode())
    writer.write_eof()
    found = b""
    with suppress(ConnectionResetError):  # It was closed before all of it was read.
        found = await asyncio.wait_for(reader.read(), 120)
    writer.close()
    return found.decode()


def post(body: str, headers: str = GOOD) -> str:
    return f"POST /mcp HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(body.encode())}\r\n\r\n{body}"


@pytest.mark.parametrize(
    ("request_text", "says"),
    [
        (post(PING), "HTTP/1.1 200 OK"),
        (post(PING, ""), "HTTP/1.1 401 "),
        (post(PING, "Authorization: Bearer rightly\r\n"), "HTTP/1.1 401 "),
        (post(PING, "Authorization: Basic right\r\n"), "HTTP/1.1 401 "),
        (f"GET /mcp HTTP/1.1\r\n{GOOD}\r\n", "HTTP/1.1 405 "),
        (f"DELETE /mcp HTTP/1.1\r\n{GOOD}\r\n", "HTTP/1.1 405 "),
        (f"POST /other HTTP/1.1\r\n{GOOD}\r\n", "HTTP/1.1 404 "),
        (f"POST /mcp HTTP/1.1\r\n{GOOD}\r\n", "HTTP/1.1 411 "),
        (f"POST /mcp HTTP/1.1\r\n{GOOD}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "HTTP/1.1 411 "),
        (f"POST /mcp HTTP/1.1\r\n{GOOD}Content-Length: -1\r\n\r\n", "HTTP/1.1 411 "),
        (f"POST /mcp HTTP/1.1\r\n{GOOD}Content-Length: {BODY_BYTES_MAX + 1}\r\n\r\n", "HTTP/1.1 413 "),
        (f"POST /mcp HTTP/1.1\r\n{GOOD}Content-Length: {'9' * 5_000}\r\n\r\n", "HTTP/1.1 413 "),
        ("POST /mcp HTTP/1.1\r\n" + "A: b\r\n" * 200 + f"{GOOD}\r\n", "HTTP/1.1 400 "),
        (post("{"), "HTTP/1.1 400 "),
        (post("[" * 100_000), "HTTP/1.1 400 "),
        (post("7"), '"code": -32600'),
        (post(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})), "HTTP/1.1 202 "),
        ("hello\r\n\r\n", ""),
        ("POST /mcp SPDY/3\r\n\r\n", ""),
        (f"POST /mcp HTTP/1.1\r\nA: {'b' * 100_000}\r\n\r\n", ""),
        (f"POST /mcp HTTP/1.1\r\n{GOOD}Content-Length: 10\r\n\r\nhalf", ""),
    ],
)  # fmt: skip
async def test_a_request_is_answered_or_refused_and_nothing_hangs(port: int, request_text: str, says: str) -> None:
    found = await answered(port, request_text)
    assert found.startswith(says) if says.startswith("HTTP") or not says else says in found
    assert bool(found) == bool(says)
    assert "HTTP/1.1 200 OK" in await answered(port, post(PING))  # It serves on.


async def test_a_connection_takes_request_after_request_until_one_is_refused(port: int) -> None:
    found = await answered(port, post(PING), post(PING), post(PING, ""), post(PING))
    assert [found.count(each) for each in (" 200 ", " 401 ")] == [2, 1]


async def test_more_connections_than_a_client_needs_are_closed(port: int) -> None:
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
    for reader, writer in held:
        writer.write(post(PING).encode())
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    assert await answered(port, post(PING)) == ""
    for _, writer in held:
        writer.close()


async def test_a_call_without_a_session_is_answered_in_the_newer_form_of_the_protocol(port: int) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    asked: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    found = await answered(port, post(json.dumps(asked)))
    assert '"name": "add_tasks"' in found
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert "initialize" in await answered(port, post(json.dumps(asked)))  # Without either form it is refused.
