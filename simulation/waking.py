"""Who has to hear of a commit: everybody a change concerns is named by a topic, or only the slow sweep finds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from dugnad.types import Event

from .history import History
from .promises import Fault

_OF_TEAM = frozenset(
    {"host_started", "host_stopped", "host_lost", "host_back", "spawned", "seated", "stopped_teammate",
     "failed_teammate"}
)  # fmt: skip
_OF_BUDGET = frozenset({"spent", "forfeited", "budget_set", "budget_reached"})
_OF_TASK = frozenset(
    {"done", "failed", "retrying", "waiting", "released", "taken_back", "cancelled", "skipped", "retried"}
)
_BACK = frozenset({"ready", "retried", "retrying", "waiting", "released", "taken_back"})  # Where the state is ready.


def unpushed(history: History, events: Iterable[Event], topics: Mapping[str, int]) -> list[Fault]:
    """What nobody is woken for, of one commit: its events, as the history knows them by now, against its topics."""
    needed: Counter[str] = Counter()
    for event in events:
        if event.kind in _OF_TEAM:
            needed["team"] = 1
        elif event.kind in _OF_BUDGET:
            needed[f"budget:{event.root}"] = 1
        elif event.kind == "told":
            needed[f"inbox:{event.data['to']}"] = 1
        if event.kind in _OF_TASK:
            needed[f"task:{event.task}"] = 1
        if event.kind in _BACK or event.kind == "put":
            _ready(history, event, needed)
    return [
        Fault(
            10, f"{topic} is woken {topics.get(topic, 0)} times for {count} changes, in a commit up to {history.last}"
        )
        for topic, count in needed.items()
        if topics.get(topic, 0) < count
    ]


def _ready(history: History, event: Event, needed: Counter[str]) -> None:
    task = history.tasks[event.task or 0]
    if event.data.get("state") == "scheduled":
        needed["due"] = 1
    elif event.data.get("state") == "ready":
        # Under a root whose budget is spent it is put on the shelf; a raised cap brings it back.
        if event.kind == "put" and history.accounts[task.root].held is not None:
            return
        needed[f"ready:{task.lane}{f'!{task.not_for}' if task.not_for else ''}"] += 1
