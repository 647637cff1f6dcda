"""Which tools a model is offered: few, in a fixed order, and cheap to send."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.models.scripted import Step
from dugnad.tools.built_in import BUILT_IN, LEADING
from dugnad.tools.file_tools import file_tools
from dugnad.tools.offered import LEAD, REVIEWER, WORKER, offered
from dugnad.tools.policy import Policy
from dugnad.tools.tool import Tool, tool
from dugnad.workspace.files.files import Files
from tests.agent.stage_agent import END, Stage, call, last_results, set_stage
from tests.test_prompts import built_in

TOKENS_MAX = 2_500
PLANS_AND_SKILLS = list(product([False, True], repeat=2))


@tool
def knit(what: str) -> str:
    """Knit something."""
    return what


def named(folder: Path, *, without: tuple[str, ...] = ()) -> dict[str, Tool]:
    def brought() -> None:  # By a workspace, with these descriptions and without arguments.
        ...

    of_a_tree = [Tool(brought, name=name, prompt=name) for name in ("run_check", "update_tree")]
    return {each.name: each for each in (*of_a_tree, *built_in(folder)) if each.name not in without}


def tokens(tools: tuple[Tool, ...]) -> float:
    """Bytes / 4 of the JSON in which the chat API of OpenAI is sent them; other APIs need a little less."""
    sent = [
        {
            "type": "function",
            "function": {"name": each.name, "description": each.description, "parameters": each.schema},
        }
        for each in (tool.spec for tool in tools)
    ]
    return len(json.dumps(sent, separators=(",", ":"), ensure_ascii=False).encode()) / 4


@pytest.mark.parametrize(("plan", "skills"), PLANS_AND_SKILLS)
@pytest.mark.parametrize("shell", [True, False])
@pytest.mark.parametrize("review", [False, True])
def test_a_worker_has_at_most_twenty_tools_and_a_reviewer_twelve(
    tmp_path: Path, review: bool, shell: bool, plan: bool, skills: bool
) -> None:
    without = (() if shell else ("bash", "jobs"), () if skills else ("use_skill",))
    tools = offered(named(tmp_path, without=sum(without, ())), review=review, plan=plan, lead=False)
    assert len(tools) <= (12 if review else 20)
    assert tokens(tools) < TOKENS_MAX
    names = {each.name for each in tools}
    sees_names = not shell or (plan and not review)
    assert ("submit_plan" in names, "use_skill" in names, "glob" in names) == (plan, skills, sees_names)
    assert {"finish", "give_up", "ask_human", "show_task", "read_file"} <= names


@pytest.mark.parametrize(("plan", "skills"), PLANS_AND_SKILLS)
@pytest.mark.parametrize("shell", [True, False])
@pytest.mark.parametrize("review", [False, True])
def test_what_takes_the_place_of_others_takes_none_of_a_tool_that_texts_name(
    tmp_path: Path, review: bool, shell: bool, plan: bool, skills: bool
) -> None:
    without = (() if shell else ("bash", "jobs"), () if skills else ("use_skill",))
    tools = offered(named(tmp_path, without=sum(without, ())), review=review, plan=plan, lead=False)
    named_in_texts = {"finish", "ask_human", "respond", "show_task", "notes", "read_output"}
    named_in_texts |= set() if review else {"add_tasks", "wait_for", "update_tree"}
    named_in_texts |= {"jobs"} if shell else set()
    assert named_in_texts - {each.name for each in tools} == set()


def test_the_order_is_fixed(tmp_path: Path) -> None:
    tools = named(tmp_path, without=("use_skill",))
    turned = dict(reversed(tools.items()))
    for review, expected in ((False, WORKER), (True, REVIEWER)):
        found = [each.name for each in offered(tools, review=review, plan=False, lead=False)]
        assert found == [name for name in expected if name in tools]
        assert found == [each.name for each in offered(turned, review=review, plan=False, lead=False)]


def test_a_lead_has_its_own_tools_besides_and_a_users_tools_come_last(tmp_path: Path) -> None:
    tools = {"knit": knit, **named(tmp_path, without=("use_skill",))}
    found = [each.name for each in offered(tools, review=False, plan=False, lead=True)]
    assert found[-len(LEAD) - 1 :] == [*LEAD, "knit"]
    assert not set(LEAD) & {each.name for each in offered(tools, review=False, plan=False, lead=False)}


def test_a_users_tool_with_the_name_of_ours_is_offered_once(tmp_path: Path) -> None:
    own = Tool(knit.function, name="note")
    found = offered({**named(tmp_path), "note": own}, review=False, plan=False, lead=False)
    assert [each for each in found if each.name == "note"] == [own]


def test_no_former_tool_is_offered_and_each_of_the_others_is_to_someone(tmp_path: Path) -> None:
    tools = named(tmp_path)
    without_shell = named(tmp_path, without=("bash", "jobs"))
    found = {each.name for each in offered(tools, review=False, plan=False, lead=True)}
    found |= {each.name for each in offered(without_shell, review=False, plan=True, lead=False)}
    found |= {each.name for each in offered(tools, review=True, plan=False, lead=False)}
    assert found == {each.name for each in tools.values() if not each.former}


async def asked(board: Board, folder: Path, **fields: Any) -> Stage:
    return await set_stage(board, [END], tools=file_tools(Files(folder)), **fields)


def names(stage: Stage) -> list[str]:
    return [spec.name for spec in stage.model.asked[-1].tools]


async def test_two_teammates_of_a_role_are_offered_the_same_in_the_same_order(board: Board, tmp_path: Path) -> None:
    found = []
    for name in ("alice", "bob"):
        stage = await asked(board, tmp_path, name=name, member={"roles": ["coder"]})
        await stage.run()
        found.append([(each.name, each.description, each.schema) for each in stage.model.asked[-1].tools])
    assert found[0] == found[1]


async def test_a_review_is_worked_with_the_tools_of_a_reviewer(board: Board, tmp_path: Path) -> None:
    stage = await asked(board, tmp_path)
    work = await board.put("Work", role="nobody")
    await stage.run(parent=work.id, kind="review", reviews=work.id)
    assert names(stage) == [*REVIEWER[:-2], "grep", "glob"]


async def test_where_a_plan_is_required_it_can_be_submitted(board: Board, tmp_path: Path) -> None:
    stage = await asked(board, tmp_path)
    claim = await stage.begin(plan=True)
    await stage.agent.work(claim)
    assert "submit_plan" in names(stage)


async def test_what_a_policy_denies_is_not_offered_under_its_new_name(board: Board, tmp_path: Path) -> None:
    stage = await asked(board, tmp_path, policy=Policy.of({"add_task": "deny", "search_notes": "deny"}))
    await stage.run()
    assert not {"add_tasks", "notes"} & set(names(stage))


@pytest.mark.parametrize(("old", "new"), [("add_task", "add_tasks"), ("add_tasks", "add_task")])
async def test_a_denied_tool_cannot_be_called_by_its_other_name(board: Board, old: str, new: str) -> None:
    arguments: dict[str, Any] = {"tasks": [{"title": "x"}]} if new == "add_tasks" else {"title": "x"}
    stage = await set_stage(board, [call(new, **arguments), END], policy=Policy.of({old: "deny"}))
    await stage.run()
    assert f"{new} is denied by the policy of this team" in last_results(stage.model)[0]
    assert len(await board.list_tasks()) == 1


def test_every_tool_of_a_list_is_one_of_ours(tmp_path: Path) -> None:
    known = {each.name for each in (*built_in(tmp_path), *BUILT_IN, *LEADING)} | {"run_check", "update_tree"}
    assert {*WORKER, *REVIEWER, *LEAD} <= known


FORMER: dict[str, dict[str, Any]] = {
    "schedule_followup": {"title": "x"}, "add_task": {"title": "y"}, "delegate": {"task": "z", "wait": False},
    "broadcast": {"text": "x"}, "read_inbox": {}, "read_notes": {}, "search_notes": {"words": "x"},
    "todo": {"items": ["x"]}, "consult": {"prompt": "x"}, "claim_task": {"task": 2},
    "release": {"reason": "x"}, "idle": {},
}  # fmt: skip


def test_every_former_tool_is_tried_below() -> None:
    assert FORMER.keys() == {each.name for each in BUILT_IN if each.former}


@pytest.mark.parametrize("name", FORMER)
async def test_a_former_tool_can_still_be_called(board: Board, name: str) -> None:
    stage = await set_stage(board, [call(name, **FORMER[name]), END], others={"(consult)": [Step(say="So.")]})
    claim = await stage.begin()
    await board.put("Another")
    await stage.agent.work(claim)
    turns = await board.transcript(claim.task.id, claim.epoch)
    result = json.loads(next(turn.body for turn in turns if turn.kind == "tool"))["text"]
    assert result
    assert not result.startswith("Error: ")
