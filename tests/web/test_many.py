"""Ten thousand tasks: only what can be seen is in the page, and scrolling shows the right rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from dugnad.board import open_board
from dugnad.types import Task
from tests.web.boards import Story
from tests.web.browser import IN_BROWSER, Shown, Visitor, ready, served, show
from tests.web.large import TASKS, copied, large_board
from tests.web.test_views import VIEWS

pytestmark = IN_BROWSER

NODES_MAX = 8_000  # Of any view. A row has about ten, and the graph folds what does not fit.
ROWS = """() => [...document.querySelectorAll("main [data-key]")].map((row) => {
    const task = row.querySelector("[data-task]");
    return [+row.getAttribute("aria-posinset"), +row.getAttribute("aria-setsize"), task ? +task.dataset.task : null];
  })"""


async def nodes(page: Page) -> int:
    return int(await page.evaluate("document.querySelectorAll('*').length"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def large(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    """Ten thousand tasks, some of them worked on. Nobody may change it."""
    path = tmp_path_factory.mktemp("large") / "board.db"
    url = await asyncio.to_thread(large_board, path, events=TASKS + 3_000)
    async with served(url) as server:
        await server.boards[0].wait(TASKS)
        yield Shown(Story(url, path.parent), server)


async def tasks_of(large: Shown, state: str) -> set[int]:
    found: list[Task] = []
    async with await open_board(large.story.url) as board:
        while page := await board.list_tasks(states=[state], after=found[-1].id if found else 0, page=1_000):  # type: ignore[list-item]
            found += page
    return {task.id for task in found}


async def test_a_long_list_has_only_the_rows_that_can_be_seen_and_the_right_ones(
    large: Shown, visitor: Visitor
) -> None:
    page = await show(await visitor.enter(large.server), large.server, "board", filter="state:blocked")
    await page.get_by_role("button", name="List", exact=True).click()
    wanted = await tasks_of(large, "blocked")
    assert len(wanted) > 3_000
    rows = page.get_by_role("group", name="Tasks")
    seen: dict[int, int | None] = {}
    for place in (0, 1 / 3, 1 / 2, 0.9, 1, 0):
        await rows.evaluate(
            "(list, share) => { list.scrollTop = share * (list.scrollHeight - list.clientHeight); }", place
        )
        await page.wait_for_function(
            """() => {
                const list = document.querySelector("[data-rows]");
                const middle = document.elementFromPoint(list.getBoundingClientRect().left + 200, 400);
                return middle?.closest("[data-key]");
            }"""
        )
        found = await page.evaluate(ROWS)
        assert 10 < len(found) < 100
        numbers = [number for number, _, _ in found]
        assert numbers == list(range(numbers[0], numbers[0] + len(found)))
        assert {size for _, size, _ in found} == {len(wanted) + 10}, "and a row for each goal"
        seen |= {number: task for number, _, task in found}
    shown = [task for task in seen.values() if task is not None]
    assert len(shown) == len(set(shown))
    assert set(shown) <= wanted
    assert 1 in seen
    assert len(wanted) + 10 in seen


@pytest.mark.proof
async def test_a_new_task_appears_at_once_among_ten_thousand(large: Shown, visitor: Visitor, tmp_path: Path) -> None:
    url = copied(Path(large.story.url.removeprefix("sqlite:///")), tmp_path / "board.db")
    async with await open_board(url) as board, visitor.served(url) as server:
        page = await show(await visitor.enter(server), server, "board", filter="urgent")
        task = await board.put("This one is urgent")
        await ready(page, "board", after=await board.last_event())
        await expect(page.get_by_role("link", name=f"#{task.id} This one is urgent, ready")).to_be_visible()


@pytest.mark.proof
async def test_no_view_grows_with_the_board(large: Shown, visitor: Visitor) -> None:
    context = await visitor.enter(large.server)
    for view in VIEWS:
        page = await show(context, large.server, view)
        assert await nodes(page) < NODES_MAX, view
    page = await show(context, large.server, "graph", filter="goal:1")
    assert await nodes(page) < NODES_MAX


@pytest.mark.proof
async def test_the_log_scrolls_back_page_by_page(large: Shown, visitor: Visitor) -> None:
    page = await show(await visitor.enter(large.server), large.server, "log")
    rows = page.get_by_role("group", name="Events, newest first")
    first = await page.locator("[data-event]").first.get_attribute("data-event")
    for _ in range(5):
        before = await rows.evaluate("(list) => list.scrollHeight")
        await rows.evaluate("(list) => { list.scrollTop = list.scrollHeight; }")
        await page.wait_for_function(
            "([before]) => document.querySelector('.event-rows').scrollHeight > before", arg=[before]
        )
    assert await nodes(page) < NODES_MAX
    last = await page.locator("[data-event]").last.get_attribute("data-event")
    assert int(last or 0) < int(first or 0) - 300
