"""What `finish` came to: told to a mind whose conversation goes on in other tasks, as the result of the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.text import Told
from dugnad.types import Done
from simulation.verdict import verdict
from tests.agent.stage_agent import END, TITLE, Stage, call, set_stage
from tests.team.stage_team import hosting, until_ended
from tests.team.stage_trees import finish, worktrees, write
from tests.team.test_checks import runner
from tests.team.test_ends import answers
from tests.workspace.repository import new_repository

KEEPS: dict[str, Any] = {"keep_context": True}
GREEN = Told("Done: the check is green.")


def first_of(model: ScriptedModel, title: str) -> Request:
    return next(each for each in model.asked if each.title == title)


async def test_the_next_task_is_told_that_the_check_was_green(board: Board) -> None:
    await board.spawn("alice", keep_context=True)
    check, _ = runner(None)
    model = ScriptedModel({"*": [END]})
    async with hosting(board, model, check=check):
        for title in (TITLE, "Next"):
            await until_ended(board, await board.put(title, check="pytest -q" if title == TITLE else None))
    assert answers(first_of(model, "Next")) == ["Done: `pytest -q` succeeded."]
    assert len(model.asked) == 2


async def test_the_next_task_is_told_who_approved_and_where_the_work_went(board: Board, tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a": "0\n"})
    await board.spawn("alice", roles=["coder"], keep_context=True)
    await board.spawn("bob", roles=["reviewer"])
    approve = call("finish", outcome="approved", result="Fine.")
    model = ScriptedModel({TITLE: [write("a", "1\n"), finish()], "Look": [finish()], "*": [approve]})
    async with worktrees(board, root, "true") as places, hosting(board, model, workspaces=places):
        (done,) = await until_ended(board, await board.put(TITLE, role="coder", review="reviewer"))
        (second,) = await until_ended(board, await board.put("Look", role="coder"))
        await until_ended(board, await board.put("Last", role="coder"))
    assert (done.state, second.state) == ("done", "done")
    _, said = answers(first_of(model, "Look"))
    assert done.merged_as is not None
    where = f"it is merged into dugnad/main as {done.merged_as[:12]}"
    assert said == f"Done: `true` succeeded; bob approved it (#2); {where}."
    assert answers(first_of(model, "Last"))[-1] == "Done: you changed nothing, so there was nothing to check or merge."


async def test_a_reviewer_is_told_how_its_review_ended(board: Board) -> None:
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])
    words = [call("finish", outcome=each, result="So.") for each in ("changes-requested", "approved")]
    model = ScriptedModel(lambda request: words.pop(0) if request.title.startswith("Review") else END)
    async with hosting(board, model):
        (done,) = await until_ended(board, await board.put(TITLE, role="coder", review="reviewer"))
    assert done.state == "done"
    (refused,) = answers([each for each in model.asked if each.title == TITLE][-1])
    assert refused.endswith("Make them, then finish. You can finish 3 more times before this attempt fails.")
    last = [each for each in model.asked if each.title.startswith("Review")][-1]
    assert answers(last) == ["Done: your review of #1 ended as changes-requested."]


async def handed_in(board: Board, member: dict[str, Any]) -> tuple[Stage, Any]:
    stage = await set_stage(board, lambda request: END, member=member)
    claim = await stage.begin(check="pytest -q")
    assert await stage.agent.work(claim) == Done("built")
    await stage.agent.keep_verdict(claim, GREEN)
    return stage, claim


async def test_a_host_lost_behind_the_verdict_asks_no_model_and_says_it_once(board: Board) -> None:
    stage, _ = await handed_in(board, KEEPS)
    await stage.lose()
    claim = await stage.claim_when_due()
    assert await stage.agent.work(claim) == Done("built")
    await stage.agent.keep_verdict(claim, GREEN)
    await board.settle(claim, Done("built"))
    assert len(stage.model.asked) == 1
    assert await board.transcript(1, claim.epoch) == []
    await stage.run("Next")
    assert answers(stage.model.asked[-1]) == [GREEN]
    assert await verdict(board) == []


async def test_the_same_verdict_twice_is_recorded_once(board: Board) -> None:
    stage, claim = await handed_in(board, KEEPS)
    await stage.agent.keep_verdict(claim, GREEN)
    assert [turn.kind for turn in await board.transcript(1, claim.epoch)] == ["reply", "tool", "tool"]


@pytest.mark.parametrize("member", [{}, {"roles": ["coder"]}])
async def test_where_no_conversation_goes_on_nothing_is_recorded(board: Board, member: dict[str, Any]) -> None:
    _, claim = await handed_in(board, member)
    assert [turn.kind for turn in await board.transcript(1, claim.epoch)] == ["reply", "tool"]


async def test_an_answer_to_a_message_is_done_and_nothing_more_is_said(board: Board, tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p", {"a": "0\n"})
    await board.spawn("lea", lead=True)
    model = ScriptedModel({"*": [finish()]})
    async with worktrees(board, root, "true") as places, hosting(board, model, workspaces=places):
        for title in ("Answer", "Answer again"):
            await until_ended(board, await board.put(title, kind="human_message", assignee="lea"))
    assert answers(first_of(model, "Answer again")) == ["Done."]
