"""What the replayed state of a board does not have, and its history adds: times, lanes, what a task has spent. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..board import rules
from ..board.replay import Entity
from ..types import ENDED, Event
from .tracks import Spent

# What is added to the facts of each kind, as it is before anything is known.
ADDED: Mapping[str, Entity] = {
    "task": {"put_at": None, "ended_at": None, "lane": "", "spent": Spent()},
    "attempt": {"claimed_at": None, "ended_at": None, "reason": None, "spent": Spent()},
    "budget": {"held_at": None},
    "message": {"sent_at": None, "shown_at": None},
    "note": {"at": None},
    "teammate": {"spawned_at": None, "doing": None, "key": None},
    "host": {"started_at": None, "label": None},
    "cooldown": {"at": None},
}
_SETTLED = frozenset({"done", "failed", "retrying", "waiting", "released"})
_LANE_SET = _SETTLED | {"put", "retried", "assigned"}


def added(kind: str, each: str, was: Entity | None, facts: Entity, event: Event) -> Entity:
    add = _ADD.get(kind)
    return {} if add is None else add(each, was, facts, event)


def lane_of(facts: Entity) -> str:
    return rules.lane(facts["role"], facts["assignee"])


def _of_task(each: str, was: Entity | None, facts: Entity, event: Event) -> Entity:
    more: Entity = {"put_at": event.data.get("put_at", event.at)} if was is None else {}
    if was is None or was["state"] != facts["state"]:
        ended = event.at if facts["state"] in ENDED else None
        if was is None or was["ended_at"] != ended:
            more["ended_at"] = ended
    if event.kind in _LANE_SET and each == str(event.task):
        lane = f"@{event.actor}" if event.data.get("own") else lane_of(facts)
        if was is None or was["lane"] != lane:
            more["lane"] = lane
    return more


def _of_attempt(each: str, was: Entity | None, facts: Entity, event: Event) -> Entity:
    if was is None:
        return {"claimed_at": event.at}
    if was["ended_as"] == facts["ended_as"]:
        return {}
    lost = event.kind == "taken_back"
    reason = f"host {event.data.get('host')} was lost" if lost else event.data.get("reason") or None
    return {"ended_at": event.at, "reason": reason}


def _of_budget(each: str, was: Entity | None, facts: Entity, event: Event) -> Entity:
    before = None if was is None else was["held"]
    return {"held_at": event.at if facts["held"] else None} if before != facts["held"] else {}


def _of_message(each: str, was: Entity | None, facts: Entity, event: Event) -> Entity:
    if was is None:
        return {"sent_at": event.at}
    return {"shown_at": event.at} if facts["shown"] and not was["shown"] else {}


def _of_teammate(each: str, was: Entity | None, facts: Entity, event: Event) -> Entity:
    return {"spawned_at": event.at} if event.kind == "spawned" else {}


def _of_host(each: str, was: Entity | None, facts: Entity, event: Event) -> Entity:
    return {"started_at": event.at, "label": event.data.get("label")} if event.kind == "host_started" else {}


def _at(each: str, was: Entity | None, facts: Entity, event: Event) -> Entity:
    return {"at": event.at}


_ADD: Mapping[str, Callable[[str, Entity | None, Entity, Event], Entity]] = {
    "task": _of_task, "attempt": _of_attempt, "budget": _of_budget, "message": _of_message, "note": _at,
    "teammate": _of_teammate, "host": _of_host, "cooldown": _at,
}  # fmt: skip
