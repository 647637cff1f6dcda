"""The connection to one MCP server: started with the first call, and shared by a host's teammates.

Only this module and `transport` know the protocol's SDK, which is imported when a server is first needed. A server is
not trusted: if it hangs, floods us, dies, sends nonsense or changes its tools, only its own calls fail. It is asked for
tools alone. Its own requests (for a model's answer, a person's, or our folders) are refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ...errors import ToolError
from ...logs import about, logger
from ...text import one_line
from .offer import TOOLS_MAX, Offer, Server, hash_of, result_text, text_of
from .transport import OpenPiped, in_whole, over_http, over_pipes

_LOG = logger(__name__)
_PAGES_MAX = 20  # Of one list of tools.


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLimits:
    """How long to wait for a server, and how often to start it."""

    starts_max: int = 6  # In one process: the first, and five more after it ended or was dropped.
    start_seconds: float = 60.0  # Until it has listed its tools; a package may have to be fetched first.
    list_seconds: float = 10.0  # For a list of tools, once it runs.
    list_again_seconds: float = 60.0  # After this time a call asks for the list again.
    changes_max: int = 50  # How often it may say that its list changed.
    close_seconds: float = 5.0


class McpConnection:
    """`approved`: the text that a person approved; a server with another text is withdrawn. None: we only look."""

    def __init__(
        self, server: Server, *, approved: str | None, open_piped: OpenPiped | None = None,
        limits: LineLimits | None = None,
    ) -> None:  # fmt: skip
        self.server, self.limits = server, limits or LineLimits()
        self.withdrawn = ""  # Why none of its tools may be used any more.
        self._approved, self._open_piped = approved, open_piped
        self._starts = self._changes = 0
        self._starting = asyncio.Lock()
        self._session: Any = None
        self._keeper: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()  # The keeper has something to do: list the tools again, or end.
        self._began = asyncio.Event()  # It has listed its tools once.
        self._listed = asyncio.Event()  # The current list is known, and approved.
        self._listed_at = 0.0
        self._closed = False
        self._why = ""  # Why it ended, or has to end.
        self._status = ""  # The last error status of an HTTP server.
        self._offers: tuple[Offer, ...] = ()

    async def offers(self) -> tuple[Offer, ...]:
        """The tools that it offers now."""
        await self._ready()
        return self._offers

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """ToolError: the server refused, failed, or must not be used; the model reads the sentence."""
        import mcp_types as types
        from mcp import MCPError
        from pydantic import TypeAdapter, ValidationError

        session = await self._ready()
        given = json.loads(in_whole(arguments))
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=given))
        # The session's own call_tool checks results with regular expressions of the server, which can hang.
        answers: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
        seconds = self.server.seconds
        try:
            async with asyncio.timeout(seconds + 1):  # The session's own timeout does not count the sending.
                result = await session.send_request(request, answers, request_read_timeout_seconds=seconds)
        except MCPError as refused:
            if refused.code == types.CONNECTION_CLOSED:
                await self._ended()
                raise ToolError(
                    f"{self._who} ended during the call, which may have taken effect: {self._why}"
                ) from None
            if refused.code == types.REQUEST_TIMEOUT:
                raise self._too_slow(seconds) from None
            raise ToolError(f"{self._who} refused: {one_line(self._safe(refused.message), 2_000)}") from None
        except TimeoutError:
            raise self._too_slow(seconds) from None
        except ValidationError:
            raise ToolError(f"{self._who} sent an answer that is not a result.") from None
        if isinstance(result, types.InputRequiredResult):
            raise ToolError(f"{self._who} asks for input from a person or a model, which it does not get.")
        text = self._safe(result_text(result.model_dump(mode="json", by_alias=True, exclude_none=True)))
        if result.is_error:
            raise ToolError(text)
        return text

    async def close(self) -> None:
        self._closed = True
        await self._drop("it was closed")

    @property
    def _who(self) -> str:
        return f"The MCP server {self.server.name}"

    async def _ready(self) -> Any:
        """The session, started if necessary, and with a recent list of tools."""
        if self.withdrawn:
            raise ToolError(self.withdrawn)
        async with self._starting:
            if self._keeper is None or self._keeper.done():
                await self._start()
        if asyncio.get_running_loop().time() - self._listed_at > self.limits.list_again_seconds:
            self._list_anew()
        session = self._session
        if not await self._comes(self._listed):
            raise ToolError(self.withdrawn or f"{self._who} ended: {self._why}")
        return session

    async def _comes(self, event: asyncio.Event, seconds: float | None = None) -> bool:
        """Whether it happens before the server ends, and in time."""
        assert self._keeper is not None
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({waiting, self._keeper}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        return waiting.done() and not waiting.cancelled() and not self._keeper.done()

    async def _start(self) -> None:
        if self._closed:
            raise ToolError(f"{self._who} was closed with its host.")
        if missing := self.server.missing:
            raise ToolError(f"{self._who} needs {' and '.join(missing)} in the environment; set what is missing.")
        if self._starts >= self.limits.starts_max:
            raise ToolError(f"{self._who} ended {self._starts} times and is not started again here: {self._why}")
        self._starts += 1
        self._why, self._status, self._session, self._changes = "", "", None, 0
        for event in (self._wake, self._began, self._listed):
            event.clear()
        self._keeper = asyncio.create_task(self._keep(), name=f"mcp {self.server.name}")
        if await self._comes(self._began, self.limits.start_seconds):
            return
        await self._drop(f"it did not list its tools within {self.limits.start_seconds:g} seconds")
        raise ToolError(self.withdrawn or f"{self._who} did not start: {self._why}")

    async def _keep(self) -> None:
        """Holds the connection. The SDK's contexts must be left by the task that entered them, which is this one."""
        from mcp import ClientSession
        from mcp_types import Implementation

        about(task=None, attempt=None, teammate=None)  # It serves other calls than the one that started it.
        for name in ("mcp", "client"):  # The SDK's log lines would be printed over the live view.
            logging.getLogger(name).addHandler(logging.NullHandler())
        me = Implementation(name="dugnad", version=version("dugnad"))
        try:
            async with self._streams() as (read, write), ClientSession(
                read, write, client_info=me, message_handler=self._heard, read_timeout_seconds=self.limits.start_seconds
            ) as session:  # fmt: skip
                await _greet(session)
                self._session = session
                await self._list(session, self.limits.start_seconds)
                self._began.set()
                _LOG.info("server-started server=%s tools=%d", self.server.name, len(self._offers))
                while not self._why:
                    await self._wake.wait()
                    self._wake.clear()
                    if not self._why:
                        await self._list(session, self.limits.list_seconds)
        except Exception as trouble:  # Any trouble ends this server alone.
            self._why = self._why or self._status or self._safe(_sentence(trouble))
            name, withdrawn = self.server.name, bool(self.withdrawn)
            _LOG.warning("server-ended server=%s withdrawn=%s why=%s", name, withdrawn, self._why)
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
                f"{self._who} offers other tools than were approved ({hash_of(text)[:12]}), so none of them is used: "
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
            self._changes += 1
            if self._changes > self.limits.changes_max:
                self._why = self._why or "it changes its list of tools too often"
            self._list_anew()

    def _too_slow(self, seconds: float) -> ToolError:
        self._list_anew()  # If it does not answer that either, it is dropped.
        return ToolError(f"{self._who} did not answer within {seconds:g} seconds; the call may still run.")

    async def _ended(self) -> None:
        """Wait until the keeper knows why."""
        if self._keeper is not None:
            await asyncio.wait({self._keeper}, timeout=self.limits.close_seconds)
        self._why = self._why or "the connection was closed"

    async def _drop(self, why: str) -> None:
        self._why = self._why or why
        self._wake.set()
        if self._keeper is not None and not self._keeper.done():
            if self._began.is_set():  # Before that it does not wait for the event.
                await asyncio.wait({self._keeper}, timeout=self.limits.close_seconds)
            self._keeper.cancel()
            await asyncio.wait({self._keeper}, timeout=self.limits.close_seconds)

    def _streams(self) -> AbstractAsyncContextManager[Any]:
        if self.server.url:
            return over_http(self.server, self.server.url, answered=self._answered)
        return over_pipes(self._open_piped, ended=self._ends)

    def _safe(self, text: str) -> str:
        return self.server.without_secrets(text)

    def _answered(self, status: int, phrase: str) -> None:
        self._status = f"it answered {status} {one_line(self._safe(phrase), 60)}"
        if status == 404 and self._session is not None:
            self._ends("it forgot the session")  # After a restart, for example; the next call begins a new one.

    def _ends(self, why: str) -> None:
        self._why = self._why or self._safe(why)
        self._wake.set()


async def _greet(session: Any) -> None:
    """First as older servers expect it, then as servers expect it that know only the newest protocol."""
    import mcp_types as types
    from mcp import MCPError

    try:
        await session.initialize()
    except MCPError as refused:
        if refused.code in (types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT):
            raise
        await session.discover()


def _sentence(trouble: BaseException) -> str:
    """The first reason inside the exception groups of the SDK."""
    while isinstance(trouble, BaseExceptionGroup):
        trouble = trouble.exceptions[0]
    if isinstance(trouble, TimeoutError) or str(trouble).endswith(" timed out"):
        return "it did not answer in time"
    said = one_line(str(trouble) or type(trouble).__name__, 300).removesuffix(".")
    return f"it cannot be reached ({said})" if type(trouble).__module__.startswith("httpx2") else said
