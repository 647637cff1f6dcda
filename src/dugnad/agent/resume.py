"""What both kinds of mind do around an attempt: recall the conversation, take messages, and hand over."""

from __future__ import annotations

from collections.abc import Sequence

from ..board import Board
from ..models.port import Reply
from ..prompts import tell
from ..text import clean, shorten
from ..tools.message_tools import inbox_text
from ..types import Attempt, Claim, Failed, Outcome, Released
from .conversation import Conversation

Attempts = Sequence[Attempt]  # All at one task, the oldest first.


def continued(claim: Claim, attempts: Attempts) -> list[Attempt]:
    """The attempts that a claim continues, the oldest first."""
    before = {attempt.epoch: attempt for attempt in attempts}
    chain: list[Attempt] = []
    epoch = claim.continues
    while epoch is not None and epoch in before:
        chain.insert(0, before[epoch])
        epoch = before[epoch].continues
    return chain


async def recall(board: Board, claim: Claim, talk: Conversation, attempts: Attempts | None) -> Attempts:
    """Fold the transcript into a fresh conversation, with what it waited for last. Returns the attempts at the task,
    which are read here unless they were given."""
    found = await board.attempts(claim.task.id) if attempts is None else attempts
    chain = continued(claim, found)
    talk.authors = {attempt.epoch: attempt.teammate for attempt in chain}
    for epoch in (*talk.authors, claim.epoch):
        talk.attempt(epoch)
        after = 0
        while page := await board.transcript(claim.task.id, epoch, after=after):
            for turn in page:
                talk.apply(turn)
            after = page[-1].number
    # An attempt that recorded something after the wait has dealt with what was waited for.
    waits = [attempt.epoch for attempt in chain if attempt.ended_as == "waiting"]
    talk.since = waits[-1] if waits and waits[-1] >= talk.recorded else None
    talk.waits = [epoch for epoch in waits if epoch >= talk.reply_at[0]]
    if isinstance(talk.ended, Released) and talk.ended.resume and talk.recorded != claim.epoch:
        talk.ended = None  # The teammate that gave the task back was shut down; the work continues.
        talk.say(tell("teammate.go_on"))
    return found


async def take_messages(board: Board, claim: Claim, talk: Conversation) -> None:
    """Show new messages to the teammate with the next request, once."""
    name = claim.teammate
    if await board.has_unread(name):
        messages = await board.take(name, f"t{claim.task.id}.e{talk.epoch}.{talk.number}")
        leads = frozenset(member.name for member in await board.team() if member.lead)
        if messages:
            # People come before the work, also before its packet.
            talk.to_say.insert(0, inbox_text(messages, leads))
            talk.shown += [message.id for message in messages]


async def hand_over(board: Board, claim: Claim, talk: Conversation, outcome: Outcome) -> Outcome:
    """Leave a word for the next attempt, if that starts without this conversation."""
    if isinstance(outcome, Failed) or (isinstance(outcome, Released) and not outcome.resume):
        said = [entry.text for entry in talk.entries if isinstance(entry, Reply) and entry.text.strip()]
        if words := "\n".join([*said[-2:], *talk.desk.todo]):
            await board.hand_over(claim, shorten(clean(words), 4_000))
    return outcome
