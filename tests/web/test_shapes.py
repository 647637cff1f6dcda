"""The JSON of each view: what `--json` says, shaped from the history, live and at any event."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import orjson

from dugnad.board import Board
from dugnad.team.requests import waiting_requests
from dugnad.types import Amount, Done, Failed, NewTask, NewTurn, Waiting
from dugnad.view.json import message_shape, shape_of, spending_shape
from dugnad.web.history import BoardHistory
from dugnad.web.rehearsed import KeptBar, KeptRehearsal
from dugnad.web.shapes import (
    changes_shape,
    merges_shape,
    messages_shape,
    money_shape,
    notes_shape,
    state_shape,
    stream_shape,
    task_detail,
    task_summary,
    timeline_shape,
)
from tests.board.crew import crew
from tests.board.raw import grow_old
from tests.board.test_events import all_events
from tests.web.stage_shapes import Shape, Told, by, tides, told

__all__ = ["tides"]  # The fixture.


# The same as `--json`.


async def test_a_task_is_what_the_board_says_it_is(tides: Told) -> None:
    for each in tides.view.tasks:
        shape = task_detail(tides.view, int(each), tides.now)
        assert shape is not None
        assert shape["task"] == shape_of(await tides.board.find(int(each)))
        attempts = [shape_of(attempt) for attempt in await tides.board.attempts(int(each))]
        for attempt, seen in zip(attempts, shape["attempts"], strict=True):
            del attempt["follows"]  # It is not in the log.
            assert {name: seen[name] for name in attempt} == attempt
        needs = [(need.task, need.outcome, state) for need, state in await tides.board.needs_of(int(each))]
        assert sorted((need["task"], need["outcome"], need["state"]) for need in shape["needs"]) == sorted(needs)
        behind = {(found["task"], found["outcome"]) for found in shape["needed_by"] if found["need"] == "open"}
        task = await tides.board.find(int(each))
        around = await tides.board.surroundings(task, "alice", mates=1, notes=1, messages=1)
        assert behind == set(around.behind)
    assert task_detail(tides.view, 999, tides.now) is None


async def test_people_hosts_budgets_and_messages_are_what_the_board_says(tides: Told) -> None:
    state, board = state_shape(tides.view, tides.now), tides.board
    assert state["counts"] == await board.count_tasks()
    for member, seen in zip(await board.team(), state["team"], strict=True):
        shape = {**shape_of(member), "roles": list(member.roles)}
        assert {name: seen[name] for name in seen.keys() & shape.keys()} == {
            name: shape[name] for name in seen.keys() & shape.keys()
        }
    for host, seen in zip(await board.hosts(), state["hosts"], strict=True):
        assert {name: seen[name] for name in shape_of(host)} == shape_of(host)
    for seen in state["budgets"]:
        account = spending_shape(await board.budget(seen["root"]))
        assert {name: seen[name] for name in account} == account
    asked = [message_shape(each) for each in await waiting_requests(board)]
    requests = by("id", state["requests"])
    assert [{name: requests[shape["id"]][name] for name in shape} for shape in asked] == asked
    assert [each.key for each in await board.cooldowns()] == [each["key"] for each in state["cooldowns"]]
    unread = [each for each in await board.inbox() if each.kind not in ("question", "plan", "shutdown")]
    assert state["unread"] == len(unread)
    assert notes_shape(tides.view)["notes"] == [shape_of(each) for each in await board.search_notes()]
    assert [each["title"] for each in notes_shape(tides.view, "chart METRES")["notes"]] == ["Heights"]
    every = [message_shape(each) for each in await board.inbox(None, queued=False)]
    mine = [each for each in every if "human" in (each["sender"], each["recipient"])]
    assert messages_shape(tides.view, "human") == {"messages": mine, "more": False}
    assert messages_shape(tides.view, "human", page=1) == {"messages": mine[-1:], "more": True}


async def test_a_summary_leaves_out_what_says_nothing(tides: Told) -> None:
    story, view = tides.story, tides.view
    assert task_summary(str(story["logo"]), view.tasks[str(story["logo"])]) == {
        "id": story["logo"], "root": story["goal"], "parent": story["goal"], "kind": "work", "title": "Draw a logo",
        "role": "designer", "state": "ready", "put_at": view.tasks[str(story["logo"])]["put_at"],
    }  # fmt: skip
    merged = task_summary(str(story["cache"]), view.tasks[str(story["cache"])])
    assert merged["merged_as"] == story.commits["cache"]
    assert merged["needs"] == [(story["read"], None, "met")]
    assert (merged["tokens"], merged["dollars"], merged["tries"]) == (7_200, 0.036, 1)


async def test_a_title_and_a_reason_are_short_in_a_summary(board: Board) -> None:
    team = await crew(board)
    task = await board.put("t" * 200, body="b" * 10_000)
    await board.settle(await team.must_claim(), Failed("r" * 10_000))
    facts = told(await all_events(board)).at().tasks[str(task.id)]
    assert {name: len(task_summary(str(task.id), facts)[name]) for name in ("title", "reason")} == {
        "title": 200, "reason": 200,
    }  # fmt: skip


# What waits for a person.


async def test_requests_say_what_they_are_about_and_what_they_block(tides: Told) -> None:
    story = tides.story
    found = {each["task"] if each["kind"] != "budget" else each["root"]: each for each in requests_of(tides)}
    named = [story[name] for name in ("licence", "storage", "publish", "held")]
    assert [each for each in found if each in named] == named  # The oldest first.
    licence, storage, publish, held = (found[each] for each in named)
    assert (licence["kind"], licence["about"], licence["blocks"]) == ("question", "Choose a licence for the map", 3)
    assert (storage["kind"], storage["tool_call"]) == ("plan", False)
    assert (publish["kind"], publish["tool_call"], publish["blocks"]) == ("question", True, 0)
    assert (held["kind"], held["held"], held["about"]) == ("budget", "dollars", "Measure how fast the page is")
    assert held["text"] == (
        f"The cap on dollars of #{story['held']} is reached: `dugnad budget {story['held']} --add --dollars 1` raises "
        "it."
    )


def requests_of(tides: Told) -> list[Shape]:
    requests: list[Shape] = state_shape(tides.view, tides.now)["requests"]
    return requests


async def test_a_question_to_a_teammate_that_was_shut_down_is_for_the_person(board: Board) -> None:
    team = await crew(board, "alice", "lena")
    await board.put("Plan it")
    await board.settle(await team.must_claim("alice"), Waiting(on="plan", question="First this.", ask="lena"))
    view = told(await all_events(board)).at()
    assert state_shape(view, view.at)["requests"] == []
    await board.stop_teammate("lena")
    view = told(await all_events(board)).at()
    assert [each["text"] for each in state_shape(view, view.at)["requests"]] == ["First this."]


async def test_how_full_a_context_is_needs_the_window_of_its_model(tides: Told) -> None:
    plain = by("name", state_shape(tides.view, tides.now)["team"])
    known = by("name", state_shape(tides.view, tides.now, windows={"scripted:tides": 9_600})["team"])
    assert (plain["bob"]["context"], known["bob"]["context"], known["dora"]["context"]) == (None, 0.25, None)
    assert known["bob"]["doing"]["what"] == "asks its model"
    assert (known["bob"]["status"], known["frank"]["status"]) == ("working", "lost")


# Live and past are one.


def every_shape(history: BoardHistory, seq: int) -> Shape:
    view = history.at(seq)
    now = view.at
    state = state_shape(view, now)
    for name in ("last", "live", "ticks"):  # These say how far the log goes, and not how the board is.
        del state[name]
    details = [task_detail(view, int(each), now) for each in view.tasks]
    shapes = [state, details, timeline_shape(view, now), money_shape(view, now), merges_shape(view, now)]
    found: Shape = orjson.loads(orjson.dumps([*shapes, notes_shape(view), messages_shape(view)]))
    return found


def points(history: BoardHistory, count: int) -> Iterator[int]:
    yield from random.Random(3).sample(range(1, history.last + 1), count)


async def test_the_past_is_shown_as_it_was_shown_then(tides: Told) -> None:
    for seq in [*points(tides.history, 25), tides.history.last]:
        assert every_shape(tides.history, seq) == every_shape(told(tides.events[:seq]), seq), seq


async def test_a_page_that_follows_the_stream_has_what_a_page_that_was_just_opened_has(tides: Told) -> None:
    history = BoardHistory()
    view = history.at()
    page = state_shape(view, view.at)
    tasks, budgets = by("id", page["tasks"]), by("root", page["budgets"])
    gathered = random.Random(4)
    left = list(tides.events)
    while left:
        after = history.last
        for _ in range(min(len(left), gathered.randint(1, 9))):
            history.add(left.pop(0))
        view = history.at()
        now = view.at
        message = stream_shape(view, history.changed(after), now)
        tasks |= by("id", message["tasks"])
        budgets |= by("root", message["budgets"])
        page = state_shape(view, now)
        assert list(by("id", page["tasks"]).values()) == [tasks[each["id"]] for each in page["tasks"]]
        assert by("root", page["budgets"]) == budgets
        same = ("seq", "now", "team", "hosts", "requests", "cooldowns", "counts", "unread", "why")
        assert {name: message[name] for name in same} == {name: page[name] for name in same}


# Timeline and money.


async def test_a_bar_is_an_attempt_and_the_rehearsal_begins_with_the_first_one(tides: Told) -> None:
    story, view, now = tides.story, tides.view, tides.now
    shape = timeline_shape(view, now)
    assert {"alice", "bob", "carol", "dora", "frank"} <= {*shape["rows"]}
    assert [bar["ended_as"] for bar in shape["bars"] if bar["task"] == story["cache"]] == ["lost", "done"]
    running = [bar for bar in shape["bars"] if bar["end"] is None]
    claimed = await tides.board.list_tasks(states=["claimed"])
    assert {(bar["task"], bar["teammate"]) for bar in running} == {(task.id, task.teammate) for task in claimed}
    assert shape["rehearsal"] is None
    assert [bar["task"] for bar in timeline_shape(view, now, since=now)["bars"]] == [bar["task"] for bar in running]
    kept = KeptRehearsal(
        seq=2, agents=3, milliseconds=250_000, bars=(KeptBar(task=1, title="Goal", row=0, start=0, end=5_000),)
    )
    first = min(bar["start"] for bar in shape["bars"])
    assert timeline_shape(view, now, rehearsal=kept)["rehearsal"] == {
        "label": "rehearsed: 3 teammates, 4m 10s",
        "bars": [{"task": 1, "title": "Goal", "row": 0, "start": first, "end": first + 5_000}],
    }


async def test_money_is_counted_by_teammate_task_and_model_and_adds_up(tides: Told) -> None:
    shape = money_shape(tides.view, tides.now)
    spent = sum(budget["spent"]["tokens"] for budget in shape["budgets"])
    for name in ("by_teammate", "by_model", "by_task"):
        assert sum(each["tokens"] for each in shape[name]) == spent
    cost: dict[str, int] = {}
    for root in tides.view.budgets:
        for name, used in (await tides.board.cost_by_teammate(int(root))).items():
            cost[name] = cost.get(name, 0) + used.tokens
    assert {each["teammate"]: each["tokens"] for each in shape["by_teammate"]} == cost
    assert {"scripted:tides", "scripted:critic"} <= {each["model"] for each in shape["by_model"]}
    assert shape["series"][-1]["tokens"] == spent
    assert [point["at"] for point in shape["series"]] == sorted(point["at"] for point in shape["series"])
    assert shape["before"] == {"tokens": 0, "dollars": 0.0}
    assert shape["rate"]["dollars_per_hour"] > 0


async def test_a_long_series_has_few_points_and_ends_where_it_ends(board: Board) -> None:
    team = await crew(board)
    await board.put("work")
    claim = await team.must_claim()
    for number in range(1, 1_001):
        await board.record(claim, NewTurn(number=number, kind="reply", body="{}", used=Amount(tokens=1)))
    view = told(await all_events(board)).at()
    series = money_shape(view, view.at)["series"]
    assert len(series) <= 300
    assert (series[0]["tokens"], series[-1]["tokens"]) == (1, 1_000)


async def test_what_a_pruned_log_does_not_say_is_counted_as_before(board: Board, url: str) -> None:
    team = await crew(board)
    await board.put("work")
    claim = await team.must_claim()
    await board.record(claim, NewTurn(number=1, kind="reply", body="{}", used=Amount(tokens=70, microdollars=20)))
    await grow_old(url, 100)
    await board.prune(50)
    first, state = await board.pruned_state()
    await board.record(claim, NewTurn(number=2, kind="reply", body="{}", used=Amount(tokens=5)))
    history = BoardHistory(first, state)
    for event in await all_events(board):
        history.add(event)
    shape = money_shape(history.at(), 0)
    assert shape["before"] == {"tokens": 70, "dollars": 0.00002}
    assert [each["tokens"] for each in shape["by_task"]] == [5]
    assert timeline_shape(history.at(), 0)["bars"] == []


# Since I left.


async def test_what_changed_begins_with_a_handful_of_sentences(tides: Told) -> None:
    story, history = tides.story, tides.history
    begun = next(event.seq for event in tides.events if event.kind == "claimed" and event.task == story["read"])
    shape = changes_shape(history, begun)
    first, second, third, *rest = shape["says"]
    assert re.fullmatch(r"\d tasks done, \d failed, \d skipped, \d wait for you; \$0\.\d\d spent\.", first)
    assert re.fullmatch(r"\d+ tasks were added\.", second)
    assert third.startswith(f"#{story['old']} 'Read the old service as well' failed: the check ")
    assert rest == [f"The cap on dollars of #{story['held']} was reached.", "1 host was lost."]
    found = by("id", shape["tasks"])
    assert found[story["read"]] == {
        "id": story["read"], "title": "Read the stations from the service", "was": "claimed", "is": "done",
        "says": "is done by bob",
    }  # fmt: skip
    assert found[story["review"]]["says"] == "was added, and is done by dora as approved"
    assert found[story["licence"]]["says"].startswith("waits for an answer: CC BY 4.0")
    assert story["globe"] not in found
    assert {story["read"], story["cache"]} <= {each["task"] for each in shape["merged"]}
    assert (shape["from"]["seq"], shape["to"]["seq"], shape["events"]) == (begun, history.last, history.last - begun)


async def test_nothing_changed_is_said_too(tides: Told) -> None:
    assert changes_shape(tides.history, tides.history.last)["says"] == ["Nothing changed."]
    one = changes_shape(tides.history, 0, 1)
    assert (one["says"], one["tasks"]) == (["No task changed its state."], [])


async def test_a_retried_task_was_opened_again(board: Board) -> None:
    team = await crew(board)
    tasks = await board.put_many([NewTask(title="one"), NewTask(title="two")])
    await board.settle(await team.must_claim(), Failed("no"))
    after = await board.last_event()
    await board.retry(tasks[0].id)
    await board.settle(await team.must_claim(), Done())
    shape = changes_shape(told(await all_events(board)), after)
    assert shape["says"] == ["1 task done."]
    await board.cancel(tasks[1].id)
    await board.retry(tasks[1].id)
    history = told(await all_events(board))
    ended = next(event.seq for event in await all_events(board) if event.kind == "cancelled")
    assert [each["says"] for each in changes_shape(history, ended)["tasks"]] == ["was opened again, and is ready"]
