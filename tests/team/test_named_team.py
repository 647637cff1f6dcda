"""A team that somebody named does not grow unasked, and the lead is told who joined and why."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.cli.running import read_run
from dugnad.config.project import read_project
from dugnad.models import ScriptedModel
from dugnad.team import RunPlan, Team
from dugnad.tools.message_tools import RESTED
from dugnad.types import Teammate
from tests.agent.stage_agent import END, all_told, call, calls
from tests.cli.shell import write_settings
from tests.team import stage_team
from tests.team.stage_team import hosting, until, until_ended, until_state, until_status
from tests.team.test_growth import member, names


def asked_for(name: str, status: str = "working", *roles: str, **given: object) -> Teammate:
    return member(name, status, *roles, named=True, **given)


def unasked(ready: dict[str, int], *team: Teammate, most: int = 3) -> list[str]:
    return names(ready, *team, most=most, asked=False)


def test_a_named_team_does_not_grow_however_much_work_waits() -> None:
    assert unasked({"": 9}, asked_for("alice"), asked_for("bob")) == []
    assert unasked({"coder": 9}, asked_for("alice", "working", "coder")) == []
    assert names({"": 9}, asked_for("alice"), asked_for("bob"), asked=True) == ["carol"]


def test_a_team_that_nobody_named_grows() -> None:
    assert unasked({"": 9}, member("alice", "working")) == ["bob", "carol"]
    assert unasked({"": 9}, asked_for("lena", "idle", lead=True)) == ["alice", "bob", "carol"], "a lead takes no work"
    assert unasked({"": 9}, asked_for("zoe", "stopped", reason="enough"), most=1) == ["alice"], "it was shut down"


def test_a_named_teammate_that_rested_comes_back_and_the_team_stays_named() -> None:
    assert unasked({"": 9}, asked_for("zoe", "stopped", reason=RESTED)) == ["zoe"]


def test_work_that_nobody_of_a_named_team_may_take_calls_for_one_who_may() -> None:
    assert unasked({"reviewer": 3}, asked_for("alice", "working", "coder")) == ["bob"]
    assert unasked({"!alice": 3}, asked_for("alice", "idle")) == ["bob"]


async def test_the_board_knows_who_was_named_also_after_a_rest(board: Board) -> None:
    assert (await board.spawn("alice")).named
    assert not (await board.spawn("bob", by="board")).named
    for name in ("alice", "bob"):
        await board.stop_teammate(name, by=name, reason=RESTED)
        await board.spawn(name, by="board")
    assert [(each.name, each.named) for each in await board.team()] == [("alice", True), ("bob", False)]
    await board.stop_teammate("bob")
    assert (await board.spawn("bob", by="lena")).named


async def test_a_host_leaves_the_team_that_a_lead_named_as_it_is(board: Board) -> None:
    model = stage_team.Paused({"*": [END]})
    await board.spawn("lena", lead=True)
    for name in ("alice", "bob"):
        await board.spawn(name, by="lena")
    async with hosting(board, model, agents=3, agents_asked=False):
        tasks = [await board.put(f"t{number}") for number in range(4)]
        await until(board, lambda: two_work(board))
        await asyncio.sleep(0.5)  # Some looks later.
        assert {each.name for each in await board.team()} == {"alice", "bob", "lena"}
        model.go.set()
        await until_ended(board, *tasks)


@pytest.mark.parametrize("most", [1, 2])
async def test_who_waits_for_work_that_nobody_may_take_gets_one_who_may(url: str, most: int) -> None:
    tasks = [{"title": "Test it", "label": "test", "role": "tester"}]
    both = calls(("add_tasks", {"tasks": tasks}), ("wait_for", {"tasks": ["test"]}))
    model = ScriptedModel({"Build it": [both, END], "Test it": [call("finish", result="tested")]})
    given: dict[str, Any] = {"agents": most, "agents_asked": False, "limits": stage_team.limits()}
    async with Team.open(url, model=model, **given) as team:
        await team.spawn("alice")
        await team.put("Build it")
        await stage_team.within(team.run())
        built, tested = await team.board.list_tasks()
    assert (built.state, tested.state, tested.teammate) == ("done", "done", "bob")
    assert "ended as done (bob):\n> tested" in all_told(model.asked[-1])


@pytest.mark.parametrize(
    ("given", "joins"), [({}, False), ({"agents": 1}, True), ({"agents": 1, "only_roles": ("coder",)}, False)]
)
def test_a_plan_says_whether_one_joins_for_a_role_that_nobody_has(given: dict[str, Any], joins: bool) -> None:
    assert RunPlan(url="", **given).adds("tester") is joins


async def two_work(board: Board) -> bool:
    return sum(each.status == "working" for each in await board.team()) == 2


async def test_the_lead_is_told_once_who_joined_and_why_and_answers_nothing(board: Board) -> None:
    model = stage_team.Paused({"*": [END]})
    await board.spawn("lena", lead=True)
    await board.spawn("alice", roles=["coder"])
    async with hosting(board, model, agents=3, agents_asked=False):
        await until_status(board, "lena", "idle")
        task = await board.put("Look", role="reviewer")
        await until_state(board, task, "claimed")

        async def told() -> bool:
            return bool(await board.recent_talk("lena", page=5))

        await until(board, told)
        model.go.set()
        await until_ended(board, task)
        await asyncio.sleep(0.3)
    (message,) = await board.recent_talk("lena", page=5)
    assert message.kind == "notice"
    assert message.text == "bob (reviewer) joined: 1 task for reviewer waits, and nobody on the team may take it."
    assert [each.title for each in await board.list_tasks()] == ["Look"], "nobody has to answer a notice"


@pytest.mark.parametrize(
    ("typed", "file", "asked"),
    [(None, "", False), (2, "", True), (None, "[team]\nagents = 4\n", True), (None, "[team]\nlead = false\n", False)],
)
def test_the_size_is_asked_for_on_the_command_line_or_in_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, typed: int | None, file: str, asked: bool
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    write_settings(folder, file)
    (folder / "script.yaml").write_text('"*":\n  - say: Done.\n')
    run = read_run(read_project(folder), {"model": "scripted:script.yaml", "agents": typed}, forever=False)
    assert run.plan.agents_asked is asked
