"""Looks at the board whenever it has changed, until the person has left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

from .session import Session

Look = Callable[[], Awaitable[float]]  # Returns the seconds to wait before the next look.


async def follow(session: Session, topics: Iterable[str], look: Look, *, seconds: float) -> None:
    """Look now, after each commit that touches one of the topics, and at least once within `seconds`.

    Only a wait is ever cancelled. A cancelled read would leave its connection to an event loop that is about to close.
    """
    while not session.left.is_set():
        with session.board.watch(topics) as watch:
            pause = await look()
            await _unless_left(session, asyncio.sleep(pause))
            await _unless_left(session, watch.wait(seconds))


async def _unless_left(session: Session, rest: Coroutine[Any, Any, object]) -> None:
    waits = (asyncio.ensure_future(rest), asyncio.ensure_future(session.left.wait()))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


@asynccontextmanager
async def alongside(session: Session, *work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the work while the block lasts. At its end the person has left, and the work may end too."""
    running = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        session.left.set()
        await asyncio.wait(running, timeout=session.limits.leave_seconds)
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
