"""A remark is in the log and changes nothing else."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.errors import BadInput


async def test_a_remark_is_said_once_per_key_and_replays(board: Board) -> None:
    before = await board.observed_state()
    for _ in range(2):
        await board.remark("human", "unsandboxed", key="k", machine="here", why="bubblewrap is not installed")
    await board.remark("human", "unsandboxed", machine="here")
    first, second = await board.events()
    assert (first.kind, first.actor, first.task) == ("unsandboxed", "human", None)
    assert first.data == {"machine": "here", "why": "bubblewrap is not installed"}
    assert second.data == {"machine": "here"}
    assert await board.observed_state() == before == await board.replayed_state()


async def test_what_is_no_remark_is_refused(board: Board) -> None:
    with pytest.raises(BadInput, match="'done' is not a remark; use one of: steered, unsandboxed"):
        await board.remark("human", "done")
    assert await board.events() == []
