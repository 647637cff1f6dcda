"""A small process beside a server that others start and kill. If the server is killed, it gives back what that held."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from ..board import open_board
from ..board.verbs.members import CLIENT_LEFT
from ..types import Claim, Released
from .lost_hosts import own_label


@contextmanager
def guarded(url: str) -> Iterator[Callable[[], object]]:
    """What it yields is called when the server is asked to end: Codex kills it a few milliseconds later."""
    label, (ours, its) = own_label(), os.pipe()
    if os.fork() == 0:
        _guard(url, label, ours)
    os.close(ours)
    yield partial(os.write, its, b"e")
    os.write(its, b".")  # It ended in order.


def _guard(url: str, label: str, line: int) -> None:
    """Wait until the server is gone, which closes the line. Its client must find none of its own streams open here."""
    try:
        os.setsid()
        for stream, end in enumerate((line, *[os.open(os.devnull, os.O_RDWR)] * 2)):
            os.dup2(end, stream)
        os.closerange(3, 65_536)
        said = b""
        while more := os.read(0, 1):
            said = more
        if said != b".":
            asyncio.run(give_back(url, label, CLIENT_LEFT if said else ""))
    finally:
        os._exit(0)


async def give_back(url: str, label: str, why: str) -> None:
    """Give back what the host of that label held. With `why`, it was asked to end, so its tasks are released; without,
    it counts as lost."""
    async with await open_board(url) as board:
        for host in [each.id for each in await board.hosts() if each.alive and each.label == label]:
            for number, epoch in await board.heartbeat(host) if why else ():
                task = await board.find(number)
                who = task.teammate or ""
                claim = Claim(task=task, epoch=epoch, number=task.claims, continues=None, teammate=who, host=host)
                await board.forfeit(claim)
                await board.settle(claim, Released(why, resume=True))
            await board.stop_host(host)
        await board.take_back(silent={})
