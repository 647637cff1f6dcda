"""Whose turn it is to merge, if hosts on several machines merge into one target. The board says; safety needs it not.

Without turns every host would check its work on the same commit of the target, and all but one in vain. A landing is
safe without them, so a host goes on without its turn if the board gives no answer, or if it has waited for too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...board import Board
from ...board.records import Merging
from ...errors import BoardTrouble
from ...logs import logger
from ...types import Claim
from .workspace import CHECK_SECONDS_MAX

_LOG = logger(__name__)
_LOOK_SECONDS = 5.0  # Between two looks, if no push comes: a lease ends without one.


def waits_for(line: Sequence[Merging], own: Merging, passed: set[Merging]) -> Merging | None:
    """The first one before us in the line, without those that are passed over. None: it is our turn."""
    before = line[: line.index(own)] if own in line else ()  # Without a lease of our own we have no place.
    return next((each for each in before if each.target == own.target and each not in passed), None)


@dataclass(kw_only=True)
class MergeTurns:
    """Turns at one target."""

    board: Board
    target: str
    tell: Callable[[str], None]  # What is waited for, and at the end an empty text.
    holder_seconds_max: float = CHECK_SECONDS_MAX  # A holder that takes longer is passed over.
    seconds_max: float = 2 * CHECK_SECONDS_MAX  # Nobody waits longer for all that are before it.

    async def wait(self, claim: Claim) -> None:
        """Until it is the turn of this claim. The turn ends with `leave`, or with the claim."""
        own = Merging(target=self.target, task=claim.task.id, epoch=claim.epoch, teammate=claim.teammate)
        try:
            async with asyncio.timeout(self.seconds_max):
                await self.board.merge_into(claim, self.target)
                await self._until_first(own)
        except (BoardTrouble, TimeoutError) as trouble:
            _LOG.warning("merging-without-a-turn task=%d why=%s", own.task, trouble or "it waited too long")
        finally:
            self.tell("")

    async def _until_first(self, own: Merging) -> None:
        passed: set[Merging] = set()
        clock = asyncio.get_running_loop().time
        since: dict[Merging, float] = {}
        while (first := waits_for(await self.board.merging(), own, passed)) is not None:
            rest = since.setdefault(first, clock()) + self.holder_seconds_max - clock()
            if rest <= 0:
                passed.add(first)
                continue
            self.tell(f"Waiting for the merge queue: {first.teammate} merges #{first.task} on another machine.")
            with self.board.watch([f"task:{first.task}"]) as watch:
                # It may have ended before it was watched.
                if waits_for(await self.board.merging(), own, passed) == first:
                    await watch.wait(min(rest, _LOOK_SECONDS))

    async def leave(self, claim: Claim) -> None:
        """Let the others go on, while the attempt goes on without having merged."""
        try:
            await self.board.merge_into(claim, "")
        except BoardTrouble as trouble:
            _LOG.warning("turn-not-given-back task=%d why=%s", claim.task.id, trouble)
