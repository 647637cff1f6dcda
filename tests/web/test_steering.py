"""The writes of the page: each does what its command does, is checked first, and is remarked in the log."""

from __future__ import annotations

from typing import Any

import pytest

from dugnad.board import Board
from dugnad.tools.policy import question
from dugnad.types import Amount, Budget, Claim, Done, Failed, Waiting
from dugnad.web.steering import WRITES
from tests.board.crew import Crew, crew
from tests.web.asking import Answer, ask, desk


async def waiting(board: Board, team: Crew, **how: Any) -> Claim:
    """A task that alice put down to wait for a person."""
    task = await board.put("asks")
    claim = await board.claim("alice", team.host, task=task.id)
    assert claim is not None
    await board.settle(claim, Waiting(**how))
    return claim


async def remarks(board: Board) -> list[tuple[str, object, object]]:
    events = await board.events(0, page=1_000)
    return [(event.actor, event.data["who"], event.data["what"]) for event in events if event.kind == "steered"]


def said(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    return str(answer.json["says"])


async def test_a_question_is_answered_in_the_persons_name(board: Board) -> None:
    claim = await waiting(board, await crew(board), on="human", question="Which?")
    async with desk(board) as made:
        asked = (await board.requests())[0]
        answer = await made.post("answer", request=f"m{asked.id}", text="This one.")
        assert said(answer) == f"alice is told, and #{claim.task.id} goes on."
        assert answer.json["message"]["text"] == "This one."
    assert (await board.find(claim.task.id)).state == "ready"
    assert await remarks(board) == [("human", "eve", f"answered m{asked.id}")]


async def test_a_plan_is_approved_or_rejected(board: Board) -> None:
    team = await crew(board)
    first = await waiting(board, team, on="plan", question="So.")
    second = await waiting(board, team, on="plan", question="Or so.")
    async with desk(board) as made:
        assert "goes on" in said(await made.post("approve", request=str(first.task.id)))
        assert "goes on" in said(await made.post("reject", request=str(second.task.id), why="Not without tests."))
        refused = await made.post("reject", request=str(second.task.id), why=" ")
        assert (refused.status, refused.json["error"]["message"]) == (400, "why is empty; write a text.")
    assert await board.plan_approved(first.task.id)
    assert not await board.plan_approved(second.task.id)
    assert [what for _, _, what in await remarks(board)] == [
        f"approved {first.task.id}",
        f"rejected {second.task.id}",
    ]


async def test_a_tool_call_that_a_policy_asks_about_is_allowed_once(board: Board) -> None:
    task = await board.put("other")
    asked_so = question("alice", task, "bash", {"command": "make"}, "t1.e1.1.0")
    await waiting(board, await crew(board), on="human", question=asked_so)
    async with desk(board) as made:
        asked = (await board.requests())[0]
        assert said(await made.post("approve", request=f"m{asked.id}")).startswith("Allowed, once: ")


async def test_the_boards_refusal_comes_through_in_its_own_words(board: Board) -> None:
    await waiting(board, await crew(board), on="human", question="Which?")
    async with desk(board) as made:
        asked = (await board.requests())[0]
        refused = await made.post("approve", request=f"m{asked.id}")
        assert (refused.status, refused.kind) == (409, "NotReady")
        assert refused.json["error"]["message"] == f"This is a question: use `dugnad answer m{asked.id} TEXT`."
        unknown = await made.post("cancel", task=99)
        assert (unknown.status, unknown.kind) == (400, "UnknownTask")
        gone = await made.post("answer", request="m99", text="x")
        assert gone.status == 400
    assert await remarks(board) == []


async def test_a_task_is_added_with_everything_that_the_command_can_say(board: Board) -> None:
    await crew(board)
    await board.put("first")
    async with desk(board) as made:
        answer = await made.post(
            "add", title="second", body="Do it.", role="coder", needs=[1, "1:approved"][:1], priority=5, check="make",
            review="reviewer", plan=True, budget={"dollars": 2.5, "minutes": 10},
        )  # fmt: skip
        assert said(answer) == "#2 is blocked: second."
        follow = await made.post("add", title="third", under=2, to="alice", needs=["2:ended"])
        assert follow.json["task"]["parent"] == 2
    task = await board.find(2)
    assert (task.body, task.role, task.priority, task.check) == ("Do it.", "coder", 5, "make")
    assert (task.review, task.plan) == ("reviewer", True)
    assert (await board.budget(2)).caps == Budget(dollars=2.5, seconds=600)
    assert [(need.task, need.outcome) for need, _ in await board.needs_of(3)] == [(2, "ended")]


async def test_the_same_key_writes_once(board: Board) -> None:
    await crew(board)
    goal = await board.put("goal", budget=Budget(tasks=1))
    async with desk(board) as made:
        for _ in range(2):
            assert (await made.post("add", title="once", key="k1")).json["task"]["id"] == 2
            assert (await made.post("tell", to="alice", text="Hello.", key="k1")).json["message"]["id"] == "m1"
            note = await made.post("note", title="a", text="b", key="k1")
            assert note.json["note"]["id"] == 1
            raised = await made.post("budget", root=goal.id, add=True, tasks=5, key="k1")
            assert raised.json["budget"]["tasks_max"] == 6
            assert (await made.post("cancel", task=2, key="k1")).json["cancelled"] == [2]
            assert (await made.post("retry", task=2, key="k1")).json["reopened"] == [2]
    assert len(await remarks(board)) == 6


async def test_caps_are_set_raised_and_removed(board: Board) -> None:
    goal = await board.put("goal", budget=Budget(tasks=3, dollars=1))
    child = await board.put("child", parent=goal.id)
    shared = await board.open_budget(Budget(tasks=1))
    async with desk(board) as made:
        assert said(await made.post("budget", root=child.id, dollars=2)) == f"The caps of #{goal.id} are changed."
        assert (await board.budget(goal.id)).caps == Budget(tasks=3, dollars=2)
        await made.post("budget", root=goal.id, add=True, dollars=0.5, tasks=1)
        assert (await board.budget(goal.id)).caps == Budget(tasks=4, dollars=2.5)
        await made.post("budget", root=goal.id, dollars="none", minutes=5)
        assert (await board.budget(goal.id)).caps == Budget(tasks=4, seconds=300)
        assert said(await made.post("budget", root=shared, tasks=2)) == f"The caps of b{-shared} are changed."
        for wrong in ({}, {"add": True}, {"add": True, "dollars": "none"}, {"dollars": -1}, {"tasks": 1.5}):
            assert (await made.post("budget", root=goal.id, **wrong)).status == 400, wrong
        for wrong in ({"dollars": "5"}, {"dollars": True}, {"tokens": 2**60}, {"minutes": [1]}):
            assert (await made.post("budget", root=goal.id, **wrong)).status == 400, wrong


async def test_a_teammate_is_added_told_and_stopped(board: Board) -> None:
    async with desk(board) as made:
        answer = await made.post("spawn", name="rita", roles=["reviewer", "coder", "coder"], prompt="Look.", lead=True)
        assert said(answer).startswith("rita will join when a host starts. No host is running")
        assert answer.json["teammate"]["roles"] == ["reviewer", "coder"]
        assert said(await made.post("tell", to="rita", text="Begin.")).startswith("m1 is in rita's inbox.")
        assert said(await made.post("stop", name="rita", why="enough", now=True)) == "rita is stopped."
        assert (await made.post("tell", to="rita", text="Still there?")).status == 409
        assert (await made.post("tell", to="nobody", text="x")).status == 400
        assert (await made.post("spawn", name="human")).status == 400
    assert (await board.teammate("rita")).reason == "enough"


async def test_a_task_is_retried_cancelled_with_its_dependents_and_released(board: Board) -> None:
    team = await crew(board)
    first = await board.put("first")
    await board.put("second", needs=[first.id])
    claim = await board.claim("alice", team.host, task=first.id)
    assert claim is not None
    async with desk(board) as made:
        assert said(await made.post("release", task=first.id, why="stuck")) == f"#{first.id} is ready."
        again = await board.claim("alice", team.host, task=first.id)
        assert again is not None
        await board.settle(again, Failed("no"))
        assert said(await made.post("retry", task=first.id)) == "Opened again: #1, #2."
        assert said(await made.post("cancel", task=1, why="no", dependents=True)) == "Cancelled: #1, #2."
        assert said(await made.post("cancel", task=1)) == "#1 was cancelled already."


async def test_messages_are_marked_as_read(board: Board) -> None:
    await crew(board)
    told = [await board.tell("alice", "human", text) for text in ("one", "two")]
    async with desk(board) as made:
        await made.post("read", messages=[f"m{told[0].id}"])
        assert [each.text for each in await board.inbox()] == ["two"]
        await made.post("read", messages=[told[1].id])
        assert await board.inbox() == []
        for wrong in (["x"], [True], "m1", [None], [1] * 1_001):
            assert (await made.post("read", messages=wrong)).status == 400


async def test_a_remark_on_a_line_becomes_a_message_to_its_author_or_a_task(board: Board) -> None:
    team = await crew(board, "alice", roles=["coder"])
    task = await board.put("work", role="coder", review="reviewer")
    about = {"task": task.id, "path": "src/a.py", "line": 12, "quote": "x = 1\ny = 2", "text": "Why two?"}
    async with desk(board) as made:
        nobody = await made.post("remark", **about, **{"as": "message"})
        assert (nobody.status, "Nobody has worked on #1 yet" in nobody.json["error"]["message"]) == (400, True)
        claim = await board.claim("alice", team.host, task=task.id)
        assert claim is not None
        await board.settle(claim, Done("done"))
        await made.post("remark", **about, **{"as": "message"})
        words = "About #1, src/a.py, line 12:\n> x = 1\n> y = 2\nWhy two?"
        assert [(each.sender, each.text, each.task) for each in await board.inbox("alice")] == [("human", words, 1)]
        made_task = await made.post("remark", **about, **{"as": "task"})
        assert said(made_task).startswith("#2 is ready: Why two?")
        assert (await made.post("remark", **about, **{"as": "mail"})).status == 400
    found = await board.find(2)
    assert (found.body, found.parent, found.role, found.review) == (words, task.id, "coder", "reviewer")


@pytest.mark.parametrize("write", WRITES)
async def test_a_key_that_a_write_does_not_know_is_named(board: Board, write: str) -> None:
    async with desk(board) as made:
        answer = await made.post(write, strange=1)
        assert answer.status == 400
        assert answer.json["error"]["message"].startswith("'strange' is not known here; there is ")
    assert await board.last_event() == 0


LONG = "x" * 61_000
WRONG: list[tuple[str, dict[str, object]]] = [
    ("answer", {"request": "m1"}), ("answer", {"request": 1, "text": "x"}),
    ("answer", {"request": "m1", "text": LONG}), ("answer", {"request": "m" * 21, "text": "x"}),
    ("answer", {"request": "../1", "text": "x"}), ("tell", {"to": "alice", "text": ""}),
    ("tell", {"to": ["alice"], "text": "x"}), ("tell", {"to": "a" * 41, "text": "x"}),
    ("tell", {"to": "alice", "text": "x", "task": 0}), ("tell", {"to": "alice", "text": "x", "task": "1"}),
    ("tell", {"to": "alice", "text": "a\0b"}), ("stop", {"name": "alice", "now": "yes"}), ("stop", {}),
    ("spawn", {"name": "x", "roles": "coder"}), ("spawn", {"name": "x", "roles": [1]}), ("spawn", {"name": "a/b\n"}),
    ("spawn", {"name": "x", "lead": 1}), ("add", {"title": ""}), ("add", {"title": "x" * 1_001}),
    ("add", {"title": 1}), ("add", {"title": "x", "needs": [0]}), ("add", {"title": "x", "needs": ["1:"]}),
    ("add", {"title": "x", "needs": 1}), ("add", {"title": "x", "needs": [99]}),
    ("add", {"title": "x", "priority": 1.5}), ("add", {"title": "x", "under": -1}),
    ("add", {"title": "x", "budget": []}), ("add", {"title": "x", "budget": {"euros": 1}}),
    ("add", {"title": "x", "budget": {"dollars": 0}}), ("add", {"title": "x", "priority": 10**30}),
    ("retry", {"task": "1"}), ("retry", {"task": None}), ("retry", {"task": True}), ("cancel", {"task": 1.0}),
    ("cancel", {"task": 2**64}), ("note", {"title": "x"}), ("note", {"title": " ", "text": "x"}),
    ("note", {"title": "x", "text": "y", "key": 7}), ("note", {"title": "x", "text": "y", "key": "k" * 101}),
    ("remark", {"task": 1, "path": "a", "text": "x", "as": "task", "line": "1"}),
]  # fmt: skip


@pytest.mark.parametrize(("write", "given"), WRONG, ids=lambda value: str(value)[:60])
async def test_a_body_that_makes_no_sense_is_refused_before_the_board_sees_it(
    board: Board, write: str, given: dict[str, object]
) -> None:
    async with desk(board) as made:
        answer = await made.post(write, **given)
        assert answer.status == 400, answer.body
        assert answer.json["error"]["message"].endswith(".")
    assert await board.last_event() == 0


async def test_a_hint_says_when_nobody_is_there_to_do_it(board: Board) -> None:
    async with desk(board) as made:
        assert said(await made.post("add", title="x")).endswith("`dugnad run` or `dugnad work` starts one.")
        await crew(board)
        assert said(await made.post("add", title="y")) == "#2 is ready: y."


async def test_every_write_is_remarked_with_who_did_it(board: Board) -> None:
    async with desk(board) as made:
        await made.post("note", id=made.session("steer", who="lars"), title="a", text="b")
        await made.post("add", id=made.session("steer", who="nora"), title="x")
    assert [(who, what) for _, who, what in await remarks(board)] == [("lars", "wrote note 1"), ("nora", "added #1")]


async def test_a_session_writes_to_the_board_in_the_address_and_to_no_other(board: Board, opener: Any) -> None:
    async with desk(board) as made:
        elsewhere = f"/api/boards/{'f' * 12}/note"
        answer = await ask(made.app, "POST", elsewhere, [made.cookie(made.session())], [b"{}"])
        assert answer.status == 404


async def test_money_that_was_held_goes_on_when_the_cap_is_raised(board: Board) -> None:
    team = await crew(board)
    goal = await board.put("goal", budget=Budget(dollars=0.01))
    claim = await board.claim("alice", team.host)
    assert claim is not None
    await board.settle(claim, Waiting(on="budget", question="more", amount=Amount(microdollars=20_000)))
    async with desk(board) as made:
        state = (await made.get("state")).json
        assert [each["kind"] for each in state["requests"]] == ["budget"]
        await made.post("budget", root=goal.id, add=True, dollars=1)
    assert (await board.find(goal.id)).state == "ready"
