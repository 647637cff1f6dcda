"""The time machine: at any event the page shows just what the log replays to, by slider, by link and by key."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from dugnad.board import open_board
from dugnad.board.replay import State, apply
from dugnad.types import Done, Event
from tests.cli.shell import claimed
from tests.proof import every as sampled
from tests.web.browser import IN_BROWSER, Shown, Visitor, ready, show

pytestmark = IN_BROWSER

TALL = {"width": 1280, "height": 2_400}  # So that every task is in the page.
TASKS = """() => Object.fromEntries([...document.querySelectorAll("main [data-key] [data-task]")]
    .map(({ dataset }) => [dataset.task, dataset.state]))"""


async def events_of(every: Shown) -> list[Event]:
    async with await open_board(every.story.url) as board:
        return await board.events(page=1_000)


def replayed(events: list[Event], until: int) -> State:
    state = State()
    for event in events[:until]:
        apply(state, event)
    return state


async def list_of_tasks(every: Shown, visitor: Visitor, **query: int) -> Page:
    context = await visitor.enter(every.server, viewport=TALL)
    page = await show(context, every.server, "board", **query)
    await page.get_by_role("button", name="List", exact=True).click()
    await expect(page.get_by_role("group", name="Tasks")).to_be_visible()
    return page


async def agrees(page: Page, state: State) -> None:
    wanted = {number: facts["state"] for number, facts in state["task"].items()}
    assert await page.evaluate(TASKS) == wanted


@pytest.mark.parametrize("seed", sampled(6, range(6)))
async def test_at_random_events_the_page_agrees_with_the_replayed_log(
    every: Shown, visitor: Visitor, seed: int
) -> None:
    events = await events_of(every)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    page = await list_of_tasks(every, visitor)
    async with await open_board(every.story.url) as board:
        await agrees(page, await board.replayed_state())
    slider = page.get_by_role("slider", name="Event number")
    for at in random.Random(seed).sample(range(1, len(events)), 12):
        await slider.fill(str(at))
        await ready(page, "board", at=at)
        assert f"at={at}" in page.url
        await agrees(page, replayed(events, at))


async def test_a_link_to_the_past_shows_every_view_as_it_was(every: Shown, visitor: Visitor) -> None:
    events = await events_of(every)
    lost = next(event.seq for event in events if event.kind == "host_lost")
    page = await list_of_tasks(every, visitor, at=lost)
    await agrees(page, replayed(events, lost))
    await expect(page.get_by_role("status").filter(has_text=f"event {lost}")).to_be_visible()
    for view, text in (
        ("team", "trawler, process 2024"), ("timeline", "frank"), ("log", "a host was lost (trawler, process 2024)"),
        ("merges", every.story.commits["read"][:8]), ("foryou", "Nothing waits for you."),
        ("now", "Read the old service"),
    ):  # fmt: skip
        await show(page.context, every.server, view, at=lost)
        await expect(page.get_by_role("main").get_by_text(text).first).to_be_visible()
    await expect(page.get_by_text("CC BY 4.0")).to_have_count(0)  # It was asked later.
    await page.get_by_role("link", name="Back to now").click()
    await ready(page, "now", after=len(events))
    await expect(page.get_by_text("CC BY 4.0").first).to_be_visible()


async def test_a_task_of_the_past_has_the_attempts_that_it_had_then(every: Shown, visitor: Visitor) -> None:
    events = await events_of(every)
    back = next(event.seq for event in events if event.kind == "taken_back")
    page = await show(await visitor.enter(every.server), every.server, "task", task=every.story["cache"], at=back)
    main = page.get_by_role("main")
    await expect(main.get_by_text("its host was lost")).to_be_visible()
    await expect(main.get_by_text("carol continues")).to_have_count(0)
    state = replayed(events, back)["task"][str(every.story["cache"])]["state"]
    await expect(main.get_by_text(state).first).to_be_visible()
    before = next(event.seq for event in events if event.kind == "put" and event.task == every.story["cache"]) - 1
    visitor.allow("status of 404")
    await show(page.context, every.server, "task", task=every.story["cache"], at=before)
    await expect(main.get_by_text("was not on the board at this time")).to_be_visible()


async def test_keys_step_through_time_and_the_past_cannot_be_steered(every: Shown, visitor: Visitor) -> None:
    last = len(await events_of(every))
    page = await show(await visitor.enter(every.server, "steer"), every.server, "now")
    await expect(page.get_by_role("button", name="Add a task")).to_be_visible()
    for at in (last - 1, last - 2):
        await page.keyboard.press("[")
        await ready(page, "now", at=at)
    await expect(page.get_by_role("button", name=re.compile("^(Add a task|Approve|Answer)"))).to_have_count(0)
    await page.keyboard.press("]")
    await ready(page, "now", at=last - 1)
    await page.keyboard.press("0")
    await ready(page, "now", after=last)
    await expect(page.get_by_role("button", name="Add a task")).to_be_visible()


async def test_who_comes_back_sees_what_changed_since_then(folder: Path, visitor: Visitor) -> None:
    url = f"sqlite:///{folder}/board.db"
    async with await open_board(url) as board, visitor.served(url) as server:
        await board.put("Cut the planks")
        context = await visitor.enter(server)
        page = await show(context, server, "now")
        await expect(page.get_by_role("button", name="Since you left")).to_have_count(0)
        seen = await board.last_event()
        await page.wait_for_function(
            "(seen) => Object.entries(localStorage).some(([name, value]) => name.includes('seen') && +value === seen)",
            arg=seen,
        )
        await page.close()
        await board.settle(await claimed(board, "ann"), Done("They are cut."))
        await board.put("Paint the pier")
        page = await show(context, server, "now")
        await page.get_by_role("button", name="Since you left").click()
        since = page.get_by_role("complementary", name="Since you left")
        await expect(since.get_by_role("listitem").filter(has_text="Cut the planks").first).to_contain_text("done")
        await expect(since.get_by_role("listitem").filter(has_text="Paint the pier").first).to_contain_text(
            "new, ready"
        )
        await since.get_by_role("link", name="See the board as you left it").click()
        await ready(page, "now", at=seen)
        assert await board.replayed_state() == await board.observed_state()


async def test_the_past_stays_while_the_board_goes_on(folder: Path, visitor: Visitor) -> None:
    """A person who looks back stays in the past when something happens now."""
    url = f"sqlite:///{folder}/board.db"
    async with await open_board(url) as board, visitor.served(url) as server:
        await board.put("Cut the planks")
        await board.put("Paint the pier")
        page = await show(await visitor.enter(server), server, "now", at=1)
        await board.put("Hang the lamps")
        last = await board.last_event()
        await expect(page.get_by_role("slider")).to_have_attribute("max", str(last))
        await ready(page, "now", at=1)
        await expect(page.get_by_text("Paint the pier")).to_have_count(0)
