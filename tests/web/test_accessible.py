"""axe finds nothing serious in any view, light or dark, wide or narrow, with a dialog or a task open."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.async_api import Page, expect

from tests.proof import sample
from tests.web.browser import IN_BROWSER, Shown, Visitor, show
from tests.web.test_views import VIEWS

pytestmark = IN_BROWSER

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
SERIOUS = ("serious", "critical")


async def is_accessible(page: Page) -> None:
    if not await page.evaluate("typeof axe === 'object'"):
        await page.evaluate(AXE)
    found: dict[str, Any] = await page.evaluate("axe.run({ resultTypes: ['violations'] })")
    assert [
        f"{each['id']}: {each['help']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
        for node in each["nodes"][:5]
    ] == []


COLOURS = sample(("light", "dark"), lambda scheme: scheme == "light")


@pytest.mark.parametrize("scheme", COLOURS)
async def test_every_view_is_accessible(every: Shown, visitor: Visitor, scheme: str) -> None:
    context = await visitor.enter(every.server, "steer", color_scheme=scheme)
    for view in VIEWS:
        await is_accessible(await show(context, every.server, view))


@pytest.mark.parametrize("scheme", sample(("light", "dark"), lambda scheme: scheme == "dark"))
async def test_a_task_with_all_its_parts_is_accessible(every: Shown, visitor: Visitor, scheme: str) -> None:
    context = await visitor.enter(every.server, "steer", color_scheme=scheme)
    for tab in ("overview", "transcript", "diff", "log"):
        page = await show(context, every.server, "task", task=every.story["read"], tab=tab, attempt=1)
        await is_accessible(page)
    await is_accessible(await show(context, every.server, "board", task=every.story["old"]))


async def pressed(page: Page, key: str, name: str) -> None:
    """Open a dialog. A key that comes while the one before is closing may be lost, so it is pressed again."""
    dialog = page.get_by_role("dialog", name=name)
    while not await dialog.is_visible():
        await page.keyboard.press(key)
        with suppress(AssertionError):
            await expect(dialog).to_be_visible(timeout=5_000)


@pytest.mark.parametrize("scheme", [pytest.param(each, marks=pytest.mark.proof) for each in ("light", "dark")])
async def test_dialogs_the_palette_the_past_and_a_phone_are_accessible(
    every: Shown, visitor: Visitor, scheme: str
) -> None:
    context = await visitor.enter(every.server, "steer", color_scheme=scheme)
    page = await show(context, every.server, "now")
    for key, name in (("n", "Add a task"), ("Control+k", "Go to"), ("?", "Keys")):
        await pressed(page, key, name)
        await is_accessible(page)
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_be_hidden()
    await is_accessible(await show(context, every.server, "now", at=40))
    await page.set_viewport_size({"width": 390, "height": 844})
    for view in VIEWS:
        await is_accessible(await show(context, every.server, view))
