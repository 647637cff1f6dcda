"""The packet of a task that answers a message: each message once, none hidden, and the own task that waits."""

from __future__ import annotations

from typing import Any

import pytest

from dugnad.board import Board
from dugnad.models.scripted import Step
from dugnad.types import Claim, Done, Waiting
from tests.agent.stage_agent import END, Stage, all_told, call, last_results, set_stage, told
from tests.board.crew import crew

ASKED = "The human asked for this:\n"


async def written_to(board: Board, *texts: str, **fields: Any) -> tuple[Stage, Claim]:
    """Alice got messages of the human, and holds the task to answer them."""
    stage = await set_stage(board, lambda request: Step(say="Yes."), **fields)
    sent = [await board.tell("human", "alice", text) for text in texts]
    await board.put(
        "Answer human", body="\n\n".join(texts), by="human", assignee="alice", kind="human_message",
        key=f"errand:human:alice:{sent[0].id}",
    )  # fmt: skip
    return stage, await stage.claim()


async def test_an_earlier_message_that_is_a_part_of_the_new_one_is_not_hidden_nor_is_the_new_one_told_twice(
    board: Board,
) -> None:
    await board.spawn("alice")
    before = await board.tell("human", "alice", "Build it")
    await board.show("alice", [before.id])
    stage, claim = await written_to(board, "Build it in Rust.")
    await stage.go_on(claim)
    first = told(stage.model.asked[0])
    assert "\n> Build it\n" in first
    assert first.count("Build it in Rust.") == 1
    assert ASKED not in first


async def test_a_later_attempt_is_told_the_message_and_what_was_said_before_and_since(board: Board) -> None:
    await board.spawn("alice")
    before = await board.tell("human", "alice", "Rust")
    await board.show("alice", [before.id])
    stage, claim = await written_to(board, "Build it", "in Rust.")
    for message in await board.inbox("alice"):
        await board.show("alice", [message.id])  # By an attempt that failed.
    since = await board.tell("human", "alice", "in")
    await board.show("alice", [since.id])
    await stage.go_on(claim)
    first = told(stage.model.asked[0])
    assert f"{ASKED}> Build it\n> \n> in Rust.\n" in first
    assert "human to alice:\n> Rust\nhuman to alice:\n> in\n" in first
    assert first.count("> in Rust.") == 1


async def test_who_answers_is_told_of_the_own_task_that_waits(board: Board) -> None:
    team = await crew(board, "bob")
    stage, claim = await written_to(board, "How is it?", member={"lead": True})
    own = await board.put("Plan it", assignee="alice")
    planning = await board.claim("alice", stage.host, task=own.id)
    assert planning is not None
    one = await board.follow_up(planning, "One")
    two = await board.follow_up(planning, "Two", needs=(one.id,))
    await board.settle(planning, Waiting(on="tasks", tasks=(one.id, two.id)))
    await team.must_claim("bob", task=one.id)
    await stage.go_on(claim)
    assert (
        f"Your task #{own.id} 'Plan it' waits for #{one.id} (bob works on it) and #{two.id} (blocked). It goes on by "
        "itself."
    ) in told(stage.model.asked[0])


async def test_other_work_is_not_interrupted_by_what_waits(board: Board) -> None:
    stage = await set_stage(board, [END], others={"Ask": [call("ask_human", question="?")]})
    await stage.run("Ask")
    await stage.run()
    assert "goes on by itself" not in told(stage.model.asked[-1])


@pytest.mark.parametrize("kind", ["human_message", "message"])
async def test_who_answers_sees_everything_open_of_all_goals_at_first(board: Board, kind: Any) -> None:
    goal = await board.put("Another goal", role="nobody")
    ended = await board.put("Ended", role="nobody")
    await board.cancel(ended.id)
    stage = await set_stage(board, [call("list_tasks"), call("list_tasks", state="cancelled"), END])
    await stage.run(kind=kind, by="human", assignee="alice")
    listed, cancelled = (text for text in all_results(stage))
    assert f"#{goal.id} 'Another goal' (ready, for nobody)" in listed
    assert "'Build it' (claimed, alice" in listed
    assert "Ended" not in listed
    assert "Ended" in cancelled


def all_results(stage: Stage) -> list[str]:
    return [each.text for each in stage.model.asked[-1].messages if type(each).__name__ == "ToolResult"]


async def test_other_work_sees_the_tasks_of_its_own_goal(board: Board) -> None:
    await board.put("Another goal", role="nobody")
    stage = await set_stage(board, [call("list_tasks"), END])
    assert await stage.run() == Done("built")
    assert "Another goal" not in all_told(stage.model.asked[-1])
    assert "'Build it'" in last_results(stage.model)[0]
