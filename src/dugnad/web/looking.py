"""The reads: each is shaped by the same pure code, live or at any event of the past. They change nothing.

Transcripts, tracebacks, diffs and single events are not in the history; they are read from the board and from git.
"""

from __future__ import annotations

import orjson
from starlette.responses import Response

from ..types import Turn
from ..view.json import Shape
from .calls import BoardCall
from .diffs import task_diff
from .following import FollowedBoard, line_shape
from .guard import WebRefusal
from .log_pages import LogPages
from .merges import transcripts_to_read
from .rehearsed import last_rehearsal
from .shapes import (
    changes_shape,
    merge_of,
    merges_shape,
    messages_shape,
    money_shape,
    notes_shape,
    state_shape,
    task_detail,
    timeline_shape,
)
from .stream import EventStream
from .transcripts import PIECE_CHARS_MAX, WHOLE_CHARS_MAX, checks, entries

_PAGE = 50
_PAGE_MAX = 500
_CHECKED_TURNS_MAX = 400  # Turns of an attempt that are searched for checks,
_CHECKED_ATTEMPTS_MAX = 3  # and attempts.
_VERDICT_TURNS_MAX = 200  # Turns at the end of an attempt.
_EVENTS_MAX = 300  # Of one task.
_WORDS_CHARS_MAX = 200


async def state(call: BoardCall) -> Shape:
    """The whole board in short. Pages that load it at the same time share the work."""
    followed = call.followed
    if call.number("at") is None:
        await followed.refresh()
        shape = {**followed.kept("state", lambda: _live_state(followed)), "now": followed.now_ms()}
    else:
        view = call.view()
        shape = state_shape(view, view.at, windows=followed.windows)
    return {**shape, "reading": followed.reading, "trouble": followed.trouble}


def _live_state(followed: FollowedBoard) -> Shape:
    shape = state_shape(followed.view(), followed.now_ms(), windows=followed.windows)
    return {**shape, "tasks": orjson.Fragment(orjson.dumps(shape["tasks"]))}


async def stream(call: BoardCall) -> Response:
    call.served.streams.refuse_more(call.session)
    after = call.number("after")
    named = call.last_event_id
    if named is not None and named.isdecimal() and len(named) <= 15:
        after = int(named)
    return EventStream(
        call.followed, after=after, session=call.session, sessions=call.served.sessions, streams=call.served.streams
    )


async def task(call: BoardCall) -> Shape:
    await call.followed.refresh()
    view, number = call.view(), call.task()
    shape = task_detail(view, number, _now(call))
    if shape is None:
        raise _unknown(number)
    at = call.number("at")
    until = None if at is None else view.at
    found = await _checks(call, number, [each["epoch"] for each in shape["attempts"]], until)
    known = {str(each["number"]) for each in shape["attempts"] if each["ended_at"] is not None}
    tracebacks = await _tracebacks(call, number)
    first = call.followed.history.first
    log = LogPages(board=call.followed.board, first=first, task=number, everything=False)
    lines, _ = await log.backward(view.seq + 1, _EVENTS_MAX)
    return {
        **shape, "checks": found, "tracebacks": {at: text for at, text in tracebacks.items() if at in known},
        "events": [*map(line_shape, lines)],
    }  # fmt: skip


async def _tracebacks(call: BoardCall, task: int) -> dict[str, str]:
    """By the number of the attempt. What another program wrote there may have any form."""
    try:
        return {str(at): text for at, text in (await call.followed.board.tracebacks(task)).items()}
    except (ValueError, KeyError, TypeError):
        return {}


async def _checks(call: BoardCall, task: int, epochs: list[int], until: int | None) -> list[Shape]:
    """The checks of the last attempts, up to a time."""
    board, found = call.followed.board, list[Shape]()
    for epoch in epochs[-_CHECKED_ATTEMPTS_MAX:]:
        turns = await board.transcript(task, epoch, page=_CHECKED_TURNS_MAX)
        found += checks(turn for turn in turns if until is None or turn.at <= until)
    return found


async def turns(call: BoardCall) -> Shape:
    """A page of the transcript of one attempt. A page ends before a reply, so that no reply is without its results."""
    number = _known(call)
    epoch, after = call.number("epoch", 0) or 0, call.number("after", 0) or 0
    page = call.number("page", _PAGE, least=1, most=_PAGE_MAX) or _PAGE
    board = call.followed.board
    found = await board.transcript(number, epoch, after=after, page=page)
    more = len(found) == page
    while more and (tail := await board.transcript(number, epoch, after=found[-1].number, page=page)):
        results = _results(tail)
        found += tail[:results]
        if results < len(tail):
            break
    else:
        more = False
    return {"turns": entries(found, most=PIECE_CHARS_MAX), "more": more, "after": found[-1].number if found else after}


