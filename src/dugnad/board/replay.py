"""Replaying the log, event by event, gives the same state as the tables.

`apply` repeats, independently of the verbs, what each of them does to the state. Tests compare it with the tables after
every kind of change, and pruning relies on it. Derived facts (a task's chain, whether it is shelved), transcripts and
the times of changes are not part of the state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..types import DELIVERY, GIVEN, Amount, Event
from . import rules

Entity = dict[str, Any]

ENTITIES = ("task", "attempt", "budget", "reservation", "cooldown", "message", "note", "teammate", "host")
COLUMNS = Amount.__slots__


class Entities(dict[str, Entity]):
    """The entities of one kind, by id. `touched`: those that may have changed since it was last emptied."""

    def __init__(self) -> None:
        self.touched: set[str] = set()

    def __getitem__(self, key: str) -> Entity:
        self.touched.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.touched.add(key)
        return super().get(key, default)

    def __setitem__(self, key: str, value: Entity) -> None:
        self.touched.add(key)
        super().__setitem__(key, value)


class State(dict[str, Entities]):
    """{"task": {"7": {...}}, "budget": ..., ...}. `behind`: which tasks may wait for a task."""

    def __init__(self) -> None:
        super().__init__((entity, Entities()) for entity in ENTITIES)
        self.behind: dict[str, set[str]] = {}

    def link(self, task: str, needs: Iterable[str]) -> None:
        for need in needs:
            self.behind.setdefault(need, set()).add(task)

    def task(self, event: Event) -> Entity:
        return self["task"][str(event.task)]

    def attempt(self, event: Event) -> Entity:
        return self["attempt"][f"{event.task}.{event.data['epoch']}"]

    def budget(self, event: Event) -> Entity:
        return self["budget"][str(event.root)]

    def waiting_for(self, task: int | None) -> Iterable[Entity]:
        return [self["task"][each] for each in self.behind.get(str(task), ())]


def load(rows: Iterable[Mapping[str, Any]] = ()) -> State:
    """The state that a snapshot holds."""
    state = State()
    for row in rows:
        dict.__setitem__(state[row["entity"]], row["id"], json.loads(row["state"]))
    for task, facts in state["task"].items():
        facts.update(dict.fromkeys(DELIVERY) | facts | given(facts))
        state.link(task, facts["needs"])
    for facts in state["attempt"].values():
        facts.setdefault("merges_into", None)  # A snapshot of an earlier version has none.
    return state


def apply(state: State, event: Event) -> None:
    _APPLY[event.kind](state, event, event.data)


Data = dict[str, Any]
Apply = Callable[[State, Event, Data], None]


def given(facts: Mapping[str, Any]) -> Entity:
    """How a task was put. Logs and snapshots of earlier versions do not have every field."""
    kind = {} if facts.get("kind") else _of_key(facts["key"], facts.get("parent"))
    return {name: facts.get(name) or None for name in GIVEN} | kind


def _of_key(key: str, parent: int | None) -> Entity:
    """A task's kind by the beginning of its key, as in earlier versions. The migration to schema 7 does the same."""
    if found := re.match(r"review:([0-9]{1,18}):([^.]*)", key):
        return {"kind": "review", "reviews": int(found[1]), "reviews_commit": found[2] or None}
    kinds = {"account:": "budget", "errand:human:": "human_message", "errand:": "message"}
    told = next((kind for begin, kind in kinds.items() if key.startswith(begin)), None)
    return {"kind": told or ("goal" if parent is None else "work")}


def _put(state: State, event: Event, data: Data) -> None:
    task: Entity = {
        **given(data), **{name: data.get(name) for name in ("depth", "state", "due_at")},
        "root": event.root, "put_by": event.actor, "epoch": 0, "claims": 0, "tries": 0, "children": 0, "repeats": 0,
        "teammate": None, "host": None, "continues": None, "waiting_for": None, "request": None,
        **dict.fromkeys(DELIVERY), "reason": None, "needs": {},
    }  # fmt: skip
    for needed, outcome, _ in data["needs"]:
        other = state["task"].get(str(needed))  # None: it comes later in the same batch.
        verdict = rules.judge(outcome, other["state"], other["outcome"]) if other else "open"
        task["needs"][str(needed)] = [outcome, verdict]
    task["open_needs"] = sum(verdict != "met" for _, verdict in task["needs"].values())
    state["task"][str(event.task)] = task
    state.link(str(event.task), task["needs"])
    if "followup_of" in data:
        state["task"][str(data["followup_of"])]["children"] += 1
    if data.get("caps") is not None:
        _budget_opened(state, event, data)
    state.budget(event)["tasks"] += 1


def _ended(state: State, event: Event) -> None:
    """Judge the needs for this task."""
    own = state.task(event)
    for task in state.waiting_for(event.task):
        need = task["needs"].get(str(event.task))
        if need and need[1] == "open":
            need[1] = rules.judge(need[0], own["state"], own["outcome"])
            if need[1] == "met":
                task["open_needs"] -= 1
                if task["open_needs"] == 0:
                    task["waiting_for"] = None


