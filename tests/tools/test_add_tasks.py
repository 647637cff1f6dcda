"""Several tasks in one call, and waiting for tasks, through the real loop."""

from __future__ import annotations

from typing import Any

import pytest

from dugnad.agent.agent import Agent
from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import Reply, Request
from dugnad.models.scripted import Step
from dugnad.settings import Limits
from dugnad.tools.message_tools import RESTED
from dugnad.types import Budget, Done, Need, Waiting
from tests.agent.stage_agent import (
    END,
    TITLE,
    Crash,
    Stage,
    Wrapped,
    all_told,
    call,
    calls,
    last_results,
    results,
    set_stage,
    told,
)

CHAIN: list[dict[str, Any]] = [
    {"title": "Write it", "label": "write", "role": "coder", "check": "true", "review": "reviewer"},
    {"title": "Test it", "label": "test", "needs": ["write"]},
    {"title": "Ship it", "body": "now", "needs": ["write", "test:good"], "priority": 3},
]
COUNTED = "Adding tasks costs nothing: a run is counted when a teammate takes a task. This goal so far:"


async def test_tasks_that_need_one_another_by_label_are_added_in_one_call(board: Board) -> None:
    stage = await set_stage(board, [call("add_tasks", tasks=CHAIN), END])
    await stage.run(budget=Budget(tasks=5))
    first, second, third = (await board.list_tasks())[1:]
    assert (first.role, first.check, first.review, first.parent, first.put_by) == (
        "coder", "true", "reviewer", 1, "alice",
    )  # fmt: skip
    assert (third.body, third.priority) == ("now", 3)
    assert await board.needs_of(second.id) == [(Need(first.id), "open")]
    assert {need for need, _ in await board.needs_of(third.id)} == {Need(first.id), Need(second.id, "good")}
    assert last_results(stage.model)[0].splitlines() == [
        f"write: #{first.id} 'Write it' (ready, for coder)",
        f"test: #{second.id} 'Test it' (blocked)",
        f"#{third.id} 'Ship it' (blocked)",
        f"{COUNTED} 1 of 5 task runs used.",
    ]


async def test_a_need_can_be_a_number_and_a_label_of_an_earlier_call(board: Board) -> None:
    other = await board.put("Other", role="x")
    one = call("add_tasks", tasks=[{"title": "A", "label": "a"}])
    two = call("add_tasks", tasks=[{"title": "B", "needs": ["a", other.id, f"#{other.id}:good"][:2]}])
    stage = await set_stage(board, [one, two, END])
    await stage.run()
    *_, a, b = await board.list_tasks()
    assert {need for need, _ in await board.needs_of(b.id)} == {Need(a.id), Need(other.id)}


async def test_a_task_can_be_for_oneself_and_for_later(board: Board) -> None:
    await results(board, ("add_tasks", {"tasks": [{"title": "Mine", "for_me": True, "delay_minutes": 5}]}))
    (mine,) = await board.list_tasks(states=["scheduled"])
    assert mine.assignee == "alice"


@pytest.mark.parametrize(
    ("tasks", "wrong"),
    [
        ([{"title": "A", "needs": ["b"]}], "'b' names no task"),
        ([{"title": "A", "needs": ["b"]}, {"title": "B", "label": "c"}], "Known labels: c."),
        ([{"title": "A", "label": "a", "needs": ["b"]}, {"title": "B", "label": "b", "needs": ["a"]}], "forever"),
        ([{"title": "A", "label": "a", "needs": ["a"]}], "forever"),
        ([{"title": "A", "label": "a"}, {"title": "B", "label": "a"}], "The label 'a' is given to two tasks"),
        ([{"title": "A", "label": "12"}], "'12' cannot be a label"),
        ([{"title": "A", "label": "a:b"}], "'a:b' cannot be a label"),
        ([{"title": "A"}, {"title": "A"}], "Two of these tasks have the same title"),
        ([{"title": "A"}, {"title": "B", "needs": ["999"]}], "#999"),
        ([{"title": "A"}, {"title": "B", "needs": ["9" * 30]}], "names no task"),
        ([{"title": "A"}, {"title": " "}], "A task needs a title"),
        ([{"title": "A"}, {"title": "B", "role": "no such role!"}], "cannot be a role"),
        ([{"title": "A"}, {"title": "B", "colour": "red"}], "colour"),
        ([{"title": "A"}, {"title": "B", "priority": 10**30}], "priority"),
        ([{"title": "A"}, {"title": "B", "delay_minutes": -1}], "A delay cannot be -60"),
        ([{"title": "A"}, {"body": "B"}], "title: Field required"),
        ("A", "tasks: Input should be"),
        ([], "name at least one"),
    ],
)
async def test_one_wrong_task_adds_none_and_one_sentence_says_why(board: Board, tasks: Any, wrong: str) -> None:
    (text,) = await results(board, ("add_tasks", {"tasks": tasks}))
    assert text.startswith("Error: ")
    assert wrong in text
    assert "\n" not in text
    assert len(await board.list_tasks()) == 1


