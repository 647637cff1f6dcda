"""Waiting without polling: one hub in each process wakes the waiters that a commit concerns.

A push says what changed ("ready:coder": 3 tasks, "inbox:alice": 1 message). Ready tasks wake as many waiters as there
are tasks, not all who could claim them; "ready:coder!alice,bob" is for any coder but these two. Pushes can be lost, so
while anybody waits, a slow sweep asks the database for ready work, for messages and for new events; it also wakes
waiters when a task is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from ...errors import BoardTrouble
from .seam import Topics

_SWEPT = ("ready:", "inbox:")
_SWEPT_PER_TOPIC = 16  # Waiters woken for a lane the sweep finds work in.
Look = Callable[[], Awaitable[tuple[Topics, float | None]]]


class Watch:
    """The topics of one waiter. From entering to leaving, no change is missed."""

    def __init__(self, hub: Hub, topics: Iterable[str]) -> None:
        self._hub = hub
        self._topics = tuple(dict.fromkeys(topics))
        self._woken: asyncio.Future[None] | None = None
        self.changed: set[str] = set()

    def __enter__(self) -> Watch:
        self._hub.add(self, self._topics)
        return self

    def __exit__(self, *_: object) -> None:
        self._hub.remove(self, self._topics)

    async def wait(self, seconds: float) -> bool:
        """Wait until a topic changes, or return False when the time is over. Can be called again."""
        return bool(await self.changes(seconds))

    async def changes(self, seconds: float) -> set[str]:
        """The same, but returns the topics that changed."""
        if not self.changed:
            loop = asyncio.get_running_loop()
            self._woken = loop.create_future()
            limit = loop.call_later(seconds, self._release)
            try:
                await self._woken
            finally:
                limit.cancel()
                self._woken = None
        changed, self.changed = self.changed, set()
        return changed

    def wake(self, topic: str) -> bool:
        """Note the change. Returns whether it is the first since the last wait."""
        news = not self.changed
        self.changed.add(topic)
        self._release()
        return news

    def _release(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class Hub:
    """All the watches of a process."""

    def __init__(self, look: Look, poll_seconds: float) -> None:
        self._look = look
        self._poll_seconds = poll_seconds
        self._watches: dict[str, dict[Watch, None]] = {}  # In the order they came.
        self._sweeper: asyncio.Task[None] | None = None
        self._early = asyncio.Event()

    def add(self, watch: Watch, topics: Iterable[str]) -> None:
        for topic in topics:
            self._watches.setdefault(topic, {})[watch] = None
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep(), name="dugnad board watcher")

    def remove(self, watch: Watch, topics: Iterable[str]) -> None:
        for topic in topics:
            waiting = self._watches.get(topic, {})
            waiting.pop(watch, None)
            if not waiting:
                self._watches.pop(topic, None)

    def heard(self, topics: Topics) -> None:
        """A commit, here or elsewhere."""
        if topics.keys() & {"?", "*", "due"}:
            self._early.set()  # A push was missed, or a task is due sooner: sweep now.
        if "*" in topics:
            topics = dict.fromkeys(self._watches, 1 << 30)
        elif "?" in topics:  # The sweep finds work and messages; all other waiters are woken to look for themselves.
            topics = {topic: 1 for topic in self._watches if not topic.startswith(_SWEPT)}
        for topic, count in topics.items():
            self._wake(topic, count)

    def _wake(self, topic: str, count: int) -> None:
        but = ""
        if topic.startswith("ready:"):
            topic, _, but = topic.partition("!")
        waiting = self._watches.get(topic)
        if not waiting:
            return
        # Ready work wakes as many waiters as there are tasks; any other topic wakes all its waiters.
        left = count if topic.startswith("ready:") else len(waiting)
        barred = {watch for name in but.split(",") for watch in self._watches.get(f"inbox:{name}", ())}
        for watch in list(waiting):
            if left <= 0:
                return
            if watch not in barred:
                left -= watch.wake(topic)

    async def _sweep(self) -> None:
        while self._watches:
            self._early.clear()
            try:
                topics, due_seconds = await self._look()
                for topic in topics:
                    self._wake(topic, _SWEPT_PER_TOPIC)
            except BoardTrouble:  # The next call of the board reports it.
                due_seconds = None
            nap = self._poll_seconds if due_seconds is None else min(self._poll_seconds, max(0.001, due_seconds))
            try:
                async with asyncio.timeout(nap):
                    await self._early.wait()
            except TimeoutError:
                pass
        self._sweeper = None

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
            self._sweeper = None
