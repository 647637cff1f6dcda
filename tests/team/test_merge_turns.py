"""Machines that merge into one target take turns, so that no check is in vain. Safety never depends on it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.board import Board, open_board
from dugnad.board.records import Merging
from dugnad.errors import StaleClaim
from dugnad.logs.steps import LISTENER, Facts, Kind
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.team.workspaces.merge_turns import MergeTurns, waits_for
from dugnad.types import Claim, Done
from tests.board.crew import Crew, crew
from tests.board.raw import grow_old, lapse
from tests.conftest import Opener
from tests.team.stage_team import hosting, until_ended, until_status
from tests.team.stage_trees import finish, worktrees, write
from tests.workspace.remotes import machines
from tests.workspace.repository import subjects

MACHINES = 4


class Checks:
    """A listener that counts checks."""

    def __init__(self) -> None:
        self.number = 0

    def step(self, kind: Kind, name: str, facts: Facts) -> AbstractContextManager[Facts]:
        self.number += kind == "check"
        return nullcontext(facts)

    def count(self, what: str) -> None:
        """Nothing else is counted."""


def writing(request: Request) -> Step:
    number = request.title.split()[1]
    return write(f"{number}.txt", f"{number}\n") if request.turn == 1 else finish()


async def test_machines_that_finish_together_check_once_for_each_landing(opener: Opener, tmp_path: Path) -> None:
    remote, clones = machines(tmp_path, MACHINES)
    board, checks = await opener(), Checks()
    LISTENER.set(checks)
    async with AsyncExitStack() as running:
        for number, clone in enumerate(clones):
            # Each check takes as long as the others need to come to theirs.
            places = await running.enter_async_context(worktrees(board, clone, "sleep 1", remote=str(remote)))
            await board.spawn(f"mate{number}")
            await running.enter_async_context(hosting(board, ScriptedModel(writing), workspaces=places, seats_max=1))
            await until_status(board, f"mate{number}", "idle")
        ended = await until_ended(board, *[await board.put(f"Write {number}") for number in range(MACHINES)])
    assert {each.state for each in ended} == {"done"}
    assert sorted(subjects(remote)) == ["Begin", *(f"Write {number}" for number in range(MACHINES))]
    # One before each is handed in, and one for each that lands on what it was not checked with.
    assert checks.number <= 2 * MACHINES - 1
    assert await board.merging() == []


async def lined_up(board: Board, number: int) -> tuple[Crew, list[Claim]]:
    """So many claims of teammates, all of which merge into one target."""
    names = [f"mate{each}" for each in range(number)]
    team = await crew(board, *names)
    for each in names:
        await board.put(f"Task of {each}")
    claims = [await team.must_claim(each) for each in names]
    for claim in claims:
        await board.merge_into(claim, "dugnad/main")
    return team, claims


async def order(board: Board) -> list[str]:
    return [each.teammate for each in await board.merging()]


async def test_the_first_to_come_is_the_first_to_merge(board: Board) -> None:
    _, (one, two, three) = await lined_up(board, 3)
    await board.merge_into(one, "dugnad/main")  # Asked again, it keeps its place.
    assert await order(board) == ["mate0", "mate1", "mate2"]
    await board.merge_into(one, "")
    await board.merge_into(one, "")
    await board.merge_into(one, "dugnad/main")
    assert await order(board) == ["mate1", "mate2", "mate0"]
    assert (await board.health()).merging == {"dugnad/main": 3}
    await board.settle(two, Done("ok"))
    await board.cancel(three.task.id)
    assert await order(board) == ["mate0"]
    with pytest.raises(StaleClaim):
        await board.merge_into(three, "dugnad/main")


async def test_a_host_without_a_lease_is_passed_over(board: Board, url: str) -> None:
    team, _ = await lined_up(board, 2)
    await lapse(url, team.host)
    assert await order(board) == []


def at(number: int, target: str = "dugnad/main") -> Merging:
    return Merging(target=target, task=number, epoch=1, teammate=f"mate{number}")


def test_one_waits_for_the_first_before_it_that_merges_into_the_same_target() -> None:
    line = [at(1, "other"), at(2), at(3), at(4)]
    assert waits_for(line, at(1, "other"), set()) is None
    assert waits_for(line, at(2), set()) is None
    assert waits_for(line, at(4), set()) == at(2)
    assert waits_for(line, at(4), {at(2)}) == at(3)
    assert waits_for(line, at(4), {at(2), at(3)}) is None
    assert waits_for(line, at(5), set()) is None


async def test_a_waiter_is_woken_when_the_one_before_it_has_ended(board: Board) -> None:
    _, (one, two, three) = await lined_up(board, 3)
    told: asyncio.Queue[str] = asyncio.Queue()
    turns = MergeTurns(board=board, target="dugnad/main", tell=told.put_nowait)
    async with asyncio.timeout(120):
        waiting = [asyncio.create_task(turns.wait(claim)) for claim in (two, three)]
        for _ in waiting:
            said = f"Waiting for the merge queue: mate0 merges #{one.task.id} on another machine."
            assert await told.get() == said
        await board.settle(one, Done("ok"))
        await waiting[0]
        await turns.leave(two)
        await waiting[1]


async def test_a_holder_that_takes_too_long_is_passed_over_by_one_after_another(board: Board) -> None:
    _, (_, two, three) = await lined_up(board, 3)
    turns = MergeTurns(board=board, target="dugnad/main", tell=lambda _: None, holder_seconds_max=0.01)
    await turns.wait(two)
    held = replace(turns, holder_seconds_max=1_800.0, seconds_max=0.01)
    await held.wait(three)  # And nobody waits for ever.
    assert await order(board) == ["mate0", "mate1", "mate2"]


async def test_without_an_answer_of_the_board_one_merges_without_a_turn(board: Board, url: str) -> None:
    _, (_, claim) = await lined_up(board, 2)
    away = await open_board(url)
    await away.close()
    turns = MergeTurns(board=away, target="dugnad/main", tell=lambda _: None)
    await turns.wait(claim)
    await turns.leave(claim)


async def test_the_line_is_in_the_log_and_survives_pruning(board: Board, url: str) -> None:
    _, (one, two) = await lined_up(board, 2)
    await grow_old(url, 3_600)
    assert (await board.prune(1_800)).events
    await board.merge_into(one, "")
    state = await board.replayed_state()
    assert state == await board.observed_state()
    into = [state["attempt"][f"{each.task.id}.{each.epoch}"]["merges_into"] for each in (one, two)]
    assert into == [None, "dugnad/main"]
