"""Planning tools, through the real loop: what they put on the board, and what the model is told."""

from __future__ import annotations

import re

import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import Reply, Request
from dugnad.settings import AgentLimits, Limits
from dugnad.types import Budget, Done, Need, Waiting
from tests.agent.stage_agent import (
    END,
    TITLE,
    Crash,
    Wrapped,
    call,
    calls,
    gave,
    last_results,
    results,
    set_stage,
    told,
)

HUGE = 10**30


async def test_a_followup_lands_on_the_board_as_a_child_for_the_same_role(board: Board) -> None:
    stage = await set_stage(
        board, [call("schedule_followup", title="Look again", body="at it"), END], member={"roles": ["coder"]}
    )
    await stage.run(budget=Budget(tasks=5))
    (child,) = await board.list_tasks(states=["ready"])
    assert (child.title, child.body, child.role, child.parent, child.put_by) == (
        "Look again",
        "at it",
        "coder",
        1,
        "alice",
    )
    assert last_results(stage.model) == [
        f"#{child.id} 'Look again' (ready, for coder)\nAdding tasks costs nothing: a run is counted when a teammate "
        "takes a task. This goal so far: 1 of 5 task runs used."
    ]


async def test_a_followup_can_be_for_oneself_and_for_later(board: Board) -> None:
    (text,) = await results(
        board, ("schedule_followup", {"title": "Mine", "for_me": True, "delay_minutes": 5}), member={"roles": ["coder"]}
    )
    (child,) = await board.list_tasks(states=["scheduled"])
    assert (child.assignee, child.role) == ("alice", None)
    assert "(scheduled, for alice)" in text


async def test_a_task_can_ask_for_the_approval_of_a_role(board: Board) -> None:
    plain = ("add_task", {"title": "Write"})
    asks = ("add_task", {"title": "Write", "review": "reviewer"})
    _, _, again, shown = await results(board, plain, asks, asks, ("show_task", {"task": 3}))
    assert [task.review for task in await board.list_tasks(states=["ready"])] == [None, "reviewer"]
    assert "#3" in again
    assert "is done only when a teammate with the role reviewer approves it" in shown


async def test_an_equal_followup_is_not_put_twice(board: Board) -> None:
    same = ("schedule_followup", {"title": "Once"})
    first, second = await results(board, same, same)
    assert first == second
    assert len(await board.list_tasks()) == 2


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({}, "title: Field required"),
        ({"title": " "}, "A task needs a title"),
        ({"title": "x" * 201}, "201 characters"),
        ({"title": "x\0y"}, "NUL"),
        ({"title": "x", "delay_minutes": -1}, "A delay cannot be -60"),
        ({"title": "x", "colour": "red"}, "colour: Extra inputs are not permitted"),
    ],
)
async def test_what_is_wrong_with_a_followup_is_told(board: Board, arguments: dict[str, object], wrong: str) -> None:
    (text,) = await results(board, ("schedule_followup", arguments))
    assert text.startswith("Error: ")
    assert wrong in text
    assert len(await board.list_tasks()) == 1


async def test_a_guard_asks_the_human_and_the_answer_is_told_instead_of_the_guard_again(opener) -> None:
    board = await opener(limits=Limits(children_max=1, backoff_seconds=0.01))
    stage = await set_stage(
        board, [calls(("schedule_followup", {"title": "A"}), ("schedule_followup", {"title": "B"})), END]
    )
    outcome = await stage.run()
    assert isinstance(outcome, Waiting)
    assert "A guard stopped alice" in outcome.question
    (asked,) = await board.requests()
    assert asked.request is not None
    await board.reply(asked.request, "human", "Leave B.")
    while await stage.go_on() != Done("built"):
        pass
    request = next(each for each in stage.model.asked if each.turn == 2 and each.title == TITLE)
    assert "A guard stopped this" in gave(request)
    assert "> Leave B." in gave(request)
    assert "Leave B." not in told(request)


