"""A mind is told only of tools that it is offered: in its first request, and in the results of common calls."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dugnad.agent.agent import Agent
from dugnad.agent.external.agent import ExternalAgent
from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import Reply, Request
from dugnad.models.scripted import Step
from dugnad.prompts import load
from dugnad.tools.message_tools import inbox_text
from dugnad.tools.offered import LEAD, REVIEWER, WORKER
from dugnad.types import Teammate
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.stage_agent import TITLE, Wrapped, calls
from tests.agent.standin import block, stand_in
from tests.team.stage_team import Host, hosting, until, until_ended
from tests.team.stage_trees import worktrees
from tests.workspace.repository import git, new_repository

TOOLS = sorted({*WORKER, *REVIEWER, *LEAD, "submit_plan", "use_skill", "glob", "list_dir"})
# A name of one common word counts where it can only mean the tool.
ONE_WORD = r"(?:[Cc]all|[Uu]se|After|follows|with) {0}\b|\b{0}\(|\b{0} shows?\b|\. {0} may"
LONG = "Say it at length. " * 4_000


def named_in(text: str) -> set[str]:
    """The tools that our own words name; what others said is quoted."""
    own = "\n".join(line for line in text.splitlines() if not line.startswith("> "))
    ways = {name: rf"\b{name}\b" if "_" in name else ONE_WORD.format(name) for name in TOOLS}
    return {name for name, way in ways.items() if re.search(way, own, re.MULTILINE)}


def told_in(request: Request) -> str:
    return "\n".join([request.system, *(each.text for each in request.messages if not isinstance(each, Reply))])


def unknown(requests: Iterable[Request]) -> dict[tuple[str, int], set[str]]:
    """The tools that each request names and does not offer."""
    found = {(each.title, each.turn): named_in(told_in(each)) - {spec.name for spec in each.tools} for each in requests}
    return {place: names for place, names in found.items() if names}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("Then call finish.", {"finish"}),
        ("After finish: it is checked.", {"finish"}),
        ("Mend it and finish again.", set()),
        ("update_tree brings it in.", {"update_tree"}),
        ("show_task and notes show the rest", {"show_task", "notes"}),
        ("The team's notes on this goal:", set()),
        ("Answer with respond(request='r').", {"respond"}),
        ("> Then call finish.", set()),
    ],
)
def test_a_tool_is_known_by_its_name(words: str, names: set[str]) -> None:
    assert named_in(words) == names


@asynccontextmanager
async def team(board: Board, root: Path, model: Any, **given: Any) -> AsyncIterator[Host]:
    new_repository(root, {"AGENTS.md": "Use tabs."})
    async with (
        worktrees(board, root, "test -e out.txt") as trees,
        hosting(board, model, workspaces=trees, reviewer="reviewer", **given) as host,
    ):
        yield host


WORK = [
    calls(
        ("bash", {"command": "sleep 60", "background": True}), ("bash", {"command": "seq 1 40000"}),
        ("list_tasks", {}), ("wait_for", {"tasks": [1]}), ("update_tree", {}), ("note", {"title": "n", "text": "t"}),
        ("write_file", {"path": "a.txt", "text": "x"}), ("send_message", {"to": "human", "text": "Hello."}),
        ("finish", {"result": "Too early."}),
    ),
    calls(("jobs", {"stop": "b1"}), ("run_check", {}), ("finish", {"result": "Not yet."})),
    Step(say="I am not sure."),
    calls(("write_file", {"path": "out.txt", "text": "x"}), ("finish", {"result": "Built."})),
    calls(("finish", {"result": "Built."})),
]  # fmt: skip
REVIEW = [
    calls(("bash", {"command": "sleep 60", "background": True}), ("bash", {"command": "seq 1 40000"})),
    calls(("finish", {"result": "Fine."})),
    calls(("jobs", {"stop": "b1"}), ("finish", {"result": "Fine."})),
    calls(("finish", {"result": "Fine.", "outcome": "approved"})),
]
PLAN = [calls(("bash", {"command": "true"}), ("submit_plan", {"plan": "So."})), *WORK]


@pytest.mark.parametrize("kind", ["plain", "plan", "skills", "plan and skills"])
async def test_a_worker_and_its_reviewer_are_told_of_tools_they_have(board: Board, folder: Path, kind: str) -> None:
    steps = PLAN if "plan" in kind else WORK
    script = ScriptedModel(lambda request: (REVIEW if request.teammate == "bob" else steps)[request.turn - 1])
    asked_at: set[str] = set()

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        if request.teammate not in asked_at:  # While it works, so that it reads this with its next turn.
            asked_at.add(request.teammate)
            await board.tell("human", request.teammate, "Which?", kind="question")
        return await inner.ask(request)

    model = Wrapped(script, ask)
    if "skills" in kind:
        skill = folder / ".agents" / "skills" / "deploy"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text("---\nname: deploy\ndescription: How we deploy.\n---\nSo.\n")
    await board.spawn("alice")
    await board.spawn("bob", roles=["reviewer"])
    async with team(board, folder, model, mind=minds(board, model, project=folder)):
        task = await board.put(TITLE, body=LONG, assignee="alice", plan="plan" in kind)
        if "plan" in kind:
            (asked,) = await until(board, board.requests)
            await board.reply(str(asked.request), "human", "Yes.", accepted=True)
        (done,) = await until_ended(board, task)
    assert (done.state, done.reason) == ("done", None)
    assert max(request.turn for request in model.asked if request.teammate == "bob") == len(REVIEW)
    assert "the check is red" in "".join(told_in(request) for request in model.asked)
    assert unknown(model.asked) == {}
    for name in ("alice", "bob"):
        assert "respond" in named_in("".join(told_in(each) for each in model.asked if each.teammate == name))
    assert ("use_skill" in named_in(model.asked[0].system)) == ("skills" in kind)


def minds(board: Board, model: Any, **given: Any) -> Any:
    def mind(member: Teammate, may_act: Any) -> Agent:
        return Agent(board=board, teammate=member, model=model, may_act=may_act, **given)

    return mind


async def test_a_lead_is_told_of_tools_it_has(board: Board, folder: Path) -> None:
    tasks = [{"title": "Write it", "label": "w", "role": "coder"}]
    steps = [
        calls(
            ("add_tasks", {"tasks": tasks}), ("list_teammates", {}), ("spawn_teammate", {"name": "lena"}),
            ("send_message", {"to": "gone", "text": "Hello."}), ("wait_for", {"tasks": ["w"]}),
        ),
        Step(say="It is on the board."),
    ]  # fmt: skip
    model = ScriptedModel(lambda request: steps[request.turn - 1])
    await board.spawn("lena", lead=True)
    await board.spawn("gone")
    await board.stop_teammate("gone")
    async with team(board, folder, model):
        await board.tell("human", "lena", LONG)
        await until(board, lambda: board.inbox("human"))
    assert unknown(model.asked) == {}
    assert "wait_for" in named_in(told_in(model.asked[0]))


async def test_an_external_agent_is_told_of_no_tool(board: Board, sandbox: Sandbox, folder: Path) -> None:
    """In a tree, with a red check, a note and a question of its own."""
    asks = block(question="Which?", notes=[{"title": "n", "text": "t"}])
    steps = [{"say": asks}, {"say": "I think so."}, {"say": "Now.", "write": {"out.txt": "x"}}]
    root = new_repository(folder / "project", {".script": json.dumps(steps)})
    await board.spawn("alice")

    def mind(member: Teammate, may_act: Any) -> ExternalAgent:
        command = stand_in(folder)
        return ExternalAgent(board=board, teammate=member, command=command, sandbox=sandbox, may_act=may_act)

    async with worktrees(board, root, "test -e out.txt") as trees, hosting(board, None, mind=mind, workspaces=trees):
        task = await board.put(TITLE, body=LONG)
        (asked,) = await until(board, board.requests)
        await board.reply(str(asked.request), "human", "This.")
        (done,) = await until_ended(board, task)
        assert done.state == "done"
    asked_all = git(root, "show", "dugnad/main:.asked").splitlines()  # It was in the tree, so it was merged.
    texts = [json.loads(line)["prompt"] for line in asked_all]
    assert [named_in(text) for text in texts] == [set()] * 3
    assert "the check is red" in texts[-1]


async def test_an_external_agent_is_told_how_it_can_answer_a_request(board: Board) -> None:
    await board.spawn("alice")
    for kind in ("question", "shutdown"):
        asked = await board.tell("human", "alice", "Well?", kind=kind)  # type: ignore[arg-type]
        text = inbox_text([asked], frozenset(), outside=True)
        assert f'"responses": {{"request": "{asked.request}"' in text
        assert named_in(text) == set()
        assert named_in(inbox_text([asked], frozenset())) == {"respond"}


def test_what_an_external_agent_is_told_instead_names_no_tool() -> None:
    assert {name: named_in(text) for name, text in load("external").items() if named_in(text)} == {}
