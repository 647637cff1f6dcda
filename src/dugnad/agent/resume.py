"""What both kinds of mind do around an attempt: recall the conversation, take messages, and hand over."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from ..board import Board
from ..board.around import Beginning
from ..models.port import Reply
from ..prompts import tell
from ..text import Told, clean, shorten
from ..tools.message_tools import inbox_text
from ..types import Attempt, Claim, Failed, Outcome, Released, Teammate, Turn, Waiting
from .conversation import Conversation
from .model_calls import PutDown

Attempts = Sequence[Attempt]  # All at one task, the oldest first.
_Turns = tuple[int, list[Turn]]  # Of one attempt, by its epoch.


def continued(this: Claim | Attempt, attempts: Attempts) -> list[Attempt]:
    """The attempts that this one continues, the oldest first."""
    before = {attempt.epoch: attempt for attempt in attempts}
    chain: list[Attempt] = []
    epoch = this.continues
    while epoch is not None and epoch in before:
        chain.insert(0, before[epoch])
        epoch = before[epoch].continues
    return chain


async def recall(
    board: Board, claim: Claim, talk: Conversation, beginning: Beginning | None, *, follow: bool = False
) -> Attempts:
    """Fold the transcript into a fresh conversation, with what it waited for last; with `follow`, behind those of the
    tasks whose conversation it goes on from. What the board has of the claim is read here, unless it is given. Returns
    the attempts at the task."""
    beginning = beginning or await board.beginning(claim)
    found, turns, talk.spending = beginning.attempts, list(beginning.turns), beginning.spending
    chain = continued(claim, found)
    own = [(each.epoch, await _turns(board, claim.task.id, each.epoch)) for each in chain]
    own.append((claim.epoch, await _turns(board, claim.task.id, claim.epoch, turns) if turns else turns))
    if follow:
        await _fold_earlier(board, talk, chain[0].follows if chain else claim.follows, own)
        talk.part = f"t{claim.task.id}." if claim.context else ""
    talk.authors = {attempt.epoch: attempt.teammate for attempt in chain}
    _fold(talk, own)
    # An attempt that recorded something after the wait has dealt with what was waited for.
    waits = [attempt.epoch for attempt in chain if attempt.ended_as == "waiting"]
    talk.since = waits[-1] if waits and waits[-1] >= talk.recorded else None
    talk.waits = [epoch for epoch in waits if epoch >= talk.reply_at[0]]
    if isinstance(talk.ended, Released) and talk.ended.resume and talk.recorded != claim.epoch:
        talk.ended = None  # The teammate that gave the task back was shut down; the work continues.
        talk.say(tell("teammate.go_on"))
    return found


async def _fold_earlier(board: Board, talk: Conversation, task: int | None, own: Sequence[_Turns]) -> None:
    """Fold the conversations of the tasks in front of this one, the oldest first. A task that began with a summary of
    what was before it needs nothing more."""
    earlier: list[tuple[int, list[_Turns]]] = []
    turns: Sequence[_Turns] = own
    while task is not None and not _is_carried(turns):
        attempts = await board.attempts(task)
        done = next(each for each in attempts if each.ended_as == "done")
        chain = [*continued(done, attempts), done]
        turns = [(each.epoch, await _turns(board, task, each.epoch)) for each in chain]
        if not any(each for _, each in turns):  # Pruned. What was built on it cannot be told any more.
            return
        earlier.insert(0, (task, list(turns)))
        task = chain[0].follows
    for number, each in earlier:
        talk.part = f"t{number}."
        _fold(talk, each)
        talk.go_on_after(number)


def _is_carried(turns: Sequence[_Turns]) -> bool:
    first = next((turn for _, each in turns for turn in each if turn.kind != "trouble"), None)
    return first is not None and first.kind == "summary" and "carried" in orjson.loads(first.body)


async def _turns(board: Board, task: int, epoch: int, first: Sequence[Turn] = ()) -> list[Turn]:
    found = list(first)
    while page := await board.transcript(task, epoch, after=found[-1].number if found else 0):
        found += page
    return found


def _fold(talk: Conversation, attempts: Sequence[_Turns]) -> None:
    for epoch, turns in attempts:
        talk.attempt(epoch)
        for turn in turns:
            talk.apply(turn)


async def take_messages(board: Board, claim: Claim, talk: Conversation) -> None:
    """Show new messages to the teammate with the next request, once; and look at the root's account."""
    mail, talk.spending = await board.mail_and_budget(claim.teammate, claim.task.root)
    if mail:
        messages = await board.take(claim.teammate, f"t{claim.task.id}.e{talk.epoch}.{talk.number}")
        leads = frozenset(member.name for member in await board.team() if member.lead)
        if messages:
            # People come before the work, also before its packet.
            talk.to_say.insert(0, inbox_text(messages, leads, outside=talk.outside, client=talk.client))
            talk.shown += [message.id for message in messages]


async def must_be_trusted(board: Board, claim: Claim, teammate: Teammate, who: str, answer: str | None) -> None:
    """Nothing can limit a program of others to reading, so it cannot look around and make a plan first. PutDown: a
    person has to decide, or has said no."""
    if not (claim.task.plan or teammate.plan) or await board.plan_approved(claim.task.id):
        return
    if answer:
        raise PutDown(Failed(f"{who} was not allowed to work without a plan. {answer}"))
    question = (
        f"#{claim.task.id} needs a plan before anything is changed, and nothing stops {who} from changing things while "
        "it makes one. Approve to let it work without a plan; otherwise the task fails."
    )
    raise PutDown(Waiting(on="plan", question=question))


async def record_verdict(board: Board, claim: Claim, talk: Conversation, told: Told, *, last: bool) -> None:
    """What the work came to takes the place of the first answer of `finish`."""
    assert talk.finished is not None
    body = {"place": talk.finished[0], "text": told, "verdict": True, **({"last": True} if last else {})}
    talk.number = await board.record(claim, talk.next_turn("tool", body))
    talk.apply_verdict(told, last=last)


async def hand_over(board: Board, claim: Claim, talk: Conversation, outcome: Outcome) -> Outcome:
    """Leave a word for the next attempt, if that starts without this conversation."""
    if isinstance(outcome, Failed) or (isinstance(outcome, Released) and not outcome.resume):
        said = [entry.text for entry in talk.entries if isinstance(entry, Reply) and entry.text.strip()]
        own = said[-min(2, talk.replies) :] if talk.replies else []  # Not those of a task in front of this one.
        if words := "\n".join([*own, *talk.desk.todo]):
            await board.hand_over(claim, shorten(clean(words), 4_000))
    return outcome
