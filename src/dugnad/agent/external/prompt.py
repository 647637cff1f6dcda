"""What an external agent is told: who it is, its task, what happened so far, and how to answer. Pure."""

from __future__ import annotations

from ...models.port import LIVE, Message, Reply, Said
from ...prompts import tell
from ...settings import Limits
from ...text import NOTHING, Told, joined, shorten
from ...types import Teammate
from ..conversation import Conversation
from ..packet import who_text
from .answer import KEYS
from .decide import last_reply, refusals, run_of, understood

_HISTORY_CHARS_MAX = 150_000
_ANSWER_CHARS_MAX = 8_000
_SENTENCE_CHARS_MAX = 500


def prompt_text(teammate: Teammate, team: str, role_prompt: str, talk: Conversation, said: Said, how: Told) -> Told:
    """Everything, in one text: each run begins without memory."""
    before = shorten(joined(map(_entry, talk.entries)), _HISTORY_CHARS_MAX)
    return joined((*who_text(teammate, team, role_prompt), tell("external.rules"), before, said.text, how))


def _entry(entry: Message) -> Told:
    if isinstance(entry, Said):
        return entry.text
    if isinstance(entry, Reply):
        if entry.run == LIVE:  # Its result says what came of it.
            return NOTHING
        return tell("external.ended_with", said=shorten(entry.text, _ANSWER_CHARS_MAX))
    return _came_of(entry.name, entry.text)


def _came_of(tool: str, result: str) -> Told:
    """The prompt is one text, so a long result of a tool is marked as such. What the agent asked for itself is called
    as in its answer."""
    tool = KEYS.get(tool, tool)
    if "\n" in result or len(result) > _SENTENCE_CHARS_MAX:
        return tell("external.came_of_long", tool=tool, result=result)
    return tell("external.came_of", tool=tool, result=result)


def remark(talk: Conversation, status: str, board: Limits, *, at_verdict: bool = False) -> Told | None:
    """Why the command runs again, if nothing else says so. The run for a verdict has no folder to look at."""
    if talk.begun and not at_verdict:
        interrupted = tell("external.interrupted")
        return tell("external.interrupted_with", interrupted=interrupted, status=status) if status else interrupted
    last = last_reply(talk)
    if last is None or run_of(last)[0] == "looked":
        return None
    ended, trouble = run_of(last)
    if ended == "asked":
        return tell("external.asked")
    if ended != "well":
        return tell("external.ended_early", trouble=trouble)
    if refused := refusals(talk):
        return tell("external.not_granted", refused=joined((_came_of(*each) for each in refused), "\n"))
    return understood(last.text, board).wrong or None
