"""Somebody else's agent beside ours: the same transcript, the same budget, and a board that has its moments."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dugnad.agent.agent import Agent
from dugnad.board import Board
from dugnad.errors import LimitReached, ModelMisconfigured, StaleClaim
from dugnad.models import ScriptedModel
from dugnad.settings import Limits
from dugnad.team import requests
from dugnad.types import Amount, Budget, Done, Released, Waiting
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.stage_agent import END, FAST, TITLE, Listening, all_told, call
from tests.agent.standin import asked, block, prompts, script, stand_in
from tests.agent.test_external import stage_of
from tests.team.stage_team import AnswerLost, Between, busy, within
from tests.workspace.running import until


async def test_a_task_it_put_down_can_be_gone_on_with_by_one_of_ours(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": block(question="Red or blue?", notes=[{"title": "n", "text": "t"}])})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    await stage.run()
    await requests.answer(board, "1", "Blue.")
    model = ScriptedModel(lambda request: END)
    stage.agent = Agent(board=board, teammate=stage.agent.teammate, model=model, limits=FAST)
    assert await stage.go_on() == Done("built")
    told = all_told(model.asked[0])
    assert "Blue." in told
    assert f"#1: {TITLE}" in told


async def test_it_goes_on_with_what_one_of_ours_put_down(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": "Done."})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    other = stage.agent
    model = ScriptedModel({TITLE: [call("list_tasks"), call("ask_human", question="Red or blue?")]})
    stage.agent = Agent(board=board, teammate=other.teammate, model=model, limits=FAST)
    assert isinstance(await stage.run(), Waiting)
    await requests.answer(board, "1", "Blue.")
    stage.agent = other
    assert await stage.go_on() == Done("Done.")
    (prompt,) = prompts(tree)
    assert "Blue." in prompt
    assert f"#1: {TITLE}" in prompt


async def test_it_waits_for_what_others_have_reserved_instead_of_starting_with_too_little(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": "Done."})
    stage = await stage_of(board, sandbox, tree, stand_in(folder, tokens_per_run=80_000))
    await board.spawn("bob")
    await board.seat(stage.host, name="bob")
    root = await board.put("A goal", assignee="bob", budget=Budget(tokens=100_000))
    await board.put(TITLE, parent=root.id, assignee="alice")
    others = await board.claim("bob", stage.host)
    assert others is not None
    held = await board.reserve(others, Amount(tokens=90_000))
    stage.agent.board = listening = Listening(board)  # type: ignore[assignment]
    working = asyncio.ensure_future(stage.agent.work(await stage.claim()))
    await within(listening.refused.wait())
    assert not asked(tree)
    await board.spend(others, held, Amount(tokens=1_000))
    assert await within(working) == Done("Done.")
    assert (await board.budget(root.id)).spent.tokens == 1_370


async def test_a_board_that_is_away_when_the_answer_comes_does_not_lose_it(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": "Done."})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    for trouble, title in ((Between, "A"), (AnswerLost, "B")):
        where: Any = (lambda claim, turn: turn.kind == "reply") if trouble is Between else (lambda number: number == 2)
        stage.agent.board = trouble(board, "record", busy, where=where)  # type: ignore[assignment]
        assert await stage.run(title) == Done("Done.")
        assert stage.agent.board.happened == 1  # type: ignore[attr-defined]
    assert len(asked(tree)) == 2


async def test_it_is_not_started_once_the_lease_of_its_host_ran_out(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    stage.agent.may_act = lambda: False
    with pytest.raises(StaleClaim):
        await stage.run()
    assert not asked(tree)


async def test_asked_to_leave_it_is_not_started_again(board: Board, sandbox: Sandbox, tree: Path, folder: Path) -> None:
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    stage.agent.stop.say("the run was stopped")
    assert await stage.run() == Released("the run was stopped", resume=True)
    assert not asked(tree)


async def test_too_many_follow_ups_run_into_the_same_guard_as_everybodys(
    opener: Any, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    board: Board = await opener(limits=Limits(children_max=2, backoff_seconds=0.01))
    script(
        tree,
        {"say": block(result="r", follow_ups=[{"title": str(number)} for number in range(5)])},
        {"say": "Two, then."},
    )
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    claim = await stage.begin()
    outcome = await stage.go_on(claim)
    assert isinstance(outcome, Waiting)
    assert outcome.question.startswith("A guard stopped alice")
    assert len(await board.list_tasks()) == 3
    with pytest.raises((LimitReached, StaleClaim)):
        await board.follow_up(claim, "one more")
    await requests.answer(board, "1", "Leave it at two.")
    assert await stage.go_on() == Done("Two, then.")
    assert "> Leave it at two." in prompts(tree)[1]
    assert len(await board.list_tasks()) == 3


async def test_a_late_holder_cannot_put_what_its_agent_asked_for(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": block(result="r", follow_ups=[{"title": "Late"}])})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    claim = await stage.begin()

    async def taken() -> None:
        await board.release(claim.task.id)

    stage.agent.board = Between(  # type: ignore[assignment]
        board, "record", taken, where=lambda claim, turn: turn.kind == "reply"
    )
    with pytest.raises(StaleClaim):
        await stage.agent.work(claim)
    assert [task.title for task in await board.list_tasks()] == [TITLE]


@pytest.mark.parametrize(("sender", "runs"), [("human", 2), ("lead", 2), ("bob", 1)])
async def test_only_a_word_of_a_person_or_the_lead_begins_another_run_of_one_that_is_done(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, sender: str, runs: int
) -> None:
    await board.spawn("lead", lead=True)
    await board.spawn("bob")
    script(tree, {"say": "Done.", "until": "go"})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    working = asyncio.create_task(stage.run(assignee="alice"))
    await until((tree / ".waits").exists)
    await board.tell(sender, "alice", "By the way.")
    (tree / "go").touch()
    assert await working == Done("Done.")
    assert len(asked(tree)) == runs


async def test_a_cap_in_dollars_that_comes_while_it_works_is_refused_before_the_next_run(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": block(nonsense="x"), "until": "go"}, {"say": "Done."})
    stage = await stage_of(board, sandbox, tree, stand_in(folder, "plain"))
    working = asyncio.create_task(stage.agent.work(await stage.begin()))
    await until((tree / ".waits").exists)
    await board.set_budget(1, Budget(dollars=1))
    (tree / "go").touch()
    with pytest.raises(ModelMisconfigured, match="does not say what it costs"):
        await working
    assert len(asked(tree)) == 1
