"""Judges a whole history: reads the log event by event, by rules of its own, and names every broken promise.

It shares no rule with the board. `faults` is pure, so that hand-broken logs can be shown to be caught. What the log
cannot show (what a model was told, what a command was run with) is for the witness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dugnad.types import Event

from . import members
from .history import Account, History, TaskHistory
from .promises import Fault

SETTLED = {"done": "done", "failed": "failed", "retrying": "retry", "waiting": "waiting", "released": "released"}
KINDS = ("tokens", "microdollars", "milliseconds")
_ENDED = ("done", "failed", "cancelled", "skipped")


def faults(events: Sequence[Event], *, at_rest: bool = True) -> list[Fault]:
    """Every promise the history breaks. `at_rest`: nothing may be left open at its end."""
    return fold(events, at_rest).found


def fold(events: Sequence[Event], at_rest: bool) -> History:
    history = History()
    for event in events:
        tell(history, event)
        if history.found and "gap" in history.found[-1]:
            return history
    if at_rest:
        history.found += left_open(history)
    return history


def tell(history: History, event: Event) -> None:
    """The next event of the log."""
    if event.seq != history.last + 1:
        history.fault(event, f"the log has a gap or a doublet: number {history.last + 1} was expected", 11)
    history.last = event.seq
    history.counts[event.kind] += 1
    try:
        if rule := _RULES.get(event.kind):
            rule(history, event, event.data)
        _within_caps(history, event)
    except KeyError as unknown:
        history.fault(event, f"it speaks of {unknown}, of which the log never told", 11)


def left_open(history: History) -> list[Fault]:
    """What never came to an end."""
    found = []
    for number, task in history.tasks.items():
        vain = [need for need, how in task.needs.items() if (it := history.tasks[need]).ended and not _met(it, how)]
        if task.ended is None and vain:
            found.append(Fault(3, f"#{number} waits for ever: its need #{vain[0]} can never be met"))
        elif task.ended is None:
            found.append(Fault(4, f"#{number} never ended"))
    found += [Fault(6, f"a guard ended #{number}, and no person was told") for number in sorted(history.owed)]
    return found + [Fault(5, f"reservation {key} was never closed") for key in history.reservations]


def _put(history: History, event: Event, data: Mapping[str, Any]) -> None:
    assert event.task is not None and event.root is not None  # noqa: PT018
    if event.task in history.tasks:
        history.fault(event, "the task exists already", 4)
    history.happens(event, "put", event.root if event.root != event.task else 0, data["key"])
    history.seen.add(("put", event.task))
    needs = {needed: outcome for needed, outcome, _ in data["needs"]}
    task = TaskHistory(root=event.root, needs=needs, due_at=data.get("due_at"), key=data["key"])
    task.kind = data["kind"]
    task.role, task.not_for = data.get("role") or "", data.get("not_for") or ""
    task.give(data.get("assignee"))
    if parent := history.tasks.get(data.get("parent") or 0):
        task.depth = parent.depth + 1  # Counted here, whatever the event says.
    task.met = {needed for needed, _, state in data["needs"] if state == "met"}
    history.tasks[event.task] = task
    if data.get("caps") is not None:
        _budget_opened(history, event, data)
    if account := history.accounts.get(event.root):
        account.tasks += 1
    if data.get("followup_of"):
        _follow_up(history, event, data)
    if (limits := history.limits) is not None:
        if task.depth > limits.depth_max:
            history.fault(event, f"follow-up number {task.depth} in a row, and {limits.depth_max} is the most", 6)
        if account is not None and account.tasks > limits.tasks_per_root_max:
            history.fault(event, f"{account.tasks} tasks under one root; {limits.tasks_per_root_max} is the most", 6)


def _assigned(history: History, event: Event, data: Mapping[str, Any]) -> None:
    history.tasks[event.task or 0].give(data.get("assignee"))


def _need_added(history: History, event: Event, data: Mapping[str, Any]) -> None:
    """Whatever its state says, what can be met no more is skipped, and what is not met yet is waited for."""
    task = history.tasks[event.task or 0]
    task.needs[data["needs"]] = data.get("outcome")
    if _met(history.tasks[data["needs"]], data.get("outcome")):
        task.met.add(data["needs"])
    else:
        task.met.discard(data["needs"])
        task.live = False  # A late holder is fenced off, or it would undo the need.


def _follow_up(history: History, event: Event, data: Mapping[str, Any]) -> None:
    parent = history.tasks[data["followup_of"]]
    if not parent.heard_from(event.actor, data.get("followup_epoch")):
        history.fault(event, f"a follow-up by one who does not hold #{data['parent']}", 2)
    if event.root != parent.root:
        history.fault(event, f"a follow-up of #{data['followup_of']} is not charged to #{parent.root}", 5)
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
    _in_order(history, event, "claimed")
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
    task.holders.add(event.actor)
    task.lines[task.epoch] = task.lines.get(data.get("continues") or 0, task.epoch)
    if history.limits is not None and task.claims > history.limits.claims_max:
        history.fault(event, f"claimed {task.claims} times; {history.limits.claims_max} is the most", 6)
    begins = data.get("continues") is None  # Who goes on was charged when it began.
    history.accounts[task.root].runs += begins
    if history.limits is not None and bool(data.get("charged", 1)) != begins:
        history.fault(event, f"a run is {'not ' * begins}charged, and it {'begins' if begins else 'goes on'}", 5)


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
        # Counted here, whatever the event says; one that was lost before has been counted.
        task.tries += event.kind in ("failed", "retrying") and task.held
        task.goes_on_from = data["epoch"] if event.kind == "waiting" or data.get("resume") else None
        task.claims -= data.get("back", 0)
        put_down = data.get("resume") and data.get("due_at") is None
        if data.get("back") and not (put_down or event.kind == "waiting"):
            history.fault(event, f"{data['back']} claims are not counted that were work", 6)
    elif task.held:  # By hand: whoever takes it from its holder begins anew, who waited goes on there.
        task.goes_on_from = None
    if data.get("resume"):
        history.seen.add(("goes on", event.task, data["epoch"]))
    task.live = task.held = False
    task.waits = event.kind == "waiting"
    task.due_at, task.outcome = data.get("due_at"), data.get("outcome")
    task.needs.update(dict.fromkeys(data.get("tasks", ()), "ended"))
    task.met.difference_update(data.get("tasks", ()))
    _bounded(history, event, data["state"])
    if data["state"] in ("done", "failed"):
        _end(history, event, data["state"])
    if str(data.get("reason")).startswith("guard:"):
        history.owed.add(event.task or 0)


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
        history.owed.add(event.task or 0)


def _ended_by_board(history: History, event: Event, data: Mapping[str, Any]) -> None:
    if event.kind == "skipped":
        needs = history.tasks[event.task or 0].needs.items()
        if all(history.tasks[needed].ended is None or _met(history.tasks[needed], w) for needed, w in needs):
            history.fault(event, "skipped although every need may still be met", 3)
        if not data.get("reason"):
            history.fault(event, "skipped, and the log does not say why", 3)
    _end(history, event, event.kind)


def _retried(history: History, event: Event, data: Mapping[str, Any]) -> None:
    task = history.tasks[event.task or 0]
    task.ended = task.outcome = task.due_at = None
    task.tries = task.claims = 0
    if data["state"] == "ready":
        _in_order(history, event, "made ready")


def _ready(history: History, event: Event, data: Mapping[str, Any]) -> None:
    task = history.tasks[event.task or 0]
    if task.ended or task.held:
        history.fault(event, "made ready while it is held or after its end", 3)
    if data.get("state") == "ready" and task.due_at is not None:  # From now on it is ready, wherever the clock is set.
        if event.at < task.due_at:
            history.fault(event, f"ready {task.due_at - event.at} ms before it is due", 3)
        task.due_at = None
    _in_order(history, event, "made ready")


def _in_order(history: History, event: Event, what: str) -> None:
    task = history.tasks[event.task or 0]
    for needed, wanted in task.needs.items():
        if needed not in task.met and not _met(history.tasks[needed], wanted):
            history.fault(event, f"{what} before its need #{needed} was met", 3)


def _turn(history: History, event: Event, data: Mapping[str, Any]) -> None:
    _by_holder(history, event, data)
    history.happens(event, "turn", event.task, data["epoch"], data["number"])
    task = history.tasks[event.task or 0]
    line = task.lines.get(data["epoch"], 0)
    if data.get("turn_kind") == "reply":
        task.replies += 1
        task.said[line] += 1
    elif data.get("turn_kind") == "tool":
        task.results[line, task.said[line]] += 1
    if history.limits is not None:
        amounts = {kind: data[kind] for kind in KINDS}
        task.turned = None if data["unreserved"] else amounts
        if data["unreserved"]:
            history.accounts[event.root or 0].used.update(amounts)
    if history.turns_max is not None and task.replies > history.turns_max:
        history.fault(event, f"{task.replies} turns in one attempt; {history.turns_max} is the most", 6)


def _reserved(history: History, event: Event, data: Mapping[str, Any]) -> None:
    _by_holder(history, event, data)
    history.happens(event, "reserve", data["key"])
    amounts = {kind: data[kind] for kind in KINDS}
    history.tasks[event.task or 0].turned = None
    history.reservations[data["key"]] = (event.root or 0, event.task or 0, amounts)
    history.accounts[event.root or 0].used.update(amounts)


def _spent(history: History, event: Event, data: Mapping[str, Any]) -> None:
    if data["key"] not in history.reservations:
        history.fault(event, f"reservation {data['key']} does not exist or was closed before", 5)
        return
    root, number, reserved = history.reservations.pop(data["key"])
    task = history.tasks[number]
    if event.actor not in ("board", task.holder):
        history.fault(event, f"{event.actor} decides on what {task.holder} has reserved", 2)
    if event.kind == "spent" and task.turned not in (None, {kind: data[kind] for kind in KINDS}):
        history.fault(event, f"a turn that used {task.turned} is charged otherwise", 5)
    task.turned = None
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
        if cap is not None and account.used[kind] > cap and event.kind in ("reserved", "spent", "forfeited", "turn"):
            what = f"{account.used[kind]} {kind} spent and reserved under #{event.root}; the cap is {cap}"
            history.fault(event, what, 5)


def _budget_opened(history: History, event: Event, data: Mapping[str, Any]) -> None:
    history.accounts[event.root or 0] = Account(caps=dict(data["caps"]))


def _budget_set(history: History, event: Event, data: Mapping[str, Any]) -> None:
    history.accounts[event.root or 0].caps = dict(data["caps"])
    history.accounts[event.root or 0].held = None


def _budget_reached(history: History, event: Event, data: Mapping[str, Any]) -> None:
    history.accounts[event.root or 0].held = data["held"]


def _repeated(history: History, event: Event, data: Mapping[str, Any]) -> None:
    if history.limits is not None and data["repeats"] > history.limits.repeats_max:
        history.fault(event, f"asked for {data['repeats']} times; {history.limits.repeats_max} is the most", 6)


_RULES: dict[str, members.Rule] = {
    "put": _put, "claimed": _claimed, **dict.fromkeys(SETTLED, _settled), "taken_back": _taken_back,
    "cancelled": _ended_by_board, "skipped": _ended_by_board, "retried": _retried, "ready": _ready, "turn": _turn,
    "handover": _by_holder, "merging": _by_holder, "reserved": _reserved, "spent": _spent, "forfeited": _spent,
    "budget_set": _budget_set, "budget_opened": _budget_opened, "budget_reached": _budget_reached,
    "assigned": _assigned, "need_added": _need_added, "repeated": _repeated,
    **members.RULES,
}  # fmt: skip
