"""The board in short: tasks, teammates, hosts, budgets, and what waits for a person. Pure; see `shapes.py`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..board.replay import Entity
from ..board.roots import root_name
from ..tools import policy
from ..types import DELIVERY, HUMAN, Amount, Message, Note, Spending
from ..view.json import Shape, message_shape, shape_of, spending_shape
from .history import BoardView
from .presence import (
    cooling,
    held_up,
    is_alive,
    open_requests,
    status_of,
    tasks_behind,
    team_in_order,
    working_on,
)
from .tracks import Spent
from .why import how_to_raise, why_still

_TEXT_MOST = 200
_BUDGETS_MOST = 200  # Of goals without open tasks, the newest.
_PAGE = 500
MERGED_INTO, MERGED_AS = (name for name in DELIVERY if name.startswith("merged_"))
# Of a task, what is shown as it is, where there is something.
_SHOWN = (
    "parent", "kind", "role", "assignee", "teammate", "priority", "waiting_for", "outcome", "due_at", "put_at",
    "ended_at", "tries", "not_for", "reviews", MERGED_AS,
)  # fmt: skip
Windows = Mapping[str, int]  # By model, the tokens that fit into its context; "" is the team's own model.


def state_shape(view: BoardView, now: int, *, windows: Windows | None = None) -> Shape:
    """The whole board in short. `now` is the board's clock; for the past, give `view.at`."""
    return {
        "seq": view.seq, "first": view.first, "last": view.last, "live": view.live, "now": now, "reading": None,
        "ticks": view.history.ticks(),
        "tasks": [view.history.made_of("task", each, facts, task_summary) for each, facts in view.tasks.items()],
        "budgets": budget_shapes(view, _shown_budgets(view)),
        **_standing(view, now, windows or {}),
    }  # fmt: skip


def stream_shape(
    view: BoardView, changed: Mapping[str, Collection[str]], now: int, *, windows: Windows | None = None
) -> Shape:
    """What the events since the last look changed."""
    tasks = ((each, view.tasks.get(each)) for each in sorted(changed["task"], key=int))
    return {
        "seq": view.seq, "now": now, "gone": [],
        "tasks": [task_summary(each, facts) for each, facts in tasks if facts is not None],
        "budgets": budget_shapes(view, sorted(changed["budget"], key=int)),
        **_standing(view, now, windows or {}),
    }  # fmt: skip


def _standing(view: BoardView, now: int, windows: Windows) -> Shape:
    return {
        "counts": view.counts,
        "team": team_shape(view, now, windows),
        "hosts": hosts_shape(view, now),
        "requests": requests_shape(view, now),
        "cooldowns": cooldowns_shape(view, now),
        "unread": view.unread,
        "why": why_still(view, now),
    }


# Tasks.


def task_summary(task: str, facts: Entity) -> Shape:
    """A task in short. What is null, 0, "" or [] is left out."""
    shape: Shape = {
        "id": int(task), "root": facts["root"], "title": facts["title"][:_TEXT_MOST], "state": facts["state"],
    }  # fmt: skip
    for name in _SHOWN:
        if value := facts[name]:
            shape[name] = value
    if facts["reason"]:
        shape["reason"] = facts["reason"][:_TEXT_MOST]
    if facts["needs"]:
        shape["needs"] = [(int(need), outcome, state) for need, (outcome, state) in facts["needs"].items()]
    spent: Spent = facts["spent"]
    if spent.tokens:
        shape["tokens"] = spent.tokens
    if spent.microdollars:
        shape["dollars"] = spent.microdollars / 1_000_000
    return shape


def merge_of(facts: Entity) -> tuple[str | None, str | None]:
    """The branch that a task's work was merged into, and the commit there."""
    return facts[MERGED_INTO], facts[MERGED_AS]


def title_of(view: BoardView, task: int | str | None) -> str:
    facts = view.tasks.get(str(task))
    return "" if facts is None else str(facts["title"])[:_TEXT_MOST]


# Teammates and hosts.


def team_shape(view: BoardView, now: int, windows: Windows) -> list[Shape]:
    return [_member(view, name, now, windows) for name in team_in_order(view)]


def _member(view: BoardView, name: str, now: int, windows: Windows) -> Shape:
    facts, status = view.teammates[name], status_of(view, name, now)
    task, doing = working_on(view, name), facts["doing"]
    return {
        "name": name, "roles": facts["roles"], "lead": bool(facts["lead"]), "model": facts["model"], "status": status,
        "task": task,
        "doing": shape_of(doing) if doing is not None and status == "working" else None,
        "host": facts["host"],
        "reason": facts["reason"],
        "context": _context(view, task, windows.get(facts["model"])) if status == "working" else None,
        "spawned_at": facts["spawned_at"],
        "holds": [int(each) for each in view.held_by.get(name, ())],
    }  # fmt: skip


