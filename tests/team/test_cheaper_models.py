"""Other models for a role and for summaries, and what the report says they saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.config.project import Role, read_project
from dugnad.errors import ModelMisconfigured
from dugnad.models import Model, ScriptedModel
from dugnad.models.port import Price, Request, Usage
from dugnad.models.scripted import Step
from dugnad.team.minds import Models
from dugnad.team.plan import RunPlan
from dugnad.team.report import Report
from dugnad.text import NOTHING
from dugnad.types import Done
from dugnad.view.summary import report_shape
from tests.agent.stage_agent import END, set_stage, used
from tests.agent.test_compaction import LIMITS, LONG, SMALL, look
from tests.team.stage_team import within
from tests.team.test_team import open_team

TURN = Step(say="Done.", usage=Usage(input_tokens=900_000, output_tokens=100_000))
DEAR, CHEAP = Price(input=3.0, output=15.0), Price(input=0.3, output=1.5)


async def test_summaries_are_written_by_the_model_for_summaries(board: Board) -> None:
    own = ScriptedModel({"*": [*[used(1_000, LONG)] * 6, used(9_900, LONG), END]}, window_tokens=SMALL)
    seen = Step(say="In short: it was seen.")
    other = ScriptedModel(lambda request: seen, name="scripted:small", window_tokens=SMALL)
    stage = await set_stage(board, model=own, tools=[look], limits=LIMITS, summary_model=other)
    assert await stage.run() == Done("built")
    (asked,) = other.asked
    assert asked.title == "(summary)"
    assert "In short: it was seen." in str(own.asked[-1].messages)
    assert all(each.title != "(summary)" for each in own.asked)


async def test_the_report_says_what_the_model_of_a_role_saved(url: str) -> None:
    models: dict[str | None, Model] = {
        "scripted:dear": ScriptedModel({"*": [TURN]}, name="scripted:dear", price=DEAR),
        "scripted:cheap": ScriptedModel({"*": [TURN]}, name="scripted:cheap", price=CHEAP),
    }
    roles = {"tester": Role(model="scripted:cheap")}
    async with open_team(url, "scripted:dear", open_named=models.__getitem__, roles=roles) as team:
        await team.spawn("alice")
        await team.spawn("bob", role="tester")
        await team.put("one", assignee="alice")
        await team.put("two", assignee="bob")
        end = await within(team.run())
    assert end.spent.microdollars == (2_700_000 + 1_500_000) + (270_000 + 150_000)
    assert end.saved == {"scripted:cheap": 4_200_000 - 420_000}
    assert "saved  $3.78 with scripted:cheap instead of scripted:dear" in str(end)
    assert report_shape(end)["saved"] == {"scripted:cheap": 3.78}


async def test_what_a_summary_saves_is_counted_against_the_cache_of_the_teams_own_model() -> None:
    """Without a model for summaries, the own one reads nearly all of that input from its cache."""
    dear = Price(input=3.0, output=15.0, cache_read=0.3)
    found = {
        "scripted:own": ScriptedModel({"*": [TURN]}, name="scripted:own", price=dear),
        "scripted:small": ScriptedModel({"*": [TURN, TURN]}, name="scripted:small", price=CHEAP),
    }
    models = Models(RunPlan(url="", model="scripted:own", open_named=lambda name: found[name or ""]))
    await models.counted("scripted:small", for_summaries=True).ask(Request(system=NOTHING, messages=()))
    paid = 270_000 + 150_000
    assert models.saved == {"scripted:small": 270_000 + 1_500_000 - paid}
    await models.counted("scripted:small").ask(Request(system=NOTHING, messages=(), turn=2))
    assert models.saved == {"scripted:small": 270_000 + 1_500_000 - paid + 2_700_000 + 1_500_000 - paid}


def test_a_dearer_model_is_said_too_and_nothing_where_no_other_was_asked() -> None:
    assert "extra  $0.50 with a:b instead of c:d" in str(Report(saved={"a:b": -500_000}, model="c:d"))
    assert str(Report(model="c:d")) == ""


def test_the_teams_own_model_saves_nothing() -> None:
    plan = RunPlan(url="", model="scripted:own", open_named=lambda name: ScriptedModel({}, name=name or ""))
    models = Models(plan)
    assert models.counted("scripted:own") is models.named()
    assert models.counted(None) is models.named()


def test_a_team_without_a_model_of_its_own_counts_nothing() -> None:
    def open_named(name: str | None) -> Model:
        if name is None:
            raise ModelMisconfigured("No key is set.")
        return ScriptedModel({}, name=name)

    models = Models(RunPlan(url="", open_named=open_named))
    assert models.counted("scripted:x") is models.named("scripted:x")


def test_a_file_names_the_model_for_summaries_in_one_line(folder: Path) -> None:
    (folder / "dugnad.toml").write_text('summary_model = "openai:small"')
    assert read_project(folder, environment={"HOME": str(folder)}).summary_model == "openai:small"


@pytest.mark.parametrize("wrong", ["3", '"small"', '"https://x.org/a:b"'])
def test_a_wrong_name_is_refused(folder: Path, wrong: str) -> None:
    (folder / "dugnad.toml").write_text(f"summary_model = {wrong}")
    with pytest.raises(Exception, match="summary_model"):
        read_project(folder, environment={"HOME": str(folder)})
