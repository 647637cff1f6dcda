"""The line to one MCP server: started with the first call, shared by a host's teammates, bounded in every way.

Only this module and `mcp_wire` know the protocol's SDK, which is imported when a server is first needed. A server is
not trusted: one that hangs, floods, dies, talks nonsense or changes what it offers costs its own calls an error and
nothing else. It is asked for tools alone; what it asks of us (a model's answer, a person's, our folders) is refused.
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
    """How long and how often a server is borne with."""

    starts_max: int = 6  # In one process: the first, and five more after it ended or was dropped.
    start_seconds: float = 60.0  # Until it has said what it offers; a package may have to be fetched.
    list_seconds: float = 10.0  # For a list of tools, once it runs.
    list_again_seconds: float = 60.0  # From so long after the last list on, a call asks for it anew.
    changes_max: int = 50  # Times it may say that its list changed.
    close_seconds: float = 5.0


class McpConnection:
    """`approved`: the text a person agreed to; a server that says anything else is withdrawn. None: we only look."""

    def __init__(
        self, server: Server, *, approved: str | None, open_piped: OpenPiped | None = None,
        limits: LineLimits | None = None,
    ) -> None:  # fmt: skip
        self.server = server
        self.limits = limits or LineLimits()
        self.withdrawn = ""  # Why nothing of it may be used any more.
        self._approved = approved
        self._open_piped = open_piped
        self._starts = 0
        self._starting = asyncio.Lock()
        self._session: Any = None
        self._keeper: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()  # The keeper has something to do: list anew, or end.
        self._began = asyncio.Event()  # It has said once what it offers.
        self._listed = asyncio.Event()  # What it offers is known to be what was approved.
        self._changes = 0
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
        given = json.loads(in_whole(arguments))
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=given))
        # Not the session's own call_tool: it checks results with expressions that the server chose, and those can hang.
        answers: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
        seconds = self.server.seconds
        try:
            async with asyncio.timeout(seconds + 1):  # Behind the session's own, which does not count the sending.
                result = await session.send_request(request, answers, request_read_timeout_seconds=seconds)
        except MCPError as refused:
            if refused.code == types.CONNECTION_CLOSED:
                await self._ended()
                raise ToolError(
                    f"{self._who} was lost during the call, which may have had its effect: {self._why}"
                ) from None
            if refused.code == types.REQUEST_TIMEOUT:
                raise self._too_slow(seconds) from None
            raise ToolError(f"{self._who} refused: {one_line(self._safe(refused.message), 2_000)}") from None
        except TimeoutError:
            raise self._too_slow(seconds) from None
        except ValidationError:
            raise ToolError(f"{self._who} answered with something that is no result.") from None
        if isinstance(result, types.InputRequiredResult):
            raise ToolError(f"{self._who} asks for a person or a model before it answers, and is given neither.")
        text = self._safe(result_text(result.model_dump(mode="json", by_alias=True, exclude_none=True)))
        if result.is_error:
            raise ToolError(text)
        return text

    async def close(self) -> None:
        """For good."""
        self._closed = True
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
        if asyncio.get_running_loop().time() - self._listed_at > self.limits.list_again_seconds:
            self._list_anew()
        session = self._session
        if not await self._comes(self._listed):
            raise ToolError(self.withdrawn or f"{self._who} ended: {self._why}")
        return session

    async def _comes(self, event: asyncio.Event, seconds: float | None = None) -> bool:
        """Whether it came before the server ended, or the time."""
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
            raise ToolError(f"{self._who} needs {' and '.join(missing)} in the environment, which is not set.")
        if self._starts >= self.limits.starts_max:
            raise ToolError(f"{self._who} ended {self._starts} times and is not started again here: {self._why}")
        self._starts += 1
        self._why, self._status, self._session = "", "", None
        self._changes = 0
        for event in (self._wake, self._began, self._listed):
            event.clear()
        self._keeper = asyncio.create_task(self._keep(), name=f"mcp {self.server.name}")
        if await self._comes(self._began, self.limits.start_seconds):
            return
        await self._drop(f"it said nothing of its tools for {self.limits.start_seconds:g} seconds")
        raise ToolError(self.withdrawn or f"{self._who} did not start: {self._why}")

    async def _keep(self) -> None:
        """The connection's life. The SDK's contexts must be left by the task that entered them: this one."""
        from mcp import ClientSession
        from mcp_types import Implementation

        about(task=None, attempt=None, teammate=None)  # Of the call that started it; it serves others, too.
        for name in ("mcp", "client"):  # What the SDK logs would be printed over the live view.
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
        except Exception as trouble:  # Whatever it is, it ends this server alone.
            self._why = self._why or self._status or self._safe(_sentence(trouble))
            _LOG.warning(
                "server-ended server=%s withdrawn=%s why=%s", self.server.name, bool(self.withdrawn), self._why
            )
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
            self._changes += 1
            if self._changes > self.limits.changes_max:
                self._why = self._why or "it changes its list of tools all the time"
            self._list_anew()

    def _too_slow(self, seconds: float) -> ToolError:
        self._list_anew()  # If it does not answer that either, it is dropped.
        return ToolError(f"{self._who} did not answer for {seconds:g} seconds; it may still be at it.")

    async def _ended(self) -> None:
        """Wait until the keeper knows why."""
        if self._keeper is not None:
            await asyncio.wait({self._keeper}, timeout=self.limits.close_seconds)
        self._why = self._why or "the connection was closed"

    async def _drop(self, why: str) -> None:
        self._why = self._why or why
        self._wake.set()
        if self._keeper is not None and not self._keeper.done():
            if self._began.is_set():  # Else it does not hear of it.
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
            self._ends("it forgot the session")  # By a restart, say; the next call begins a new one.

    def _ends(self, why: str) -> None:
        self._why = self._why or self._safe(why)
        self._wake.set()


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


def _sentence(trouble: BaseException) -> str:
    """The first real reason inside whatever groups the SDK made of it."""
    while isinstance(trouble, BaseExceptionGroup):
        trouble = trouble.exceptions[0]
    if isinstance(trouble, TimeoutError) or str(trouble).endswith(" timed out"):
        return "it did not answer in time"
    said = one_line(str(trouble) or type(trouble).__name__, 300).removesuffix(".")
    return f"it cannot be reached ({said})" if type(trouble).__module__.startswith("httpx2") else said
