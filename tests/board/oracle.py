"""Judges a whole history: reads the log event by event, by rules of its own, and names every broken promise.

It shares no code with the board. `faults` is pure, so that hand-broken logs can be shown to be caught.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dugnad.board import Board
from dugnad.types import Event

SETTLED = {"done": "done", "failed": "failed", "retrying": "retry", "waiting": "waiting", "released": "released"}
KINDS = ("tokens", "microdollars", "milliseconds")


@dataclass
class _Task:
    root: int
    needs: dict[int, str | None]
    epoch: int = 0  # The newest claim's.
    holder: str | None = None
    live: bool = False  # The newest claim may still write: nobody settled it, cancelled it or took it over.
    held: bool = False  # ... and was not taken back either.
    ended: str | None = None
    outcome: str | None = None
    due_at: int | None = None


@dataclass
class _Account:
    caps: dict[str, int | None]
    runs: int = 0
    used: Counter[str] = field(default_factory=Counter)  # Spent and reserved together.


@dataclass
class _History:
    """What is known of the board at one point of the log."""

    tasks: dict[int, _Task] = field(default_factory=dict)
    accounts: dict[int, _Account] = field(default_factory=dict)
    reservations: dict[str, tuple[int, int, dict[str, int]]] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    seen: set[tuple[object, ...]] = field(default_factory=set)  # What happened, to look acknowledgements up in.

    def fault(self, event: Event, what: str) -> None:
        self.found.append(f"event {event.seq} ({event.kind} of #{event.task} by {event.actor}): {what}")

    def happens(self, event: Event, *what: object) -> None:
        if what in self.seen:
            self.fault(event, f"{what} happened a second time")
        self.seen.add(what)


def faults(events: Sequence[Event], *, at_rest: bool = True) -> list[str]:
    """Every promise the history breaks. `at_rest`: nothing may be left open at its end."""
    return _fold(events, at_rest).found


def _fold(events: Sequence[Event], at_rest: bool) -> _History:
    history = _History()
    for place, event in enumerate(events, 1):
        if event.seq != place:
            history.fault(event, f"the log has a gap or a doublet: number {place} was expected")
            return history
        if rule := _RULES.get(event.kind):
            rule(history, event, event.data)
        _within_caps(history, event)
    if at_rest:
        for number, task in history.tasks.items():
            if task.ended is None:
                history.found.append(f"#{number} never ended")
        history.found += [f"reservation {key} was never closed" for key in history.reservations]
    return history


def _put(history: _History, event: Event, data: Mapping[str, Any]) -> None:
    assert event.task is not None and event.root is not None  # noqa: PT018
    if event.task in history.tasks:
        history.fault(event, "the task exists already")
    history.happens(event, "put", event.root, data["key"])
    history.seen.add(("put", event.task))
    needs = {needed: outcome for needed, outcome, _ in data["needs"]}
    history.tasks[event.task] = _Task(root=event.root, needs=needs, due_at=data.get("due_at"))
    if data.get("caps") is not None:
        history.accounts[event.task] = _Account(caps=dict(data["caps"]))
    if data.get("followup_of"):
        parent = history.tasks[data["followup_of"]]
        if not parent.live or parent.holder != event.actor:
            history.fault(event, f"a follow-up by one who does not hold #{data['parent']}")


def _claimed(history: _History, event: Event, data: Mapping[str, Any]) -> None:
    task = history.tasks[event.task or 0]
    history.happens(event, "claim", event.task, data["epoch"])
    history.happens(event, "claim key", data["key"])
    if task.ended:
        history.fault(event, f"claimed after it had ended {task.ended}")
    if task.held:
        history.fault(event, f"claimed while {task.holder} holds it under epoch {task.epoch}")
    if data["epoch"] <= task.epoch:
        history.fault(event, f"epoch {data['epoch']} does not grow; the last was {task.epoch}")
    if task.due_at is not None and event.at < task.due_at:
        history.fault(event, f"claimed {task.due_at - event.at} ms before it is due")
    for needed, wanted in task.needs.items():
        if not _met(history.tasks[needed], wanted):
            history.fault(event, f"claimed before its need #{needed} was met")
    if history.hosts.get(data["host"]) != "started":
        history.fault(
            event, f"claimed by host {data['host']}, which was {history.hosts.get(data['host'], 'never seen')}"
        )
    task.epoch, task.holder, task.live, task.held, task.due_at = data["epoch"], event.actor, True, True, None
    history.accounts[task.root].runs += 1


def _met(needed: _Task, wanted: str | None) -> bool:
    if wanted == "ended":
        return needed.ended is not None
    if wanted in ("failed", "cancelled", "skipped"):
        return needed.ended == wanted
    return needed.ended == "done" and wanted in (None, needed.outcome)


def _settled(history: _History, event: Event, data: Mapping[str, Any]) -> None:
    task = history.tasks[event.task or 0]
    if "tried" in data:  # By its holder; a release by hand counts no try.
        _by_holder(history, event, data)
        history.happens(event, "settle", event.task, data["epoch"])
        history.seen.add(("settled as", event.task, data["epoch"], SETTLED[event.kind]))
    task.live = task.held = False
    task.due_at, task.outcome = data.get("due_at"), data.get("outcome")
    task.needs.update(dict.fromkeys(data.get("tasks", ()), "ended"))
    if data["state"] in ("done", "failed"):
        _end(history, event, data["state"])


def _by_holder(history: _History, event: Event, data: Mapping[str, Any]) -> None:
    """The fence: only the newest claim writes, while nobody has ended it."""
    task = history.tasks[event.task or 0]
    if data["epoch"] != task.epoch:
        history.fault(event, f"written under stale epoch {data['epoch']}; the newest claim is {task.epoch}")
    elif not task.live:
        history.fault(event, f"written under epoch {data['epoch']}, which was over")
    elif task.holder != event.actor:
        history.fault(event, f"written by {event.actor} under the claim of {task.holder}")


def _end(history: _History, event: Event, state: str) -> None:
    task = history.tasks[event.task or 0]
    if task.ended:
        history.fault(event, f"ended a second time; it had ended {task.ended}")
    task.ended, task.live, task.held = state, False, False


def _taken_back(history: _History, event: Event, data: Mapping[str, Any]) -> None:
    task = history.tasks[event.task or 0]
    if not task.held or data["epoch"] != task.epoch:
        history.fault(event, "taken back from one who does not hold it")
    if any(of == event.task for _, of, _ in history.reservations.values()):
        history.fault(event, "taken back, and what it had reserved was not counted as spent")
    task.held, task.due_at = (
        False,
        data.get("due_at"),
    )  # Still live: a late holder may finish until somebody else claims.
    if data["state"] == "failed":
        _end(history, event, "failed")


def _ended_by_board(history: _History, event: Event, data: Mapping[str, Any]) -> None:
    if event.kind == "skipped":
        task = history.tasks[event.task or 0]
        if all(
            history.tasks[needed].ended is None or _met(history.tasks[needed], w) for needed, w in task.needs.items()
        ):
            history.fault(event, "skipped although every need may still be met")
    _end(history, event, event.kind)


def _retried(history: _History, event: Event, data: Mapping[str, Any]) -> None:
    task = history.tasks[event.task or 0]
    task.ended = task.outcome = task.due_at = None


def _ready(history: _History, event: Event, data: Mapping[str, Any]) -> None:
    task = history.tasks[event.task or 0]
    if task.ended or task.held:
        history.fault(event, "made ready while it is held or after its end")
    for needed, wanted in task.needs.items():
        if not _met(history.tasks[needed], wanted):
            history.fault(event, f"made ready before its need #{needed} was met")


def _turn(history: _History, event: Event, data: Mapping[str, Any]) -> None:
    _by_holder(history, event, data)
    history.happens(event, "turn", event.task, data["epoch"], data["number"])


def _reserved(history: _History, event: Event, data: Mapping[str, Any]) -> None:
    _by_holder(history, event, data)
    history.happens(event, "reserve", data["key"])
    amounts = {kind: data[kind] for kind in KINDS}
    history.reservations[data["key"]] = (event.root or 0, event.task or 0, amounts)
    history.accounts[event.root or 0].used.update(amounts)


def _spent(history: _History, event: Event, data: Mapping[str, Any]) -> None:
    if data["key"] not in history.reservations:
        history.fault(event, f"reservation {data['key']} does not exist or was closed before")
        return
    root, _, reserved = history.reservations.pop(data["key"])
    if event.kind == "forfeited" and any(data[kind] != reserved[kind] for kind in KINDS):
        history.fault(event, "an unknown outcome must count as wholly spent")
    history.accounts[root].used.update({kind: data[kind] - reserved[kind] for kind in KINDS})


def _within_caps(history: _History, event: Event) -> None:
    account = history.accounts.get(event.root or 0)
    if account is None:
        return
    if (cap := account.caps["tasks_max"]) is not None and account.runs > cap and event.kind == "claimed":
        history.fault(event, f"{account.runs} task runs under root #{event.root}, and {cap} is the cap")
    for kind in KINDS:
        cap = account.caps[f"{kind}_max"]
        if cap is not None and account.used[kind] > cap and event.kind in ("reserved", "spent", "forfeited"):
            history.fault(
                event, f"{account.used[kind]} {kind} spent and reserved under #{event.root}; the cap is {cap}"
            )


def _budget_set(history: _History, event: Event, data: Mapping[str, Any]) -> None:
    history.accounts[event.root or 0].caps = dict(data["caps"])


def _host(state: str) -> Callable[[_History, Event, Mapping[str, Any]], None]:
    def note(history: _History, event: Event, data: Mapping[str, Any]) -> None:
        history.hosts[data["host"]] = state

    return note


_RULES: dict[str, Callable[[_History, Event, Mapping[str, Any]], None]] = {
    "put": _put, "claimed": _claimed, **dict.fromkeys(SETTLED, _settled), "taken_back": _taken_back,
    "cancelled": _ended_by_board, "skipped": _ended_by_board, "retried": _retried, "ready": _ready, "turn": _turn,
    "handover": _by_holder, "reserved": _reserved, "spent": _spent, "forfeited": _spent, "budget_set": _budget_set,
    "host_started": _host("started"), "host_stopped": _host("stopped"),
}  # fmt: skip


def groundless(events: Sequence[Event]) -> int:
    """How many claims were taken back from a host that nobody had declared lost or stopped.

    A few may be: a lease can run out between looking for lost hosts and looking for their claims.
    """
    lost: set[object] = set()
    count = 0
    for event in events:
        if event.kind in ("host_lost", "host_stopped"):
            lost.add(event.data["host"])
        elif event.kind == "host_back":
            lost.discard(event.data["host"])
        elif event.kind == "taken_back":
            count += event.data["host"] not in lost
    return count


# What the workers were told.


def unheard(events: Sequence[Event], acknowledged: Iterable[Sequence[object]], *, at_rest: bool = True) -> list[str]:
    """Acknowledgements the log does not bear out, and refusals it does not justify.

    ("put", task), ("claim", task, epoch), ("turn", task, epoch, number), ("reserve", key),
    ("settled as", task, epoch, how), and ("stale", task, epoch) for a settle that was refused as stale.
    """
    seen = _fold(events, at_rest).seen
    over = {
        (event.task, event.data.get("epoch")) for event in events if event.kind in (*SETTLED, "taken_back", "cancelled")
    }
    found = []
    for each in map(tuple, acknowledged):
        if each[0] != "stale":
            if each not in seen:
                found.append(f"{each} was acknowledged and is not in the log")
        elif ("settle", *each[1:]) in seen:
            found.append(f"{each} was refused as stale, and is in the log as settled")
        elif each[1:] not in over:
            found.append(f"{each} was refused as stale, but nobody took it from its holder")
    return found


async def read_log(board: Board) -> list[Event]:
    events: list[Event] = []
    while page := await board.events(events[-1].seq if events else 0):
        events += page
    return events


async def verdict(board: Board, acknowledged: Iterable[Sequence[object]] = (), *, at_rest: bool = True) -> list[str]:
    """Everything that is wrong with a board nobody writes to any more: its log, its tables, what it promised."""
    events = await read_log(board)
    found = faults(events, at_rest=at_rest) + unheard(events, acknowledged, at_rest=at_rest)
    observed = await board.observed_state()
    if await board.replayed_state() != observed:
        found.append("the log does not replay to what the tables say")
    claims = {f"{event.task}.{event.data['epoch']}" for event in events if event.kind == "claimed"}
    if claims != observed["attempt"].keys():
        found.append(
            f"claims without attempts, or attempts without claims: {sorted(claims ^ observed['attempt'].keys())}"
        )
    turns = Counter((event.task, event.data["epoch"]) for event in events if event.kind == "turn")
    for (task, epoch), count in turns.items():
        if len(await board.transcript(task or 0, epoch)) != count:
            found.append(f"#{task} epoch {epoch}: the transcript does not hold the {count} turns of the log")
    for number, task in observed["task"].items():
        if at_rest and task["state"] not in ("done", "failed", "cancelled", "skipped"):
            found.append(f"#{number} is {task['state']} in the tables")
    return found
