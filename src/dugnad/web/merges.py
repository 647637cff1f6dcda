"""What is being delivered, what was merged, and what did not go in: red checks and conflicts. Pure.

The log has a red check only if an attempt ended with it. While an attempt goes on, red checks and conflicts stand in
its transcript alone, as the verdict on its `finish`. `transcripts_to_read` says which transcripts would tell more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from string import Formatter
from typing import Any, Literal, NamedTuple

import orjson

from ..board.replay import Entity
from ..prompts import load
from ..tools.finish_tools import APPROVED
from ..types import ENDED, Turn
from ..view.json import Shape
from .history import BoardView
from .summaries import merge_of, task_summary, title_of

Verdict = Literal["red", "conflict"]
_PROMPTS: tuple[tuple[str, Verdict], ...] = (("red", "red"), ("red_together", "red"), ("conflict", "conflict"))
_NOT_DONE = "Not done: "
_MERGED_MOST = 500
_TEXT_MOST = 8_000
_READ_MOST = 40  # Transcripts,
_TURNS_MOST = 60  # and turns at the end of each.
# How an attempt ended, as `team/delivery.py` and `team/workspaces/worktrees.py` word it.
_RED = re.compile(r"the check .* stayed red:|The work was not merged: merged into .* its check is red:", re.DOTALL)
_MERGED_SINCE = re.compile(r"^> \S+ .*\(#(\d{1,18}), by [^()]*\)$", re.MULTILINE)  # As `came_between` lists commits.


def verdict_of(text: str) -> Verdict | None:
    """What a mind was told of the work that it handed in; None: something else."""
    openings = ((load("delivery")[name].partition("{")[0], verdict) for name, verdict in _PROMPTS)
    return next((verdict for opening, verdict in openings if text.startswith(opening)), None)


def transcripts_to_read(view: BoardView) -> list[tuple[int, int, int]]:
    """Of the tasks in work, the newest first: the task, the epoch of its last attempt, and after which turn to read."""
    found: list[tuple[int, int, int]] = []
    for each in view.tasks_in("claimed", "waiting", "ready"):
        attempts = view.of_task(view.history.attempts_of, each, "attempt")
        if attempts and (last := attempts[-1][1]["spent"].last):
            found.append((int(each), int(attempts[-1][0].partition(".")[2]), max(0, last - _TURNS_MOST)))
    return sorted(found, reverse=True)[:_READ_MOST]


def merges_shape(view: BoardView, now: int, *, turns: Mapping[int, Sequence[Turn]] | None = None) -> Shape:
    """`turns`: by task, the last turns of its last attempt, for the tasks of `transcripts_to_read`."""
    told = {str(task): _told(each) for task, each in (turns or {}).items()}
    delivered = [(each, facts) for each, facts in view.tasks.items() if facts["state"] == "done" and merge_of(facts)[0]]
    delivered.sort(key=lambda item: item[1]["ended_at"] or 0, reverse=True)
    red, conflicts = _not_merged(view, told)
    return {
        "into": merge_of(delivered[0][1])[0] if delivered else None,
        "queue": [
            task_summary(each, facts)
            for each, facts in view.tasks_in("claimed", "waiting", "ready").items()
            if _is_reviewed(view, each) or (each in told and told[each].handed_in)
        ],
        "merged": [_merged(each, facts) for each, facts in delivered[:_MERGED_MOST]],
        "red": red,
        "conflicts": conflicts,
    }


class _WorkVerdict(NamedTuple):
    """What an attempt was told last about the work that it handed in."""

    verdict: Verdict | None = None
    text: str = ""
    at: int = 0
    handed_in: bool = False  # It was told nothing since.


def _told(turns: Sequence[Turn]) -> _WorkVerdict:
    told = _WorkVerdict()
    for turn in turns:
        body = _body(turn)
        text = body.get("text") if turn.kind == "tool" else _said_to_it(body)
        if isinstance(text, str) and (turn.kind == "reply" or body.get("verdict")) and text.startswith(_NOT_DONE):
            told = _WorkVerdict(verdict_of(text), text, turn.at)
        elif turn.kind == "tool" and isinstance(ends := body.get("ends"), dict) and ends.get("as") == "Done":
            told = _WorkVerdict(at=turn.at, handed_in=True)
        elif turn.kind == "reply":
            told = told._replace(handed_in=False)
    return told


def _body(turn: Turn) -> Mapping[str, Any]:
    """Another program may have written any text."""
    try:
        found = orjson.loads(turn.body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _said_to_it(body: Mapping[str, Any]) -> str:
    """A mind that ended with plain text is told with the next request."""
    _, begin, rest = f"\n{body.get('said') or ''}".partition(f"\n{_NOT_DONE}")
    return f"{_NOT_DONE}{rest}" if begin else ""


def _is_reviewed(view: BoardView, task: str) -> bool:
    """Whether its work is being reviewed, or was approved and is about to be merged."""
    reviews = view.of_task(view.history.reviews_of, task, "task")
    if not reviews:
        return False
    last = reviews[-1][1]
    return last["state"] not in ENDED or (last["state"] == "done" and last["outcome"] == APPROVED)


def _merged(each: str, facts: Entity) -> Shape:
    branch, commit = merge_of(facts)
    return {
        "task": int(each), "title": facts["title"], "teammate": facts["teammate"], "commit": commit, "into": branch,
        "at": facts["ended_at"], "triggers": facts["triggers"],
    }  # fmt: skip


def _not_merged(view: BoardView, told: Mapping[str, _WorkVerdict]) -> tuple[list[Shape], list[Shape]]:
    """The tasks whose last check was red, and those that conflict."""
    red: list[Shape] = []
    conflicts: list[Shape] = []
    for each, facts, found in _last_words(view, told):
        if found.verdict == "red":
            red.append({**task_summary(each, facts), "says": found.text[:_TEXT_MOST], "at": found.at})
        elif found.verdict == "conflict":
            conflicts.append(_conflict(view, each, found))
    return red, conflicts


def _last_words(view: BoardView, told: Mapping[str, _WorkVerdict]) -> Iterator[tuple[str, Entity, _WorkVerdict]]:
    """The tasks that are not done, with the verdict on them: in their transcript, or as the reason of an attempt."""
    for each, facts in view.tasks.items():
        if not facts["claims"] or facts["state"] == "done":
            continue
        if (found := told.get(each)) is not None and (found.text or found.handed_in):
            yield each, facts, found
            continue
        attempts = view.of_task(view.history.attempts_of, each, "attempt")
        ended = next((attempt for _, attempt in reversed(attempts) if attempt["reason"]), None)
        if ended is not None and _RED.match(ended["reason"]):
            yield each, facts, _WorkVerdict("red", ended["reason"], ended["ended_at"] or 0)


def _conflict(view: BoardView, task: str, found: _WorkVerdict) -> Shape:
    """The files, and the tasks whose work came in between, both as the runtime wrote them down."""
    begin, end = (literal for literal, *_ in list(Formatter().parse(load("delivery")["marked"]))[:2])
    files = re.search(f"{re.escape(begin)}(.*?){re.escape(end)}", found.text, re.DOTALL)
    others = list(dict.fromkeys(map(int, _MERGED_SINCE.findall(found.text))))
    return {
        "task": int(task), "title": title_of(view, task), "teammate": view.tasks[task]["teammate"],
        "with": others, "files": files[1].split(", ") if files else [], "says": found.text[:_TEXT_MOST], "at": found.at,
    }  # fmt: skip
