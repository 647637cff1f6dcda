"""A clock that is set back while a model is asked: time that seems to run backwards costs nothing, and harms nobody."""

from __future__ import annotations

import pytest
from stage_agent import END, TITLE, Wrapped, set_stage

from conftest import Opener
from dugnad.clock import Sources, wall_ms
from dugnad.models import ScriptedModel
from dugnad.models.scripted import Step
from dugnad.models.talk import Reply, Request
from dugnad.types import Budget, Done


@pytest.mark.parametrize("fault", ["unavailable", "timeout"])
async def test_a_call_that_fails_while_the_clock_is_set_back_costs_no_negative_time(opener: Opener, fault: str) -> None:
    behind = [0]
    board = await opener(sources=Sources(now_ms=lambda: wall_ms() - behind[0], chance=lambda: 0.0))

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        behind[0] += 2_000
        return await inner.ask(request)

    model = ScriptedModel({TITLE: [Step(calls=END.calls, faults=(fault,))]})
    stage = await set_stage(board, model=Wrapped(model, ask))
    stage.agent.sources = board.sources
    assert await stage.run(budget=Budget(seconds=3_600)) == Done("built")
    (task,) = await board.list_tasks()
    spent = (await board.budget(task.id)).spent
    assert spent.milliseconds >= 0
