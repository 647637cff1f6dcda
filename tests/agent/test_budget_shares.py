"""What one call may take of a budget: fitted to what nobody else has reserved, at the dearest it could be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.models.port import Price
from dugnad.types import Amount, Budget, Done
from tests.agent.stage_agent import END, Listening, call, set_stage
from tests.agent.test_agent_budget import PRICE, NothingToHear, Watcher


class NothingFreesUp(Listening):
    """Who waits here for others to give something back waits in vain."""

    def watch(self, topics: Any) -> NothingToHear:
        return NothingToHear()


@pytest.mark.parametrize(
    ("cap", "held"),
    [(Budget(tokens=16_000), Amount(tokens=9_000)), (Budget(dollars=0.08), Amount(microdollars=50_000))],
    ids=["tokens", "dollars"],
)
async def test_while_others_hold_a_part_the_output_is_fitted_to_the_rest(
    board: Board, cap: Budget, held: Amount
) -> None:
    stage = await set_stage(NothingFreesUp(board), [END])  # type: ignore[arg-type]
    stage.model.facts = replace(stage.model.facts, price=PRICE)
    claim = await stage.begin(budget=cap)
    await board.follow_up(claim, "Child", assignee="bob")
    bob = await set_stage(board, name="bob")
    await board.reserve(await bob.claim(), held)
    assert await stage.go_on(claim) == Done("built")
    assert stage.agent.limits.output_tokens_max // 4 <= stage.model.asked[0].output_tokens_max < 8_192


@pytest.mark.parametrize("dear", [0.5, 10.0])
async def test_all_of_the_input_is_reserved_as_if_it_went_to_a_cache_that_is_dearer(board: Board, dear: float) -> None:
    stage = await set_stage(board, [call("list_tasks"), END])
    stage.model.facts = replace(stage.model.facts, price=Price(input=1.0, output=5.0, cache_write=dear))
    watcher = Watcher(stage)
    await stage.run(budget=Budget(dollars=10))
    output = stage.agent.limits.output_tokens_max
    for reserved in watcher.reserved:
        assert reserved.microdollars == 5 * output + max(1.0, dear) * (reserved.tokens - output)