async def test_a_guard_stops_all_of_them(opener) -> None:
    board = await opener(limits=Limits(children_max=2))
    stage = await set_stage(board, [call("add_tasks", tasks=CHAIN), END])
    outcome = await stage.run()
    assert isinstance(outcome, Waiting)
    assert "A guard stopped alice" in outcome.question
    assert len(await board.list_tasks()) == 1


async def test_a_call_whose_result_was_lost_adds_nothing_twice_and_counts_no_repeat(board: Board) -> None:
    stage = await set_stage(board, [call("add_tasks", tasks=CHAIN), END])
    claim = await stage.begin()
    record, lost = board.record, []

    async def lose_the_result(given: Any, turn: Any) -> int:
        if turn.kind == "tool" and not lost:
            lost.append(turn)
            raise Crash
        return await record(given, turn)

    board.record = lose_the_result  # type: ignore[method-assign]
    with pytest.raises(Crash):
        await stage.agent.work(claim)
    assert len(await board.list_tasks()) == 4
    await stage.lose()
    assert await stage.go_on(await stage.claim_when_due()) == Done("built")
    assert len(await board.list_tasks()) == 4
    assert not [event for event in await board.events() if event.kind == "repeated"]
    assert "write: #" in last_results(stage.model)[0]


async def test_an_equal_task_is_not_added_again(board: Board) -> None:
    same = ("add_tasks", {"tasks": [{"title": "Once"}]})
    first, second = await results(board, same, same)
    assert first == second
    assert len(await board.list_tasks()) == 2


# Waiting.


async def helper(board: Board, **steps: list[Step]) -> Agent:
    bob = await board.spawn("bob", roles=["helper"])
    return Agent(board=board, teammate=bob, model=ScriptedModel(dict(steps)))


async def test_tasks_are_added_and_waited_for_by_label_in_one_reply(board: Board) -> None:
    bob = await helper(board, A=[call("finish", result="one", outcome="good")], B=[call("give_up", reason="cannot")])
    tasks = [{"title": title, "label": title.lower(), "role": "helper"} for title in "AB"]
    stage = await set_stage(board, [calls(("add_tasks", {"tasks": tasks}), ("wait_for", {"tasks": ["a", "b"]})), END])
    await board.put(TITLE, assignee="alice")
    claim = await stage.claim()
    outcome = await stage.agent.work(claim)
    a, b = (await board.list_tasks())[1:]
    assert outcome == Waiting(on="tasks", tasks=(a.id, b.id))
    await board.settle(claim, outcome)
    assert (await board.find(1)).state == "waiting"
    await stage.drain(bob)
    assert last_results(stage.model)[1] == (
        f"#{a.id} 'A' ended as done, good (bob):\n> one\n#{b.id} 'B' ended as failed (bob):\n> cannot"
    )
    assert (await board.find(1)).state == "done"


async def test_a_label_is_known_after_a_crash(board: Board) -> None:
    bob = await helper(board, A=[call("finish", result="one")])
    add = call("add_tasks", tasks=[{"title": "A", "label": "a", "role": "helper"}])
    stage = await set_stage(board, [add, call("wait_for", tasks=["a"]), END])
    lost: list[Request] = []

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        if request.turn == 2 and not lost:
            lost.append(request)
            raise Crash
        return await inner.ask(request)

    stage.agent.model = Wrapped(stage.model, ask)
    claim = await stage.begin(assignee="alice")
    with pytest.raises(Crash):
        await stage.agent.work(claim)
    await stage.lose()
    assert isinstance(await stage.go_on(await stage.claim_when_due()), Waiting)
    await stage.drain(bob)
    assert last_results(stage.model)[0].endswith("'A' ended as done (bob):\n> one")


