"""Judges a whole history: reads the log event by event, by rules of its own, and names every broken promise.

It shares no rule with the board. `faults` is pure, so that hand-broken logs can be shown to be caught. What the log
cannot show (what a model was told, what a command was run with) is for the witness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..settings import Limits
from ..types import Event
from .promises import Fault

SETTLED = {"done": "done", "failed": "failed", "retrying": "retry", "waiting": "waiting", "released": "released"}
KINDS = ("tokens", "microdollars", "milliseconds")
_ENDED = ("done", "failed", "cancelled", "skipped")


@dataclass
class TaskHistory:
    root: int
    needs: dict[int, str | None]
    depth: int = 0
    key: str = ""
    epoch: int = 0  # The newest claim's.
    holder: str | None = None
    host: str | None = None
    live: bool = False  # The newest claim may still write: nobody settled it, cancelled it or took it over.
    held: bool = False  # ... and was not taken back either.
    ended: str | None = None
    outcome: str | None = None
    due_at: int | None = None
    tries: int = 0
    claims: int = 0
    children: int = 0
    goes_on_from: int | None = None  # The epoch that was lost, or put down, and has to be gone on from.
    replies: int = 0  # Of the newest claim.
    waits: bool = False  # For somebody, or for something.
    met: set[int] = field(default_factory=set)  # Needs that were met once; a retry of them takes nothing back.


@dataclass
class Account:
    caps: dict[str, int | None]
    runs: int = 0
    tasks: int = 0
    used: Counter[str] = field(default_factory=Counter)  # Spent and reserved together.
    held: str | None = None  # Which cap was reached.


@dataclass
class History:
    """What is known of the board at one point of the log."""

    limits: Limits | None = None  # Given: the loop guards are judged too.
    turns_max: int | None = None
    tasks: dict[int, TaskHistory] = field(default_factory=dict)
    accounts: dict[int, Account] = field(default_factory=dict)
    reservations: dict[str, tuple[int, int, dict[str, int]]] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    teammates: dict[str, str] = field(default_factory=dict)
    messages: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    shown: set[int] = field(default_factory=set)
    found: list[Fault] = field(default_factory=list)
    seen: set[tuple[object, ...]] = field(default_factory=set)  # What happened, to look acknowledgements up in.
    counts: Counter[str] = field(default_factory=Counter)  # How often each kind of event was seen.
    last: int = 0

    def tell(self, event: Event) -> None:
        """The next event of the log."""
        if event.seq != self.last + 1:
            self.fault(event, f"the log has a gap or a doublet: number {self.last + 1} was expected", 11)
        self.last = event.seq
        self.counts[event.kind] += 1
        try:
            if rule := _RULES.get(event.kind):
                rule(self, event, event.data)
            _within_caps(self, event)
        except KeyError as unknown:
            self.fault(event, f"it speaks of {unknown}, of which the log never told", 11)

    def fault(self, event: Event, what: str, promise: int) -> None:
        who = f"{event.kind} of #{event.task} by {event.actor}"
        self.found.append(Fault(promise, f"event {event.seq} ({who}): {what}"))

    def happens(self, event: Event, *what: object, promise: int = 4) -> None:
        if what in self.seen:
            self.fault(event, f"{what} happened a second time", promise)
        self.seen.add(what)


def faults(events: Sequence[Event], *, at_rest: bool = True) -> list[Fault]:
    """Every promise the history breaks. `at_rest`: nothing may be left open at its end."""
    return fold(events, at_rest).found


def fold(events: Sequence[Event], at_rest: bool) -> History:
    history = History()
    for event in events:
        history.tell(event)
        if history.found and "gap" in history.found[-1]:
            return history
    if at_rest:
        history.found += left_open(history)
    return history


def left_open(history: History) -> list[Fault]:
    """What never came to an end."""
    found = []
    for number, task in history.tasks.items():
        vain = [need for need, how in task.needs.items() if (it := history.tasks[need]).ended and not _met(it, how)]
        if task.ended is None and vain:
            found.append(Fault(3, f"#{number} waits for ever: its need #{vain[0]} can never be met"))
        elif task.ended is None:
            found.append(Fault(4, f"#{number} never ended"))
    return found + [Fault(5, f"reservation {key} was never closed") for key in history.reservations]


def _put(history: History, event: Event, data: Mapping[str, Any]) -> None:
    assert event.task is not None and event.root is not None  # noqa: PT018
    if event.task in history.tasks:
        history.fault(event, "the task exists already", 4)
    history.happens(event, "put", event.root if event.root != event.task else 0, data["key"])
    history.seen.add(("put", event.task))
    needs = {needed: outcome for needed, outcome, _ in data["needs"]}
    task = TaskHistory(root=event.root, needs=needs, due_at=data.get("due_at"), key=data["key"])
    task.depth = data.get("depth", 0)
    task.met = {needed for needed, _, state in data["needs"] if state == "met"}
    history.tasks[event.task] = task
    if data.get("caps") is not None:
        history.accounts[event.task] = Account(caps=dict(data["caps"]))
    if account := history.accounts.get(event.root):
        account.tasks += 1
    if data.get("followup_of"):
        _follow_up(history, event, data)
    if (limits := history.limits) is not None:
        if task.depth > limits.depth_max:
            history.fault(event, f"follow-up number {task.depth} in a row, and {limits.depth_max} is the most", 6)
        if account is not None and account.tasks > limits.tasks_per_root_max:
            history.fault(event, f"{account.tasks} tasks under one root; {limits.tasks_per_root_max} is the most", 6)


def _follow_up(history: History, event: Event, data: Mapping[str, Any]) -> None:
    parent = history.tasks[data["followup_of"]]
    if not parent.live or parent.holder != event.actor:
        history.fault(event, f"a follow-up by one who does not hold #{data['parent']}", 2)
    parent.children += 1
    if history.limits is not None:
        if parent.children > history.limits.children_max:
            history.fault(event, f"{parent.children} follow-ups; {history.limits.children_max} is the most", 6)
        words = (event.root, *(data.get(each) for each in ("title", "body", "role", "assignee", "review", "not_for")))
        history.happens(event, "equal follow-up", *words, promise=6)


def _claimed(history: History, event: Event, data: Mapping[str, Any]) -> None:
    task = history.tasks[event.task or 0]
    history.happens(event, "claim", event.task, data["epoch"])
    history.happens(event, "claim key", data["key"])
    if task.ended:
        history.fault(event, f"claimed after it had ended {task.ended}", 4)
    if task.held:
        history.fault(event, f"claimed while {task.holder} holds it under epoch {task.epoch}", 1)
    if data["epoch"] <= task.epoch:
        history.fault(event, f"epoch {data['epoch']} does not grow; the last was {task.epoch}", 2)
    if task.due_at is not None and event.at < task.due_at:
        history.fault(event, f"claimed {task.due_at - event.at} ms before it is due", 3)
    for needed, wanted in task.needs.items():
        if needed not in task.met and not _met(history.tasks[needed], wanted):
            history.fault(event, f"claimed before its need #{needed} was met", 3)
    # With several writers, a claim that looked before the lease ran out may be written after it; it is taken back.
    late = () if history.limits is not None else ("lost",)
    if (state := history.hosts.get(data["host"], "never seen")) not in ("started", *late):
        history.fault(event, f"claimed by host {data['host']}, which was {state}", 1)
    if history.teammates.get(event.actor) == "gone":
        history.fault(event, "claimed by one who was shut down", 7)
    if task.goes_on_from is not None and data.get("continues") != task.goes_on_from and history.limits is not None:
        history.fault(event, f"what was done under epoch {task.goes_on_from} is not gone on from", 8)
    task.epoch, task.holder, task.live, task.held, task.due_at = data["epoch"], event.actor, True, True, None
    task.host, task.claims, task.replies, task.goes_on_from = data["host"], task.claims + 1, 0, None
    task.waits = False
    if history.limits is not None and task.claims > history.limits.claims_max:
        history.fault(event, f"claimed {task.claims} times; {history.limits.claims_max} is the most", 6)
    history.accounts[task.root].runs += 1


def _met(needed: TaskHistory, wanted: str | None) -> bool:
    if wanted == "ended":
        return needed.ended is not None
    if wanted in ("failed", "cancelled", "skipped"):
        return needed.ended == wanted
    return needed.ended == "done" and wanted in (None, needed.outcome)


def _settled(history: History, event: Event, data: Mapping[str, Any]) -> None:
    task = history.tasks[event.task or 0]
    if "tried" in data:  # By its holder; a release by hand counts no try.
        _by_holder(history, event, data)
        history.happens(event, "settle", event.task, data["epoch"])
        history.seen.add(("settled as", event.task, data["epoch"], SETTLED[event.kind]))
    task.live = task.held = False
    task.waits = event.kind == "waiting"
    task.due_at, task.outcome = data.get("due_at"), data.get("outcome")
    task.needs.update(dict.fromkeys(data.get("tasks", ()), "ended"))
    task.met.difference_update(data.get("tasks", ()))
    task.goes_on_from = data["epoch"] if event.kind == "waiting" or data.get("resume") else None
    task.tries += data.get("tried", 0)
    _bounded(history, event, data["state"])
    if data["state"] in ("done", "failed"):
        _end(history, event, data["state"])


def _bounded(history: History, event: Event, state: str) -> None:
    task, limits = history.tasks[event.task or 0], history.limits
    if limits is not None and state not in _ENDED and task.tries >= limits.attempts_max:
        history.fault(event, f"{task.tries} tries failed or were lost, and it is tried again", 6)


def _by_holder(history: History, event: Event, data: Mapping[str, Any]) -> None:
    """The fence: only the newest claim writes, while nobody has ended it."""
    task = history.tasks[event.task or 0]
    if data["epoch"] != task.epoch:
        history.fault(event, f"written under stale epoch {data['epoch']}; the newest claim is {task.epoch}", 2)
    elif not task.live:
        history.fault(event, f"written under epoch {data['epoch']}, which was over", 2)
    elif task.holder != event.actor:
        history.fault(event, f"written by {event.actor} under the claim of {task.holder}", 2)


def _end(history: History, event: Event, state: str) -> None:
    task = history.tasks[event.task or 0]
    if task.ended:
        history.fault(event, f"ended a second time; it had ended {task.ended}", 4)
    task.ended, task.live, task.held, task.goes_on_from = state, False, False, None
    for other in history.tasks.values():
        if event.task in other.needs and _met(task, other.needs[event.task]):
            other.met.add(event.task)


def _taken_back(history: History, event: Event, data: Mapping[str, Any]) -> None:
    task = history.tasks[event.task or 0]
    if not task.held or data["epoch"] != task.epoch:
        history.fault(event, "taken back from one who does not hold it", 1)
    if any(of == event.task for _, of, _ in history.reservations.values()):
        history.fault(event, "taken back, and what it had reserved was not counted as spent", 5)
    # Still live: a late holder may finish until somebody else claims.
    task.held, task.due_at = False, data.get("due_at")
    task.goes_on_from, task.tries = data["epoch"], task.tries + 1
    _bounded(history, event, data["state"])
    if data["state"] == "failed":
        _end(history, event, "failed")


def _ended_by_board(history: History, event: Event, data: Mapping[str, Any]) -> None:
    if event.kind == "skipped":
        needs = history.tasks[event.task or 0].needs.items()
        if all(history.tasks[needed].ended is None or _met(history.tasks[needed], w) for needed, w in needs):
            history.fault(event, "skipped although every need may still be met", 3)
    _end(history, event, event.kind)


def _retried(history: History, event: Event, data: Mapping[str, Any]) -> None:
    task = history.tasks[event.task or 0]
    task.ended = task.outcome = task.due_at = None
    task.tries = task.claims = 0


def _ready(history: History, event: Event, data: Mapping[str, Any]) -> None:
    task = history.tasks[event.task or 0]
    if task.ended or task.held:
        history.fault(event, "made ready while it is held or after its end", 3)
    if data.get("state") == "ready" and task.due_at is not None:  # From now on it is ready, wherever the clock is set.
        if event.at < task.due_at:
            history.fault(event, f"ready {task.due_at - event.at} ms before it is due", 3)
        task.due_at = None
    for needed, wanted in task.needs.items():
        if needed not in task.met and not _met(history.tasks[needed], wanted):
            history.fault(event, f"made ready before its need #{needed} was met", 3)


def _turn(history: History, event: Event, data: Mapping[str, Any]) -> None:
    _by_holder(history, event, data)
    history.happens(event, "turn", event.task, data["epoch"], data["number"])
    task = history.tasks[event.task or 0]
    task.replies += data.get("turn_kind") == "reply"
    if history.turns_max is not None and task.replies > history.turns_max:
        history.fault(event, f"{task.replies} turns in one attempt; {history.turns_max} is the most", 6)


def _reserved(history: History, event: Event, data: Mapping[str, Any]) -> None:
    _by_holder(history, event, data)
    history.happens(event, "reserve", data["key"])
    amounts = {kind: data[kind] for kind in KINDS}
    history.reservations[data["key"]] = (event.root or 0, event.task or 0, amounts)
    history.accounts[event.root or 0].used.update(amounts)


def _spent(history: History, event: Event, data: Mapping[str, Any]) -> None:
    if data["key"] not in history.reservations:
        history.fault(event, f"reservation {data['key']} does not exist or was closed before", 5)
        return
    root, _, reserved = history.reservations.pop(data["key"])
    if event.kind == "forfeited" and any(data[kind] != reserved[kind] for kind in KINDS):
        history.fault(event, "an unknown outcome must count as wholly spent", 5)
    history.accounts[root].used.update({kind: data[kind] - reserved[kind] for kind in KINDS})


def _within_caps(history: History, event: Event) -> None:
    account = history.accounts.get(event.root or 0)
    if account is None:
        return
    if (cap := account.caps["tasks_max"]) is not None and account.runs > cap and event.kind == "claimed":
        history.fault(event, f"{account.runs} task runs under root #{event.root}, and {cap} is the cap", 5)
    for kind in KINDS:
        cap = account.caps[f"{kind}_max"]
        if cap is not None and account.used[kind] > cap and event.kind in ("reserved", "spent", "forfeited"):
            what = f"{account.used[kind]} {kind} spent and reserved under #{event.root}; the cap is {cap}"
            history.fault(event, what, 5)


def _budget_set(history: History, event: Event, data: Mapping[str, Any]) -> None:
    history.accounts[event.root or 0].caps = dict(data["caps"])
    history.accounts[event.root or 0].held = None


def _budget_reached(history: History, event: Event, data: Mapping[str, Any]) -> None:
    history.accounts[event.root or 0].held = data["held"]


def _told(history: History, event: Event, data: Mapping[str, Any]) -> None:
    history.happens(event, "told", data["key"], data["to"], promise=7)
    history.messages[data["message"]] = {**data, "sender": event.actor}
    if data["message_kind"] == "text" and event.task is not None:
        _by_owner(history, event)
    # A reply goes to one who was shut down too: its task goes on with the answer, in other hands.
    if history.teammates.get(data["to"]) == "gone" and not data["message_kind"].endswith(("reply", "answer")):
        history.fault(event, f"{data['to']} was shut down, and reads nothing", 7)


def _by_owner(history: History, event: Event) -> None:
    """The fence of what names no epoch: a message or a note out of a task is its holder's."""
    task = history.tasks[event.task or 0]
    if not task.live or task.holder != event.actor:
        history.fault(event, f"said by one who does not hold #{event.task}", 2)


