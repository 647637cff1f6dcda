"""A team that is opened from a command has all that the files and the options say of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dugnad.cli.conduct import gather_team
from dugnad.cli.running import read_run
from dugnad.config.project import read_project
from dugnad.team import Team
from dugnad.tools.policy import Policy
from dugnad.types import Budget
from tests.cli.shell import write_settings

PROJECT = """
[policies]
write_file = "deny"
[budget]
tasks = 9
[limits]
turns_max = 7
claims_max = 8
[team]
name = "garden"
idle_seconds = 3
[members.rita]
role = "reviewer"
prompt = "You look for what can break."
model = "scripted:other.yaml"
plan = true
[members.max]
lead = true
"""
USER = """
[policies]
bash = "ask"
[models."openai:llama3"]
base_url = "http://127.0.0.1:9/v1"
requests_per_minute = 5
tokens_per_minute = 1000
"""


@pytest.fixture
def opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Team]:
    write_settings(folder, PROJECT)
    for script in ("script.yaml", "other.yaml"):
        (folder / script).write_text('"*":\n  - say: Done.\n')
    (folder / ".config" / "dugnad").mkdir(parents=True)
    (folder / ".config" / "dugnad" / "config.toml").write_text(USER)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    typed = {"model": "scripted:script.yaml", "agents": 2}
    run = read_run(read_project(folder), typed, forever=True)
    return folder, Team(run.plan, models=run.models)


def test_what_both_files_and_the_options_say_holds_for_the_team(opened: tuple[Path, Team]) -> None:
    plan = opened[1].plan
    policy = Policy.of(plan.policies)
    assert [policy.decide(tool) for tool in ("bash", "write_file", "read_file")] == ["ask", "deny", "allow"]
    assert plan.rates("openai:llama3") == (5, 1_000)
    assert (plan.name, plan.agents, plan.limits.idle_seconds == math.inf, plan.budget) == (
        "garden",
        2,
        True,
        Budget(tasks=9),
    )
    assert (plan.agent_limits.turns_max, plan.board_limits.claims_max) == (7, 8)


async def test_whom_the_project_names_is_who_the_project_says(opened: tuple[Path, Team]) -> None:
    folder, team = opened
    async with team:
        assert await gather_team(team, read_project(folder), with_lead=True) == "max"
        rita, max_ = await team.board.teammate("rita"), await team.board.teammate("max")
    assert (rita.roles, rita.prompt, rita.model, rita.plan, rita.lead) == (
        ("reviewer",), "You look for what can break.", f"scripted:{folder}/other.yaml", True, False,
    )  # fmt: skip
    assert (max_.lead, max_.plan) == (True, False)
