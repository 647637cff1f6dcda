"""Hostile texts in every view: they are shown as text, nothing runs, nothing leaves the page, nothing is hidden."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.proof import every, sample
from tests.web.browser import IN_BROWSER, TWO_FRAMES, Shown, Visitor, ready, show
from tests.web.hostile import OWNED
from tests.web.test_views import VIEWS

pytestmark = IN_BROWSER

# Everything that a person could read or a screen reader say.
TEXTS = """() => {
  const SAID = /^(aria-.*|title|alt|placeholder)$/;
  const found = [];
  const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) found.push(walker.currentNode.data);
  for (const element of document.querySelectorAll("*")) {
    for (const { name, value } of element.attributes) if (SAID.test(name)) found.push(value);
  }
  for (const field of document.querySelectorAll("textarea, input:not(#filter)")) found.push(field.value);
  return [...found, document.title];
}"""
# C0 without tab and line break, C1, DEL, what changes the direction of text, and what cannot be seen.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
FOREIGN = """() => [...document.querySelectorAll("script, iframe, object, embed, img, video, audio, link, a, base")]
  .filter((element) => {
    const { tagName } = element;
    if (tagName === "SCRIPT") return !element.src.startsWith(location.origin);
    if (tagName === "A") return !/^[?]|^#main$/.test(element.getAttribute("href"));
    if (tagName === "LINK") return !(element.href.startsWith(location.origin) || element.href.startsWith("data:"));
    return true;
  }).map((element) => element.outerHTML.slice(0, 200))"""


async def is_harmless(page: Page) -> None:
    assert await page.evaluate(f"window.{OWNED} ?? null") is None
    assert await page.evaluate(FOREIGN) == []
    texts: list[str] = await page.evaluate(TEXTS)
    assert [text[:80] for text in texts if UNSEEN.search(text)] == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert max(map(len, texts)) < 20_000, "a text of a million characters is not put into the page at once"


def places() -> Iterator[tuple[str, dict[str, Any]]]:
    for view in VIEWS:
        yield view, {}
    yield "log", {"tab": "messages"}
    yield "log", {"tab": "notes"}
    for name in ("transcript", "1", "2", "3", "4", "5", "long", "letters"):
        for tab in ("overview", "transcript", "diff", "log"):
            yield "task", {"task": name, "tab": tab}


FEW = (
    ("now", {}), ("board", {}), ("graph", {}), ("foryou", {}), ("merges", {}),
    ("task", {"task": "transcript", "tab": "transcript"}), ("task", {"task": "5", "tab": "diff"}),
)  # fmt: skip


@pytest.mark.parametrize("which", sample(("some", "all"), lambda which: which == "some"))
async def test_no_view_with_hostile_texts_does_any_harm(hostile: Shown, visitor: Visitor, which: str) -> None:
    context = await visitor.enter(hostile.server, "steer")
    for view, query in FEW if which == "some" else places():
        given = {**query, **({"task": hostile.story[query["task"]]} if "task" in query else {})}
        await is_harmless(await show(context, hostile.server, view, **given))


@pytest.mark.parametrize("width", sample((390, 1280), lambda width: width == 390))
async def test_unfolding_everything_is_harmless_too(hostile: Shown, visitor: Visitor, width: int) -> None:
    size = {"width": width, "height": 844}
    context = await visitor.enter(hostile.server, "steer", viewport=size)
    for tab in ("overview", "transcript"):
        page = await show(context, hostile.server, "task", task=hostile.story["transcript"], tab=tab)
        unfolds = "(all) => { for (const each of all) each.click(); return all.length; }"
        while await page.locator("main details:not([open]) > summary").evaluate_all(unfolds):
            await page.evaluate(TWO_FRAMES)  # A long list has only those in the page that can be seen.
        await is_harmless(page)
    page = await show(context, hostile.server, "task", task=hostile.story["transcript"], tab="transcript")
    await page.get_by_role("button", name="Show the whole turn").first.click()
    await expect(page.get_by_role("main")).to_be_visible()
    assert await page.evaluate(f"window.{OWNED} ?? null") is None
    assert await page.evaluate(FOREIGN) == []


@pytest.mark.proof
async def test_a_comment_on_a_hostile_line_is_harmless(hostile: Shown, visitor: Visitor) -> None:
    context = await visitor.enter(hostile.server, "steer")
    page = await show(context, hostile.server, "task", task=hostile.story["5"], tab="diff")
    await page.get_by_role("button", name=re.compile("^Comment on line")).nth(1).click()
    await expect(page.get_by_role("textbox", name=re.compile("^Comment on line"))).to_be_visible()
    await is_harmless(page)


async def test_the_words_are_there_and_what_is_hidden_in_them_is_marked(hostile: Shown, visitor: Visitor) -> None:
    page = await show(await visitor.enter(hostile.server), hostile.server, "task", task=hostile.story["1"])
    main = page.get_by_role("main")
    await expect(main.get_by_text(f"<script>window.{OWNED}=1</script>").first).to_be_visible()
    await expect(main.get_by_text("invoice‹U+202E›gpj.exe").first).to_be_visible()
    await expect(main.get_by_text("‹ESC›[31mred").first).to_be_visible()


ADDRESSES = (
    "?view=%3Cscript%3Ewindow.owned=1%3C/script%3E", "?view=board&filter=%3Cimg%20src=x%20onerror=owned=1%3E",
    "?board=../../etc/passwd", "?view=task&task=%3Csvg%3E", "?view=__proto__", "?view=constructor&task=1",
    "?view=now&at=99999999999999999999", "?view=now&at=-1", "?view=task&task=1&tab=__proto__",
)  # fmt: skip


@pytest.mark.parametrize("some", every(3, range(3)))
async def test_a_hostile_address_does_no_harm(hostile: Shown, visitor: Visitor, some: int) -> None:
    context = await visitor.enter(hostile.server)
    page = await context.new_page()
    for address in ADDRESSES[some::3]:
        await page.goto(f"{hostile.server.url}/{address}")
        await page.wait_for_function("() => document.documentElement.dataset.ready")
        await expect(page.get_by_role("main").get_by_role("heading", level=1).first).to_be_visible()
        await is_harmless(page)


async def test_a_link_to_an_event_that_is_not_there_yet_says_so(hostile: Shown, visitor: Visitor) -> None:
    context = await visitor.enter(hostile.server)
    visitor.allow("status of 404")
    page = await context.new_page()
    await page.goto(f"{hostile.server.url}/?view=now&at=99999")
    await expect(page.get_by_role("alert")).to_contain_text("99999")
    await page.get_by_role("link", name="Back to now").click()
    await ready(page, "now")