def _need_added(state: State, event: Event, data: Data) -> None:
    task = state.task(event)
    task["needs"][str(data["needs"])] = [data.get("outcome"), data["state"]]
    state.link(str(event.task), [str(data["needs"])])
    if data["state"] != "met":
        task.update(open_needs=task["open_needs"] + 1, state="blocked", epoch=task["epoch"] + 1)


def _claimed(state: State, event: Event, data: Data) -> None:
    task = state.task(event)
    task.update(
        state="claimed", epoch=data["epoch"], claims=task["claims"] + 1, teammate=event.actor, host=data["host"],
        reason=None, due_at=None,
    )  # fmt: skip
    state["attempt"][f"{event.task}.{data['epoch']}"] = {
        "number": data["number"], "teammate": event.actor, "host": data["host"], "continues": data.get("continues"),
        "ended_as": None, "handover": None, "merges_into": None,
    }  # fmt: skip
    state.budget(event)["runs"] += data.get("charged", 1)  # Earlier versions charged every claim.


def _settled(state: State, event: Event, data: Data) -> None:
    """done, failed, retrying, waiting, released: by the holder, or released by hand."""
    task = state.task(event)
    names = {"retrying": "retry"}
    attempt = state["attempt"].get(f"{event.task}.{data['epoch']}")
    by_hand = "tried" not in data
    if by_hand and task["state"] == "claimed":
        task["continues"] = None
    if attempt is not None and (not by_hand or task["state"] == "claimed"):
        attempt["ended_as"] = names.get(event.kind, event.kind)
        attempt["handover"] = data.get("handover") or attempt["handover"]
    goes_on = data.get("waiting_for") is not None or event.kind == "waiting" or data.get("resume", False)
    task.update(
        state=data["state"], epoch=data["epoch"] + 1, due_at=data.get("due_at"), reason=data.get("reason") or None,
        waiting_for=data.get("waiting_for"), request=data.get("request"),
        tries=task["tries"] + data.get("tried", 0), claims=task["claims"] - data.get("back", 0),
    )  # fmt: skip
    if not by_hand:
        task.update(**{name: data.get(name) for name in DELIVERY}, continues=data["epoch"] if goes_on else None)
        task["teammate"] = data.get("by") or task["teammate"]
        still_open = [each for each in data["tasks"] if not _has_ended(state, each)]
        task["needs"].update({str(each): ["ended", "open"] for each in still_open})
        task["open_needs"] = len(still_open)
        state.link(str(event.task), map(str, still_open))
    if data["state"] in ("done", "failed"):
        _ended(state, event)


def _has_ended(state: State, task: int) -> bool:
    return rules.judge("ended", state["task"][str(task)]["state"], None) == "met"


def _taken_back(state: State, event: Event, data: Data) -> None:
    task = state.task(event)
    state.attempt(event)["ended_as"] = "lost"
    task.update(
        state=data["state"], tries=task["tries"] + 1, continues=data["epoch"], reason=data.get("reason"),
        due_at=data.get("due_at"), epoch=data["epoch"] + (data["state"] == "failed"),
    )  # fmt: skip
    if data["state"] == "failed":
        _ended(state, event)


def _cancelled(state: State, event: Event, data: Data) -> None:
    task = state.task(event)
    if task["state"] == "claimed":
        state.attempt(event)["ended_as"] = "cancelled"
    task.update(
        state="cancelled", epoch=task["epoch"] + 1, reason=data.get("reason") or f"cancelled by {event.actor}",
        waiting_for=None, request=None, due_at=None,
    )  # fmt: skip
    _ended(state, event)


def _skipped(state: State, event: Event, data: Data) -> None:
    task = state.task(event)
    task.update(state="skipped", epoch=task["epoch"] + 1, reason=data.get("reason"), due_at=None)
    _ended(state, event)


def _ready(state: State, event: Event, data: Data) -> None:
    task = state.task(event)
    task.update(state=data["state"], waiting_for=None)
    if data["state"] == "ready":
        task["due_at"] = None


def _retried(state: State, event: Event, data: Data) -> None:
    task = state.task(event)
    task.update(
        state=data["state"], epoch=data["epoch"], tries=0, claims=0, continues=None, outcome=None, result=None,
        reason=None, due_at=None, open_needs=sum(verdict == "open" for _, verdict in task["needs"].values()),
    )  # fmt: skip
    for other in state.waiting_for(event.task):
        need = other["needs"].get(str(event.task))
        if need and need[1] == "broken":
            need[1] = "open"


def _turn(state: State, event: Event, data: Data) -> None:
    """The turn itself is in the transcript. What it used without a reservation counts as spent."""
    if data["unreserved"]:
        for column in COLUMNS:
            state.budget(event)[column] += data[column]


def _reserved(state: State, event: Event, data: Data) -> None:
    amounts = {column: data[column] for column in COLUMNS}
    state["reservation"][data["key"]] = {
        "root": event.root, "task": event.task, "epoch": data["epoch"], "state": "open", **amounts,
        **({"pace": data["pace"], "tokens_used": None} if "pace" in data else {}),
    }  # fmt: skip
    for column in COLUMNS:
        state.budget(event)[f"{column}_reserved"] += data[column]


