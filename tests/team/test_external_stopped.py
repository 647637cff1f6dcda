"""Somebody else's agent that is stopped is asked to end, and counts as what it says, or can have spent in that time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.agent.external.command import ExternalCommand
from dugnad.board import Board
from dugnad.types import Amount, Budget, Spending
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.stage_agent import TITLE
from tests.agent.standin import block, prompts, script, stand_in
from tests.team.stage_team import hosting, until_ended
from tests.team.test_external_host import minds, running, until_there

CAPS = Budget(dollars=2.0, tokens=1_000_000, seconds=900)


async def stopped(board: Board, sandbox: Sandbox, tree: Path, command: ExternalCommand, **step: str) -> Spending:
    """The account after a host was stopped while the command worked."""
    await board.spawn("alice")
    script(tree, {"hang": "600", **step}, {"say": "Done."})
    async with hosting(board, None, mind=minds(board, sandbox, tree, command)):
        caps = CAPS if command.reports_dollars else replace(CAPS, dollars=None)
        task = await board.put(TITLE, budget=caps)
        await until_there(tree / ".hangs")
    found = await board.find(task.id)
    assert (found.state, found.tries) == ("ready", 0)
    account = await board.budget(task.id)
    assert account.reserved == Amount()
    return account


async def test_what_a_stopped_command_says_it_spent_is_what_counts(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    account = await stopped(board, sandbox, tree, stand_in(folder), on_term="report")
    assert (account.spent.microdollars, account.spent.tokens) == (12_300, 370)
    assert account.spent.milliseconds < 600_000
    assert running(folder) == []


@pytest.mark.parametrize("on_term", ["", "ignore"])
async def test_one_that_says_nothing_counts_as_what_it_can_have_spent_in_that_time(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, on_term: str
) -> None:
    command = stand_in(folder, dollars_per_minute=0.6, tokens_per_minute=6_000)
    account = await stopped(board, sandbox, tree, command, on_term=on_term)
    seconds = account.spent.milliseconds / 1000
    assert account.spent.microdollars == pytest.approx((seconds + 10) * 10_000, abs=100)
    assert account.spent.tokens == pytest.approx((seconds + 10) * 100, abs=2)
    assert account.spent.microdollars < 2_000_000
    assert running(folder) == []


@pytest.mark.parametrize("name", ["claude", "plain"])
async def test_one_that_ends_well_when_it_is_asked_to_has_not_done_its_work(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, name: str
) -> None:
    command = stand_in(folder, name, dollars_per_minute=0.6)
    await stopped(board, sandbox, tree, command, on_term="end", say="I begin with part 1 of 2.")
    async with hosting(board, None, mind=minds(board, sandbox, tree, command)):
        (done,) = await until_ended(board, (await board.list_tasks())[0])
    assert (done.state, done.result) == ("done", "Done.")
    assert "interrupted" in prompts(tree)[-1].lower()


async def test_one_that_is_asked_to_end_and_hands_back_its_answer_has_done_its_work(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    await board.spawn("alice")
    script(tree, {"hang": "600", "on_term": "end", "say": block(result="All of it.")})
    async with hosting(board, None, mind=minds(board, sandbox, tree, stand_in(folder))):
        task = await board.put(TITLE, budget=CAPS)
        await until_there(tree / ".hangs")
    found = await board.find(task.id)
    assert (found.state, found.result) == ("done", "All of it.")


async def test_the_next_run_is_told_that_the_one_before_was_interrupted(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    account = await stopped(board, sandbox, tree, stand_in(folder), on_term="report")
    async with hosting(board, None, mind=minds(board, sandbox, tree, stand_in(folder))):
        (done,) = await until_ended(board, await board.find(account.root))
    assert (done.state, done.result) == ("done", "Done.")
    assert "interrupted" in prompts(tree)[-1].lower()
    assert (await board.budget(account.root)).runs == 1


async def test_one_that_is_shut_down_by_force_counts_no_more_than_that(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    await board.spawn("alice")
    script(tree, {"hang": "600", "on_term": "ignore"})
    command = stand_in(folder, dollars_per_minute=0.6, tokens_per_minute=6_000)
    limits = {"cancel_seconds": 10.0}
    async with hosting(board, None, mind=minds(board, sandbox, tree, command), limits=limits):
        task = await board.put(TITLE, budget=CAPS)
        await until_there(tree / ".hangs")
        await board.stop_teammate("alice")
    account = await board.budget(task.id)
    assert account.reserved == Amount()
    assert account.spent.microdollars < 2_000_000


@pytest.mark.parametrize("seconds", [0.0, 5.0, 60.0, 1e6])
def test_the_bound_grows_with_time_and_never_passes_what_was_set_aside(seconds: float) -> None:
    aside = Amount(tokens=2_000_000, microdollars=5_000_000, milliseconds=1_800_000)
    most = ExternalCommand(name="command:x", run=("x",)).at_most_in(seconds, aside)
    for kind in Amount.__slots__:
        assert getattr(most, kind) <= getattr(aside, kind)
    assert most.microdollars == min(5_000_000, round((seconds + 10) * 50_000))
    assert most.tokens == min(2_000_000, round((seconds + 10) * 10_000))
