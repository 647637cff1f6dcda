"""Whether the attempt is over, and how: pure, from the conversation alone."""

from __future__ import annotations

from ..models.port import Reply
from ..prompts import tell
from ..settings import AgentLimits
from ..text import Told, clean, joined, shorten
from ..types import Done, Failed, Outcome, Waiting
from .conversation import Conversation

_RESULT_CHARS_MAX = 50_000  # Of a result that others work with; the transcript has all of it.


def decide(talk: Conversation, limits: AgentLimits) -> Outcome | None:
    """The outcome, or None: there is another turn to take."""
    if talk.ended is not None:
        return talk.ended
    last = talk.last
    if isinstance(last, Reply) and not talk.to_say:
        if last.stop == "refused":
            return Failed(f"the model refused: {_kept(last) or 'without a reason'}", retry=True)
        # Plain text without a call is the result. If more is expected of the end, only a second one in a row is.
        if talk.plain > bool(talk.desk.follows) and talk.may_end:
            return Done(_kept(last))
    if talk.odd >= limits.odd_replies_max:
        return Failed(f"{talk.odd} replies in a row were empty, cut off or malformed", retry=True)
    if talk.turns >= limits.turns_max:
        return Waiting(
            on="human",
            question=f"{talk.turns} turns were taken in this attempt, which is the limit. Answer to let it go on, "
            "with a word of advice if you have one; or cancel the task.",
        )
    return None


def _kept(reply: Reply) -> str:
    return shorten(clean(reply.text.strip()), _RESULT_CHARS_MAX)


def nudge(talk: Conversation, limits: AgentLimits, *, review: bool = False) -> Told | None:
    """What the mind is told after an odd reply."""
    last = talk.last
    if not talk.replies or not isinstance(last, Reply) or last.calls:
        return None
    if last.stop == "length":
        return tell("teammate.cut_off", most=limits.output_tokens_max)
    if not last.text.strip():
        return tell("teammate.empty_reply")
    if not talk.may_end:
        return tell("teammate.plan_not_approved")
    if talk.plain == 1 and talk.desk.follows:
        counts = None if review else tell("teammate.plain_counts")
        return joined((tell("teammate.not_finished", follows=talk.desk.follows), counts), " ")
    return None


def reminder(talk: Conversation, limits: AgentLimits) -> Told | None:
    """Reminds of the private list if it was not touched for a while."""
    quiet = talk.replies - talk.desk.todo_turn
    if not talk.desk.todo or quiet < limits.todo_turns or quiet % limits.todo_turns:
        return None
    return tell("teammate.todo", todo="\n".join(talk.desk.todo))
