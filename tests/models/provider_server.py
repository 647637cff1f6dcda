"""A provider of language models on loopback, for tests and benchmarks: real HTTP, scripted answers, seeded trouble.

Speaks Anthropic Messages, OpenAI chat completions, OpenAI Responses and Google Gemini, plain and streamed. Knows
HTTP/1.1 as far as clients of these APIs use it: keep-alive, bodies with a length, chunked streams. Knows no model: what
is said comes from a list of Answers and Faults, or from a function of the request.

Run as a program it gives one fixed answer to everyone, prints its URL, and ends on SIGTERM or when its stdin closes:

    python tests/models/provider_server.py --port 0 --delay 2 --text "Done." --calls note
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import resource
import signal
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from http import HTTPStatus
from typing import Any

from tests.models.provider_errors import Fault, error_body, error_event
from tests.models.provider_shapes import SERIAL, Answer, Protocol, Usage, Wanted, render

__all__ = ["Answer", "Fault", "ProviderServer", "Seen", "Usage"]

BACKLOG = 4096
SERIAL_BYTES = SERIAL.encode()
FLUSHES_MAX = 16
LAST_CHUNK = b"0\r\n\r\n"
ENDINGS: Mapping[str, Protocol] = {"/messages": "anthropic", "/chat/completions": "chat", "/responses": "responses"}
GEMINI = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent)$")
MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]+)"')
STREAM = re.compile(rb'"stream"\s*:\s*true')  # Cheap; only when it matches is the body parsed to be sure.


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str  # With the query.
    headers: Mapping[str, str]  # Names in lower case.
    body: bytes

    @cached_property
    def json(self) -> Any:
        """The body as a value; None when it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def wanted(self) -> Wanted | None:
        """How the answer is wanted; None when this is no request for an answer."""
        path = self.path.partition("?")[0]
        if self.method != "POST":
            return None
        if gemini := GEMINI.search(path):
            return Wanted("gemini", gemini[1], gemini[2] == "streamGenerateContent", True)
        for ending, protocol in ENDINGS.items():
            if path.endswith(ending):
                found = MODEL.search(self.body)
                asked = self.json if STREAM.search(self.body) and isinstance(self.json, dict) else {}
                with_usage = bool((asked.get("stream_options") or {}).get("include_usage"))
                model = found[1].decode() if found else "unnamed"
                return Wanted(protocol, model, asked.get("stream") is True, with_usage)
        return None


Script = Sequence[Answer | Fault] | Callable[[Seen], Answer | Fault]


class ProviderServer:
    """`async with ProviderServer([Answer(text="Hello")]) as server:` listens at `server.url` until the block ends.

    A list is used up in order and its last entry repeats. `seen` holds every request, also those that got a Fault.
    A lean server, for benchmarks, remembers no requests and writes each stream at once.
    """

    def __init__(self, script: Script, *, port: int = 0, lean: bool = False) -> None:
        if not callable(script) and not script:
            raise ValueError("A script needs at least one Answer or Fault.")
        self.url = ""
        self.seen: list[Seen] = []
        self.open: set[Connection] = set()
        self.emptied = asyncio.Event()  # Set while no connection is open, once there was one.
        self._script = script
        self._port = port
        self.lean = lean
        self._turns = itertools.count()
        self._serials = itertools.count(1)

    async def __aenter__(self) -> ProviderServer:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(partial(Connection, self), "127.0.0.1", self._port, backlog=BACKLOG)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in list(self.open):
            connection.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)  # The aborted connections end in the loop's next round.

    def saw(self, seen: Seen) -> None:
        if not self.lean:
            self.seen.append(seen)

    def next(self, seen: Seen) -> Answer | Fault:
        if callable(self._script):
            return self._script(seen)
        return self._script[min(next(self._turns), len(self._script) - 1)]

    def serial(self) -> bytes:
        """What makes the identifiers of one reply its own; as wide as SERIAL."""
        return b"%08d" % next(self._serials)