async def test_a_task_can_wait_for_outcomes_and_be_for_a_role(board: Board) -> None:
    other = await board.put("Other", role="reviewer")
    needs = [f"#{other.id}:approved", "2"]
    (text,) = await results(
        board,
        ("add_task", {"title": "After", "needs": needs, "role": "reviewer", "priority": 7, "check": "true"}),
    )
    after = (await board.list_tasks())[-1]
    assert (after.role, after.priority, after.check) == ("reviewer", 7, "true")
    assert {need for need, _ in await board.needs_of(after.id)} == {Need(other.id, "approved"), Need(2)}
    assert "'After' (blocked, for reviewer)" in text


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"title": "x", "needs": ["soon"]}, "'soon' names no task"),
        ({"title": "x", "needs": ["999"]}, "#999"),
        ({"title": "x", "needs": ["1", "1"]}, "given twice"),
        ({"title": "x", "needs": "1"}, "needs: Input should be a valid array"),
        ({"title": "x", "needs": [1]}, "needs.0: Input should be a valid string"),
        ({"title": "x", "role": "no such role!"}, "cannot be a role"),
        ({"title": "x", "assignee": "nobody at all"}, "cannot be a teammate's name"),
        ({"title": "x", "priority": HUGE}, "priority"),
        ({"title": "x", "needs": ["1:" + "x" * 50]}, "cannot be an outcome"),
    ],
)
async def test_what_is_wrong_with_a_task_is_told(board: Board, arguments: dict[str, object], wrong: str) -> None:
    (text,) = await results(board, ("add_task", arguments))
    assert text.startswith("Error: ")
    assert wrong in text
    assert len(await board.list_tasks()) == 1


async def test_tasks_of_the_goal_are_listed_and_those_of_others_only_on_request(board: Board) -> None:
    await board.put("Elsewhere", role="x")
    own, everywhere, ready, none = await results(
        board,
        ("list_tasks", {}),
        ("list_tasks", {"everywhere": True}),
        ("list_tasks", {"state": "ready", "everywhere": True}),
        ("list_tasks", {"state": "failed"}),
    )
    assert own == "#2 'Build it' (claimed, alice)"
    assert everywhere == "#1 'Elsewhere' (ready, for x)\n#2 'Build it' (claimed, alice)"
    assert ready == "#1 'Elsewhere' (ready, for x)"
    assert none == "There are no such tasks."


async def test_a_long_list_says_how_to_read_on(board: Board) -> None:
    for number in range(50):
        await board.put(f"Task {number}", role="x")
    first, rest = await results(
        board, ("list_tasks", {"everywhere": True}), ("list_tasks", {"everywhere": True, "after": 50})
    )
    assert first.endswith("There may be more: list_tasks(after=50).")
    assert rest == "#51 'Build it' (claimed, alice)"


async def test_a_list_says_who_did_a_task_and_what_another_waits_for(board: Board) -> None:
    stage = await set_stage(
        board,
        [call("list_tasks", everywhere=True), END],
        others={"First": [call("finish", result="x", outcome="good")]},
    )
    await stage.run("First")
    asks = await board.put("Second", role="coder")
    await board.put("Third", needs=(asks.id, Need(1, "good")), assignee="bob")
    await board.put("Fourth", needs=(Need(asks.id, "approved"), 3))
    await stage.run()
    assert last_results(stage.model)[0].splitlines() == [
        "#1 'First' (done, good, by alice)",
        "#2 'Second' (ready, for coder)",
        "#3 'Third' (blocked, for bob, waits for #2)",
        "#4 'Fourth' (blocked, waits for #2:approved, #3)",
        "#5 'Build it' (claimed, alice)",
    ]


async def test_a_list_says_that_a_task_waits_for_a_person(board: Board) -> None:
    stage = await set_stage(
        board, [call("list_tasks", everywhere=True), END], others={"Ask": [call("ask_human", question="?")]}
    )
    await stage.run("Ask")
    await stage.run()
    assert last_results(stage.model)[0].splitlines()[0] == "#1 'Ask' (waiting, waits for a person)"


async def test_a_state_that_does_not_exist_is_told(board: Board) -> None:
    (text,) = await results(board, ("list_tasks", {"state": "finished"}))
    assert "finished" in text