def _context(view: BoardView, task: int | None, window: int | None) -> float | None:
    """How full the context of the running attempt is, from 0 to 1; None: that is not known."""
    if task is None or not window:
        return None
    attempt = view.attempts.get(f"{task}.{view.tasks[str(task)]['epoch']}")
    tokens = 0 if attempt is None else attempt["spent"].context
    return round(min(1.0, tokens / window), 3) if tokens else None


def hosts_shape(view: BoardView, now: int) -> list[Shape]:
    """Those that were not stopped, the oldest first. `lease_seconds` only where the lease is known."""
    hosts = sorted(view.hosts.items(), key=lambda item: (item[1]["started_at"] or 0, item[0]))
    return [
        {
            "id": each, "label": facts["label"], "alive": is_alive(view, each, now), "started_at": facts["started_at"],
            **({"lease_seconds": max(0, view.leases[each] - now) / 1000} if each in view.leases else {}),
        }
        for each, facts in hosts
        if facts["state"] != "stopped"
    ]  # fmt: skip


# Budgets, provider keys.


def budget_shapes(view: BoardView, roots: Iterable[str]) -> list[Shape]:
    return [budget_shape(view, root) for root in roots if root in view.budgets]


def budget_shape(view: BoardView, root: str) -> Shape:
    facts, number = view.budgets[root], int(root)
    same = {name: facts[name] for name in Spending.__slots__ if name in facts}
    spent, reserved = (
        Amount(**{name: facts[f"{name}{suffix}"] for name in Amount.__slots__}) for suffix in ("", "_reserved")
    )
    spending = Spending(root=number, spent=spent, reserved=reserved, **same)
    title = title_of(view, root) if number > 0 else "shared by the tasks that were put on it"
    return {**spending_shape(spending), "name": root_name(number), "title": title}


def _shown_budgets(view: BoardView) -> list[str]:
    """Those with open tasks, and the newest others, the newest first."""
    in_use = {str(task["root"]) for task in view.open_tasks.values()}
    idle = [root for root in reversed(list(view.budgets)) if root not in in_use]
    return sorted([*in_use, *idle[:_BUDGETS_MOST]], key=int, reverse=True)


def cooldowns_shape(view: BoardView, now: int) -> list[Shape]:
    return [
        {
            "key": each, "until": facts["until"], "seconds": facts["milliseconds"] / 1000, "strikes": facts["strikes"],
            "reason": facts["reason"],
        }
        for each, facts in cooling(view, now).items()
    ]  # fmt: skip


# What waits for a person.


def requests_shape(view: BoardView, now: int) -> list[Shape]:
    """What only a person can do, the oldest block of work first. A held budget is one of them."""
    found = [_request(view, each, asked) for each, asked in open_requests(view, now)]
    found += [_held(view, root, blocked) for root in view.held_budgets if (blocked := held_up(view, root))]
    return sorted(found, key=lambda each: each["sent_at"] or 0)


def _request(view: BoardView, each: str, asked: Entity) -> Shape:
    task = asked["task"]
    return {
        **message_shape(message_of(each, asked)),
        "about": title_of(view, task),
        "blocks": len(tasks_behind(view, str(task))) if task is not None else 0,
        "tool_call": asked["kind"] == "question" and policy.is_question(asked["text"] or ""),
    }


def _held(view: BoardView, root: str, blocked: Collection[str]) -> Shape:
    budget, shape, says = view.budgets[root], budget_shape(view, root), how_to_raise(int(root), view.budgets[root])
    return {
        **shape, "id": root_name(int(root)), "kind": "budget", "sent_at": budget["held_at"], "about": shape["title"],
        "blocks": len(blocked), "tool_call": False, "recipient": HUMAN, "text": f"{says[0].upper()}{says[1:]}.",
    }  # fmt: skip


def message_of(each: str, facts: Entity) -> Message:
    same: Any = {name: facts[name] for name in Message.__slots__ if name in facts}
    return Message(**{**same, "id": int(each), "text": facts["text"] or ""})


def messages_shape(view: BoardView, name: str = HUMAN, *, before: int | None = None, page: int = _PAGE) -> Shape:
    """The newest messages to and from somebody, the oldest first."""
    named = [
        each
        for each, facts in view.messages.items()
        if name in (facts["sender"], facts["recipient"]) and (before is None or int(each) < before)
    ]
    shown = named[max(0, len(named) - page) :]
    found = [message_shape(message_of(each, view.messages[each])) for each in shown]
    return {"messages": found, "more": len(named) > len(shown)}


def notes_shape(view: BoardView, words: str = "", *, page: int = _PAGE) -> Shape:
    """The notes that contain every word, in any case, the newest first."""
    wanted = words.casefold().split()
    found: list[Shape] = []
    for each, facts in reversed(list(view.notes.items())):
        text = f"{facts['title']}\n{facts['text'] or ''}".casefold()
        if all(word in text for word in wanted):
            same: Any = {name: facts[name] for name in Note.__slots__ if name in facts}
            found.append(shape_of(Note(**{**same, "id": int(each), "text": facts["text"] or ""})))
    return {"notes": found[:page], "more": len(found) > page}
