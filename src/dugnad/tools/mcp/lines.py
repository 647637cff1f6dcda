"""An MCP server on standard input and output: one message on each line. What a client sends is bounded.

Nothing but the protocol may reach the client's end, so standard output is moved away while this runs, and what anything
else prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from ...logs import logger
from .serving import BUSY, INVALID_REQUEST, PARSE_ERROR, Json, Link, Offering, error
from .transport import GARBAGE_MAX, LINE_BYTES_MAX, in_whole

_LOG = logger(__name__)
_AT_ONCE_MAX = 32  # Requests under way.
_QUEUED_MAX = 256  # Lines that were read and not looked at yet.
_ASK_SECONDS = 40.0  # For a person at the client; shorter than any client waits for a call.
_CHUNK = 65_536


@contextmanager
def own_streams() -> Iterator[tuple[int, int]]:
    """The two ends of the client's line, for this server alone. Programs that are started read nothing from it."""
    ends = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield ends
    finally:
        os.dup2(ends[0], 0)
        os.dup2(ends[1], 1)


@dataclass(kw_only=True)
class LineServer:
    """Serves one client until it closes its end."""

    served: Offering
    read_from: int
    write_to: int
    link: Link = field(default_factory=Link)
    _garbage: int = 0
    _asked: int = 0
    _waiting: dict[str, asyncio.Future[Json]] = field(default_factory=dict)  # What the client was asked.
    _running: dict[Any, asyncio.Task[None]] = field(default_factory=dict)  # Its requests, by id.
    _writer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "mcp-writer"))

    async def serve(self) -> None:
        """Until the client closes its end, or cannot be written to."""
        self.link.request = self._ask
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        free = threading.Semaphore(_QUEUED_MAX)
        loop = asyncio.get_running_loop()

        def put(line: bytes | None) -> None:
            free.acquire()
            with suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(lines.put_nowait, line)

        threading.Thread(target=_read_lines, args=(self.read_from, put), daemon=True, name="mcp-reader").start()
        try:
            while (line := await lines.get()) is not None:
                free.release()
                await self._take(line)
        except OSError as gone:
            _LOG.info("mcp-client-gone why=%s", gone)
        finally:
            running = list(self._running.values())
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self._writer.shutdown(wait=False, cancel_futures=True)

    async def _take(self, line: bytes) -> None:
        message = parsed(line)
        if message is None:
            self._garbage += 1
            if self._garbage <= GARBAGE_MAX:
                await self._send(error(None, PARSE_ERROR, "The line is not a JSON message, or it is too long."))
            return
        if not isinstance(message, dict):
            await self._send(error(None, INVALID_REQUEST, "A message must be one JSON-RPC 2.0 object."))
            return
        number, method = message.get("id"), message.get("method")
        if method is None and (asked := self._waiting.pop(str(number), None)) is not None:
            if not asked.done():
                result = message.get("result")
                asked.set_result(result if isinstance(result, dict) else {})
            return
        if method == "notifications/cancelled":
            params = message.get("params")
            wanted = params.get("requestId") if isinstance(params, dict) else None
            if isinstance(wanted, str | int) and (task := self._running.get(wanted)) is not None:
                task.cancel()
            return
        if method == "initialize":  # Others depend on it, so it is answered before the next line is looked at.
            await self._answer(message)
        elif len(self._running) >= _AT_ONCE_MAX:
            await self._send(error(_name(number), BUSY, "Too many calls at once; wait for the answers of some."))
        else:
            key = number if isinstance(number, str | int) and number not in self._running else object()
            self._running[key] = asyncio.create_task(self._answer(message, key))

    async def _answer(self, message: Json, key: Any = None) -> None:
        try:
            answer = await self.served.answer(message, self.link)
        finally:
            self._running.pop(key, None)
        if answer is not None:
            with suppress(OSError):  # The client is gone; the end of its line says so.
                await self._send(answer)

    async def _ask(self, method: str, params: Json) -> Json:
        """Ask the client something, and wait for its person for a while."""
        self._asked += 1
        number = f"ask-{self._asked}"
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            async with asyncio.timeout(_ASK_SECONDS):
                return await answer
        except (TimeoutError, OSError):
            return {}
        finally:
            self._waiting.pop(number, None)

    async def _send(self, message: Json) -> None:
        data = orjson.dumps(message) + b"\n"
        await asyncio.get_running_loop().run_in_executor(self._writer, _write, self.write_to, data)


def _write(end: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(end, view) :]


def _read_lines(end: int, put: Callable[[bytes | None], None]) -> None:
    """Runs in a thread. A line that is too long becomes an empty one; where no line ends, nothing more is read."""
    kept, skipping = b"", False
    while True:
        try:
            chunk = os.read(end, _CHUNK)
        except OSError:
            chunk = b""
        if not chunk:
            put(None)
            return
        *whole, kept = (kept + chunk).split(b"\n")
        for line in whole:
            if skipping or len(line) > LINE_BYTES_MAX:
                put(b"?")
            elif line.strip():
                put(line)
            skipping = False
        if len(kept) > LINE_BYTES_MAX:
            if skipping:
                put(None)
                return
            kept, skipping = b"", True


def parsed(line: bytes) -> Any:
    """The message; None: there is none. Halves of surrogate pairs are replaced, since no text may have them."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    import json

    try:
        return json.loads(in_whole(json.loads(line.decode("utf-8", "replace"))))
    except (ValueError, RecursionError):
        return None


def _name(number: Any) -> str | int | None:
    return number if isinstance(number, str | int) and not isinstance(number, bool) else None
