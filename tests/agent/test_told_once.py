"""A conversation that goes on from task to task is told each fact once, and loses none of it when room is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.settings import AgentLimits
from dugnad.types import Done
from tests.agent.stage_agent import END, Crash, Stage, Wrapped, all_told, call, calls, set_stage, told

GUIDE = "AGENTS.md says how things are done in this project. Follow it:\n> Use tabs."
HANDOFF = "Handing a part of this to another mind costs"
KEEPS: dict[str, Any] = {"keep_context": True}
LOOK = call("list_tasks")


@pytest.fixture
def project(folder: Path) -> Path:
    (folder / "AGENTS.md").write_text("Use tabs.")
    return folder


def plain(request: Request) -> Step:
    return Step(say="I looked around.") if request.title == "(summary)" else END


async def at_work(board: Board, project: Path, script: Any = plain, **fields: Any) -> Stage:
    return await set_stage(board, script, member=KEEPS, project=project, **fields)


async def test_the_guide_and_the_price_of_a_hand_off_are_told_with_the_first_task(board: Board, project: Path) -> None:
    stage = await at_work(board, project)
    for title in ("First", "Second", "Third"):
        await stage.run(title)
    last = all_told(stage.model.asked[-1])
    assert (last.count(GUIDE), last.count(HANDOFF)) == (1, 1)
    assert GUIDE in told(stage.model.asked[0])
    assert "Your task is #3: Third" in told(stage.model.asked[2])


async def test_a_guide_that_is_too_long_is_told_once_as_far_as_it_fits(board: Board, project: Path) -> None:
    (project / "AGENTS.md").write_text("Use tabs.\n" * 3_200)
    stage = await at_work(board, project)
    for title in ("First", "Second"):
        await stage.run(title)
    assert "characters left out; the file has the rest" in told(stage.model.asked[0])
    assert "Use tabs." not in told(stage.model.asked[1])


async def test_a_guide_that_changed_is_told_again(board: Board, project: Path) -> None:
    stage = await at_work(board, project)
    await stage.run("First")
    (project / "AGENTS.md").write_text("Use spaces.")
    await stage.run("Second")
    assert "> Use spaces." in told(stage.model.asked[1])


async def test_the_price_of_a_hand_off_is_told_with_the_first_goal_also_behind_other_work(
    board: Board, project: Path
) -> None:
    other = await board.put("Other", role="nobody")
    stage = await at_work(board, project)
    await stage.run("Part", parent=other.id)
    await stage.run("Goal")
    assert HANDOFF not in told(stage.model.asked[0])
    assert HANDOFF in told(stage.model.asked[1])


async def test_one_that_begins_each_task_anew_is_told_all_of_it_each_time(board: Board, project: Path) -> None:
    stage = await set_stage(board, plain, project=project)
    for title in ("First", "Second"):
        await stage.run(title)
    assert all(GUIDE in told(request) and HANDOFF in told(request) for request in stage.model.asked)


async def test_messages_that_the_conversation_holds_are_not_told_again_and_others_are_told_once(
    board: Board, project: Path
) -> None:
    def script(request: Request) -> Step:
        says = calls(("send_message", {"to": "bob", "text": "I begin."}), ("ask_human", {"question": "Which?"}))
        return says if (request.title, request.turn) == ("First", 1) else END

    await board.spawn("bob")
    await board.spawn("alice", **KEEPS)
    before = await board.tell("bob", "alice", "Before it.")
    await board.show("alice", [before.id])
    await board.tell("bob", "alice", "With it.")
    stage = await at_work(board, project, script)
    await stage.run("First")
    (asked,) = await board.requests()
    await board.reply(str(asked.request), "human", "The second.")
    await stage.go_on()
    elsewhere = await board.tell("bob", "alice", "Elsewhere.")
    await board.show("alice", [elsewhere.id])  # In an answer that failed.
    await stage.run("Second")
    await stage.run("Third")
    last = all_told(stage.model.asked[-1])
    words = ("Before it.", "With it.", "I begin.", "The second.", "Elsewhere.")
    assert [last.count(f"> {each}") for each in words] == [1, 1, 0, 1, 1]
    assert "bob to alice:\n> Elsewhere.\n" in told(stage.model.asked[2])
    assert "What you and others said" not in told(stage.model.asked[3])


async def test_what_the_runtime_said_lately_is_said_by_the_runtime(board: Board, project: Path) -> None:
    stage = await at_work(board, project)
    first = await board.put("Answer human", body="Go.", by="human", kind="human_message", assignee="alice")
    claim = await board.claim("alice", stage.host, task=first.id)
    assert claim is not None
    part = await board.follow_up(claim, "Part", role="nobody")
    await board.settle(claim, Done())
    await board.cancel(part.id)
    own = await board.tell("alice", "alice", "bob joined.", kind="notice")
    await board.show("alice", [each.id for each in await board.inbox("alice")])
    assert own.sender == "alice"
    await stage.run("Next")
    packet = told(stage.model.asked[-1])
    assert "the runtime to alice:\n> All work that follows from 'Go.' has ended" in packet
    assert "the runtime to alice:\n> bob joined." in packet
    assert "board to alice" not in packet


@pytest.mark.parametrize("dies", [False, True])
async def test_the_guide_stays_when_the_tasks_in_front_are_compacted_away(
    board: Board, project: Path, dies: bool
) -> None:
    """By a summary in the middle of a later task, also a second one, and after a crash behind it."""
    compact = call("compact")
    lost: list[Request] = []

    def script(request: Request) -> Step:
        if request.title == "(summary)" or request.messages[-1].text.startswith("The conversation is getting too long"):
            return Step(say="I looked around.")
        steps = [LOOK, LOOK, compact, LOOK, compact, LOOK, END] if request.title == "Second" else [LOOK, END]
        return steps[request.turn - 1]

    stage = await at_work(board, project, script, limits=AgentLimits(keep_share=0.0001, retry_seconds=0.01))

    async def ask(inner: Any, request: Request) -> Any:
        if dies and request.title == "Second" and request.turn == 4 and not lost:
            lost.append(request)
            raise Crash
        return await inner.ask(request)

    await stage.run("First")
    stage.agent.model = Wrapped(stage.model, ask)
    claim = await stage.begin("Second")
    if dies:
        with pytest.raises(Crash):
            await stage.agent.work(claim)
        await stage.lose()
        claim = await stage.claim_when_due()
    assert await stage.go_on(claim) == Done("built")
    asked = [request for request in stage.model.asked if request.title == "Second"]
    assert "Your task is #1: First" in all_told(asked[0])
    assert "Your task is #1: First" not in all_told(asked[-1]), "it was compacted away"
    assert "in your own words:\n> I looked around." in all_told(asked[-1])
    assert [all_told(request).count(GUIDE) for request in asked] == [1] * len(asked)
    assert [all_told(request).count("Your task is #2: Second") for request in asked] == [1] * len(asked)
    await stage.run("Third")
    assert all_told(stage.model.asked[-1]).count(GUIDE) == 1
    assert GUIDE not in stage.model.asked[-2].messages[-1].text


async def test_a_packet_is_whole_again_where_a_summary_takes_the_place_of_the_tasks_before(
    board: Board, project: Path
) -> None:
    stage = await at_work(board, project, limits=AgentLimits(context_tasks_max=2, retry_seconds=0.01))
    await board.spawn("bob")
    await board.tell("bob", "alice", "By the way.")
    for title in ("First", "Second", "Third", "Fourth"):
        await stage.run(title)
    third, fourth = stage.model.asked[-2], stage.model.asked[-1]
    for words in (GUIDE, HANDOFF, "bob to alice:\n> By the way."):
        assert words in told(third)
        assert words not in told(fourth)
        assert all_told(fourth).count(words) == 1
