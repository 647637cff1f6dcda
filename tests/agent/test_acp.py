"""An agent that speaks the Agent Client Protocol as a teammate's mind: one run is one session, in a real sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dugnad.acp import session as acp_session
from dugnad.agent.external.agent import ExternalAgent
from dugnad.agent.external.command import AcpCommand
from dugnad.board import Board
from dugnad.errors import ModelMisconfigured
from dugnad.tools.policy import Policy
from dugnad.types import Amount, Budget, Done, Failed, Waiting
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.acp_agent import acp_agent, heard, script
from tests.agent.stage_agent import TITLE, Stage
from tests.agent.standin import block

USAGE = {"inputTokens": 10, "outputTokens": 40, "cachedReadTokens": 300, "cachedWriteTokens": 20, "totalTokens": 370}
COST = ["update", "usage_update", {"used": 1_000, "size": 200_000, "cost": {"amount": 0.0123, "currency": "USD"}}]


async def stage_of(
    board: Board, sandbox: Sandbox | None, tree: Path | None, command: AcpCommand, *, policy: Any = None, **member: Any
) -> Stage:
    teammate = await board.spawn("alice", **member)
    host = await board.start_host("stage")
    await board.seat(host, name="alice")
    mind: Any = ExternalAgent(
        board=board, teammate=teammate, command=command, sandbox=sandbox, tree=tree, policy=Policy.of(policy or {})
    )
    return Stage(board=board, host=host, agent=mind, model=None)  # type: ignore[arg-type]


async def bodies(board: Board, kind: str, epoch: int = 1) -> list[dict[str, Any]]:
    return [json.loads(turn.body) for turn in await board.transcript(1, epoch) if turn.kind == kind]


async def test_a_session_is_held_in_the_tree_with_the_packet_and_its_last_message_is_the_result(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [["say", "I look around."], ["tool", "c1", "cat x", "execute", "completed"],
                         ["write", "out.txt", "built"], ["say", "It is built, in out.txt."]]})  # fmt: skip
    stage = await stage_of(board, sandbox, tree, acp_agent(folder), prompt="You like short functions.")
    assert await stage.run(body="Build the thing.") == Done("It is built, in out.txt.")
    assert (tree / "out.txt").read_text() == "built"
    (prompt,) = heard(tree, "prompt")
    for words in ("You are alice", "You like short functions.", f"#1: {TITLE}", "> Build the thing."):
        assert words in prompt["text"]
    (hello,) = heard(tree, "initialize")
    assert hello["params"]["protocolVersion"] == 1
    assert hello["params"]["clientCapabilities"]["fs"] == {"readTextFile": False, "writeTextFile": False}
    (new,) = heard(tree, "session/new")
    assert new["params"]["cwd"] == str(tree)
    assert [each["name"] for each in new["params"]["mcpServers"]] == ["dugnad"]
    (started,) = heard(tree, "started")
    assert started["home"] == []
    assert [turn.kind for turn in await board.transcript(1, 1)] == ["request", "live", "reply"]


async def test_its_plan_and_its_tools_are_in_the_transcript_as_they_happen(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    plan = [{"content": "Look", "status": "completed"}, {"content": "Build\x1b[2J", "status": "in_progress"}]
    script(tree, {"do": [["update", "plan", {"entries": plan}], ["update", "plan", {"entries": plan}],
                         ["tool", "c1", "make", "execute", "failed"], ["tool", "c2", "x.py", "edit", "in_progress"],
                         ["say", "Done."]]})  # fmt: skip
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    assert await stage.run() == Done("Done.")
    assert [each["text"] for each in await bodies(board, "live")] == [
        "plan:\n[x] Look\n[>] Build␛[2J", "execute: make (failed)", "edit: x.py (did not end)",
    ]  # fmt: skip


async def test_what_it_says_it_used_is_what_is_spent(board: Board, sandbox: Sandbox, tree: Path, folder: Path) -> None:
    script(tree, {"do": [COST, ["say", "Done."]], "usage": USAGE})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder, counts_dollars=True))
    await stage.run(budget=Budget(dollars=1.0, tokens=50_000))
    account = await board.budget(1)
    assert (account.spent.tokens, account.spent.microdollars, account.reserved) == (370, 12_300, Amount())


async def test_what_it_does_not_say_counts_as_spent_in_full(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    euros = ["update", "usage_update", {"used": 1, "size": 2, "cost": {"amount": 0.5, "currency": "EUR"}}]
    script(tree, {"do": [euros, ["say", "Done."]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder, counts_dollars=True, tokens_per_run=20_000))
    await stage.run(budget=Budget(dollars=1.0, tokens=50_000))
    spent = (await board.budget(1)).spent
    assert (spent.tokens, spent.microdollars) == (20_000, 1_000_000)


async def test_a_session_that_reaches_its_dollars_is_cancelled(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    dear = ["update", "usage_update", {"used": 1, "size": 2, "cost": {"amount": 0.2, "currency": "USD"}}]
    script(tree, {"do": [dear, ["hang"]], "usage": USAGE})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder, counts_dollars=True))
    outcome = await stage.run(budget=Budget(dollars=0.1))
    assert isinstance(outcome, Waiting)
    assert outcome.on == "budget"
    assert len(heard(tree, "cancel")) == 1
    (reply,) = await bodies(board, "reply")
    assert "limit of $0.10" in reply["reply"]["run"]


@pytest.mark.parametrize("stop", ["refusal", "cancelled", "something_new", "", 7])
async def test_a_stop_reason_that_nobody_asked_for_fails_the_attempt_with_its_name(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, stop: object
) -> None:
    script(tree, {"do": [["say", "Hm."]], "stop": stop})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    outcome = await stage.run()
    assert isinstance(outcome, Failed)
    assert outcome.retry
    assert repr(str(stop)) in outcome.reason


@pytest.mark.parametrize("stop", ["max_tokens", "max_turn_requests"])
async def test_a_limit_of_its_own_starts_another_run_that_goes_on(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, stop: str
) -> None:
    script(tree, {"do": [["say", "Half."]], "stop": stop}, {"do": [["say", "Whole."]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    assert await stage.run() == Done("Whole.")
    assert stop in heard(tree, "prompt")[1]["text"]


async def test_the_block_at_the_end_counts_as_for_any_external_agent(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [["say", block(result="built", outcome="approved", follow_ups=[{"title": "More"}])]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    assert await stage.run() == Done("built", "approved")
    assert [task.title for task in await board.list_tasks()] == [TITLE, "More"]


# What goes wrong with the protocol: one sentence each.


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"version": 2}, "it speaks version 2 of the protocol, and dugnad speaks version 1"),
        ({"version": "one"}, "it speaks version one of the protocol"),
        ({"http": False}, "it takes no MCP server over HTTP"),
        ({"new": {"session": "x"}}, "it made a session without an id"),
        ({"errors": {"session/new": {"code": -32603, "message": "No disk"}}}, "No disk (at session/new)"),
        ({"refuses": {"code": -32002, "message": "Session not found"}}, "Session not found"),
        ({"die_at": "initialize", "last_words": "bad option"}, "it ended, saying: bad option (at initialize)"),
        ({"die_at": "session/new"}, "it ended (at session/new)"),
        ({"do": [["say", "I"], ["die", "out of memory"]]}, "it ended, saying: out of memory"),
        ({"do": [["huge", 17 * 1024 * 1024], ["hang"]]}, "it sent a line of more than 16 MiB"),
        ({"do": [["raw", "no message\n" * 300], ["hang"]]}, "it sends lines that are not messages"),
    ],
)  # fmt: skip
async def test_a_session_that_cannot_be_held_fails_the_attempt_with_one_sentence(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, wrong: dict[str, Any], says: str
) -> None:
    script(tree, wrong)
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    outcome = await stage.run()
    assert isinstance(outcome, Failed)
    assert outcome.retry
    assert says in outcome.reason


@pytest.mark.parametrize(
    ("info", "says"),
    [({"version": "1.2.4"}, "it has the version 1.2.4"), (7, "it has the version that it does not tell")],
)
async def test_only_the_version_that_the_user_pinned_is_used(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, info: Any, says: str
) -> None:
    script(tree, {"do": [["say", "Fine."]]}, {"info": info})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder, version="1.2.3"))
    assert await stage.run() == Done("Fine.")
    outcome = await stage.run("Another")
    assert isinstance(outcome, Failed)
    assert says in outcome.reason
    assert "asks for 1.2.3; install that, or change `version`" in outcome.reason


async def test_a_few_lines_that_are_no_messages_are_passed_over(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    lines = 'warning: old\n[1]\n7\n\n{"jsonrpc": "2.0", "id": 99, "result": {}}\n{"method": 3}\n\udcff\n'
    deep = "[" * 100_000 + "\n"
    script(tree, {"do": [["raw", lines], ["raw", deep], ["say", "Fine."]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    assert await stage.run() == Done("Fine.")


async def test_updates_of_any_shape_and_of_other_sessions_do_no_harm(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    other = {"sessionId": "ses-2", "update": {"sessionUpdate": "agent_message_chunk",
             "content": {"type": "text", "text": "Not ours."}}}  # fmt: skip
    odd = [["update", "agent_message_chunk", {"content": 7}], ["update", "tool_call", {"toolCallId": {}, "title": 8}],
           ["update", "plan", {"entries": [7, {}]}], ["update", "plan", {"entries": "x"}],
           ["update", "usage_update", {"used": "x", "cost": {"amount": -1, "currency": "USD"}}],
           ["update", "something_new", {}], ["flood", 1, other], ["flood", 1, 7]]  # fmt: skip
    script(tree, {"do": [["say", "\ud800Fine."], *odd], "usage": {"inputTokens": True}})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    outcome = await stage.run()
    assert isinstance(outcome, Done)
    assert outcome.result.endswith("Fine.")


async def test_a_flood_of_updates_is_bounded_in_the_transcript(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    calls = [["update", "tool_call", {"toolCallId": f"c{each}", "title": f"t{each}", "status": "completed"}]
             for each in range(700)]  # fmt: skip
    chunk = {"sessionId": "ses-1", "update": {"sessionUpdate": "agent_thought_chunk", "content": {"text": "x" * 2_000}}}
    script(tree, {"do": [*calls, ["flood", 5_000, chunk], ["say", "Done."]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    assert await stage.run() == Done("Done.")
    kept = await bodies(board, "live")
    assert len(kept) == 500
    assert kept[-1]["text"] == "more than this is not kept"


@pytest.mark.parametrize(
    ("step", "seconds"), [("initialize", 0.5), pytest.param("session/new", 8.0, marks=pytest.mark.proof)]
)
async def test_a_handshake_that_hangs_ends(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, step: str, seconds: float
) -> None:
    script(tree, {"hang_at": step})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder, start_seconds=seconds))
    outcome = await stage.run(budget=Budget(tokens=50_000))
    assert isinstance(outcome, Failed)
    assert f"it did not answer {step} in time" in outcome.reason
    assert (await board.budget(1)).spent.tokens == 0  # Nothing was asked of a model.


@pytest.mark.parametrize("ignores", [False, True])
@pytest.mark.parametrize(
    ("bounds", "says"),
    [({"seconds": 1.5}, "which is its limit"), ({"silence_seconds": 0.8}, "because it said nothing for 1 seconds")],
)
async def test_a_session_that_takes_too_long_is_cancelled_and_then_killed(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, ignores: bool,
    bounds: dict[str, float], says: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(acp_session, "CANCEL_SECONDS", 0.3 if ignores else 60.0)
    script(tree, {"do": [["spawn", "1000"], ["say", "x"], ["hang"]], "usage": USAGE, "ignores_cancel": ignores})
    slow = {"tokens_per_run": 20_000, "tokens_per_minute": 6_000}
    stage = await stage_of(board, sandbox, tree, acp_agent(folder, **slow, **bounds))
    outcome = await stage.run(budget=Budget(tokens=50_000))
    assert isinstance(outcome, Failed)
    assert says in outcome.reason
    assert len(heard(tree, "cancel")) == 1
    spent = (await board.budget(1)).spent.tokens
    # What it reports, and what its model can have said of an answer that was cut off: ten seconds at least.
    assert spent == 20_000 if ignores else 370 + 1_000 <= spent < 20_000


async def test_a_session_that_dies_costs_more_than_it_had_reported(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [COST, ["say", "I"], ["die", "out of memory"]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder, counts_dollars=True))
    await stage.run(budget=Budget(dollars=0.2))
    assert (await board.budget(1)).spent.microdollars == 200_000


# Logging in.


async def test_a_login_is_done_only_in_the_way_that_the_user_named(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [["say", "Done."]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder, login="api-key", options={"model": "small"}))
    assert await stage.run() == Done("Done.")
    assert [each["params"] for each in heard(tree, "authenticate")] == [{"methodId": "api-key"}]
    (option,) = heard(tree, "session/set_config_option")
    assert option["params"] == {"sessionId": "ses-1", "configId": "model", "value": "small"}


async def test_a_login_that_is_missing_stops_the_teammate_and_names_the_ways(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    logins = [{"id": "api-key", "name": "Key"}, {"id": "browser", "name": "Browser"}]
    wanted = {"session/new": {"code": -32000, "message": "Authentication required"}}
    script(tree, {"logins": logins, "errors": wanted})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    claim = await stage.begin()
    with pytest.raises(ModelMisconfigured, match=r"it knows: api-key, browser; name it as `login` under \[acp.agent\]"):
        await stage.agent.work(claim)
    assert heard(tree, "authenticate") == []


@pytest.mark.parametrize(("status", "ended"), [(401, "refused"), (429, "busy"), (500, "failed")])
async def test_the_status_of_its_provider_decides_and_not_its_words(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, status: int, ended: str
) -> None:
    script(tree, {"refuses": {"code": -32603, "message": "authentication", "data": {"status": status}}})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    claim = await stage.begin()
    try:
        await stage.agent.work(claim)
    except ModelMisconfigured:
        assert ended == "refused"
    (reply,) = await bodies(board, "reply")
    assert reply["reply"]["run"].startswith(f"{ended}: ")


async def test_files_and_terminals_are_not_offered_and_no_request_stays_open(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [["ask", "fs/read_text_file", {"path": "/etc/passwd"}], ["ask", "terminal/create", {}],
                         ["ask", "session/request_permission", {}], ["ask", "session/request_permission", 7],
                         ["ask", "elicitation/create", {}],
                         ["ask", "elicitation/create", {"mode": "url", "message": "x"}],
                         ["say", "Done."]]})  # fmt: skip
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    assert await stage.run() == Done("Done.")
    found = [(each["error"] or {}).get("code") for each in heard(tree, "answer")]
    assert found == [-32601, -32601, -32602, -32602, -32602, None]
    assert heard(tree, "answer")[-1]["answer"] == {"action": "decline"}
