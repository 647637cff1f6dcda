"""Making room, in three steps: old tool results shortened, the older part summarised, and on request. Pure.

Only the view changes; the transcript keeps everything. A call and its results stay together: the view is cut only in
front of a reply, and never inside the last one.
"""

from __future__ import annotations

from ..models.port import Message, Reply, Request, Said, ToolResult
from ..prompts import tell
from ..settings import AgentLimits
from ..text import Told, joined, one_line, quote, shorten, within_bytes
from .conversation import BYTES_PER_TOKEN, Conversation, size_bytes

RECENT_REPLIES = 4  # Their results stay as they are in the first step.
_SHORT = 400
_BEGINNING = 500  # Characters of the kept part, for the model that summarises what is in front of it.


def shortened_results(talk: Conversation, *, recent: int = RECENT_REPLIES) -> list[tuple[int, str]]:
    """The first step: results before the last few replies, each replaced by its beginning and where the whole is."""
    replies = [place for place, entry in enumerate(talk.entries) if isinstance(entry, Reply)]
    before = len(talk.entries) if not recent else replies[-recent] if len(replies) > recent else 0
    found: list[tuple[int, str]] = []
    for place, entry in enumerate(talk.entries[:before]):
        if isinstance(entry, ToolResult) and len(entry.text) > _SHORT:
            short = tell("teammate.shortened", text=entry.text, characters=len(entry.text), output=entry.label)
            found.append((place, short))
    return found


def cut(talk: Conversation, keep_tokens: int) -> int:
    """Where the kept part begins: in front of a reply, with about this many tokens behind it; 0: nowhere."""
    replies = [place for place, entry in enumerate(talk.entries) if isinstance(entry, Reply)]
    size, best = 0, 0
    for place in range(len(talk.entries) - 1, 0, -1):
        size += size_bytes(talk.entries[place]) // BYTES_PER_TOKEN
        if place in replies:
            if size > keep_tokens and best:
                break
            best = place
    # A cut in front of the first reply would summarise nothing new.
    return best if replies and best > replies[0] else 0


def lost(talk: Conversation, kept_from: int) -> list[Message]:
    """What a summary replaces. A first message in the form of an earlier version holds a summary, and does not stay."""
    first = talk.entries[0]
    stays = isinstance(first, Said) and first.text.endswith(talk.opening)
    return talk.entries[1 if stays else 0 : kept_from]


def is_long(talk: Conversation, window: int, share: float) -> bool:
    return talk.size_tokens > window * share


def summary_request(talk: Conversation, kept_from: int, who: Told, window: int, limits: AgentLimits) -> Request:
    """The request for a summary. It always fits: what is too long is shortened first."""
    room = max(2_000, (window - limits.summary_tokens_max) * BYTES_PER_TOKEN * 6 // 10)
    lines = [quote(_as_text(entry)) for entry in lost(talk, kept_from)]
    each = max(300, room // max(1, len(lines)))
    if sum(len(line.encode()) for line in lines) > room:
        lines = [within_bytes(line, each) for line in lines]
    kept = (quote(shorten(_as_text(entry), _BEGINNING)) for entry in talk.entries[kept_from : kept_from + 1])
    told = (
        tell("teammate.stays", told=within_bytes(joined((who, talk.opening)), room // 4)),
        tell("teammate.happened", told=within_bytes(joined(lines, "\n"), room * 3 // 4)),
        *(tell("teammate.follows", told=each) for each in kept),
    )
    return Request(
        system=tell("teammate.summarise", words=limits.summary_tokens_max // 2),
        messages=(Said(joined(told)),),
        output_tokens_max=limits.summary_tokens_max,
        seconds_max=limits.model_seconds_max,
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


def summary_text(talk: Conversation, kept_from: int, words: str) -> Told:
    """What replaces the older part: the mind's own words, which may repeat anybody's."""
    return tell("teammate.summary", words=words or plain_summary(talk, kept_from))


def plain_summary(talk: Conversation, kept_from: int) -> str:
    """A summary without a model: the calls, the beginning of each result, and more of what was told."""
    lines = [
        shorten(entry.text.removeprefix(talk.opening).strip(), 2_000)
        if isinstance(entry, Said)
        else one_line(_as_text(entry), 200)
        for entry in lost(talk, kept_from)
    ]
    return shorten("\n".join(filter(None, lines)), 8_000)
