"""Phone width, dark mode, reduced motion: nothing is cut off, nothing scrolls sideways, and nothing moves."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.proof import sample
from tests.web.browser import IN_BROWSER, Shown, Visitor, ready, show
from tests.web.test_views import VIEWS

pytestmark = IN_BROWSER

WIDTHS = {360: 740, 390: 844, 768: 1_024, 1920: 1_080}
# What lies, at least in part, outside of the window, and cannot be scrolled to in a list of its own.
OUTSIDE = """() => {
  const scrolls = (element) => {
    for (let each = element; each && each !== document.documentElement; each = each.parentElement) {
      const { overflowX, overflowY, position } = getComputedStyle(each);
      if ([overflowX, overflowY].some((how) => how !== "visible")) return true;
      if (position === "fixed") return false;
    }
    return false;
  };
  const wide = document.documentElement.clientWidth;
  return [...document.querySelectorAll("body *")].filter((element) => {
    const { left, right, width, height } = element.getBoundingClientRect();
    return width > 1 && height > 1 && (left < -1 || right > wide + 1) && !scrolls(element.parentElement);
  }).map((element) => `${element.tagName}.${element.className} ${element.textContent.slice(0, 40)}`);
}"""
# Buttons and links that a finger or a mouse cannot meet, since something lies over their middle.
COVERED = """() => [...document.querySelectorAll("main button, main a[href], main input, nav a")].filter((element) => {
    const { left, top, width, height } = element.getBoundingClientRect();
    const [x, y] = [left + width / 2, top + height / 2];
    if (width < 8) return false; // The bar of a short attempt, beside others.
    if (!width || !height || x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) return false;
    const met = document.elementFromPoint(x, y);
    if (!met || element.contains(met) || met.contains(element)) return false;
    // A list may have scrolled it under its edge.
    for (let each = element.parentElement; each; each = each.parentElement) {
      const box = each.getBoundingClientRect();
      if (x < box.left || x > box.right || y < box.top || y > box.bottom) return false;
    }
    return true;
  }).map((element) => `${element.tagName} ${element.getAttribute("aria-label") ?? element.textContent.slice(0, 40)}`)"""

# The link of the shown view: on a phone the bar of views is wider than the screen.
CURRENT_IN_SIGHT = """() => {
  const { left, right, top, bottom } = document.querySelector("nav [aria-current]").getBoundingClientRect();
  return left > -1 && top > -1 && right < innerWidth + 1 && bottom < innerHeight + 1;
}"""


async def is_whole(page: Page) -> None:
    assert await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert await page.evaluate("document.body.scrollHeight <= innerHeight + 1"), "only lists scroll, not the page"
    assert await page.evaluate(OUTSIDE) == []
    if await page.get_by_role("complementary", name="Task #").count() == 0:  # On a phone it lies over the view.
        assert await page.evaluate(COVERED) == []


@pytest.mark.parametrize("width", sample(WIDTHS, lambda width: width == 390))
async def test_every_view_fits_the_width_of_the_window(every: Shown, visitor: Visitor, width: int) -> None:
    size = {"width": width, "height": WIDTHS[width]}
    context = await visitor.enter(every.server, "steer", viewport=size, has_touch=width < 500)
    for view in VIEWS:
        page = await show(context, every.server, view)
        await is_whole(page)
        await page.wait_for_function(CURRENT_IN_SIGHT)
    for name in ("read", "licence") if width != 390 else ("read",):
        for tab in ("overview", "transcript", "diff", "log"):
            page = await show(context, every.server, "task", task=every.story[name], tab=tab)
            await is_whole(page)
    page = await show(context, every.server, "board", task=every.story["read"])
    await is_whole(page)
    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_on_a_phone_a_question_is_answered_with_a_finger(every: Shown, visitor: Visitor) -> None:
    size = {"width": 390, "height": 844}
    context = await visitor.enter(every.server, "steer", viewport=size, has_touch=True, is_mobile=True)
    page = await show(context, every.server, "now")
    await page.get_by_role("navigation", name="Views").get_by_role("link", name="For you").tap()
    answer = page.get_by_role("textbox", name="Answer carol")
    await answer.tap()
    await answer.fill("ODbL")
    await expect(page.get_by_role("button", name="Answer")).to_be_enabled()
    button = await page.get_by_role("button", name="Answer").bounding_box()
    assert button is not None
    assert button["height"] >= 24
    for view, name in VIEWS.items():
        await page.get_by_role("navigation", name="Views").get_by_role("link", name=name).first.tap()
        await expect(page.get_by_role("main")).to_have_attribute("data-view", view)


async def colour(page: Page, of: str = "background-color") -> tuple[int, ...]:
    said = await page.evaluate(f"getComputedStyle(document.body).getPropertyValue('{of}')")
    return tuple(int(float(part)) for part in said.partition("(")[2].rstrip(")").split(",")[:3])


async def test_the_system_chooses_light_or_dark_and_a_person_may_choose_otherwise(
    every: Shown, visitor: Visitor
) -> None:
    context = await visitor.enter(every.server, color_scheme="dark")
    page = await show(context, every.server, "now")
    assert max(await colour(page)) < 60
    assert min(await colour(page, "color")) > 180
    switch = page.get_by_role("button", name="Colours: ")
    await switch.click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert min(await colour(page)) > 230
    await page.reload()  # The choice stays.
    await ready(page, "now")
    assert min(await colour(page)) > 230
    await switch.click()
    await switch.click()
    await expect(page.locator("html")).not_to_have_attribute("data-theme", "light")
    await page.emulate_media(color_scheme="light")
    assert min(await colour(page)) > 230


async def test_with_reduced_motion_nothing_moves_by_itself(every: Shown, visitor: Visitor) -> None:
    context = await visitor.enter(every.server, reduced_motion="reduce")
    for view in ("now", "graph", "timeline", "team"):
        page = await show(context, every.server, view)
        moving = await page.evaluate(
            """() => document.getAnimations({ subtree: true }).filter((each) => each.playState === "running")
                .map((each) => each.effect?.target?.className ?? "")"""
        )
        assert moving == []
