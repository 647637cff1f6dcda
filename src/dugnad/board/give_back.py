"""What a host held whose process is gone, as another process of its machine gives it back."""

from __future__ import annotations

from ..types import Claim, Released
from .open import open_board


async def give_back(url: str, label: str, why: str) -> None:
    """`why`: the process was asked to end, so its tasks are released. Otherwise it counts as lost."""
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
