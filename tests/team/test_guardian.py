"""What a host held whose process is gone, given back by another process of its machine."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.team.guardian import give_back
from dugnad.types import Amount, Budget


@pytest.mark.parametrize(("why", "tries"), [("its client left", 0), ("", 1)])
async def test_its_tasks_are_released_if_it_was_asked_to_end_and_lost_otherwise(
    board: Board, url: str, why: str, tries: int
) -> None:
    own, other = await board.start_host("vm:7:x"), await board.start_host("vm:8:x")
    for name, host in (("alice", own), ("bob", other)):
        await board.spawn(name)
        await board.seat(host, name=name)
    first = await board.put("First", budget=Budget(tokens=1_000))
    second = await board.put("Second")
    claim = await board.claim("alice", own, task=first.id)
    assert claim is not None
    await board.reserve(claim, Amount(tokens=600))
    await board.claim("bob", other, task=second.id)
    await give_back(url, "vm:7:x", why)
    found = await board.find(first.id)
    assert (found.state, found.tries) == ("ready", tries)
    account = await board.budget(first.id)
    assert (account.reserved, account.spent.tokens) == (Amount(), 600)
    assert [each.id for each in await board.hosts() if each.alive] == [other]
    assert (await board.find(second.id)).state == "claimed"
    await give_back(url, "vm:7:x", why)  # There is nothing left to give back.
    assert (await board.find(first.id)).tries == tries
