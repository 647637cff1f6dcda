"""Server-sent events: what changed on a board, as it happens, without a gap and without a repeat.

A message says what changed after one event until another, and its id is the number of the last one. A browser that
reconnects names that number, and the stream goes on behind it. A stream remembers nothing but this number: a reader
that is slow gets one larger message later, and costs no memory meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .following import FollowedBoard
from .guard import WebRefusal
from .sessions import Sessions, WebSession
from .shapes import hosts_shape, stream_shape
from .summaries import team_shape
from .why import why_still

STREAMS_MAX = 256
_STREAMS_LOOK_MAX = 192  # Of them, those of sessions that only look: a link that is shared cannot lock out its owner.
KEEP_ALIVE_SECONDS = 20.0
SEND_SECONDS_MAX = 60.0  # A reader that takes nothing for so long is dropped; its browser reconnects.
_TASKS_MAX = 2_000  # Changed tasks in one message; if there are more, the page loads the state again.
_EVENTS_MAX = 500
_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),  # A proxy hands each message on at once.
)


class Streams:
    """The open streams of one server."""

    def __init__(self) -> None:
        self.closing = False
        self._open: Counter[str] = Counter()
        self._wakes: list[asyncio.Event] = []

    def __len__(self) -> int:
        return len(self._wakes)

    @contextmanager
    def one(self, session: WebSession, news: asyncio.Event) -> Iterator[None]:
        """Count a stream, and wake it when the server ends."""
        self._wakes.append(news)
        self._open[session.scope] += 1
        try:
            yield
        finally:
            self._wakes.remove(news)
            self._open[session.scope] -= 1

    def refuse_more(self, session: WebSession) -> None:
        full = len(self) >= STREAMS_MAX or (not session.steers and self._open["look"] >= _STREAMS_LOOK_MAX)
        if full:
            raise WebRefusal(503, "TooManyStreams", "Too many pages are open here; close some.")

    def close(self) -> None:
        """End all streams: the server ends."""
        self.closing = True
        for each in self._wakes:
            each.set()


class EventStream(Response):
    """The answer that goes on as long as the page is open."""

    def __init__(
        self, followed: FollowedBoard, *, after: int | None, session: WebSession, sessions: Sessions, streams: Streams
    ) -> None:
        super().__init__()
        self._followed, self._session, self._sessions, self._streams = followed, session, sessions, streams
        self._after = followed.history.last if after is None else after
        self._gone = False
        self._told_trouble: str | None = None
        self._told_reading: float | None = None
        self._told_leases = followed.leases

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        news = asyncio.Event()
        leaving = asyncio.create_task(self._notice_leaving(receive, news))
        try:
            with (
                self._streams.one(self._session, news),
                self._followed.listening(news),
                self._sessions.listening(self._session, news),
            ):
                self._followed.watched.set()
                await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
                await self._go_on(news, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # The reader takes nothing.
        finally:
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)

    async def _notice_leaving(self, receive: Receive, news: asyncio.Event) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        news.set()

    async def _go_on(self, news: asyncio.Event, send: Send) -> None:
        text, ends = b"retry: 1000\n\n", False
        while True:
            lives = self._sessions.lives(self._session)
            if not lives:
                text += _message("end", {"why": "The session has ended; open a new link from the terminal."})
            if text:
                async with asyncio.timeout(SEND_SECONDS_MAX):
                    await send({"type": "http.response.body", "body": text, "more_body": True})
            if self._gone or not lives or ends:
                return
            news.clear()
            ends = self._streams.closing  # What is new by now is told before the end.
            if (text := self._new()) or ends:
                continue
            try:
                left = self._sessions.seconds_left(self._session)
                async with asyncio.timeout(max(0.0, min(KEEP_ALIVE_SECONDS, left))):
                    await news.wait()
            except TimeoutError:
                text = b": still here\n\n"

    def _new(self) -> bytes:
        """What the reader was not told yet."""
        followed, text = self._followed, b""
        if followed.trouble != self._told_trouble:
            self._told_trouble = followed.trouble
            text += _message("trouble", {"message": followed.trouble})
        if followed.reading is not None:
            if self._told_reading is None or followed.reading >= self._told_reading + 0.01:
                self._told_reading = followed.reading
                text += _message("reading", {"reading": followed.reading})
            return text
        last = followed.history.last
        if self._after == last:
            if followed.leases is not self._told_leases:
                text += followed.kept("leases", lambda: hosts_message(followed))
        elif not followed.history.first <= self._after < last:
            text += _message("reset", {"seq": last}, id=last)
        else:
            after = self._after
            text += followed.kept(("changes", after, last), lambda: changes_message(followed, after, last))
        self._after, self._told_leases, self._told_reading = last, followed.leases, None
        return text


def changes_message(followed: FollowedBoard, after: int, until: int) -> bytes:
    """Everything that changed after one event until another, or that it is too much."""
    changed, lines = followed.history.changed(after, until), followed.lines(after, until)
    if lines is None or len(changed.get("task", ())) > _TASKS_MAX:
        return _message("reset", {"seq": until}, id=until)
    shape = stream_shape(followed.view(), changed, followed.now_ms(), windows=followed.windows)
    return _message(None, {**shape, "events": lines[-_EVENTS_MAX:]}, id=until)


def hosts_message(followed: FollowedBoard) -> bytes:
    """Until when the leases of hosts last, which changes without an event."""
    view, now = followed.view(), followed.now_ms()
    team = team_shape(view, now, followed.windows)  # With a lease, its teammates are lost.
    said = {"now": now, "hosts": hosts_shape(view, now), "team": team, "why": why_still(view, now)}
    return _message("hosts", said)


def _message(event: str | None, data: Any, *, id: int | None = None) -> bytes:
    lines = [b"event: %s\n" % event.encode()] if event else []
    lines += [b"id: %d\n" % id] if id is not None else []
    return b"".join((*lines, b"data: ", orjson.dumps(data), b"\n\n"))
