"""What a team is set up with holds for its goals and its teammates."""

from __future__ import annotations

import pytest

from dugnad.config.project import Role
from dugnad.models import ScriptedModel
from dugnad.team import RunPlan, Team
from dugnad.types import Budget
from tests.agent.stage_agent import END, TITLE, all_told, call, told
from tests.team.stage_team import limits, until


@pytest.mark.parametrize("field", ["plan", "board", "host", "model_name", "anything"])
def test_a_team_is_built_whole_and_no_caller_can_assign_its_fields(field: str) -> None:
    team = Team(RunPlan(url="sqlite:///:memory:"))
    with pytest.raises(AttributeError):
        setattr(team, field, None)


async def test_what_is_said_of_a_goal_wins_over_what_is_said_of_all(url: str) -> None:
    async with Team.open(url, model=ScriptedModel({}), budget=Budget(tasks=9, tokens=1_000)) as team:
        goal = await team.goal("A goal", budget=Budget(tasks=3))
        other = await team.goal("Another goal")
        assert (await team.board.budget(goal.id)).caps == Budget(tasks=3, tokens=1_000)
        assert (await team.board.budget(other.id)).caps == Budget(tasks=9, tokens=1_000)


async def test_whoever_has_a_role_that_plans_first_only_reads_until_then(url: str) -> None:
    model = ScriptedModel({TITLE: [call("schedule_followup", title="Next"), END]})
    roles = {"coder": Role(plan=True)}
    async with Team.open(url, model=model, roles=roles, limits=limits()) as team:
        await team.spawn("alice", role="coder")
        await team.put(TITLE, role="coder")
        await team.start()

        async def has_tried() -> bool:
            return len(model.asked) > 1

        await until(team.board, has_tried)
        assert "until your plan is approved you may only read" in all_told(model.asked[1])
        assert "Next" not in {task.title for task in await team.board.list_tasks()}


async def test_the_prompt_of_a_role_is_for_all_who_have_it_and_ones_own_comes_besides(url: str) -> None:
    model = ScriptedModel({"*": [END]})
    async with Team.open(url, model=model, roles={"coder": Role(prompt="You code.")}, limits=limits()) as team:
        await team.spawn("alice", role="coder")
        await team.spawn("bob", role="coder", prompt="Be quick.")
        for name in ("alice", "bob"):
            await team.put(f"For {name}", assignee=name)
        await team.run()
    alice, bob = sorted((each for each in model.asked if each.turn == 1), key=lambda each: each.title)
    assert alice.system == bob.system
    assert "You code." in bob.system
    assert told(bob).startswith("You are bob.\n\nBe quick.\n\n")
    assert told(alice).startswith("You are alice.\n\nYour task")
