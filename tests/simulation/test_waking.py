"""Everybody a commit concerns is named by one of its topics."""

from __future__ import annotations

from typing import Any

import pytest

from dugnad.types import Event
from simulation.history import Account, History, TaskHistory
from simulation.waking import unpushed

CAPS = dict.fromkeys(("tasks_max", "tokens_max", "microdollars_max", "milliseconds_max"))


def event(kind: str, task: int | None = 1, **data: Any) -> Event:
    return Event(seq=1, at=1, kind=kind, task=task, root=task and 1, actor="ann", data=data)


def history(*, held: str | None = None) -> History:
    """Task 1 is a coder's; task 2 is for any coder but Bob."""
    known = History(accounts={1: Account(caps=dict(CAPS), held=held)})
    known.tasks = {number: TaskHistory(root=1, needs={}, role="coder", lane="coder") for number in (1, 2)}
    known.tasks[2].not_for = "bob"
    return known


@pytest.mark.parametrize(
    ("told", "topics"),
    [
        (event("put", state="ready"), ("ready:coder",)),
        (event("ready", 2, state="ready"), ("ready:coder!bob",)),
        (event("put", state="scheduled"), ("due",)),
        (event("put", state="blocked"), ()),
        (event("retrying", state="scheduled"), ("due", "task:1")),
        (event("taken_back", state="ready"), ("ready:coder", "task:1")),
        (event("done", state="done"), ("task:1",)),
        (event("told", None, to="bob"), ("inbox:bob",)),
        (event("forfeited"), ("budget:1",)),
        (event("seated", None), ("team",)),
    ],
)
def test_a_change_that_wakes_nobody_is_found(told: Event, topics: tuple[str, ...]) -> None:
    whole = dict.fromkeys(topics, 1)
    assert unpushed(history(), [told], whole) == []
    for topic in topics:
        rest = {name: count for name, count in whole.items() if name != topic}
        (fault,) = unpushed(history(), [told], rest)
        assert fault.startswith(f"{topic} is woken 0 times for 1 changes")
        assert fault.promise == 10


def test_as_many_are_woken_as_there_are_tasks() -> None:
    (fault,) = unpushed(history(), [event("put", state="ready")] * 3, {"ready:coder": 2})
    assert fault.startswith("ready:coder is woken 2 times for 3 changes")


def test_nobody_is_woken_for_what_is_put_under_a_spent_budget() -> None:
    assert unpushed(history(held="tokens"), [event("put", state="ready")], {}) == []