class Connection(asyncio.Protocol):
    """One client's connection. Requests are taken one at a time; what arrives meanwhile waits in the buffer."""

    def __init__(self, server: ProviderServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._head: tuple[str, str, dict[str, str], int, int] | None = None  # The last two: where the body is.
        self._busy = False
        self._close = False
        self._serial = SERIAL_BYTES
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._later = asyncio.get_running_loop().call_later
        self._server.open.add(self)
        self._server.emptied.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.open.discard(self)
        if not self._server.open:
            self._server.emptied.set()
        if self._timer:
            self._timer.cancel()

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._busy:
            self._take()

    def _take(self) -> None:
        """Answer the next request, when all of it is here."""
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self._head = read_head(bytes(self._buffer[:end]), end + 4)
        method, path, headers, start, end = self._head
        if "transfer-encoding" in headers:
            self._write(reply(411, {}, b""))
            self._transport.close()
            return
        if len(self._buffer) < end:
            return
        seen = Seen(method, path, headers, bytes(self._buffer[start:end]))
        del self._buffer[:end]
        self._head, self._busy, self._close = None, True, headers.get("connection", "").lower() == "close"
        self._serial = self._server.serial()
        self._server.saw(seen)
        self._answer(seen)

    def _answer(self, seen: Seen) -> None:
        wanted = seen.wanted()
        if wanted is None:
            self._finish(reply(404, {}, b'{"error":{"message":"There is nothing at this address."}}'))
            return
        said = self._server.next(seen)
        if isinstance(said, Answer):
            self._wait(said.delay_seconds, partial(self._say, said, wanted))
        else:
            self._wait(said.hang_seconds or said.answer.delay_seconds, partial(self._fail, said, wanted))

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        if seconds:
            self._timer = self._later(seconds, then)
        else:
            then()

    def _say(self, answer: Answer, wanted: Wanted) -> None:
        body = render(answer, wanted)
        if not wanted.stream:
            self._finish(reply(200, {}, body))
            return
        self._write(STREAM_HEAD)
        ends = (len(body),) if self._server.lean else cuts(body)
        self._flush(self._numbered(body), ends, 0, answer.gap_seconds)

    def _flush(self, body: bytes, ends: tuple[int, ...], at: int, gap_seconds: float) -> None:
        """Write a stream bit by bit, so that the client meets it in bits, and let others have their turn between."""
        if self._transport.is_closing():
            return
        bit = body[ends[at - 1] if at else 0 : ends[at]]
        if at + 1 == len(ends):
            self._finish(chunk(bit) + LAST_CHUNK)
            return
        self._transport.write(chunk(bit))
        self._timer = self._later(gap_seconds, self._flush, body, ends, at + 1, gap_seconds)

    def _fail(self, fault: Fault, wanted: Wanted) -> None:
        if fault.hang_seconds is not None:
            self._transport.close()
        elif fault.cut_after_bytes is not None:
            body = render(fault.answer, wanted)
            begun = body[: fault.cut_after_bytes]
            if fault.cut_cleanly:
                self._finish(STREAM_HEAD + chunk(begun) + LAST_CHUNK if wanted.stream else reply(200, {}, begun))
                return
            if begun and wanted.stream:
                self._write(STREAM_HEAD + chunk(begun))
            elif begun:
                whole = reply(200, {}, body)
                self._write(whole[: len(whole) - len(body) + len(begun)])
            self._transport.close()
        elif fault.error_in_stream and wanted.stream:
            begun = render(fault.answer, wanted)
            begun = begun[: begun.find(b"\n\n", len(begun) // 2) + 2] + error_event(wanted.protocol)
            self._write(STREAM_HEAD)
            self._flush(self._numbered(begun), cuts(begun), 0, fault.answer.gap_seconds)
        else:
            actual = Fault(status=529, headers=fault.headers, body=fault.body) if fault.error_in_stream else fault
            status = 400 if actual.overflow else actual.status
            self._finish(reply(status, actual.headers, error_body(actual, wanted.protocol)))

    def _numbered(self, data: bytes) -> bytes:
        return data.replace(SERIAL_BYTES, self._serial)

    def _write(self, data: bytes) -> None:
        self._transport.write(self._numbered(data))

    def _finish(self, data: bytes) -> None:
        self._write(data)
        self._busy, self._timer = False, None
        if self._close:
            self._transport.close()
        elif self._buffer:
            self._take()


def read_head(head: bytes, start: int) -> tuple[str, str, dict[str, str], int, int]:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return method, path, headers, start, start + int(headers.get("content-length", "0"))


def head_of(status: int, headers: Mapping[str, str]) -> bytes:
    reason = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Overloaded"
    named = {"request-id": f"req_{SERIAL}", "x-request-id": f"req_{SERIAL}", **headers}
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in named.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@lru_cache(maxsize=256)
def plain_head(length: int) -> bytes:
    return head_of(200, {"content-type": "application/json", "content-length": str(length)})


def reply(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    if status == 200 and not headers:
        return plain_head(len(body)) + body
    lower = {name.lower(): value for name, value in headers.items()}
    return head_of(status, {"content-type": "application/json", "content-length": str(len(body)), **lower}) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@lru_cache(maxsize=256)
def cuts(body: bytes) -> tuple[int, ...]:
    """Where a stream is cut into flushes: not at the ends of events, and inside a character where there is one."""
    size = max(97, len(body) // FLUSHES_MAX)
    ends = []
    for at in range(size, len(body), size):
        inside = next((spot for spot in range(at, min(at + size, len(body))) if 0x80 <= body[spot] < 0xC0), at)
        ends.append(inside)
    return (*ends, len(body))


STREAM_HEAD = head_of(
    200,
    {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "transfer-encoding": "chunked"},
)


async def serve(answer: Answer, port: int) -> None:
    """Give one answer to everyone until told to end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    # Only a pipe closes when its owner dies. /dev/null is always at its end, and a file cannot be watched.
    if stat.S_ISFIFO(os.fstat(0).st_mode) or stat.S_ISSOCK(os.fstat(0).st_mode):
        loop.add_reader(0, lambda: None if os.read(0, 4096) else ended.set())
    async with ProviderServer([answer], port=port, lean=True) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A provider of language models with one fixed answer.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--text", default="Done.")
    parser.add_argument("--calls", nargs="*", default=[], metavar="NAME[=JSON]", help="tools the model calls")
    given = parser.parse_args()
    calls = tuple(
        (name, arguments or "{}", None) for name, _, arguments in (call.partition("=") for call in given.calls)
    )
    asyncio.run(serve(Answer(text=given.text, calls=calls, delay_seconds=given.delay), given.port))


if __name__ == "__main__":
    main()
