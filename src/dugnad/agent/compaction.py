"""Making room, in three steps: old tool results shortened, the older part summarised, and on request. Pure.

Only the view changes; the transcript keeps everything. A call and its results are never torn apart: the view is cut
only in front of a reply, and never inside the last one.
"""

from __future__ import annotations

from ..models.talk import Message, Reply, Request, Said, ToolResult
from ..settings import AgentLimits
from ..tools.quote import one_line, quote, shorten
from .conversation import BYTES_PER_TOKEN, Conversation, size_bytes

_RECENT_REPLIES = 4  # Their results stay as they are in the first step.
_SHORT = 400

SUMMARY_HEAD = "Summary of what happened in this task so far (the full transcript is kept):"

_ASK = """\
You are summarising the work of {name} on the task below, for {name}, who goes on with only your summary. Keep what is \
needed to go on: what was done and with what result, what was decided and why, names of files, numbers of tasks and \
notes, what failed, what is still open, the next step. Do not do the task. Write plain text, at most {words} words."""


def shortened_results(talk: Conversation) -> list[tuple[int, str]]:
    """The first step: results before the last few replies, each replaced by its beginning and where the whole is."""
    replies = [place for place, entry in enumerate(talk.entries) if isinstance(entry, Reply)]
    before = replies[-_RECENT_REPLIES] if len(replies) > _RECENT_REPLIES else 0
    found = []
    for place, entry in enumerate(talk.entries[:before]):
        if isinstance(entry, ToolResult) and len(entry.text) > _SHORT:
            text = f"{one_line(entry.text, 160)} [… {len(entry.text):,} characters, shortened to make room …]"
            found.append((place, text))
    return found


def cut(talk: Conversation, keep_tokens: int) -> int:
    """Where the kept part begins: in front of a reply, with about so many tokens behind it; 0 if there is no place."""
    replies = [place for place, entry in enumerate(talk.entries) if isinstance(entry, Reply)]
    size, best = 0, 0
    for place in range(len(talk.entries) - 1, 0, -1):
        size += size_bytes(talk.entries[place]) // BYTES_PER_TOKEN
        if place in replies:
            if size > keep_tokens and best:
                break
            best = place
    # The first entry is what the model was told at the start; a cut right behind it would summarise nothing new.
    return best if best > 1 else 0


def is_long(talk: Conversation, window: int, share: float) -> bool:
    return talk.size_tokens > window * share


def summary_request(talk: Conversation, kept_from: int, name: str, window: int, limits: AgentLimits) -> Request:
    """Asks for the summary. However full the context is, this fits: what is too long is shortened first."""
    room = max(2_000, int(window * 0.6 - limits.summary_tokens_max) * BYTES_PER_TOKEN)
    entries = talk.entries[:kept_from]
    lines = list(map(_as_text, entries))
    each = max(200, room // max(1, len(lines)))
    if sum(map(len, lines)) > room:
        lines = [shorten(line, each) for line in lines]
    told = shorten("\n".join(lines), room)
    system = _ASK.format(name=name, words=limits.summary_tokens_max // 2)
    return Request(
        system=system,
        messages=(Said(f"{shorten(talk.packet, room // 4)}\n\nWhat happened:\n{quote(told)}"),),
        output_tokens_max=limits.summary_tokens_max,
        seconds_max=limits.model_seconds_max,
        teammate=name,
        title="(summary)",
        turn=talk.replies,
    )


def _as_text(entry: Message) -> str:
    if isinstance(entry, Said):
        return f"[told] {entry.text}"
    if isinstance(entry, ToolResult):
        return f"[{entry.name} gave] {entry.text}"
    calls = "".join(f"\n[called {call.name}] {call.arguments}" for call in entry.calls)
    return f"[said] {entry.text}{calls}"


def plain_summary(talk: Conversation, kept_from: int) -> str:
    """When no model can be asked for one: what was called, and how each answer began."""
    lines = [one_line(_as_text(entry), 200) for entry in talk.entries[1:kept_from] if not isinstance(entry, Said)]
    return shorten("\n".join(lines), 8_000)
