"""The one way to ask for an orderly end: of a mind's work, and of a whole run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Stop:
    """Is said once, with the reason."""

    def __init__(self) -> None:
        self.why = ""
        self.said = asyncio.Event()

    def say(self, why: str) -> None:
        self.why = why
        self.said.set()

    def __bool__(self) -> bool:
        return self.said.is_set()

    async def unless(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of the work; or None, with the work cancelled, if the stop is said before."""
        task, asked = asyncio.ensure_future(work), asyncio.ensure_future(self.said.wait())
        try:
            await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
            return None if self else await task
        finally:
            for each in (task, asked):
                each.cancel()
            await asyncio.gather(task, asked, return_exceptions=True)
