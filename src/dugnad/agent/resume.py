"""An attempt's conversation as far as it is recorded, in this attempt and those it goes on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..board import Board
from ..types import Attempt, Claim
from .conversation import Conversation

Attempts = Sequence[Attempt]  # All at one task, the oldest first.


async def recall(board: Board, claim: Claim, talk: Conversation, attempts: Attempts | None) -> Attempts:
    """Fold the transcript into a fresh conversation, with what it waited for last. Returns the attempts at the task,
    which are read here unless they were given."""
    found = await board.attempts(claim.task.id) if attempts is None else attempts
    before = {attempt.epoch: attempt for attempt in found}
    chain = _chain(claim, before)
    talk.authors = {epoch: before[epoch].teammate for epoch in chain if epoch in before}
    for epoch in chain:
        talk.attempt(epoch)
        after = 0
        while page := await board.transcript(claim.task.id, epoch, after=after):
            for turn in page:
                talk.apply(turn)
            after = page[-1].number
    # An attempt that recorded something after the wait has dealt with what was waited for.
    waits = [epoch for epoch, ended_as in chain.items() if ended_as == "waiting" and epoch >= talk.recorded]
    talk.since = waits[-1] if waits else None
    talk.waits = [epoch for epoch, ended_as in chain.items() if ended_as == "waiting" and epoch >= talk.reply_at[0]]
    return found


def _chain(claim: Claim, before: Mapping[int, Attempt]) -> dict[int, str | None]:
    """This attempt and those it goes on from, oldest first, each with how it ended."""
    chain: dict[int, str | None] = {claim.epoch: None}
    epoch = claim.continues
    while epoch is not None and epoch in before:
        chain[epoch] = before[epoch].ended_as
        epoch = before[epoch].continues
    return dict(reversed(chain.items()))
