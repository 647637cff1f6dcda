"""The numbers of a board and of a host, as a collector gets them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.board.records import Health
from dugnad.errors import StaleClaim
from dugnad.models import ScriptedModel
from dugnad.telemetry.exporting import exporting
from dugnad.types import Amount, Budget, Done, Waiting
from dugnad.workspace.git import merge_queue
from tests.board.crew import crew
from tests.team.stage_team import Paused, hosting, until, until_ended
from tests.team.stage_trees import finish, worktrees, write
from tests.telemetry.collector import Collector, collecting
from tests.workspace.repository import new_repository

OFTEN = {"OTEL_METRIC_EXPORT_INTERVAL": "100", "OTEL_TRACES_EXPORTER": "none"}


async def until_told(collector: Collector, name: str, key: tuple[str, ...], number: float) -> None:
    async with asyncio.timeout(120):
        while collector.numbers.get(name, {}).get(key) != number:
            await asyncio.to_thread(collector.came.wait)
            collector.came.clear()


async def test_the_numbers_of_a_board_reach_a_collector(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = await crew(board)
    await board.put("asks")
    asks = await alice.must_claim()
    await board.settle(asks, Waiting(on="human", question="Which one?"))
    works = await board.put("works", budget=Budget(tokens=100))
    claim = await alice.must_claim()
    await board.spend(claim, await board.reserve(claim, Amount(tokens=30, microdollars=500_000)), Amount(tokens=20))
    await board.reserve(claim, Amount(tokens=7, microdollars=250_000))
    await board.cool_down("anthropic:3f9a1c02", seconds=600, reason="429", by="alice")
    await board.put("for coders", role="coder")
    await board.put("for anyone")
    await board.put("behind", needs=[works.id])
    with collecting(monkeypatch, **OFTEN) as collector:
        async with exporting(board):
            pass  # What there is, is sent at the end.
        found = collector.numbers
        assert found["dugnad.tasks.ready"] == {("coder",): 1, ("",): 1}
        assert found["dugnad.tasks"] == {
            ("ready",): 2, ("scheduled",): 0, ("blocked",): 1, ("claimed",): 1, ("waiting",): 1, ("ended",): 0,
        }  # fmt: skip
        assert found["dugnad.tasks.ready.age"][()] >= 0
        assert found["dugnad.requests"] == {(): 1}
        assert found["dugnad.hosts"] == {("alive",): 1, ("lost",): 0}
        assert found["dugnad.teammates"] == {("working",): 1}
        assert (found["dugnad.tokens.reserved"], found["dugnad.tokens.spent"]) == ({(): 7}, {(): 20})
        assert (found["dugnad.dollars.reserved"], found["dugnad.dollars.spent"]) == ({(): 0.25}, {(): 0})
        assert 0 < found["dugnad.cooldowns"]["anthropic:3f9a1c02",] <= 600
        assert (found["dugnad.board.up"], found["dugnad.merges"]) == ({(): 1}, {(): 0})
        assert found["dugnad.stale_writes"] == {(): 0}
        assert collector.spans == []


async def test_a_write_that_the_board_refuses_is_counted(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = await crew(board)
    await board.put("task")
    claim = await alice.must_claim()
    await board.release(claim.task.id)
    with collecting(monkeypatch, **OFTEN) as collector:
        async with exporting(board):
            for _ in range(2):
                with pytest.raises(StaleClaim):
                    await board.settle(claim, Done("late"))
            with pytest.raises(StaleClaim):
                await board.hand_over(claim, "late")
        assert collector.numbers["dugnad.stale_writes"] == {(): 3}


class Slowly(dict[str, int]):
    """It takes longer to read than the interval between two collections."""

    def items(self) -> Any:
        time.sleep(0.3)
        return super().items()


async def test_the_last_numbers_are_sent_on_a_machine_that_takes_long_to_collect_them(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow:
        def __getattr__(self, name: str) -> object:
            return getattr(board, name)

        async def health(self) -> Health:
            found = await board.health()
            return replace(found, tasks=Slowly(found.tasks))

    await board.put("task")
    with collecting(monkeypatch, **OFTEN) as collector:
        async with exporting(Slow()):  # type: ignore[arg-type]
            pass
        assert collector.numbers["dugnad.tasks"]["ready",] == 1


async def test_attempts_that_merge_or_wait_for_their_turn_are_the_queue(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = new_repository(tmp_path / "p")
    for name in ("alice", "bob"):
        await board.spawn(name)
    model = ScriptedModel(lambda asked: write(f"{asked.task}.py", "a = 1\n") if asked.turn == 1 else finish())
    with collecting(monkeypatch, **OFTEN) as collector:
        async with exporting(board), worktrees(board, root) as places, hosting(board, model, workspaces=places):
            async with merge_queue._turn(places.trees, "the test merges"):
                tasks = [await board.put("one"), await board.put("two")]
                await until_told(collector, "dugnad.merges", (), 2)
            await until_ended(board, *tasks)
            await until_told(collector, "dugnad.merges", (), 0)


async def test_a_board_that_does_not_answer_is_told_and_its_numbers_are_not(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = False

    class Away:
        """A real board that is out of reach for a while."""

        def __getattr__(self, name: str) -> object:
            return getattr(board, name)

        async def health(self) -> Health:
            if away:
                raise TimeoutError
            return await board.health()

    with collecting(monkeypatch, **OFTEN) as collector:
        async with exporting(Away()):  # type: ignore[arg-type]
            await until_told(collector, "dugnad.board.up", (), 1)
            away = True
            await until_told(collector, "dugnad.board.up", (), 0)
            collector.numbers.clear()
            await until_told(collector, "dugnad.board.up", (), 0)
            assert "dugnad.tasks" not in collector.numbers


async def test_the_age_of_the_oldest_ready_task_counts_from_when_it_became_ready(board: Board) -> None:
    alice = await crew(board)
    first = await board.put("first")
    await board.put("behind", needs=[first.id])
    claim = await alice.must_claim()
    assert (await board.health()).ready_since is None
    await board.settle(claim, Done("done"))
    now = await board.health()
    event = (await board.events())[-1]
    assert (now.tasks["ready"], now.tasks["ended"], now.ready_since) == (1, 1, event.at)
    await board.broadcast("alice", "About it.", claim=await alice.must_claim())
    assert (await board.health()).ready_since is None


async def test_a_paused_teammate_shows_as_working(board: Board) -> None:
    await board.spawn("alice")
    paused = Paused(lambda request: finish())
    async with hosting(board, paused):
        task = await board.put("Think")

        async def working() -> bool:
            return (await board.health()).team == {"working": 1}

        await until(board, working)
        paused.go.set()
        await until_ended(board, task)
