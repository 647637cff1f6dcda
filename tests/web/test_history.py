"""The history says what the board was after any event, as replaying the log up to there does."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from dugnad.board import Board
from dugnad.board.replay import State, apply, load
from dugnad.types import Amount, Done, Event, NewTask, NewTurn, Pace, Waiting
from dugnad.web.added import ADDED
from dugnad.web.history import TRACKED, BoardHistory, BoardView
from tests.board.crew import crew
from tests.board.raw import grow_old, run
from tests.board.stage import Stage
from tests.board.test_events import HOUR, all_events, everything
from tests.board.test_state_machine import BoardMachine, stage

__all__ = ["stage"]  # The fixture.
TABLES = {
    "task": "SELECT * FROM tasks", "attempt": "SELECT * FROM attempts", "message": "SELECT * FROM messages",
    "note": "SELECT * FROM notes", "teammate": "SELECT * FROM teammates", "host": "SELECT * FROM hosts",
}  # fmt: skip


def told(events: Sequence[Event], first: int = 0, state: State | None = None) -> BoardHistory:
    history = BoardHistory(first, state)
    for event in events:
        history.add(event)
    return history


def assert_same(view: BoardView, state: State) -> None:
    """Fact by fact. The view has more facts, such as times."""
    for kind in TRACKED:
        entities = view.kinds[kind]
        assert set(entities) == set(dict.keys(state[kind])), (view.seq, kind)
        for each, facts in dict.items(state[kind]):
            seen = {name: entities[each][name] for name in facts}
            if kind == "task":
                seen["needs"] = {need: list(edge) for need, edge in seen["needs"].items()}
            assert seen == facts, (view.seq, kind, each)
            assert entities[each].keys() - facts.keys() == ADDED[kind].keys(), (view.seq, kind, each)


def assert_replays(history: BoardHistory, events: Sequence[Event], points: set[int], state: State) -> None:
    """At each of these points. `state` is what the log begins with."""
    if history.first in points:
        assert_same(history.at(history.first), state)
    for event in events:
        apply(state, event)
        if event.seq in points:
            assert_same(history.at(event.seq), state)


def some_of(history: BoardHistory, count: int, seed: int = 1) -> set[int]:
    every = range(history.first, history.last + 1)
    return {history.first, history.last, *random.Random(seed).sample(every, min(count, len(every)))}


class RemembersEverything(BoardMachine):
    """The random boards of the state machine, with a history of each."""

    def teardown(self) -> None:
        for side in self.sides if self.sound else ():
            events = self.wait(all_events(side.board))
            history = told(events)
            assert_replays(history, events, some_of(history, 25), State())
            assert_same(history.at(), self.wait(side.board.observed_state()))
            assert_counts(history)
            assert_changes(history)
        super().teardown()


def assert_counts(history: BoardHistory) -> None:
    """What is counted on the way is what a look at everything finds."""
    live = history.at()
    assert live.counts == Counter(task["state"] for task in live.tasks.values())
    still_open = {each for each, task in live.tasks.items() if task["ended_at"] is None}
    assert set(live.open_tasks) == still_open
    kinds = ("question", "plan", "shutdown")
    to_read = [each for each in live.messages.values() if each["recipient"] == "human" and not each["shown"]]
    assert live.unread == sum(each["kind"] not in kinds for each in to_read)
    for column in ("tokens", "microdollars", "milliseconds"):
        spent = [
            sum(getattr(each["spent"], column) for each in live.kinds[kind].values()) for kind in ("task", "attempt")
        ]
        assert spent == [sum(each[column] for each in live.budgets.values())] * 2, column


def assert_changes(history: BoardHistory) -> None:
    points = sorted(some_of(history, 6, seed=2))
    for after, until in itertools.pairwise(points):
        was, now, changed = history.at(after), history.at(until), history.changed(after, until)
        for kind in TRACKED:
            both = {*was.kinds[kind], *now.kinds[kind]}
            differ = {each for each in both if was.kinds[kind].get(each) != now.kinds[kind].get(each)}
            assert differ <= changed[kind], (after, until, kind)
    assert not any(history.changed(history.last).values())


def walk(stage: Stage, examples: int) -> None:
    run_state_machine_as_test(
        lambda: RemembersEverything(stage),
        settings=settings(
            max_examples=examples, stateful_step_count=60, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("examples", [8, pytest.param(100, marks=pytest.mark.proof)])
@pytest.mark.timeout(1_800)
def test_any_event_of_a_random_board_is_shown_as_the_log_replays_to_it(examples: int) -> None:
    with asyncio.Runner() as runner:
        walk(Stage(runner.get_loop()), examples)


@pytest.mark.parametrize("examples", [3, pytest.param(40, marks=pytest.mark.proof)])
@pytest.mark.timeout(1_800)
def test_on_both_databases(stage: Stage, examples: int) -> None:
    walk(stage, examples)


async def test_every_event_of_a_board_that_saw_every_kind_of_change(board: Board, url: str) -> None:
    await everything(board, await crew(board), url)
    events = await all_events(board)
    history = told(events)
    assert_replays(history, events, set(range(len(events) + 1)), State())
    assert_same(history.at(), await board.observed_state())
    assert_counts(history)
    assert_changes(history)


async def test_a_pruned_board_begins_with_its_snapshot(board: Board, url: str) -> None:
    team = await crew(board)
    await everything(board, team, url)
    await grow_old(url, 2 * HOUR)
    assert (await board.prune(HOUR)).events
    first, state = await board.pruned_state()
    await board.put("more")
    await board.settle(await team.must_claim(), Done())
    events = await all_events(board)
    assert first > 0
    assert events[0].seq == first + 1
    history = told(events, first, state)
    assert_replays(history, events, set(range(first, history.last + 1)), (await board.pruned_state())[1])
    assert_same(history.at(), await board.observed_state())
    assert history.at(0).seq == first  # Nothing earlier can be shown.


async def test_a_board_that_nobody_pruned_begins_with_nothing(board: Board) -> None:
    await board.put("a task")
    assert await board.pruned_state() == (0, load())


async def test_times_and_lanes_are_those_of_the_tables(board: Board, url: str) -> None:
    await everything(board, await crew(board), url)
    view = told(await all_events(board)).at()
    near = 1_000  # The event is written last in its transaction.
    rows = {name: await run(url, statement) for name, statement in TABLES.items()}
    for row in rows["task"]:
        task = view.tasks[str(row["id"])]
        assert task["lane"] == row["lane"]
        assert_near([(task[name], row[name]) for name in ("put_at", "ended_at")], near)
    for row in rows["attempt"]:
        attempt = view.attempts[f"{row['task_id']}.{row['epoch']}"]
        assert attempt["reason"] == row["reason"]
        assert_near([(attempt[name], row[name]) for name in ("claimed_at", "ended_at")], near)
    assert_near([(view.messages[str(row["id"])]["sent_at"], row["sent_at"]) for row in rows["message"]], near)
    assert_near([(view.messages[str(row["id"])]["shown_at"], row["shown_at"]) for row in rows["message"]], near)
    assert_near([(view.notes[str(row["id"])]["at"], row["at"]) for row in rows["note"]], near)
    people = [row for row in rows["teammate"] if row["state"] != "human"]
    assert_near([(view.teammates[row["name"]]["spawned_at"], row["spawned_at"]) for row in people], near)
    assert {each: host["label"] for each, host in view.hosts.items()} == {
        row["id"]: row["label"] for row in rows["host"]
    }


def assert_near(pairs: list[tuple[Any, Any]], near: int) -> None:
    assert pairs
    for one, other in pairs:
        assert (one is None) == (other is None)
        assert one is None or abs(one - other) <= near


async def test_a_task_goes_back_to_its_author_after_a_review_and_its_lane_says_so(board: Board) -> None:
    team = await crew(board, "alice", "bob")
    task = await board.put("work")
    claim = await team.must_claim("alice")
    review = await board.follow_up(claim, "look at it", not_for="alice", kind="review", reviews=task.id)
    await board.settle(claim, Waiting(on="tasks", tasks=(review.id,)))
    await board.settle(await team.must_claim("bob"), Done(outcome="approved"))
    history = told(await all_events(board))
    assert history.at().tasks[str(task.id)]["lane"] == "@alice"
    await board.assign(task.id, None)
    assert told(await all_events(board)).at().tasks[str(task.id)]["lane"] == ""


async def test_what_was_spent_is_told_by_task_attempt_teammate_and_model(board: Board) -> None:
    team = await crew(board, "alice")
    await board.spawn("bob", model="anthropic:fast")
    await board.seat(team.host, name="bob")
    task = await board.put("work")
    claim = await team.must_claim("alice")
    paid = Amount(tokens=30, microdollars=5, milliseconds=7)
    key = await board.reserve(claim, Amount(tokens=100, microdollars=50), pace=Pace(key="anthropic:3f9a"))
    await board.record(claim, NewTurn(number=1, kind="reply", body="{}", used=paid, reservation=key))
    await board.record(claim, NewTurn(number=2, kind="tool", body="{}", used=Amount(milliseconds=9)))
    await board.reserve(claim, Amount(tokens=40))
    await board.release(task.id)  # What was reserved counts as spent.
    again = await team.must_claim("bob")
    await board.record(again, NewTurn(number=1, kind="reply", body="{}", used=Amount(tokens=2)))
    history = told(await all_events(board))
    view = history.at()
    assert view.tasks[str(task.id)]["spent"] == (72, 5, 16, 2, 2, 1)
    assert view.attempts[f"{task.id}.{claim.epoch}"]["spent"] == (70, 5, 16, 1, 30, 2)
    assert [(each.teammate, each.model, each.tokens, each.turns) for each in view.payments()] == [
        ("alice", "anthropic:3f9a", 0, 1), ("alice", "anthropic:3f9a", 30, 0), ("alice", "anthropic:3f9a", 40, 0),
        ("bob", "anthropic:fast", 2, 1),
    ]  # fmt: skip
    assert sum(each.tokens for each in view.payments()) == (await board.budget(task.id)).spent.tokens


async def test_it_says_what_a_teammate_does_and_says_nothing_afterwards(board: Board) -> None:
    team = await crew(board, "alice")
    await board.put("work")
    claim = await team.must_claim("alice")
    history = told(await all_events(board))
    assert history.at().teammates["alice"]["doing"].what == "begins"
    await board.reserve(claim, Amount(tokens=1))
    history = told(await all_events(board))
    asked = history.last
    assert history.at().teammates["alice"]["doing"].what == "asks its model"
    await board.settle(claim, Done())
    for event in await board.events(history.last):
        history.add(event)
    assert history.at().teammates["alice"]["doing"] is None
    assert history.at(asked).teammates["alice"]["doing"].what == "asks its model"


async def test_facts_that_a_caller_has_stay_as_they_are(board: Board) -> None:
    """A page is being shaped while the next event comes."""
    first, second = await board.put("one"), await board.put("two")
    await board.add_need(second.id, first.id)
    history = told(await all_events(board))
    view = history.at()
    held = view.tasks[str(second.id)]
    before = {**held, "needs": dict(held["needs"])}
    later = view.tasks.get(str(first.id))
    await board.cancel(first.id)
    for event in await board.events(history.last):
        history.add(event)
    assert held == before
    assert later["state"] == "ready"
    assert view.counts == {"ready": 1, "blocked": 1}
    assert set(view.open_tasks) == {str(first.id), str(second.id)}


async def test_a_task_with_many_needs_is_remembered_at_every_step(board: Board) -> None:
    team = await crew(board, "alice")
    many = await board.put_many([NewTask(title=f"part {number}") for number in range(70)])
    last = await board.put("all of it", needs=[task.id for task in many])
    for _ in many:
        await board.settle(await team.must_claim("alice"), Done())
    events = await all_events(board)
    history = told(events)
    assert_replays(history, events, some_of(history, 60), State())
    assert history.at().tasks[str(last.id)]["state"] == "ready"


def test_an_event_is_taken_once_and_none_is_left_out() -> None:
    history = BoardHistory()
    event = Event(seq=1, at=5, kind="unsandboxed", task=None, root=None, actor="human", data={"machine": "here"})
    history.add(event)
    history.add(event)
    assert (history.last, history.time_of(1)) == (1, 5)
    with pytest.raises(LookupError, match="does not follow"):
        history.add(Event(seq=3, at=6, kind="unsandboxed", task=None, root=None, actor="human", data={}))


def test_ticks_run_from_the_first_to_the_last_event() -> None:
    history = BoardHistory()
    assert history.ticks() == [(0, 0)]
    for seq in range(1, 1_001):
        history.add(Event(seq=seq, at=seq * 10, kind="unsandboxed", task=None, root=None, actor="human", data={}))
    ticks = history.ticks(50)
    assert (len(ticks), ticks[0], ticks[-1]) == (50, (0, 10), (1_000, 10_000))
    assert history.ticks(2) == [(0, 10), (1_000, 10_000)]
