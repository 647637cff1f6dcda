"""The keyboard alone: every view, a task, an answer, the palette. The mouse is never used."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import Page, expect

from dugnad.board import open_board
from dugnad.types import HUMAN
from tests.web.boards import every_state
from tests.web.browser import IN_BROWSER, Shown, Visitor, ready, show

pytestmark = IN_BROWSER

KEYS = {
    "now": "n", "foryou": "f", "board": "b", "graph": "g", "timeline": "t", "money": "m", "team": "e", "merges": "r",
    "log": "l",
}  # fmt: skip
FOCUSED = "() => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent ?? ''"


async def type_keys(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)


async def test_two_keys_lead_to_each_view_and_the_help_names_them(every: Shown, visitor: Visitor) -> None:
    page = await show(await visitor.enter(every.server), every.server, "now")
    for view, key in [*KEYS.items(), ("now", "n")]:
        await type_keys(page, "g", key)
        await ready(page, view)
    await type_keys(page, "?")
    keys = page.get_by_role("dialog", name="Keys")
    for says in ("Go to Board", "Filter", "Go to a view, a task or a teammate", "One event back", "Next"):
        if says != "Filter":  # There is no filter in this view.
            await expect(keys.get_by_text(says, exact=True).first).to_be_visible()
    await type_keys(page, "Escape")
    await expect(keys).to_be_hidden()


async def test_the_palette_finds_views_tasks_and_teammates(every: Shown, visitor: Visitor) -> None:
    page = await show(await visitor.enter(every.server), every.server, "now")
    await type_keys(page, "Control+k")
    field = page.get_by_role("combobox", name="Go to")
    await expect(field).to_be_focused()
    await page.keyboard.type("licence")
    await expect(page.get_by_role("listbox", name="Found").get_by_role("option").first).to_contain_text("licence")
    await type_keys(page, "Enter")
    panel = page.get_by_role("complementary", name=f"Task #{every.story['licence']}")
    await expect(panel.get_by_role("heading", name="Choose a licence for the map")).to_be_visible()
    await type_keys(page, "Escape")
    await expect(panel).to_be_hidden()
    await type_keys(page, "Control+k")
    await expect(field).to_be_focused()
    await page.keyboard.type("timeline")
    await type_keys(page, "Enter")
    await ready(page, "timeline")


async def test_lists_are_walked_and_a_task_opened_and_closed_without_losing_the_place(
    every: Shown, visitor: Visitor
) -> None:
    page = await show(await visitor.enter(every.server), every.server, "board")
    await type_keys(page, "j", "j", "j")
    before = await page.evaluate(FOCUSED)
    assert re.match(r"#\d+ ", before), before
    await type_keys(page, "l", "h")  # To the next column and back.
    assert re.match(r"#\d+ ", await page.evaluate(FOCUSED))
    here = await page.evaluate(FOCUSED)
    await type_keys(page, "Enter")
    number = re.match(r"#(\d+)", here)
    assert number is not None
    panel = page.get_by_role("complementary", name=f"Task #{number[1]}")
    await expect(panel.get_by_role("heading", level=2).first).to_be_visible()
    for key, part in (("2", "Transcript"), ("3", "Diff"), ("4", "Log"), ("1", "Overview")):
        await type_keys(page, key)
        await expect(panel.get_by_role("link", name=part, exact=True)).to_have_attribute("aria-current", "page")
    await type_keys(page, "Escape")
    await expect(panel).to_be_hidden()


async def test_the_filter_is_reached_and_left_with_keys(every: Shown, visitor: Visitor) -> None:
    page = await show(await visitor.enter(every.server), every.server, "board")
    await type_keys(page, "/")
    await expect(page.get_by_role("combobox", name="Filter")).to_be_focused()
    await page.keyboard.type("state:fai")
    await type_keys(page, "Tab", "Enter")
    await expect(page).to_have_url(re.compile("filter=state%3Afailed"))
    await type_keys(page, "Escape", "Escape")
    await type_keys(page, "g", "n")
    await ready(page, "now")


async def test_every_request_is_answered_with_keys(folder: Path, visitor: Visitor) -> None:
    story = await every_state(folder / "tides")
    async with await open_board(story.url) as board, visitor.served(story.url, story.project) as server:
        page = await show(await visitor.enter(server, "steer"), server, "now")
        await type_keys(page, "g", "f")
        await ready(page, "foryou")
        requests = page.get_by_role("list", name="Requests").get_by_role("button")
        await expect(requests).to_have_count(4)
        await type_keys(page, "a")
        await expect(page.get_by_role("textbox", name="Answer carol")).to_be_focused()
        await page.keyboard.type("ODbL")
        await type_keys(page, "Control+Enter")
        await expect(requests).to_have_count(3)
        await type_keys(page, "Escape")
        await expect(page.get_by_role("main")).to_contain_text("carol shows a plan")
        await type_keys(page, "y")
        await expect(requests).to_have_count(2)
        await expect(page.get_by_role("main")).to_contain_text("carol wants to call a tool")
        await type_keys(page, "r")
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_role("textbox", name="Why")).to_be_focused()
        await page.keyboard.type("Not on a Friday.")
        await type_keys(page, "Control+Enter")
        await expect(dialog).to_be_hidden()
        await expect(page.get_by_role("main").get_by_role("article").first).to_contain_text("has reached its cap")
        await type_keys(page, "b")
        await expect(dialog.get_by_role("textbox", name="Dollars")).to_have_value("0.5")  # It is proposed.
        await type_keys(page, "Control+Enter")
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
        replies = [each for each in await board.inbox("carol", queued=False) if each.sender == HUMAN]
        said = [(each.kind, each.text, each.accepted) for each in replies if each.kind != "text"]
        assert said == [("answer", "ODbL", None), ("plan_reply", "", True), ("answer", "Not on a Friday.", False)]
        raised = await board.budget(story["held"])
        assert raised.held is None
        assert raised.microdollars_max is not None
        assert raised.microdollars_max > 50_000


async def test_tab_reaches_the_view_past_the_navigation_and_the_focus_can_be_seen(
    every: Shown, visitor: Visitor
) -> None:
    page = await show(await visitor.enter(every.server, "steer"), every.server, "now")
    await type_keys(page, "Tab")
    assert await page.evaluate(FOCUSED) == "Skip to the view"
    await type_keys(page, "Enter")
    assert await page.evaluate("() => document.activeElement.id") == "main"
    await type_keys(page, "Tab")
    outline = await page.evaluate(
        "() => { const style = getComputedStyle(document.activeElement);"
        " return style.outlineStyle !== 'none' && style.outlineWidth !== '0px' || style.boxShadow !== 'none'; }"
    )
    assert outline, await page.evaluate(FOCUSED)
