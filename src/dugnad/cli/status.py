"""`dugnad status`: whether the board answers and its work goes on, for people and for health checks."""

from __future__ import annotations

import asyncio
from functools import partial

from ..errors import BoardUnreachable
from ..telemetry.health import troubles
from ..view.status import status_shape, status_table
from .command import EXIT_FAILED, CommandContext, verb

_SECONDS_MAX = 10.0


@verb("status", only_reads=True, example="dugnad status\ndugnad status --json")
async def status(call: CommandContext) -> int:
    """Say whether the board answers and its work goes on: exit code 0 if so, 1 if something waits for you."""
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            now = await call.board.health()
    except TimeoutError:
        raise BoardUnreachable(
            f"The board did not answer within {_SECONDS_MAX:g} seconds; look at its server."
        ) from None
    wrong = troubles(now)
    call.answer(status_shape(now, wrong), partial(status_table, now, wrong))
    return EXIT_FAILED if wrong else 0
