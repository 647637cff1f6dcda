"""Signals that stop a run: Ctrl-C, SIGTERM from a supervisor, a window that was closed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

from ..agent.stop import Stop
from ..logs import logger

_LOG = logger(__name__)


def _ends() -> list[signal.Signals]:
    """The signals that end a run. A shell makes its background jobs ignore Ctrl-C, and nohup makes them ignore a closed
    window; such a signal stays ignored."""
    others = (signal.SIGINT, signal.SIGHUP)
    return [signal.SIGTERM, *(each for each in others if signal.getsignal(each) is not signal.SIG_IGN)]


@asynccontextmanager
async def stopping(why: str, *, at_once: bool = True, but: signal.Signals | None = None) -> AsyncIterator[Stop]:
    """The first signal asks for an orderly end. With `at_once`, the next one ends the process at once."""
    stop, loop = Stop(), asyncio.get_running_loop()

    def hear() -> None:
        _LOG.warning("signal again=%s", bool(stop))
        if stop and at_once:
            if sys.stdout.isatty():  # The live view had hidden the cursor.
                os.write(sys.stdout.fileno(), b"\x1b[?25h\r\nEnded at once. `dugnad run` goes on.\r\n")
            os._exit(130)  # Other hosts take back its tasks when they find it dead, or when its lease runs out.
        stop.say(why)
        if at_once and not sys.stdout.isatty():
            click.echo("Stopping: turns under way are being recorded. Ctrl-C again ends at once.", err=True)

    ends = [each for each in _ends() if each != but]
    for number in ends:
        loop.add_signal_handler(number, hear)
    try:
        yield stop
    finally:
        for number in ends:
            loop.remove_signal_handler(number)
