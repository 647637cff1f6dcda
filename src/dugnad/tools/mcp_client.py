"""The line to one MCP server: started with the first call, shared by a host's teammates, bounded in every way.

The only place that knows the protocol's SDK, which is imported when a server is first needed. A server is not trusted:
one that hangs, floods, dies, talks nonsense or changes what it offers costs its own calls an error and nothing else.
It is asked for tools and nothing more, and what it asks of us (a model's answer, a person's, our folders) is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

from .. import __version__
from ..errors import ToolError
from .mcp import TOOLS_MAX, Offer, Server, hash_of, result_text, text_of
from .quote import one_line

STARTS_MAX = 6  # In one process: the first, and five more after it ended or was dropped.
START_SECONDS = 60.0  # Until it has said what it offers; a package may have to be fetched.
LIST_SECONDS = 10.0  # For a list of tools, once it runs.
LIST_AGAIN_SECONDS = 60.0  # From so long after the last list on, a call asks for it anew.
_LISTS_MAX = 1_000  # Of one connection.
_PAGES_MAX = 20
_CLOSE_SECONDS = 5.0
_LINE_BYTES_MAX = 8 * 1024 * 1024
_STREAM_BYTES_MAX = 64 * 1024 * 1024  # Of one HTTP response, events together.
_UNASKED_MAX = 2_000  # Messages between two answers.
_GARBAGE_MAX = 200  # Lines that are no message: some servers print a word or two where they should not.
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Piped(Protocol):
    """A command that runs in the sandbox, with its ends."""

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader

    def errors(self) -> str: ...

    async def close(self) -> None: ...


OpenPiped = Callable[[], AbstractAsyncContextManager[Piped]]


class Line:
    """`approved`: the text that a person agreed to; a server that says anything else is withdrawn. None: only looking."""

    def __init__(self, server: Server, *, approved: str | None, open_piped: OpenPiped | None = None) -> None:
        self.server = server
        self.withdrawn = ""  # Why nothing of it may be used any more.
        self._approved = approved
        self._open_piped = open_piped
        self._starts = 0
        self._starting = asyncio.Lock()
        self._session: Any = None
        self._keeper: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()  # The keeper has something to do: list anew, or end.
        self._listed = asyncio.Event()  # What it offers is known to be what was approved.
        self._listed_at = 0.0
        self._closed = False
        self._why = ""  # It ended, or has to.
        self._status = ""  # What an HTTP server last said instead of an answer.
        self._offers: tuple[Offer, ...] = ()

    async def offers(self) -> tuple[Offer, ...]:
        """What it offers right now."""
        await self._ready()
        return self._offers

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """ToolError: the server refused, failed, or is not to be used; the sentence is for the model."""
        import mcp_types as types
        from mcp import MCPError
        from pydantic import TypeAdapter, ValidationError

        session = await self._ready()
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        # Not the session's own call_tool: it checks results with expressions that the server chose, and those can hang.
        answers: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
        seconds = self.server.seconds
        try:
            async with asyncio.timeout(seconds + 1):  # Behind the session's own, which does not count the sending.
                result = await session.send_request(request, answers, request_read_timeout_seconds=seconds)
        except MCPError as refused:
            if refused.code == types.CONNECTION_CLOSED:
                await self._ended()
                raise ToolError(f"{self._who} ended during the call, which may have happened: {self._why}") from None
            if refused.code == types.REQUEST_TIMEOUT:
                raise self._too_slow(seconds) from None
            if refused.message == "Session terminated":  # By the server's restart, say; the next call begins anew.
                await self._drop("it ended the session")
            raise ToolError(f"{self._who} refused: {one_line(refused.message, 2_000)}") from None
        except TimeoutError:
            raise self._too_slow(seconds) from None
        except ValidationError:
            raise ToolError(f"{self._who} answered with something that is no result.") from None
        if isinstance(result, types.InputRequiredResult):
            raise ToolError(f"{self._who} asks for a person or a model before it answers, and is given neither.")
        text = result_text(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        if result.is_error:
            raise ToolError(text)
        return text

    async def close(self) -> None:
        """For good."""
        self._closed = True
        async with self._starting:
            await self._drop("it was closed")

    # Being there.

    @property
    def _who(self) -> str:
        return f"The MCP server {self.server.name}"

    async def _ready(self) -> Any:
        """The session, started if need be, and with a list of tools that is not old."""
        if self.withdrawn:
            raise ToolError(self.withdrawn)
        async with self._starting:
            if self._keeper is None or self._keeper.done():
                await self._start()
        if asyncio.get_running_loop().time() - self._listed_at > LIST_AGAIN_SECONDS:
            self._list_anew()
        keeper, session = self._keeper, self._session
        assert keeper is not None
        listed = asyncio.ensure_future(self._listed.wait())
        await asyncio.wait({listed, keeper}, return_when=asyncio.FIRST_COMPLETED)
        listed.cancel()
        if self.withdrawn:
            raise ToolError(self.withdrawn)
        if not self._listed.is_set():
            raise ToolError(f"{self._who} ended: {self._why}")
        return session

    async def _start(self) -> None:
        if self._closed:
            raise ToolError(f"{self._who} was closed with its host.")
        if missing := self.server.missing:
            raise ToolError(f"{self._who} needs {' and '.join(missing)} in the environment, which is not set.")
        if self._starts >= STARTS_MAX:
            raise ToolError(f"{self._who} ended {self._starts} times and is not started again here: {self._why}")
        self._starts += 1
        self._why, self._status, self._session = "", "", None
        self._wake.clear()
        self._listed.clear()
        self._keeper = asyncio.create_task(self._keep(), name=f"mcp {self.server.name}")
        listed = asyncio.ensure_future(self._listed.wait())
        await asyncio.wait({listed, self._keeper}, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        listed.cancel()
        if not self._listed.is_set() and not self._keeper.done():
            await self._drop(f"it said nothing of its tools for {START_SECONDS:g} seconds")
        if not self._listed.is_set():
            raise ToolError(self.withdrawn or f"{self._who} did not start: {self._why}")

    async def _keep(self) -> None:
        """The connection's life. The SDK's contexts must be left by the task that entered them: this one."""
        from mcp import ClientSession
        from mcp_types import Implementation

        for name in ("mcp", "client"):  # What the SDK logs would be printed over the live view.
            logging.getLogger(name).addHandler(logging.NullHandler())
        me = Implementation(name="dugnad", version=__version__)
        try:
            async with self._streams() as (read, write), ClientSession(
                read, write, client_info=me, message_handler=self._heard, read_timeout_seconds=START_SECONDS
            ) as session:  # fmt: skip
                await _greet(session)
                self._session = session
                await self._list(session, START_SECONDS)
                for _ in range(_LISTS_MAX):
                    await self._wake.wait()
                    self._wake.clear()
                    if self._why:
                        return
                    await self._list(session, LIST_SECONDS)
                self._why = "it changes its list of tools all the time"
        except asyncio.CancelledError:
            raise
        except Exception as trouble:  # Whatever it is, it ends this server alone.
            self._why = self._why or self._status or _sentence(trouble)
        finally:
            self._session = None
            self._listed.clear()

    async def _list(self, session: Any, seconds: float) -> None:
        import mcp_types as types

        offers: list[Offer] = []
        cursor: str | None = None
        async with asyncio.timeout(seconds):
            for _ in range(_PAGES_MAX):
                params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
                page = await session.list_tools(params=params)
                offers += [Offer(each.name, each.description or "", each.input_schema) for each in page.tools]
                cursor = page.next_cursor
                if not cursor or len(offers) > TOOLS_MAX:
                    break
        text = text_of(self.server, offers)
        if self._approved is not None and text != self._approved:
            self._why = "its tools changed"
            self.withdrawn = (
                f"{self._who} offers other tools than were approved ({hash_of(text)[:12]}), so none of it is used: "
                f"dugnad servers approve {self.server.name}"
            )
            raise ToolError(self.withdrawn)
        self._offers = tuple(offers)
        self._listed_at = asyncio.get_running_loop().time()
        self._listed.set()

    def _list_anew(self) -> None:
        self._listed.clear()
        self._wake.set()

    async def _heard(self, message: Any) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._list_anew()

    def _too_slow(self, seconds: float) -> ToolError:
        self._list_anew()  # If it does not answer that either, it is dropped.
        return ToolError(f"{self._who} did not answer for {seconds:g} seconds; it may still be at it.")

    async def _ended(self) -> None:
        """Wait until the keeper knows why."""
        if self._keeper is not None:
            await asyncio.wait({self._keeper}, timeout=_CLOSE_SECONDS)
        self._why = self._why or "the connection was closed."

    async def _drop(self, why: str) -> None:
        self._why = self._why or why
        self._wake.set()
        if self._keeper is not None and not self._keeper.done():
            await asyncio.wait({self._keeper}, timeout=_CLOSE_SECONDS)
            self._keeper.cancel()
            await asyncio.wait({self._keeper}, timeout=_CLOSE_SECONDS)

    # The two ways to reach one.

    def _streams(self) -> AbstractAsyncContextManager[Any]:
        return self._over_http(self.server.url) if self.server.url else self._over_pipes()

    @asynccontextmanager
    async def _over_http(self, url: str) -> AsyncIterator[Any]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        async def bound(response: httpx2.Response) -> None:
            if response.status_code >= 400 and response.request.method == "POST":
                self._status = f"it answered {response.status_code} {one_line(response.reason_phrase, 60)}"
            response.stream = _Bounded(response.stream)

        timeout = httpx2.Timeout(30.0, read=max(START_SECONDS, self.server.seconds) + LIST_AGAIN_SECONDS)
        # A proxy of the environment is not for this machine itself.
        outside = urlsplit(url).hostname not in LOOPBACK
        headers = self.server.filled(self.server.headers)
        async with (
            httpx2.AsyncClient(
                headers=headers, timeout=timeout, trust_env=outside, event_hooks={"response": [bound]}
            ) as client,
            streamable_http_client(url, http_client=client) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def _over_pipes(self) -> AsyncIterator[Any]:
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import JSONRPCResponse, jsonrpc_message_adapter

        if self._open_piped is None:
            raise ToolError("there is no sandbox to run it in")
        to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, from_session = anyio.create_memory_object_stream[SessionMessage](0)

        async def listen(piped: Piped) -> None:
            unasked = garbage = 0
            try:
                async for line in _lines(piped.stdout):
                    try:
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError:
                        garbage += 1
                        if garbage > _GARBAGE_MAX:
                            raise ToolError("it prints what is no message, again and again") from None
                        continue
                    unasked = 0 if isinstance(message, JSONRPCResponse) else unasked + 1
                    if unasked > _UNASKED_MAX:
                        raise ToolError(f"it sent {_UNASKED_MAX:,} messages nobody asked for")
                    await to_session.send(SessionMessage(message))
                self._why = self._why or f"it ended{_last_words(piped)}"
            except ToolError as trouble:
                self._why = self._why or str(trouble)
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._why = self._why or f"it broke off{_last_words(piped)}"
            to_session.close()  # Whoever waits for an answer hears of it.
            self._wake.set()

        async def speak(piped: Piped) -> None:
            try:
                async for sent in from_session:
                    line = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                    piped.stdin.write(line.encode() + b"\n")
                    await piped.stdin.drain()
            except OSError:
                pass  # It ended; the other side tells why.

        async with (
            self._open_piped() as piped,
            to_session,
            read,
            write,
            from_session,
            anyio.create_task_group() as group,
        ):
            group.start_soon(listen, piped)
            group.start_soon(speak, piped)
            try:
                yield read, write
            finally:
                group.cancel_scope.cancel()


async def _greet(session: Any) -> None:
    """As every server of the last years is greeted; then as those that know only the newest way."""
    import mcp_types as types
    from mcp import MCPError

    try:
        await session.initialize()
    except MCPError as refused:
        if refused.code in (types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT):
            raise
        await session.discover()


async def _lines(stdout: asyncio.StreamReader) -> AsyncIterator[bytes]:
    kept = b""
    while chunk := await stdout.read(64 * 1024):
        *lines, kept = (kept + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(kept) > _LINE_BYTES_MAX:
            raise ToolError(f"it sent a line of more than {_LINE_BYTES_MAX // 1024 // 1024} MiB")


class _Bounded:
    """The body of a response, up to a bound."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > _STREAM_BYTES_MAX:
                raise ToolError(f"it sent more than {_STREAM_BYTES_MAX // 1024 // 1024} MiB at once")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _last_words(piped: Piped) -> str:
    said = piped.errors().strip().splitlines()
    return f", saying: {one_line(said[-1], 200)}" if said else ""


def _sentence(trouble: BaseException) -> str:
    """The first real reason inside whatever groups the SDK made of it."""
    while isinstance(trouble, BaseExceptionGroup):
        trouble = trouble.exceptions[0]
    if isinstance(trouble, TimeoutError):
        return "it did not answer in time"
    return one_line(str(trouble) or type(trouble).__name__, 300).removesuffix(".")