def _noted(history: History, event: Event, data: Mapping[str, Any]) -> None:
    if event.task is not None:
        _by_owner(history, event)


def _repeated(history: History, event: Event, data: Mapping[str, Any]) -> None:
    if history.limits is not None and data["repeats"] > history.limits.repeats_max:
        history.fault(event, f"asked for {data['repeats']} times; {history.limits.repeats_max} is the most", 6)


def _rested(history: History, event: Event, data: Mapping[str, Any]) -> None:
    """Who stops by itself has read everything; nothing is lost between working and resting."""
    unread = [
        number
        for number, message in history.messages.items()
        if message["to"] == data["name"] and number not in history.shown
    ]
    if unread and event.actor == data["name"]:
        history.fault(event, f"{data['name']} went to rest with message {unread[0]} unread", 7)
    history.teammates[data["name"]] = "gone"


def _shown(history: History, event: Event, data: Mapping[str, Any]) -> None:
    for message in data["messages"]:
        if message in history.shown:
            history.fault(event, f"message {message} was shown before", 7)
        history.shown.add(message)


def _state(of: str, key: str, state: str) -> Callable[[History, Event, Mapping[str, Any]], None]:
    def note(history: History, event: Event, data: Mapping[str, Any]) -> None:
        known: dict[str, str] = getattr(history, of)
        if event.kind == "seated" and known.get(data[key]) == "gone":
            history.fault(event, f"{data[key]} was shut down, and nobody spawned it again", 7)
        known[data[key]] = state

    return note


_RULES: dict[str, Callable[[History, Event, Mapping[str, Any]], None]] = {
    "put": _put, "claimed": _claimed, **dict.fromkeys(SETTLED, _settled), "taken_back": _taken_back,
    "cancelled": _ended_by_board, "skipped": _ended_by_board, "retried": _retried, "ready": _ready, "turn": _turn,
    "handover": _by_holder, "reserved": _reserved, "spent": _spent, "forfeited": _spent, "budget_set": _budget_set,
    "budget_reached": _budget_reached,
    "host_started": _state("hosts", "host", "started"), "host_stopped": _state("hosts", "host", "stopped"),
    "host_lost": _state("hosts", "host", "lost"), "host_back": _state("hosts", "host", "started"),
    "spawned": _state("teammates", "name", "wanted"), "seated": _state("teammates", "name", "seated"),
    "stopped_teammate": _rested, "failed_teammate": _state("teammates", "name", "gone"),
    "told": _told, "shown": _shown, "noted": _noted, "repeated": _repeated,
}  # fmt: skip
