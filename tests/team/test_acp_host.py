"""Teammates whose mind is a session of the Agent Client Protocol, at a host: being stopped, killed, and watched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dugnad.acp import session as acp_session
from dugnad.board import Board
from dugnad.settings import Limits
from dugnad.types import Amount, Budget, Done, Spending
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.acp_agent import acp_agent, heard, script
from tests.agent.stage_agent import TITLE
from tests.agent.stage_commands import until_true
from tests.agent.test_acp import COST, USAGE, stage_of
from tests.agent.test_external_crash import killed_host, taken_over
from tests.team.stage_team import hosting, until_ended
from tests.team.test_external_host import minds, running, until_there

CAPS = Budget(dollars=2.0, tokens=1_000_000, seconds=900)


async def stopped(board: Board, sandbox: Sandbox, tree: Path, folder: Path, **run: Any) -> Spending:
    """The account after a host was stopped while the session went on."""
    await board.spawn("alice")
    script(tree, {"do": [COST, ["spawn", "600"], ["hang"]], **run}, {"do": [["say", "Done."]]})
    command = acp_agent(folder, counts_dollars=True, dollars_per_minute=0.6, tokens_per_minute=6_000)
    async with hosting(board, None, mind=minds(board, sandbox, tree, command)):
        task = await board.put(TITLE, budget=CAPS)
        await until_there(tree / ".hangs")
    found = await board.find(task.id)
    assert (found.state, found.tries) == ("ready", 0)
    assert len(heard(tree, "cancel")) == 1
    assert running(folder) == []
    account = await board.budget(task.id)
    assert account.reserved == Amount()
    return account


async def test_a_stopped_session_is_cancelled_and_counts_as_what_it_says_and_its_model_may_have_begun(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    account = await stopped(board, sandbox, tree, folder, usage=USAGE)
    most = (account.spent.milliseconds / 1000 + 10) * 10_000  # It reports no answer that is cut off.
    assert 100_000 <= account.spent.microdollars <= most + 100
    assert 1_000 <= account.spent.tokens <= most / 100 + 1
    command = acp_agent(folder, counts_dollars=True)
    async with hosting(board, None, mind=minds(board, sandbox, tree, command)):
        (done,) = await until_ended(board, await board.find(account.root))
    assert (done.state, done.result) == ("done", "Done.")
    assert "was interrupted" in heard(tree, "prompt")[1]["text"]


async def test_one_that_ignores_that_is_killed_and_counts_as_what_it_can_have_spent(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_session, "CANCEL_SECONDS", 0.3)
    account = await stopped(board, sandbox, tree, folder, ignores_cancel=True)
    seconds = account.spent.milliseconds / 1000
    assert account.spent.tokens == pytest.approx((seconds + 10) * 100, abs=2)
    assert account.spent.microdollars == pytest.approx((seconds + 10) * 10_000, abs=200)  # More than it said before.


async def test_people_who_watch_see_what_the_session_does(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    await board.spawn("alice")
    script(tree, {"do": [["update", "tool_call", {"toolCallId": "c", "title": "make test", "kind": "execute"}],
                         ["until", ".go"], ["say", "Done."]]})  # fmt: skip
    made = minds(board, sandbox, tree, acp_agent(folder))
    seen: list[Any] = []

    def mind(*given: Any) -> Any:
        seen.append(made(*given))
        return seen[-1]

    async with hosting(board, None, mind=mind):
        task = await board.put(TITLE)
        await until_true(lambda: bool(seen) and seen[0].doing == "acp:agent: execute: make test")
        (tree / ".go").touch()
        await until_ended(board, task)
    assert seen[0].doing == ""


async def test_killed_in_the_middle_of_a_session_the_agent_dies_too_and_another_host_takes_over(
    url: str, opener: Any, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    board: Board = await opener(limits=Limits(lease_seconds=60, backoff_seconds=0.01))
    plan = ["update", "plan", {"entries": [{"content": "Look", "status": "in_progress"}]}]
    note = ["call", "note", {"title": "A trap", "text": "Mind the gap."}]
    script(tree, {"do": [plan, note, ["hang"]]}, {"do": [["say", "whole"]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    await board.put(TITLE)
    await board.stop_host(stage.host)
    async with killed_host(url, folder, tree, acp=True):
        pass
    kept = [json.loads(turn.body) for turn in await board.transcript(1, 1) if turn.kind == "live"]
    assert kept == [{"text": "plan:\n[>] Look"}]
    assert await taken_over(board, stage) == Done("whole")
    told = heard(tree, "prompt")[1]["text"]
    assert "was interrupted" in told
    assert "What came of" in told  # The note was written, and is not written again.
    assert [each.text for each in await board.search_notes(root=1)] == ["Mind the gap."]
    assert heard(tree, "session/new")[1]["params"].keys() == {"cwd", "mcpServers"}  # A new session, never an old one.
