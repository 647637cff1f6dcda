"""The board with every state and its history, for tests of what is shaped from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dugnad.board import Board, open_board
from dugnad.types import Event
from dugnad.web.history import BoardHistory
from tests.board.test_events import all_events
from tests.web.boards import Story, every_state

Shape = dict[str, Any]


def told(events: list[Event]) -> BoardHistory:
    history = BoardHistory()
    for event in events:
        history.add(event)
    return history


class Told:
    """The board with every state, its history, and the moment of the look."""

    def __init__(self, story: Story, board: Board, events: list[Event], now: int, leases: dict[str, int]) -> None:
        self.story, self.board, self.events, self.now = story, board, events, now
        self.history = told(events)
        self.view = self.history.at(leases=leases)


@pytest.fixture
async def tides(tmp_path: Path) -> Any:
    story = await every_state(tmp_path / "tides")
    async with await open_board(story.url) as board:
        leases = {host.id: host.lease_until for host in await board.hosts()}
        yield Told(story, board, await all_events(board), await board.now_ms(), leases)


def by(name: str, shapes: list[Shape]) -> dict[Any, Shape]:
    return {shape[name]: shape for shape in shapes}
