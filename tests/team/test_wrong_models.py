"""A model that is wrong ends the run; it fails no task, and nobody joins with it."""

from __future__ import annotations

from typing import Any

import pytest

from dugnad.errors import ModelMisconfigured
from tests.agent.stage_agent import TITLE
from tests.team.stage_team import Raising, within
from tests.team.test_team import open_team


@pytest.mark.parametrize("agents", [0, 3])
async def test_a_wrong_model_ends_the_run_instead_of_spinning(url: str, agents: int) -> None:
    model = Raising(ModelMisconfigured("The key is wrong."))
    async with open_team(url, model, agents=agents) as team:
        await team.spawn("alice")
        task = await team.put(TITLE)
        report = await within(team.run())
        assert await team.standing([task.root]) == "stuck"
        found = await team.board.find(task.id)
        assert (found.state, found.tries) == ("ready", 0)
    assert report.exit_code == 1
    assert report.trouble["alice"] == "The key is wrong."
    assert "The key is wrong." in str(report)
    assert len(model.asked) == 1


async def test_nobody_joins_for_a_task_that_a_wrong_model_has_just_given_back(url: str) -> None:
    model = Raising(ModelMisconfigured("The key is wrong."))
    async with open_team(url, model, agents=3) as team:
        await team.spawn("alice")
        await team.put(TITLE)
        fail = team.board.fail_teammate

        async def fail_and_look(name: str, **given: Any) -> None:
            await fail(name, **given)
            assert team.host is not None
            await team.host._grow()  # As the upkeep does, before alice is gone.

        team.board.fail_teammate = fail_and_look  # type: ignore[method-assign]
        await within(team.run())
        assert [each.name for each in await team.board.team()] == ["alice"]
    assert len(model.asked) == 1


async def test_a_model_that_cannot_be_opened_ends_the_run(url: str) -> None:
    def open_named(name: str | None) -> Any:
        raise ModelMisconfigured("No key is set.")

    async with open_team(url, None, open_named=open_named, agents=2) as team:
        await team.put(TITLE)
        report = await within(team.run())
    assert report.exit_code == 1
    assert list(report.trouble.values()) == ["No key is set."]