def _spent(state: State, event: Event, data: Data) -> None:
    reservation, budget = state["reservation"][data["key"]], state.budget(event)
    reservation["state"] = "settled" if event.kind == "spent" else "forfeited"
    if "pace" in reservation:
        reservation["tokens_used"] = data["tokens"]
    for column in COLUMNS:
        budget[f"{column}_reserved"] -= reservation[column]
        budget[column] += data[column]


def _budget_opened(state: State, event: Event, data: Data) -> None:
    zeros = {f"{column}{suffix}": 0 for column in COLUMNS for suffix in ("", "_reserved")}
    state["budget"][str(event.root)] = {**data["caps"], **zeros, "runs": 0, "tasks": 0, "held": None}


def _budget_set(state: State, event: Event, data: Data) -> None:
    state.budget(event).update(**data["caps"], held=None)


def _cooled(state: State, event: Event, data: Data) -> None:
    state["cooldown"][data["pace"]] = {name: data[name] for name in ("until", "milliseconds", "strikes", "reason")}


def _told(state: State, event: Event, data: Data) -> None:
    state["message"][str(data["message"])] = {
        "sender": event.actor, "recipient": data["to"], "kind": data["message_kind"], "text": data.get("text"),
        "request": data.get("request"), "accepted": data.get("accepted"), "task": event.task, "key": data["key"],
        "shown": False,
    }  # fmt: skip


def _shown(state: State, event: Event, data: Data) -> None:
    for message in data["messages"]:
        state["message"][str(message)]["shown"] = True


def _noted(state: State, event: Event, data: Data) -> None:
    state["note"][str(data["note"])] = {
        "author": event.actor, "title": data["title"], "text": data.get("text"), "task": event.task, "root": event.root,
    }  # fmt: skip


def _spawned(state: State, event: Event, data: Data) -> None:
    before = state["teammate"].get(data["name"], {})
    settings = {name: data[name] for name in ("roles", "lead", "prompt", "model")}
    state["teammate"][data["name"]] = {
        **settings, **{name: True for name in ("plan", "keep_context") if data.get(name)},
        **({"named": True} if data.get("named") or before.get("named") else {}),
        "state": "wanted", "host": None, "seat": before.get("seat", 0), "reason": None,
    }  # fmt: skip


def _seated(state: State, event: Event, data: Data) -> None:
    state["teammate"][data["name"]].update(state="seated", host=data["host"], seat=data["seat"], reason=None)


def _ended_teammate(state: State, event: Event, data: Data) -> None:
    teammate = state["teammate"][data["name"]]
    ended = event.kind.removesuffix("_teammate")
    teammate.update(state=ended, host=None, seat=teammate["seat"] + 1, reason=data.get("reason") or None)


def _host(status: str) -> Apply:
    def change(state: State, event: Event, data: Data) -> None:
        scope = data.get("scope") or state["host"].get(data["host"], {}).get("scope")
        state["host"][data["host"]] = {"state": status, **({"scope": scope} if scope else {})}

    return change


def _host_forgotten(state: State, event: Event, data: Data) -> None:
    for host in data["hosts"]:
        state["host"].touched.add(host)
        del state["host"][host]


def _remarked(state: State, event: Event, data: Data) -> None:
    """An event that changes nothing."""


def _changes(find: Callable[[State, Event], Entity], field: str) -> Apply:
    """For an event that changes one field."""

    def change(state: State, event: Event, data: Data) -> None:
        find(state, event)[field] = data.get(field)

    return change


REMARKS = frozenset({"unsandboxed", "steered"})
_APPLY: dict[str, Apply] = {
    "put": _put, "need_added": _need_added, "claimed": _claimed, "done": _settled, "failed": _settled,
    "retrying": _settled, "waiting": _settled, "released": _settled, "taken_back": _taken_back,
    "cancelled": _cancelled, "skipped": _skipped, "ready": _ready, "retried": _retried,
    "repeated": _changes(State.task, "repeats"), "assigned": _changes(State.task, "assignee"),
    "handover": _changes(State.attempt, "handover"), "merging": _changes(State.attempt, "merges_into"),
    "turn": _turn, "reserved": _reserved, "spent": _spent, "forfeited": _spent,
    "budget_opened": _budget_opened, "budget_reached": _changes(State.budget, "held"), "budget_set": _budget_set,
    "cooled": _cooled, "told": _told, "shown": _shown,
    "noted": _noted,
    "spawned": _spawned, "seated": _seated, "stopped_teammate": _ended_teammate, "failed_teammate": _ended_teammate,
    "host_started": _host("up"), "host_back": _host("up"), "host_lost": _host("lost"),
    "host_stopped": _host("stopped"), "hosts_forgotten": _host_forgotten,
    **dict.fromkeys(REMARKS, _remarked),
}  # fmt: skip
EVENT_KINDS = frozenset(_APPLY)
