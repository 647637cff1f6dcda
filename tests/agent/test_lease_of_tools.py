"""What acts on the world outside needs a lease that runs: nobody fences the world."""

from __future__ import annotations

from typing import Any

import pytest

from dugnad.board import Board
from dugnad.errors import StaleClaim
from dugnad.tools.tool import Tool, tool
from dugnad.types import Amount, Budget, Claim
from tests.agent.stage_agent import END, call, calls, set_stage


class World:
    def __init__(self) -> None:
        self.changed = 0

    @property
    def tools(self) -> list[Tool]:
        @tool
        def change() -> str:
            """Change the world."""
            self.changed += 1
            return "changed"

        return [change]


class SlowToReserve:
    """A real board. The lease runs out while it answers the reservation for a tool."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.lease_runs = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._board, name)

    async def reserve(self, claim: Claim, amount: Amount, **fields: Any) -> str:
        made = await self._board.reserve(claim, amount, **fields)
        self.lease_runs = bool(amount.tokens)  # A tool's has none.
        return made


async def test_once_the_lease_ran_out_only_what_the_board_fences_is_called(board: Board) -> None:
    world = World()
    steps = [calls(("note", {"title": "t", "text": "x"}), ("change", {})), END]
    stage = await set_stage(board, steps, tools=world.tools, may_act=lambda: False)
    with pytest.raises(StaleClaim, match="lease of the host ran out"):
        await stage.agent.work(await stage.begin())
    assert world.changed == 0
    assert len(await board.search_notes()) == 1


async def test_a_lease_that_runs_out_while_a_call_is_reserved_for_keeps_it_from_running(board: Board) -> None:
    world, slow = World(), SlowToReserve(board)
    stage = await set_stage(
        slow, [call("change"), END], tools=world.tools, may_act=lambda: slow.lease_runs,  # type: ignore[arg-type]
    )  # fmt: skip
    with pytest.raises(StaleClaim, match="lease of the host ran out"):
        await stage.agent.work(await stage.begin(budget=Budget(seconds=1_000)))
    assert not slow.lease_runs
    assert world.changed == 0