def _results(turns: list[Turn]) -> int:
    """How many turns at the beginning are results of calls."""
    return next((at for at, turn in enumerate(turns) if turn.kind != "tool"), len(turns))


async def turn(call: BoardCall) -> Shape:
    """One turn with whole texts."""
    number, epoch = _known(call), call.number("epoch", 0) or 0
    place = call.number("number", 0) or 0
    board = call.followed.board
    found = await board.transcript(number, epoch, after=place - 1, page=1) if place else []
    if not found or found[0].number != place:
        raise WebRefusal(404, "NotFound", f"Attempt {epoch} of #{number} has no turn {place}.")
    if found[0].kind == "reply":
        while tail := await board.transcript(number, epoch, after=found[-1].number, page=_PAGE):
            results = _results(tail)
            found += tail[:results]
            if results < len(tail):
                break
    shown = entries(found, most=WHOLE_CHARS_MAX)
    return {"turn": shown[0] if shown else {"number": place, "kind": "tool", "text": found[0].body}}


async def diff(call: BoardCall) -> Shape:
    """The diff of a task, or for a review of the task that it judges."""
    view, number = call.followed.view(), _known(call)
    number = view.tasks[str(number)].get("reviews") or number
    if str(number) not in view.tasks:
        raise _unknown(number)
    merge = merge_of(view.tasks[str(number)])
    into = merge[0]
    if into is None:
        ended = sorted(view.tasks.values(), key=lambda facts: -(facts["ended_at"] or 0))
        into = next((branch for branch, _ in map(merge_of, ended) if branch is not None), None)
    found = await call.followed.board.find(number)
    return {"task": number, **await task_diff(call.followed.root, found, merge=merge, into=into)}


async def timeline(call: BoardCall) -> Shape:
    rehearsal = last_rehearsal(call.served.environment, call.followed.identity)
    return timeline_shape(call.view(), _now(call), since=call.number("since"), rehearsal=rehearsal)


async def money(call: BoardCall) -> Shape:
    return money_shape(call.view(), _now(call))


async def merges(call: BoardCall) -> Shape:
    """What attempts that go on were told of their work stands in their transcripts alone."""
    view, turns = call.view(), dict[int, list[Turn]]()
    for number, epoch, after in transcripts_to_read(view):
        read = await call.followed.board.transcript(number, epoch, after=after, page=_VERDICT_TURNS_MAX)
        turns[number] = [turn for turn in read if view.live or turn.at <= view.at]
    return merges_shape(view, _now(call), turns=turns)


async def notes(call: BoardCall) -> Shape:
    return notes_shape(call.view(), call.query.get("words", "")[:_WORDS_CHARS_MAX])


async def messages(call: BoardCall) -> Shape:
    return messages_shape(call.view(), call.query.get("with", "")[:_WORDS_CHARS_MAX])


async def changes(call: BoardCall) -> Shape:
    """What happened between two events: since the person left."""
    history = call.followed.history
    after, until = call.number("after", history.first) or 0, call.number("until", history.last) or 0
    if not history.first <= after <= until <= history.last:
        raise WebRefusal(404, "UnknownEvent", f"The log has the events from {history.first} to {history.last} here.")
    return changes_shape(history, after, until)


async def events(call: BoardCall) -> Shape:
    """A page of the log, in order: the first events after one, or the last before one."""
    after, before, task = call.number("after"), call.number("before"), call.number("task", least=1)
    page = call.number("page", 100, least=1, most=_PAGE_MAX) or 1
    everything = call.query.get("all") == "1"
    at = call.number("at")
    until = min(each for each in (before, None if at is None else at + 1, 10**15) if each is not None)
    first = call.followed.history.first
    log = LogPages(board=call.followed.board, first=first, task=task, everything=everything)
    if after is not None:
        found, more = await log.forward(after, until, page)
    else:
        found, more = await log.backward(min(until, call.followed.history.last + 1), page)
    return {"events": [*map(line_shape, found)], "more": more}


def _now(call: BoardCall) -> int:
    """The time of the view: in the past, that of its event."""
    return call.followed.now_ms() if call.number("at") is None else call.view().at


def _known(call: BoardCall) -> int:
    """The task in the path, if there is one."""
    number = call.task()
    if str(number) not in call.followed.view().tasks:
        raise _unknown(number)
    return number


def _unknown(number: int) -> WebRefusal:
    return WebRefusal(404, "UnknownTask", f"There is no task #{number} on this board.")