async def test_a_task_is_shown_with_its_text_needs_result_and_attempts(board: Board) -> None:
    stage = await set_stage(
        board, [call("show_task", task=1), END], others={"First": [call("finish", result="one\ntwo")]}
    )
    await stage.run("First", body="Do\nthis", check="true")
    await board.put(TITLE, needs=(1,))
    later = await board.put("Later", needs=(Need(1), Need(2, "good")), role="x")
    await stage.go_on()
    at = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    assert re.sub(at, "AT", last_results(stage.model)[0]).splitlines() == [
        "#1 'First' (done, by alice)", "added by human at AT", "its check: true", "It says:", "> Do", "> this",
        "Result, by alice:", "> one", "> two", "attempt 1 by alice, from AT until AT: done",
    ]  # fmt: skip
    (text,) = await results(board, ("show_task", {"task": later.id}), name="bob")
    assert "needs #1 (met)" in text
    assert "needs #2:good (broken)" in text
    assert "Reason:\n> needs #2 to end as good" in text


@pytest.mark.parametrize(
    "given",
    [
        ("show_task", {"task": 999}),
        ("show_task", {"task": -1}),
        ("show_task", {"task": "one"}),
        ("claim_task", {"task": 999}),
    ],
)
async def test_a_number_that_is_no_task_is_told(board: Board, given: tuple[str, dict[str, object]]) -> None:
    (text,) = await results(board, given)
    assert text.startswith("Error: ")


@pytest.mark.parametrize(
    "given",
    [
        ("show_task", {"task": HUGE}),
        ("claim_task", {"task": HUGE}),
        ("list_tasks", {"after": HUGE}),
        ("read_notes", {"before": HUGE}),
        ("add_task", {"title": "x", "needs": [str(HUGE)]}),
        ("read_output", {"output": f"1.{HUGE}"}),
        ("read_output", {"output": "².1"}),
    ],
    ids=lambda given: given[0],
)
async def test_a_number_no_database_can_hold_is_told(board: Board, given: tuple[str, dict[str, object]]) -> None:
    (text,) = await results(board, given)
    assert isinstance(text, str)


async def test_the_list_of_things_to_do_is_kept_and_brought_back_after_ten_quiet_turns(board: Board) -> None:
    look = call("list_tasks")
    stage = await set_stage(board, [call("todo", items=["[x] a", "[ ] b"]), *[look] * 21, END])
    assert await stage.run() == Done("built")
    asked = list(stage.model.asked)
    assert gave(asked[1]) == "[x] a\n[ ] b"
    reminded = [request.turn for request in asked if "You have not changed this list" in told(request)]
    assert reminded == [12, 22]
    assert "Is it still right?\n> [x] a\n> [ ] b" in told(asked[11])


async def test_an_empty_list_is_said_to_be_empty_and_is_not_brought_back(board: Board) -> None:
    look = call("list_tasks")
    steps = [call("todo", items=["[ ] a"]), call("todo", items=[]), *[look] * 3, END]
    stage = await set_stage(board, steps, limits=AgentLimits(todo_turns=2))
    await stage.run()
    assert gave(stage.model.asked[2]) == "The list is empty."
    assert not any("You have not changed" in told(request) for request in stage.model.asked)


async def test_the_list_survives_a_wait_and_a_crash(board: Board) -> None:
    steps = [call("todo", items=["[ ] a"]), call("ask_human", question="Ok?"), call("list_tasks"), END]
    stage = await set_stage(board, steps, limits=AgentLimits(todo_turns=2))
    await stage.run()
    (asked,) = await board.requests()
    assert asked.request is not None
    await board.reply(asked.request, "human", "yes")

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        if request.turn == 4 and not lost:
            lost.append(request)
            raise Crash
        return await inner.ask(request)

    lost: list[Request] = []
    stage.agent.model = Wrapped(stage.model, ask)
    with pytest.raises(Crash):
        await stage.go_on()
    await stage.lose()
    await stage.go_on(await stage.claim_when_due())
    assert "for a while. Is it still right?\n> [ ] a" in told(lost[0])
    assert told(stage.model.asked[-1]).startswith(told(lost[0]).partition("[alice")[0])


@pytest.mark.parametrize("arguments", ['{"items": "a"}', '{"items": [1]}', "[]", "null", "{", '"x"'])
async def test_a_list_that_is_none_is_told_and_changes_nothing(board: Board, arguments: str) -> None:
    look = call("list_tasks")
    steps = [call("todo", items=["[ ] a"]), calls(("todo", arguments)), look, END]
    stage = await set_stage(board, steps, limits=AgentLimits(todo_turns=2))
    await stage.run()
    assert "todo was not called" in gave(stage.model.asked[2])
    assert "Is it still right?\n> [ ] a" in told(stage.model.asked[3])
