"""The tools of the board that an agent has while its session goes on: recorded, keyed and fenced like anybody's."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dugnad.agent.agent import Agent
from dugnad.board import Board
from dugnad.errors import StaleClaim
from dugnad.models import ScriptedModel
from dugnad.settings import Limits
from dugnad.team import requests
from dugnad.types import Amount, Budget, Done, Waiting
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.acp_agent import acp_agent, heard, script, verdict
from tests.agent.stage_agent import END, FAST, TITLE, all_told
from tests.agent.stage_commands import until_true
from tests.agent.test_acp import COST, USAGE, bodies, stage_of
from tests.agent.test_external_crash import Dies, dies_and_goes_on
from tests.workspace.attempts import BARE

FOLLOW_UP = ["call", "add_tasks", {"tasks": [{"title": "Test it"}]}]


def answers(tree: Path) -> list[str]:
    return [each["answer"]["content"][0]["text"] for each in heard(tree, "tool")]


async def test_it_looks_at_the_board_and_changes_it_while_it_works(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    await board.spawn("bob")
    script(tree, {"do": [FOLLOW_UP, ["call", "note", {"title": "A trap", "text": "Mind the gap."}],
                         ["call", "send_message", {"to": "bob", "text": "Soon."}], ["call", "list_tasks", {}],
                         ["call", "notes", {"words": "gap"}], ["say", "Built."]], "usage": USAGE})  # fmt: skip
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    assert await stage.run() == Done("Built.")
    task = (await board.list_tasks())[1]
    assert (task.title, task.root, task.put_by) == ("Test it", 1, "alice")
    assert [note.text for note in await board.search_notes(root=1)] == ["Mind the gap."]
    assert [message.text for message in await board.inbox("bob")] == ["Soon."]
    added, _, sent, listed, found = answers(tree)
    assert "#2" in added
    assert "bob" in sent
    assert "Test it" in listed
    assert "Mind the gap." in found
    kinds = [turn.kind for turn in await board.transcript(1, 1)]
    assert kinds == ["request", *["reply", "tool"] * 5, "reply"]
    first, *_, last = await bodies(board, "reply")
    assert first["said"]  # What the run was told is recorded once, with its first call.
    assert not last["said"]
    assert (await board.budget(1)).spent.tokens == 370


async def test_its_tools_are_those_of_the_run_and_what_the_policy_denies_is_not_among_them(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [["call", "note", {"title": "t", "text": "x"}], ["call", "finish", {"result": "x"}],
                         ["call", "show_task", {"task": "seven"}], ["say", "Built."]]})  # fmt: skip
    stage = await stage_of(board, sandbox, tree, acp_agent(folder), policy={"note": "deny"})
    assert await stage.run() == Done("Built.")
    listed = heard(tree, "mcp")[2]["answer"]["result"]["tools"]
    assert [each["name"] for each in listed] == [
        "list_tasks", "show_task", "notes", "list_teammates", "add_tasks", "send_message", "ask_human",
    ]  # fmt: skip
    denied, unknown, wrong = heard(tree, "tool")
    assert denied["answer"] is None
    assert unknown["answer"] is None
    assert wrong["answer"]["isError"] is True
    assert await board.search_notes(root=1) == []


async def test_nobody_without_the_token_of_the_run_is_served(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [["post", ""], ["post", "Bearer "], ["post", "Bearer " + "0" * 40], ["post", None, "/other"],
                         ["post"], ["say", "Built."]]})  # fmt: skip
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    assert await stage.run() == Done("Built.")
    assert [each["status"] for each in heard(tree, "posted")] == [401, 401, 401, 404, 200]


async def test_each_run_has_a_token_of_its_own(board: Board, sandbox: Sandbox, tree: Path, folder: Path) -> None:
    script(tree, {"do": [["say", ""]]}, {"do": [["say", "Built."]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    assert await stage.run() == Done("Built.")
    first, second = (each["params"]["mcpServers"][0]["headers"][0]["value"] for each in heard(tree, "session/new"))
    assert first != second


async def test_a_question_ends_the_run_and_the_next_one_has_the_answer(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [["call", "ask_human", {"question": "Red or blue?"}], ["hang"]], "usage": USAGE},
           {"do": [["say", "It is blue."]], "usage": USAGE})  # fmt: skip
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    assert await stage.run() == Waiting(on="human", question="Red or blue?")
    assert len(heard(tree, "cancel")) == 1
    assert heard(tree, "tool") == []  # With an answer it would ask its model again, and not count what that costs.
    await requests.answer(board, "1", "Blue.")
    assert await stage.go_on() == Done("It is blue.")
    assert "> Blue." in heard(tree, "prompt")[1]["text"]
    assert (await board.budget(1)).spent.tokens == 740


@pytest.mark.parametrize(("counts", "microdollars"), [(True, 12_300), (False, 512_300)])
async def test_a_question_costs_what_is_reported_unless_the_answer_with_the_question_is_not_counted_yet(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, counts: bool, microdollars: int
) -> None:
    script(tree, {"do": [COST, ["tool", "c1", "ask", "other", "in_progress"],
                         ["call", "ask_human", {"question": "Red or blue?"}], ["hang"]], "usage": USAGE})  # fmt: skip
    stage = await stage_of(board, sandbox, tree, acp_agent(folder, counts_dollars=True, counts_tokens=counts))
    await stage.run(budget=Budget(dollars=1.0))
    assert (await board.budget(1)).spent.microdollars == microdollars  # 10 seconds at 3 dollars a minute.


async def test_a_call_that_a_policy_asks_about_waits_and_is_made_once_it_is_allowed(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [FOLLOW_UP, ["hang"]]}, {"do": [["say", "Built."]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder), policy={"add_tasks": "ask"})
    outcome = await stage.run()
    assert isinstance(outcome, Waiting)
    assert len(await board.list_tasks()) == 1
    await requests.answer(board, "1", "yes")
    assert await stage.go_on() == Done("Built.")
    assert [task.title for task in await board.list_tasks()] == [TITLE, "Test it"]


async def test_a_guard_asks_a_person_as_for_anybody(opener: Any, sandbox: Sandbox, tree: Path, folder: Path) -> None:
    board = await opener(limits=Limits(children_max=1))
    many = ["call", "add_tasks", {"tasks": [{"title": f"t{each}"} for each in range(5)]}]
    script(tree, {"do": [many, ["hang"]]}, {"do": [["say", "Built."]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    outcome = await stage.run()
    assert isinstance(outcome, Waiting)
    assert outcome.question is not None
    assert "A guard stopped alice" in outcome.question


async def test_what_others_write_meanwhile_comes_with_the_answer_of_a_call(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [["until", ".go"], ["call", "notes", {}], ["say", "Built."]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    working = asyncio.create_task(stage.run())
    await until_true((tree / ".waits").exists)
    await board.tell("human", "alice", "Use tabs.")
    (tree / ".go").touch()
    assert await working == Done("Built.")
    assert "> Use tabs." in answers(tree)[0]
    assert not await board.has_unread("alice")
    assert len(heard(tree, "prompt")) == 1


async def test_calls_of_a_run_that_lost_its_task_do_nothing_and_the_run_ends(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [["until", ".go"], FOLLOW_UP, ["hang"]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    claim = await stage.begin()
    working = asyncio.create_task(stage.agent.work(claim))
    await until_true((tree / ".waits").exists)
    await stage.lose()
    await stage.claim_when_due()
    (tree / ".go").touch()
    with pytest.raises(StaleClaim):
        await working
    assert len(await board.list_tasks()) == 1
    assert heard(tree, "tool") == []


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("verb", "kind"), [("record", "reply"), ("follow_ups", ""), ("record", "tool")])
async def test_a_crash_in_the_middle_of_a_call_neither_loses_it_nor_makes_it_twice(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, verb: str, kind: str, after: bool
) -> None:
    script(tree, {"do": [FOLLOW_UP, ["hang"]]}, {"do": [["say", "Built."]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    dying: Any = Dies(board, verb, lambda *given: not kind or given[1].kind == kind, after=after)
    outcome = await dies_and_goes_on(stage, dying, budget=Budget(tokens=10**8))
    assert outcome == Done("Built.")
    recorded = verb != "record" or kind != "reply" or after
    assert [task.title for task in await board.list_tasks()] == ([TITLE, "Test it"] if recorded else [TITLE])
    told = heard(tree, "prompt")[1]["text"]
    assert "was interrupted" in told
    assert ("What came of" in told) == recorded
    assert (await board.budget(1)).reserved == Amount()


async def test_a_review_looks_with_tools_that_only_read_and_gives_its_verdict_without_the_work(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [["call", "list_tasks", {}], ["call", *FOLLOW_UP[1:]], ["say", "Looks fine."]]})
    verdict_says = json.dumps({"result": "Fine.", "outcome": "approved"})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    verdict(folder, do=[["say", f"```dugnad\n{verdict_says}\n```"]])
    await board.put(TITLE, kind="review", reviews=1, reviews_commit="abc", assignee="alice")
    assert await stage.go_on() == Done("Fine.", "approved")
    listed = heard(tree, "mcp")[2]["answer"]["result"]["tools"]
    assert [each["name"] for each in listed] == ["list_tasks", "show_task", "notes", "list_teammates"]
    assert len(await board.list_tasks()) == 1


async def test_calls_at_one_time_are_done_one_after_another(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    notes = [["call", "note", {"title": f"n{each}", "text": "x"}] for each in range(6)]
    tools = [["tool", f"c{each}", f"t{each}", "edit", "completed"] for each in range(20)]
    script(tree, {"do": [*tools, ["at once", *notes], *tools, ["say", "Built."]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    assert await stage.run() == Done("Built.")
    assert len(await board.search_notes(root=1)) == 7
    numbers = [turn.number for turn in await board.transcript(1, 1)]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_one_of_ours_goes_on_where_a_session_was_cut_off(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [FOLLOW_UP, ["hang"]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    working = asyncio.create_task(stage.agent.work(await stage.begin()))
    await until_true((tree / ".hangs").exists)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await stage.lose()
    model = ScriptedModel(lambda request: END)
    stage.agent = Agent(board=board, teammate=stage.agent.teammate, model=model, limits=FAST)
    assert await stage.go_on(await stage.claim_when_due()) == Done("built")
    assert f"#1: {TITLE}" in all_told(model.asked[0])
    assert [task.title for task in await board.list_tasks()] == [TITLE, "Test it"]


async def test_without_a_sandbox_it_has_a_home_of_its_own_that_is_gone_afterwards(
    board: Board, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [["call", "notes", {}], ["say", "Built."]]})
    bare = Sandbox(BARE, unsafe=True)
    stage = await stage_of(board, bare, tree, acp_agent(folder))
    assert await stage.run() == Done("Built.")
    await bare.close()
    (started,) = heard(tree, "started")
    home = started["environment"]["HOME"]
    assert started["home"] == []
    assert started["environment"]["XDG_CONFIG_HOME"].startswith(home)
    assert home != str(tree)
    assert not os.path.exists(home)  # noqa: ASYNC240
    assert len(answers(tree)) == 1
