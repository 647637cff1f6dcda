"""A thread that works for the event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class DatabaseThread:
    """A thread that runs functions for the event loop, one after another."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(name=name, target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while (step := self._queue.get()) is not None:
            step()

    def ask(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def step() -> None:
            try:
                give = partial(answer.set_result, work())
            except BaseException as trouble:  # Handed to the caller that waits for the answer.
                give = partial(answer.set_exception, trouble)
            loop.call_soon_threadsafe(lambda: answer.done() or give())

        self._queue.put(step)
        return answer

    def stop(self) -> None:
        self._queue.put(None)
        self._thread.join()
