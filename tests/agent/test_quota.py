"""A spent quota that says when it is reset: waited for if that was asked for, up to a cap, and given up on a stop."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.agent.stop import Stop
from dugnad.board import Board
from dugnad.cli.running import read_run
from dugnad.config.project import read_project
from dugnad.errors import ModelMisconfigured, QuotaSpent
from dugnad.models import ScriptedModel
from dugnad.settings import AgentLimits
from dugnad.types import Done, Released
from dugnad.view.tables import paused_line
from tests.agent.stage_agent import END, FAST, TITLE, set_stage
from tests.cli.shell import write_settings
from tests.conftest import Opener
from tests.team.stage_team import Raising, until, within

WAITS = replace(FAST, quota_seconds_max=5.0)


def spent(seconds: float | None, *, times: int = 1) -> Raising:
    return Raising(QuotaSpent("No more.", seconds=seconds), times=times, then=ScriptedModel({TITLE: [END]}))


async def test_a_quota_is_waited_for_and_the_task_goes_on(board: Board) -> None:
    model = spent(1.0)
    stage = await set_stage(board, model=model, limits=WAITS)
    assert await within(stage.run()) == Done("built")
    assert len(model.asked) == 2
    (cooled,) = [each for each in await board.events() if each.kind == "cooled"]
    assert (cooled.data["milliseconds"], cooled.data["reason"]) == (1_000, "No more.")


@pytest.mark.parametrize(
    ("limits", "seconds"), [(FAST, 1.0), (WAITS, 6.0), (WAITS, None)], ids=["nobody asked", "too long", "unknown"]
)
async def test_otherwise_a_person_has_to_act(board: Board, limits: AgentLimits, seconds: float | None) -> None:
    model = spent(seconds, times=99)
    stage = await set_stage(board, model=model, limits=limits)
    with pytest.raises(ModelMisconfigured, match=r"No more\."):
        await stage.run()
    assert len(model.asked) == 1
    assert await board.cooldowns() == []
    assert (await board.budget(1)).reserved.tokens == 0


async def test_a_stop_ends_the_wait_at_once_and_the_task_is_given_back(opener: Opener) -> None:
    board = await opener()
    stage = await set_stage(board, model=spent(3_000.0), limits=replace(FAST, quota_seconds_max=10_000))
    claim = await stage.begin()
    work = asyncio.ensure_future(stage.agent.work(claim))
    await until(board, board.cooldowns)
    stage.agent.stop.say("enough")
    assert await within(work) == Released("enough", resume=True)
    assert isinstance(stage.agent.stop, Stop)


async def test_the_live_view_counts_a_long_pause_down_and_keeps_quiet_about_a_short_one(board: Board) -> None:
    await board.cool_down("openai:1a2b3c4d", seconds=30, reason="busy", by="board")
    assert paused_line(await board.cooldowns(), board.sources.now_ms()) == ""
    await board.cool_down("anthropic:5e6f7a8b", seconds=3_000, reason="No more.", by="board")
    said = paused_line(await board.cooldowns(), board.sources.now_ms())
    assert re.fullmatch(r"anthropic:5e6f7a8b goes on in (50m|49m \d+s): No more\.", said)


@pytest.mark.parametrize(
    ("hours", "agent", "pause"), [(None, 0.0, 3_600.0), (0.5, 1_800.0, 3_600.0), (5, 18_000, 18_000)]
)
def test_hours_on_the_command_line_are_the_cap_and_the_board_allows_such_a_pause(
    folder: Path, monkeypatch: pytest.MonkeyPatch, hours: float | None, agent: float, pause: float
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    write_settings(folder, "")
    (folder / "script.yaml").write_text('"*":\n  - say: Done.\n')
    typed = {"model": "scripted:script.yaml", "agents": None, "quota_hours": hours}
    plan = read_run(read_project(folder), typed, forever=False).plan
    assert (plan.agent_limits.quota_seconds_max, plan.board_limits.retry_after_seconds_max) == (agent, pause)
