"""A clock that is set while a model or a tool is asked: time that seems to run backwards, or to leap, costs nobody more
than was reserved."""

from __future__ import annotations

import pytest
from stage_agent import END, TITLE, Wrapped, call, set_stage

from conftest import Opener
from dugnad.clock import Sources, wall_ms
from dugnad.models import ScriptedModel
from dugnad.models.scripted import Step
from dugnad.models.talk import Reply, Request
from dugnad.tools import tool
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


@pytest.mark.parametrize("who", ["model", "tool"])
async def test_a_clock_that_leaps_counts_no_more_than_was_reserved(opener: Opener, who: str) -> None:
    """A laptop that slept meanwhile."""
    ahead = [0]
    board = await opener(sources=Sources(now_ms=lambda: wall_ms() + ahead[0]))

    def leap(of: str) -> None:
        ahead[0] += 100_000_000 if of == who and not ahead[0] else 0

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        leap("model")
        return await inner.ask(request)

    @tool
    async def look() -> str:
        """Look at something."""
        leap("tool")
        return "seen"

    model = Wrapped(ScriptedModel({TITLE: [call("look"), END]}), ask)
    stage = await set_stage(board, model=model, tools=[look], sources=board.sources)
    claim = await stage.begin(budget=Budget(seconds=3_600))
    assert await stage.agent.work(claim) == Done("built")
    account = await board.budget(claim.task.root)
    most = stage.agent.limits.model_seconds_max if who == "model" else stage.agent.limits.tool_seconds_max
    assert most * 1000 <= account.spent.milliseconds < most * 1000 + 60_000
    assert not [event for event in await board.events() if event.data.get("over")]
