"""Making room: old results of tools are shortened, or the older part becomes a summary. Pure.

Only the view changes; the transcript keeps everything. A provider's cache is lost from the first change on, so room is
made rarely and in one go: when the view passes a high mark, it is brought below a low one. A call and its results stay
together: the view is cut only in front of a reply, and never inside the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson

from ..models.port import Message, Reply, Request, Said, ToolResult
from ..prompts import tell
from ..settings import AgentLimits
from ..text import Told, joined, one_line, quote, shorten, within_bytes
from .conversation import BYTES_PER_TOKEN, Conversation, size_bytes, size_without

RECENT_REPLIES = 4  # Their results stay as they are.
_SHORT = 600  # Characters that are left of a result,
_LONG = 1_000  # if it had more than this.
_BEGINNING = 500
_OF_A_FILE = ("read_file", "edit_file", "write_file")


def shortened_results(
    talk: Conversation, to_tokens: int, *, recent: int = RECENT_REPLIES
) -> tuple[list[tuple[int, str]], bool]:
    """Results to shorten until the view has so many tokens, and whether that is enough. The large and old ones come
    first, the source that is being edited comes last, and the results of the last few replies stay. Of each its
    beginning and its end are left."""
    replies = [place for place, entry in enumerate(talk.entries) if isinstance(entry, Reply)]
    before = len(talk.entries) if not recent else replies[-recent] if len(replies) > recent else 0
    edited = _being_edited(talk.entries)
    old = [
        (place not in edited, len(entry.text) * (len(talk.entries) - place), place, entry)
        for place, entry in enumerate(talk.entries[:before])
        if isinstance(entry, ToolResult) and len(entry.text) > _LONG
    ]
    found: list[tuple[int, str]] = []
    saved = 0
    for *_, place, entry in sorted(old, key=lambda each: each[:3], reverse=True):
        if size_without(talk, saved) <= to_tokens:
            break
        short = shorten(entry.text, _SHORT, tell("teammate.shortened", output=entry.label))
        saved += len(entry.text.encode()) - len(short.encode())
        found.append((place, short))
    return sorted(found), size_without(talk, saved) <= to_tokens


def _being_edited(entries: Sequence[Message]) -> set[int]:
    """Where the last look at each file stands that was changed after a look at it."""
    paths: dict[str, str] = {}  # By the call of the last reply.
    read: dict[str, int] = {}
    edited: set[str] = set()
    for place, entry in enumerate(entries):
        if isinstance(entry, Reply):
            paths = {call.id: _path_in(call.arguments) for call in entry.calls if call.name in _OF_A_FILE}
        elif isinstance(entry, ToolResult) and (path := paths.get(entry.call)):
            if entry.name == "read_file":
                read[path] = place
            elif path in read:
                edited.add(path)
    return {read[path] for path in edited}


def _path_in(arguments: str) -> str:
    try:
        return str(orjson.loads(arguments)["path"])
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return ""


def cut(talk: Conversation, keep_tokens: int) -> int:
    """Where the kept part begins: in front of a reply, with about this many tokens behind it; 0: nowhere."""
    replies = [place for place, entry in enumerate(talk.entries) if isinstance(entry, Reply)]
    size, best = 0, 0
    for place in range(len(talk.entries) - 1, 0, -1):
        size += size_bytes(talk.entries[place]) // BYTES_PER_TOKEN
        if place in replies:
            if size >= keep_tokens and best:
                break
            best = place
    # A cut in front of the first reply would summarise nothing new.
    return best if replies and best > replies[0] else 0


def lost(talk: Conversation, kept_from: int) -> list[Message]:
    """What a summary replaces. A first message in the form of an earlier version holds a summary, and does not stay."""
    first = talk.entries[0]
    stays = isinstance(first, Said) and first.text.endswith(talk.opening)
    return talk.entries[1 if stays else 0 : kept_from]


def sum_up_request(request: Request, talk: Conversation, kept_from: int, who: Told, limits: AgentLimits) -> Request:
    """The request for a summary at the end of the conversation, so that the provider finds all before it in its
    cache. `who`: the teammate that asks, if the conversation so far is another's."""
    ask = tell("teammate.sum_up", words=limits.summary_tokens_max // 2, told=_beginning(talk, kept_from))
    return replace(
        request, messages=(*talk.entries, Said(joined((who, ask)))), output_tokens_max=limits.summary_tokens_max,
        title="(summary)", turn=talk.replies,
    )  # fmt: skip


def _beginning(talk: Conversation, kept_from: int) -> Told:
    """How the kept part begins, for the model that summarises what is in front of it."""
    return joined(quote(shorten(_as_text(entry), _BEGINNING)) for entry in talk.entries[kept_from : kept_from + 1])


def is_much(talk: Conversation, window: int, limits: AgentLimits) -> bool:
    """Whether the tasks in front of a new one are too many, or too long, to go on from them as they are."""
    if not talk.tasks:
        return False
    return len(talk.tasks) >= limits.context_tasks_max or talk.size_tokens > window * limits.context_share


def summary_request(talk: Conversation, kept_from: int, who: Told, window: int, limits: AgentLimits) -> Request:
    """A request of its own for a summary. It always fits: what is too long is shortened first."""
    room = max(2_000, (window - limits.summary_tokens_max) * BYTES_PER_TOKEN * 6 // 10)
    lines = [quote(_as_text(entry)) for entry in lost(talk, kept_from)]
    each = max(300, room // max(1, len(lines)))
    if sum(len(line.encode()) for line in lines) > room:
        lines = [within_bytes(line, each) for line in lines]
    told = (
        tell("teammate.stays", told=within_bytes(joined((who, talk.opening)), room // 4)),
        tell("teammate.happened", told=within_bytes(joined(lines, "\n"), room * 3 // 4)),
        tell("teammate.follows", told=_beginning(talk, kept_from)),
    )
    return Request(
        system=tell("teammate.summarise", words=limits.summary_tokens_max // 2), messages=(Said(joined(told)),),
        output_tokens_max=limits.summary_tokens_max, seconds_max=limits.model_seconds_max, title="(summary)",
        turn=talk.replies,
    )  # fmt: skip


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


def carried_text(talk: Conversation, words: str) -> Told:
    """What replaces the tasks in front of a new one."""
    return tell("teammate.carried", words=words or plain_summary(talk, len(talk.entries)))


def plain_summary(talk: Conversation, kept_from: int) -> str:
    """A summary without a model: the calls, the beginning of each result, and more of what was told."""
    lines = [
        shorten(entry.text.removeprefix(talk.opening).strip(), 2_000) if isinstance(entry, Said)
        else one_line(_as_text(entry), 200) for entry in lost(talk, kept_from)
    ]  # fmt: skip
    return shorten("\n".join(filter(None, lines)), 8_000)