async def test_what_has_ended_is_told_at_once(board: Board) -> None:
    await board.put("Gone")
    await board.cancel(1, why="not needed")
    (text,) = await results(board, ("wait_for", {"tasks": [1, "#1"]}))
    assert text == "#1 'Gone' ended as cancelled:\n> not needed"


@pytest.mark.parametrize(
    ("tasks", "wrong"),
    [
        (["1"], "waits for this task itself"),
        (["2"], "waits for this task itself"),
        (["999"], "no task #999"),
        (["soon"], "'soon' names no task"),
        ([], "name at least one"),
        (["3"], "Nobody on the team has the role 'writer'"),
    ],
)
async def test_what_would_be_waited_for_forever_is_told(board: Board, tasks: list[str], wrong: str) -> None:
    stage = await set_stage(board, [call("wait_for", tasks=tasks), END])
    claim = await stage.begin()
    await board.put("Behind", needs=(1,))
    await board.put("For nobody", role="writer")
    assert await stage.go_on(claim) == Done("built")
    (text,) = last_results(stage.model)
    assert text.startswith("Error: ")
    assert wrong in text


TEST = [{"title": "Test it", "label": "test", "role": "tester"}]
JOINS = "Nobody with the role 'tester' is there now. One joins, or comes back, when the task is ready."


@pytest.mark.parametrize("how", ["joins", "rests"])
async def test_who_adds_work_for_one_that_comes_is_told_so_and_may_wait_for_it(board: Board, how: str) -> None:
    if how == "rests":
        await board.spawn("tom", roles=["tester"])
        await board.stop_teammate("tom", by="tom", reason=RESTED)
    both = calls(("add_tasks", {"tasks": TEST}), ("wait_for", {"tasks": ["test"]}))
    stage = await set_stage(board, [both, END], joins=lambda role: how == "joins" and role == "tester")
    assert await stage.run() == Waiting(on="tasks", tasks=(2,))
    await board.cancel(2)
    assert await stage.go_on() == Done("built")
    assert last_results(stage.model)[0].splitlines()[1] == JOINS


@pytest.mark.parametrize("there", [True, False])
async def test_nothing_is_said_where_one_is_there_or_nobody_comes(board: Board, there: bool) -> None:
    if there:
        await board.spawn("tom", roles=["tester"])
    (text,) = await results(board, ("add_tasks", {"tasks": TEST}), joins=lambda role: there)
    assert len(text.splitlines()) == 2


async def beside(board: Board, *steps: Step) -> Stage:
    """Bob finishes what alice added while her model thinks for the second time."""
    bob = await helper(board, A=[call("finish", result="one\ntwo")])
    add = call("add_tasks", tasks=[{"title": "A", "label": "a", "role": "helper"}])
    stage = await set_stage(board, [add, *steps, END])

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        if request.title == TITLE and request.turn == 2:
            await board.seat(stage.host, name="bob")
            claim = await board.claim("bob", stage.host)
            assert claim is not None
            await board.settle(claim, await bob.work(claim))
        return await inner.ask(request)

    stage.agent.model = Wrapped(stage.model, ask)
    await stage.run(assignee="alice")
    return stage


async def test_who_works_on_is_told_at_the_next_turn_that_what_it_added_has_ended(board: Board) -> None:
    stage = await beside(board, call("list_tasks"), call("list_tasks"))
    third, fourth = list(stage.model.asked)[-2:]
    words = "<inbox>\nFrom the runtime, about #1:\n> #2 'A', which you added, is done (bob): one\n</inbox>"
    assert words in told(third)
    assert all_told(fourth).count("which you added") == 1
    assert not await board.inbox("alice")


async def test_what_a_wait_tells_is_not_told_by_a_notice_as_well(board: Board) -> None:
    stage = await beside(board, call("wait_for", tasks=["a"]))
    assert last_results(stage.model) == ["#2 'A' ended as done (bob):\n> one\n> two"]
    assert "which you added" not in all_told(stage.model.asked[-1])
    assert not await board.inbox("alice")
