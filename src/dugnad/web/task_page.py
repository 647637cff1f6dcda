"""One task with everything around it: needs and dependents, attempts, follow-ups, messages, its review. Pure."""

from __future__ import annotations

from typing import Any

from ..board.replay import Entity
from ..types import Attempt, Task
from ..view.json import Shape, message_shape, shape_of
from .history import BoardView
from .summaries import message_of, task_summary
from .tracks import Spent
from .why import why_not

_MESSAGES_MOST = 200
_CHILDREN_MOST = 500
_BEHIND_MOST = 500


def task_detail(view: BoardView, task: int, now: int) -> Shape | None:
    """Everything that the history knows of a task; None: there was no such task."""
    each = str(task)
    facts = view.tasks.get(each)
    if facts is None:
        return None
    history = view.history
    children = view.of_task(history.children, each, "task")
    messages = view.of_task(history.messages_of, each, "message")
    return {
        "task": shape_of(task_of(view, each, facts)),
        "summary": task_summary(each, facts),
        "needs": [_need(view, need, edge) for need, edge in facts["needs"].items()],
        "needed_by": _needed_by(view, each),
        "attempts": [attempt_shape(at, attempt) for at, attempt in view.of_task(history.attempts_of, each, "attempt")],
        "children": [task_summary(child, found) for child, found in children[:_CHILDREN_MOST]],
        "messages": [message_shape(message_of(at, message)) for at, message in messages[-_MESSAGES_MOST:]],
        "why": why_not(each, view, now),
        "review": _review(view, each),
        "reviews": facts["reviews"],
    }


def task_of(view: BoardView, each: str, facts: Entity) -> Task:
    """The record that the board gives of a task, without what is not in the log: the length of its chain."""
    same: Any = {name: facts[name] for name in Task.__slots__ if name in facts}
    flags = {name: bool(facts[name]) for name in ("plan", "network")}
    asked_in = _asked_in(view, facts)
    texts = {"body": facts["body"] or "", "priority": facts["priority"] or 0, "put_at": facts["put_at"] or 0}
    return Task(**{**same, **flags, **texts, "id": int(each), "chain": 0, "asked_in": asked_in})


def _asked_in(view: BoardView, facts: Entity) -> int | None:
    """The task that answers the message of a person that this one follows from, as `put` finds it."""
    above = facts["parent"]
    while above is not None and (parent := view.tasks.get(str(above))) is not None:
        if parent["kind"] == "human_message":
            return int(above)
        above = parent["parent"]
    return None


def _need(view: BoardView, need: str, edge: tuple[str | None, str]) -> Shape:
    other: Entity = view.tasks.get(need) or {}
    outcome, state = edge
    return {
        "task": int(need), "outcome": outcome, "state": state, "title": other.get("title", ""),
        "task_state": other.get("state"),
    }  # fmt: skip


def _needed_by(view: BoardView, task: str) -> list[Shape]:
    """The tasks that need it, also those that have ended."""
    found = sorted((each for each in view.history.behind.get(task, ()) if each in view.tasks), key=int)
    edges = ((each, view.tasks[each], view.tasks[each]["needs"].get(task)) for each in found[:_BEHIND_MOST])
    return [
        {"task": int(each), "outcome": edge[0], "title": facts["title"], "state": facts["state"], "need": edge[1]}
        for each, facts, edge in edges
        if edge is not None
    ]


def attempt_shape(each: str, facts: Entity) -> Shape:
    """As `--json` gives an attempt, without `follows`, which is not in the log; with its host and what it cost."""
    same = {name: facts[name] for name in Attempt.__slots__ if name in facts}
    return {**same, "epoch": int(each.partition(".")[2]), "spent": spent_shape(facts["spent"])}


def spent_shape(spent: Spent) -> Shape:
    return {
        "tokens": spent.tokens, "dollars": spent.microdollars / 1_000_000, "seconds": spent.milliseconds / 1000,
        "turns": spent.turns,
    }  # fmt: skip


def _review(view: BoardView, task: str) -> Shape | None:
    """The last review of its work."""
    if not (reviews := view.of_task(view.history.reviews_of, task, "task")):
        return None
    each, facts = reviews[-1]
    same = {name: facts[name] for name in ("state", "outcome", "result", "teammate")}
    return {"task": int(each), **same, "rounds": len(reviews)}
