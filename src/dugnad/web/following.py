"""One open board, and its history in memory, kept up to date by one task however many pages are open.

The task waits for the board's own wake-ups. It reads a long log in pieces, so that the server answers meanwhile. After
a quiet while it looks again, but only if somebody watches: leases are renewed without an event, and a board that cannot
be reached is to be noticed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from ..board import Board
from ..errors import BoardClosed, BoardTrouble
from ..logs import logger
from ..types import Event
from ..view.events import QUIET, sentence
from .history import BoardHistory, BoardView

_LOG = logger(__name__)
T = TypeVar("T")
ID_CHARS = 12  # Of a board's identity, in an address.
QUIET_SECONDS = 20.0  # After which leases are read again, if somebody watches.
_PIECE_SECONDS = 0.01  # For which events are taken in before others may go on.
_GATHER_SECONDS = 0.1  # For which further events are gathered before listeners are woken again.
_ANSWER_SECONDS = 3.0
_LEASES_SECONDS = 5.0  # So old may leases be while events come.
_RETRY_SECONDS_MAX = 10.0
_RECENT_MAX = 2_000  # Events whose sentences are kept for streams.
_KEPT_MAX = 32
_KEPT_SECONDS = 1.0


class FollowedBoard:
    """A board as the page sees it."""

    def __init__(
        self, board: Board, *, identity: str, name: str, where: str, root: Path | None = None,
        windows: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.board, self.identity, self.name, self.where = board, identity, name, where
        self.root = root  # The project's folder, if it is known; for diffs.
        self.windows = windows or {}  # By model, the tokens that fit into its context.
        self.history = BoardHistory()
        self.reading: float | None = 0.0  # How much of the log was read; None: all of it.
        self.trouble: str | None = None  # Why the board cannot be read now.
        self.leases: dict[str, int] = {}  # By host, until when; as they were last read.
        self.watched = asyncio.Event()  # A page has opened a stream.
        self._listeners: list[asyncio.Event] = []
        self._recent: deque[tuple[int, dict[str, Any]]] = deque(maxlen=_RECENT_MAX)
        self._recent_after = 0  # The sentences of all events after this one are kept.
        self._leases_at = 0
        self._offset = 0  # Of the board's clock from this machine's.
        self._kept: dict[object, tuple[int, Any]] = {}

    @property
    def id(self) -> str:
        return self.identity[:ID_CHARS]

    def now_ms(self) -> int:
        """The time by the board's clock, which is that of the events."""
        return self.board.sources.now_ms() + self._offset

    def view(self, at: int | None = None) -> BoardView:
        """The board after this event; now, with the leases of hosts."""
        return self.history.at(at) if at is not None else self.history.at(leases=self.leases)

    async def read(self) -> None:
        """Wait until the whole log was read."""
        with self.listening(news := asyncio.Event()):
            while self.reading is not None:
                await news.wait()
                news.clear()

    async def wait(self, after: int) -> None:
        """Wait until the history has an event after this one."""
        with self.listening(news := asyncio.Event()):
            while self.history.last <= after:
                await news.wait()
                news.clear()

    @contextmanager
    def listening(self, news: asyncio.Event) -> Iterator[None]:
        """Set the event whenever something changed: an event, a lease, or whether the board can be read."""
        self._listeners.append(news)
        try:
            yield
        finally:
            self._listeners.remove(news)

    def kept(self, key: object, make: Callable[[], T]) -> T:
        """What `make` gives, made once for all who ask for the same at the same time."""
        now = self.board.sources.working_ms()
        found = self._kept.get(key)
        if found is None or now - found[0] > _KEPT_SECONDS * 1_000:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            found = self._kept[key] = (now, make())
        value: T = found[1]
        return value

    def lines(self, after: int, until: int) -> list[dict[str, Any]] | None:
        """What happened after one event until another, without the quiet kinds. None: it is not kept any more."""
        if after < self._recent_after:
            return None
        return [line for seq, line in self._recent if after < seq <= until]

    # Following.

    async def follow(self) -> None:
        """Follow the log without end."""
        pause, begun = 0.5, False
        while True:
            try:
                if not begun:
                    await self._begin()
                    begun = True
                with self.board.watch(["log"]) as watch:
                    while True:
                        await self._catch_up()
                        pause = 0.5
                        self._recovered()
                        while not (news := await watch.wait(QUIET_SECONDS)) and not self._listeners:
                            pass  # Nobody watches, so there is nothing to look for.
                        if not news:
                            await self._read_leases()
                            self._wake()
            except BoardClosed:
                return
            except BoardTrouble as trouble:
                self._troubled(str(trouble))
            except Exception as bug:  # Such as an event that a newer dugnad wrote. The page says so; the server stays.
                _LOG.error("not-followed board=%s", self.id, exc_info=bug)
                self._troubled("The log cannot be followed; the log of the server says why.")
            await asyncio.sleep(pause)
            pause = min(_RETRY_SECONDS_MAX, pause * 2)

    async def _begin(self) -> None:
        first, state = await self.board.pruned_state()
        self.history = BoardHistory(first=first, state=state)
        self._recent_after = first
        await self._set_clock()

    async def _set_clock(self) -> None:
        self._offset = await self.board.now_ms() - self.board.sources.now_ms()

    async def _catch_up(self) -> None:
        """Take in all new events."""
        target = await self.board.last_event() if self.reading is not None else 0
        while page := await self._next_page():
            if page[0].seq != self.history.last + 1:  # The events between were pruned meanwhile.
                await self._begin()
                continue
            await self._take_in(page, target)
            if self.reading is not None:
                first = self.history.first
                self.reading = min(1.0, (self.history.last - first) / max(1, target - first))
            elif any(event.kind.startswith("host_") for event in page) or (self._listeners and self._leases_are_old()):
                await self._read_leases()
            self._wake()
            if self.reading is None:
                await asyncio.sleep(_GATHER_SECONDS)
        if self.reading is not None:
            await self._read_leases()
            self.reading = None
            self._wake()

    async def _next_page(self) -> Sequence[Event]:
        with self._patiently():
            return await self.board.events(self.history.last)

    @contextmanager
    def _patiently(self) -> Iterator[None]:
        """The board itself gives up much later; those who watch are told sooner that it does not answer."""
        why = "The board does not answer; it is asked again and again."
        late = asyncio.get_running_loop().call_later(_ANSWER_SECONDS, self._troubled, why)
        try:
            yield
        finally:
            late.cancel()

    async def _take_in(self, page: Sequence[Event], target: int) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _PIECE_SECONDS
        for event in page:
            self._add(event, keep=event.seq > target - _RECENT_MAX)
            if loop.time() > until:
                await asyncio.sleep(0)
                until = loop.time() + _PIECE_SECONDS

    def _add(self, event: Event, *, keep: bool) -> None:
        self.history.add(event)
        if not keep:
            self._recent_after = event.seq
        elif event.kind not in QUIET:
            if len(self._recent) == _RECENT_MAX:
                self._recent_after = self._recent[0][0]
            self._recent.append((event.seq, line_shape(event)))

    async def _read_leases(self) -> None:
        with self._patiently():
            self.leases = {host.id: host.lease_until for host in await self.board.hosts()}
        self._leases_at = self.board.sources.working_ms()

    async def refresh(self) -> None:
        """Read leases that are old: while nobody watched, nobody did. If the board does not answer, they stay."""
        if self.reading is None and self._leases_are_old():
            self._leases_at = self.board.sources.working_ms()  # Others who ask meanwhile need not read them too.
            with suppress(BoardTrouble, TimeoutError):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await self._read_leases()
                self._kept.clear()

    def _leases_are_old(self) -> bool:
        return self.board.sources.working_ms() - self._leases_at > _LEASES_SECONDS * 1_000

    def _troubled(self, why: str) -> None:
        if self.trouble is None:
            _LOG.warning("board-trouble board=%s why=%s", self.id, why)
        self.trouble = why
        self._wake()

    def _recovered(self) -> None:
        if self.trouble is not None:
            _LOG.warning("board-answers board=%s", self.id)
            self.trouble = None
            self._wake()

    def _wake(self) -> None:
        self._kept.clear()
        for each in self._listeners:
            each.set()


def line_shape(event: Event) -> dict[str, Any]:
    """One line of the log, for the page."""
    return {
        "seq": event.seq, "at": event.at, "kind": event.kind, "task": event.task, "actor": event.actor,
        "says": sentence(event),
    }  # fmt: skip


@asynccontextmanager
async def followed(
    board: Board, *, name: str, where: str, root: Path | None = None, windows: Mapping[str, int] | None = None
) -> AsyncIterator[FollowedBoard]:
    """Follow an open board as long as the block lasts."""
    identity = await board.identity()
    made = FollowedBoard(board, identity=identity, name=name, where=where, root=root, windows=windows)
    following = asyncio.create_task(made.follow(), name=f"follow {made.id}")
    try:
        yield made
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
