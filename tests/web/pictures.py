"""`make pictures`: each view of the page as a picture, on the board with every state.

python -m tests.web.pictures docs/pictures
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import async_playwright

from tests.web.boards import Story, every_state
from tests.web.browser import FLAGS, Visitor, find_browser, served, show
from tests.web.telling import keep_alive

BYTES_MAX = 150_000
WIDTH = 1200
PHONE = {"width": 390, "height": 844}


@dataclass(frozen=True)
class Picture:
    name: str
    view: str
    scheme: Literal["light", "dark"] = "light"
    height: int = 720
    phone: bool = False
    task: str | None = None
    query: tuple[tuple[str, Any], ...] = ()

    def where(self, story: Story) -> dict[str, Any]:
        return {**dict(self.query), **({"task": story[self.task]} if self.task else {})}


VIEWS = ("now", "foryou", "board", "graph", "timeline", "money", "team", "merges", "log")
SHORT = {"timeline": 420, "team": 620, "foryou": 620}
PICTURES = (
    *(Picture(view, view, height=SHORT.get(view, 720)) for view in VIEWS),
    Picture("task", "task", task="read", query=(("tab", "transcript"), ("attempt", 1))),
    Picture("diff", "task", task="read", query=(("tab", "diff"),)),
    Picture("past", "board", query=(("at", 96),)),
    Picture("graph-dark", "graph", scheme="dark"),
    Picture("phone", "now", scheme="dark", phone=True),
)


async def take(folder: Path, wanted: tuple[Picture, ...] = PICTURES) -> list[str]:
    """Take all pictures. What is too large is said."""
    with tempfile.TemporaryDirectory(prefix="dugnad-pictures-") as made:
        os.environ["XDG_STATE_HOME"] = f"{made}/state"
        story = await every_state(Path(made) / "tides")
        async with served(story.url, story.project) as server, async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=find_browser(), args=list(FLAGS))
            visitor = Visitor(browser)
            for each in wanted:
                await keep_alive(story.url, story.hosts)
                size = PHONE if each.phone else {"width": WIDTH, "height": each.height}
                context = await visitor.enter(server, "steer", color_scheme=each.scheme, viewport=size)
                page = await show(context, server, each.view, **each.where(story))
                await page.evaluate("() => document.fonts.ready")
                await page.screenshot(path=folder / f"{each.name}.png")
            troubles = await visitor.leave()
            await browser.close()
    large = [each.name for each in wanted if (folder / f"{each.name}.png").stat().st_size > BYTES_MAX]
    return [*troubles, *(f"{name}.png is larger than {BYTES_MAX:,} bytes" for name in large)]


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures")
    folder.mkdir(parents=True, exist_ok=True)
    wrong = asyncio.run(take(folder))
    for each in wrong:
        print(each, file=sys.stderr)
    print(f"{len(PICTURES)} pictures are in {folder}.")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
