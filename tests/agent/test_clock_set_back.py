"""A clock that is set while a model is asked: what a call took is not read from it."""

from __future__ import annotations

import pytest

from dugnad.clock import Sources, wall_ms
from dugnad.models import ScriptedModel
from dugnad.models.port import Reply, Request
from dugnad.models.scripted import Step
from dugnad.types import Budget, Done
from tests.agent.stage_agent import END, TITLE, Wrapped, set_stage
from tests.conftest import Opener


@pytest.mark.parametrize("step", [-2_000, 300_000], ids=["set back", "a nap"])
@pytest.mark.parametrize("fault", ["unavailable", "timeout", None])
async def test_the_clock_is_set_while_a_model_is_asked_and_the_call_costs_what_it_took(
    opener: Opener, fault: str | None, step: int
) -> None:
    """A person who caps minutes means minutes of work. What the machine slept, or the clock was set by, is none."""
    off = [0]
    board = await opener(sources=Sources(now_ms=lambda: wall_ms() + off[0], chance=lambda: 0.0))

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        off[0] += step
        return await inner.ask(request)

    model = ScriptedModel({TITLE: [Step(calls=END.calls, faults=(fault,) if fault else ())]})
    stage = await set_stage(board, model=Wrapped(model, ask))
    stage.agent.sources = board.sources
    assert await stage.run(budget=Budget(seconds=3_600)) == Done("built")
    (task,) = await board.list_tasks()
    spent = (await board.budget(task.id)).spent
    assert 0 <= spent.milliseconds < 200_000
