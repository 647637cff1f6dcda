"""The two ways to an MCP server: pipes of a command in the sandbox, and HTTP. What a server sends is bounded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from ...errors import ToolError
from ...text import one_line
from ...workspace.sandbox.pipes import read_lines
from .offer import Server

if TYPE_CHECKING:
    import httpx2

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
LINE_BYTES_MAX = 8 * 1024 * 1024
RESPONSE_BYTES_MAX = 64 * 1024 * 1024  # Of one HTTP response, its events together.
UNASKED_MAX = 2_000  # Messages between two answers.
GARBAGE_MAX = 200  # Lines that are not messages: some servers print a few where they should not.
_CONNECT_SECONDS = 30.0
_HALF = (b"\\ud", b"\\uD")  # How JSON may write a surrogate.
_READ_SECONDS = 900.0  # Longer than any call may take; each call has its own timeout.


class PipeTransport(Protocol):
    """A running command in the sandbox."""

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader

    def errors(self) -> str: ...


OpenPiped = Callable[[], AbstractAsyncContextManager[PipeTransport]]


@asynccontextmanager
async def over_http(server: Server, url: str, *, answered: Callable[[int, str], None]) -> AsyncIterator[Any]:
    """The streams of a session. `answered` gets the status of a failed request. Redirects to another server are not
    followed, so it does not get the headers."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def look(response: httpx2.Response) -> None:
        if response.status_code >= 400 and response.request.method == "POST":
            answered(response.status_code, response.reason_phrase)
        response.stream = _bounded(response.stream)

    # A proxy of the environment is not for this machine itself.
    outside = urlsplit(url).hostname not in LOOPBACK
    client = httpx2.AsyncClient(
        headers=server.filled(server.headers), timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS),
        trust_env=outside, event_hooks={"response": [look]},
    )  # fmt: skip
    async with client, streamable_http_client(url, http_client=client) as streams:
        yield streams


def _bounded(stream: Any) -> httpx2.AsyncByteStream:
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in stream:
                size += len(chunk)
                if size > RESPONSE_BYTES_MAX:
                    raise ToolError(f"it sent more than {RESPONSE_BYTES_MAX // 1024 // 1024} MiB at once")
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


@asynccontextmanager
async def over_pipes(open_piped: OpenPiped | None, *, ended: Callable[[str], None]) -> AsyncIterator[Any]:
    """The streams of a session. `ended` gets the reason for its end before the waiting calls fail."""
    import anyio
    from mcp.shared.message import SessionMessage

    if open_piped is None:
        raise ToolError("there is no sandbox to run it in")
    to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_session = anyio.create_memory_object_stream[SessionMessage](0)

    async def listen(piped: PipeTransport) -> None:
        try:
            async for message in _messages(piped.stdout):
                await to_session.send(SessionMessage(message))
            ended(f"it ended{_last_words(piped)}")
        except ToolError as trouble:
            ended(str(trouble))
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            ended(f"it broke off{_last_words(piped)}")
        to_session.close()

    async def speak(piped: PipeTransport) -> None:
        try:
            async for sent in from_session:
                line = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                piped.stdin.write(line.encode() + b"\n")
                await piped.stdin.drain()
        except OSError:
            pass  # It ended; `listen` says why.

    async with open_piped() as piped, to_session, read, write, from_session, anyio.create_task_group() as group:
        group.start_soon(listen, piped)
        group.start_soon(speak, piped)
        try:
            yield read, write
        finally:
            group.cancel_scope.cancel()


def in_whole(value: Any) -> bytes:
    """As JSON, without halves of surrogate pairs: the SDK can neither send nor read them."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")


async def _messages(stdout: asyncio.StreamReader) -> AsyncIterator[Any]:
    from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

    unasked = garbage = 0
    async for line in read_lines(stdout, LINE_BYTES_MAX):
        try:
            whole = in_whole(json.loads(line)) if any(each in line for each in _HALF) else line
            message = jsonrpc_message_adapter.validate_json(whole, by_name=False)
        except (ValueError, RecursionError):
            garbage += 1
            if garbage > GARBAGE_MAX:
                raise ToolError("it sends lines that are not messages") from None
            continue
        unasked = 0 if isinstance(message, JSONRPCResponse | JSONRPCError) else unasked + 1
        if unasked > UNASKED_MAX:
            raise ToolError(f"it sent {UNASKED_MAX:,} messages that were not asked for")
        yield message


def _last_words(piped: PipeTransport) -> str:
    said = piped.errors().strip().splitlines()
    return f", saying: {one_line(said[-1], 200)}" if said else ""
