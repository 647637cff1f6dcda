"""Policies of a whole team: for the lead, for errands, for whoever takes over, and whatever host is lost meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from dugnad import Team
from dugnad.agent.agent import Agent
from dugnad.board import Board
from dugnad.config.project import read_project
from dugnad.config.user import UserSettings
from dugnad.errors import BadInput, NotReady
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.team import requests
from dugnad.tools.policy import Policy
from dugnad.tools.tool import Tool, tool
from dugnad.types import Message, Teammate
from tests.agent.stage_agent import END, FAST, TITLE, all_told, call, of_task
from tests.conftest import Opener
from tests.team.stage_team import hosting, kill, limits, short_lease, until, until_ended, until_state, within


class World:
    def __init__(self) -> None:
        self.done: list[str] = []

    @property
    def tool(self) -> Tool:
        @tool
        def change(what: str) -> str:
            """Change the world."""
            self.done.append(what)
            return f"{what} changed"

        return change


async def the_question(board: Board) -> Message:
    await until(board, lambda: requests.waiting_requests(board))
    (asked,) = await requests.waiting_requests(board)
    return asked


def test_a_team_with_a_wrong_policy_says_so_when_it_is_opened(folder: Path) -> None:
    async def open_it() -> None:
        async with Team.open(f"sqlite:///{folder}/board.db", policies={"bash": "perhaps"}):
            pass

    with pytest.raises(BadInput, match="bash must be allow, ask or deny, not 'perhaps'"):
        asyncio.run(open_it())
    assert not (folder / "board.db").exists()


async def test_a_team_asks_and_goes_on_with_the_answer(url: str) -> None:
    world = World()
    model = ScriptedModel({"Code": [call("change", what="a"), END], "Review": [call("change", what="b"), END]})
    policies = {"change": "ask", "reviewer": {"change": "deny"}}
    async with Team.open(url, model=model, tools=[world.tool], policies=policies, limits=limits()) as team:
        await team.spawn("alice", role="coder")
        await team.spawn("bob", role="reviewer")
        code, review = await team.put("Code", role="coder"), await team.put("Review", role="reviewer")
        running = asyncio.create_task(team.run())
        await until_state(team.board, code, "waiting")
        await until_ended(team.board, review)
        await requests.decide_plan(team.board, str(code.id), accept=True)
        report = await within(running)
        assert [task.state for task in report.tasks if task.id in (code.id, review.id)] == ["done", "done"]
        assert "change is denied" in all_told(of_task(model, "Review")[-1])
    assert world.done == ["a"]


async def test_a_lost_host_between_question_and_answer_loses_neither(opener: Opener) -> None:
    board = await opener(**short_lease(1.0))
    world = World()
    model = ScriptedModel({TITLE: [call("change", what="a"), END]})

    def mind(member: Teammate, may_act: Callable[[], bool]) -> Agent:
        policy = Policy.of({"change": "ask"})
        return Agent(board=board, teammate=member, model=model, tools=[world.tool], limits=FAST, policy=policy)

    await board.spawn("alice")
    task = await board.put(TITLE)
    async with hosting(board, model, mind=mind) as host:
        asked = await the_question(board)
        await kill(host)
    assert (world.done, len(model.asked)) == ([], 1)
    async with hosting(board, model, mind=mind):
        await until_state(board, task, "waiting")
        await requests.answer(board, f"m{asked.id}", "yes")
        await until_ended(board, task)
    assert (world.done, len(model.asked)) == (["a"], 2)
    with pytest.raises(NotReady):
        await requests.answer(board, f"m{asked.id}", "no")


async def test_another_teammate_goes_on_with_what_one_was_allowed(board: Board) -> None:
    world = World()
    model = ScriptedModel({TITLE: [call("change", what="a"), END]})

    def mind(member: Teammate, may_act: Callable[[], bool]) -> Agent:
        policy = Policy.of({"change": "ask"})
        return Agent(board=board, teammate=member, model=model, tools=[world.tool], limits=FAST, policy=policy)

    await board.spawn("alice")
    task = await board.put(TITLE)
    async with hosting(board, model, mind=mind):
        await the_question(board)
    await board.stop_teammate("alice")
    await board.spawn("bob")
    await requests.answer(board, str(task.id), "yes")
    async with hosting(board, model, mind=mind):
        (done,) = await until_ended(board, task)
    assert (done.teammate, world.done, len(model.asked)) == ("bob", ["a"], 2)


async def test_what_a_lead_does_in_answer_to_a_message_is_asked_about_too(board: Board) -> None:
    def steps(request: Request) -> Step:
        return [call("spawn_teammate", name="eve"), Step(say="She is here.")][request.turn - 1]

    model = ScriptedModel(steps)

    def mind(member: Teammate, may_act: Callable[[], bool]) -> Agent:
        policy = Policy.of({"spawn_teammate": "ask"})
        return Agent(board=board, teammate=member, model=model, limits=FAST, policy=policy)

    await board.spawn("lead", lead=True)
    async with hosting(board, model, mind=mind, seats_max=1):
        await board.tell("human", "lead", "Bring eve.")
        asked = await the_question(board)
        assert asked.text.startswith("May lead run spawn_teammate for #1 'Answer human'?\nname:\n> eve\n")
        assert [member.name for member in await board.team()] == ["lead"]
        await requests.decide_plan(board, f"m{asked.id}", accept=True)
        await until_state(board, 1, "done")
    assert [member.name for member in await board.team()] == ["lead", "eve"]


async def test_a_question_of_a_teammate_is_answered_and_not_approved(board: Board) -> None:
    model = ScriptedModel({TITLE: [call("ask_human", question="Which?"), END]})
    await board.spawn("alice")
    async with hosting(board, model):
        await board.put(TITLE)
        asked = await the_question(board)
        with pytest.raises(NotReady, match="use `dugnad answer"):
            await requests.decide_plan(board, f"m{asked.id}", accept=True)


def test_the_example_of_the_page_means_what_it_says(folder: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    example = page.partition("## Policies")[2].partition("```toml\n")[2].partition("```")[0]
    (folder / "dugnad.toml").write_text(example)
    policy = read_project(folder, environment={"HOME": str(folder)}).policy(UserSettings())
    names = ("bash", "mcp__github__push", "mcp__github__list_issues", "write_file")
    assert [policy.decide(name) for name in names] == ["ask", "ask", "allow", "allow"]
    assert [policy.decide(name, ["reviewer"]) for name in names] == ["deny", "ask", "allow", "deny"]
