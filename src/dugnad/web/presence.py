"""Who is there, and what waits: the state of hosts, teammates, requests and budgets in a view of a board. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..board import rules
from ..board.replay import Entity
from ..tools.message_tools import GONE
from ..types import HUMAN, Teammate, TeammateStatus
from .history import BoardView

_PAUSE_SLACK_MS = 60_000  # As in `rate_limits.pauses`: a pause that is much longer than it was asked for is over.


def is_alive(view: BoardView, host: str | None, now: int) -> bool:
    """Whether a host runs. Its lease counts where it is known; in the past only the log does."""
    facts = view.hosts.get(host) if host is not None else None
    return facts is not None and facts["state"] == "up" and view.leases.get(host or "", now + 1) > now


def living_hosts(view: BoardView, now: int) -> dict[str, Entity]:
    return {each: facts for each, facts in view.hosts.items() if is_alive(view, each, now)}


def status_of(view: BoardView, name: str, now: int) -> TeammateStatus:
    """As `records.teammate` derives it from the tables."""
    facts = view.teammates[name]
    status: TeammateStatus = facts["state"]
    if facts["state"] != "seated":
        return status
    host = view.hosts.get(facts["host"])
    if host is not None and host["state"] == "stopped":
        return "wanted"  # Its host stopped in order; the next host takes it.
    if not is_alive(view, facts["host"], now):
        return "lost"
    if working_on(view, name) is not None:
        return "working"
    return "waiting" if view.held_by.get(name) else "idle"


def working_on(view: BoardView, name: str) -> int | None:
    """The task that a teammate works on at the host where it is seated."""
    host = view.teammates[name]["host"]
    held = view.held_by.get(name, {}).items()
    return min((int(each) for each, task in held if task["state"] == "claimed" and task["host"] == host), default=None)


def member_of(view: BoardView, name: str, now: int) -> Teammate:
    """The record that the board gives of a teammate."""
    facts = view.teammates[name]
    same: Any = {field: facts[field] for field in ("lead", "prompt", "model", "host", "seat", "reason")}
    flags: Any = {field: bool(facts.get(field)) for field in ("plan", "keep_context", "named")}
    return Teammate(
        name=name, roles=tuple(facts["roles"]), status=status_of(view, name, now), task=working_on(view, name),
        spawned_at=facts["spawned_at"] or 0, **same, **flags,
    )  # fmt: skip


def team_in_order(view: BoardView) -> list[str]:
    """The leads first, then the oldest."""
    members = view.teammates
    return sorted(members, key=lambda name: (not members[name]["lead"], members[name]["spawned_at"] or 0, name))


def cooling(view: BoardView, now: int) -> dict[str, Entity]:
    """The provider keys that cool down."""
    rests = ((each, facts, facts["until"] - now) for each, facts in view.cooldowns.items())
    return {each: facts for each, facts, rest in rests if 0 < rest <= facts["milliseconds"] + _PAUSE_SLACK_MS}


def open_requests(view: BoardView, now: int) -> Iterator[tuple[str, Entity]]:
    """The requests that wait for the human: their own, and those of teammates that were shut down."""
    for request, each in view.history.asked.items():
        asked = view.messages.get(each)
        if asked is None or not _is_for_human(view, asked, now):
            continue
        if view.history.replies.get(request, "") in view.messages:
            continue
        task = view.tasks.get(str(asked["task"])) if asked["task"] is not None else None
        if asked["task"] is None or (task and task["state"] == "waiting" and task["request"] == asked["request"]):
            yield each, asked


def _is_for_human(view: BoardView, asked: Entity, now: int) -> bool:
    if asked["recipient"] == HUMAN:
        return True
    gone = asked["recipient"] in view.teammates and status_of(view, asked["recipient"], now) in GONE
    return gone and asked["kind"] != "shutdown"


def asked_for(view: BoardView, task: Entity) -> tuple[str, Entity] | None:
    """The message whose answer a task waits for."""
    each = view.history.asked.get(task["request"] or "", "")
    asked = view.messages.get(each)
    return None if asked is None else (each, asked)


def tasks_behind(view: BoardView, task: str) -> set[str]:
    """The open tasks that wait for this one, directly or through others."""
    found: set[str] = set()
    ahead = [task]
    while ahead:
        more = set(view.waits_for(ahead.pop())) - found - {task}
        found |= more
        ahead += more
    return found


def held_up(view: BoardView, root: str) -> list[str]:
    """The open tasks that the reached cap of their budget holds up."""
    budget = view.budgets[root]
    return [
        each
        for each, task in view.open_tasks.items()
        if str(task["root"]) == root and task["state"] != "claimed" and not may_begin(budget, task)
    ]


def may_begin(budget: Entity, task: Entity) -> bool:
    """Whether the budget lets this task be claimed. Work that was begun needs no further run."""
    left = rules.runs_left(budget)
    return left is None or left >= (task["continues"] is None)
