"""What the tests of the page share: a browser, and servers on boards that are made once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.web.boards import every_state
from tests.web.browser import Shown, browser, served, visitor
from tests.web.hostile import hostile_board
from tests.web.telling import keep_alive

__all__ = ["browser", "visitor"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    """The board with every state. Nobody may change it."""
    story = await every_state(tmp_path_factory.mktemp("web") / "tides")
    async with served(story.url, story.project) as server:
        yield Shown(story, server)


@pytest_asyncio.fixture(loop_scope="session")
async def every(told: Shown) -> Shown:
    """The same, with hosts that live."""
    await keep_alive(told.story.url, told.story.hosts)
    return told


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def hostile(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    """The board with hostile texts. Nobody may change it."""
    story = await hostile_board(tmp_path_factory.mktemp("hostile") / "x")
    async with served(story.url, story.project) as server:
        yield Shown(story, server)
