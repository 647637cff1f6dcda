"""Whether an attempt by an external agent is over, and how: pure, from the conversation alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from ...board.verbs.settle import check_outcome
from ...errors import DugnadError
from ...models.port import LIVE, Reply, ToolResult
from ...prompts import tell
from ...settings import AgentLimits, Limits
from ...text import shorten
from ...types import Done, Failed, Outcome, Released, Waiting
from ..conversation import NOT_GRANTED, Conversation
from .answer import AgentAnswer, read_answer
from .command import PREFIXES, ExternalCommand
from .reports import Ending

_RESULT_CHARS_MAX = 50_000
_WRONG_MAX = 2  # Answers in a row that were not understood.


def run_of(reply: Reply) -> tuple[Ending, str]:
    """How the run behind a reply ended, and what went wrong. A reply of another mind, from an earlier attempt, ended
    well."""
    ended, _, trouble = reply.run.partition(": ")
    return (ended, trouble) if ended in get_args(Ending) else ("well", "")  # type: ignore[return-value]


def refusals(talk: Conversation) -> list[tuple[str, str]]:
    """The calls of the last reply that were not granted: the tool, and why."""
    found: list[tuple[str, str]] = []
    for entry in reversed(talk.entries):
        if not isinstance(entry, ToolResult):
            break
        if entry.text.startswith(NOT_GRANTED):
            found.insert(0, (entry.name, entry.text))
    return found


def runs(talk: Conversation) -> Iterator[Reply]:
    """What each run came to, the last one first. A call in the middle of a run is none."""
    return (entry for entry in reversed(talk.entries) if isinstance(entry, Reply) and entry.run != LIVE)


def last_reply(talk: Conversation) -> Reply | None:
    return next(runs(talk), None)


def decide(talk: Conversation, command: ExternalCommand, limits: AgentLimits, board: Limits) -> Outcome | None:
    """The outcome, or None: the command runs again."""
    if talk.ended is not None:
        return talk.ended
    last = last_reply(talk)
    if last is not None and not talk.to_say and (outcome := _end(talk, last, command, limits, board)) is not None:
        return outcome
    looked = last is not None and run_of(last)[0] == "looked"  # The verdict is asked for in any case.
    if talk.turns >= command.runs_max and not looked:
        return Waiting(
            on="human",
            question=f"{command.name} was run {talk.turns} times in this attempt, which is the limit. Answer to let it "
            "go on, with a word of advice if you have one; or cancel the task.",
        )
    return None


def _end(
    talk: Conversation, last: Reply, command: ExternalCommand, limits: AgentLimits, board: Limits
) -> Outcome | None:
    ended, trouble = run_of(last)
    if ended in ("failed", "late"):
        return Failed(f"{command.name}: {trouble}", retry=True)
    if ended == "busy":
        return Released(f"{command.name}: {trouble}", limits.give_back_seconds)
    if ended != "well" or talk.begun or refusals(talk):
        return None
    if not last.model.startswith(PREFIXES) and last.calls:
        return None
    answer = understood(last.text, board)
    if answer.wrong:
        wrong = wrong_in_a_row(talk, board)
        return Failed(f"{command.name}: {answer.wrong}", retry=True) if wrong >= _WRONG_MAX else None
    if answer.question:
        return None  # It was answered, or the task would still wait.
    return Failed(answer.failure) if answer.failure else _done(answer)


def _done(answer: AgentAnswer) -> Done:
    return Done(shorten(answer.result, _RESULT_CHARS_MAX), answer.outcome)


def understood(text: str, board: Limits) -> AgentAnswer:
    """The answer in a final text, if the board can take it too."""
    answer = read_answer(text)
    try:
        check_outcome(_done(answer), board)
    except DugnadError as wrong:
        return AgentAnswer(wrong=tell("external.not_taken", why=wrong))
    return answer


def wrong_in_a_row(talk: Conversation, board: Limits) -> int:
    count = 0
    for reply in runs(talk):
        if run_of(reply)[0] != "well" or not understood(reply.text, board).wrong:
            break
        count += 1
    return count
