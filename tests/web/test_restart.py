"""The server is killed and started again: the page goes on, keeps its place and its session, and is not loaded anew."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from playwright.async_api import expect

from dugnad.board import open_board
from tests.cli.shell import environment
from tests.web.boards import every_state
from tests.web.browser import IN_BROWSER, Visitor, ready

pytestmark = IN_BROWSER


class Process:
    """`dugnad web` as a person runs it."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self.port = 0
        self.said: dict[str, Any] = {}

    async def __aenter__(self) -> Process:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        words = ["web", self._url, "--json", "--look", "--port", str(self.port)]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dugnad", *words, cwd=self._folder, env=environment(HOME=str(self._folder)),
            stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.said = json.loads(await self._process.stdout.readline())
        self.port = self.said["port"]

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


async def test_a_page_goes_on_when_the_server_is_started_again(folder: Path, visitor: Visitor) -> None:
    story = await every_state(folder / "tides")
    async with await open_board(story.url) as board, Process(story.url, folder) as process:
        watched = await visitor.stranger(process.said["url"])
        watched.allow("ERR_CONNECTION_REFUSED")
        watched.allow("ERR_INCOMPLETE_CHUNKED_ENCODING")
        watched.allow("ERR_CONNECTION_RESET")
        page = await watched.context.new_page()
        await page.goto(process.said["look"])
        await ready(page, "now")
        await page.goto(f"{process.said['url']}/?view=board&filter=state:waiting&task={story['licence']}")
        last = await ready(page, "board")
        await page.evaluate("window.never = 'loaded anew'")
        place = page.url
        await process.kill()
        await expect(page.get_by_role("status").filter(has_text="Reconnecting")).to_be_visible()
        added = await board.put("Added while nobody served", delay_seconds=60)
        await process.start()
        assert await ready(page, "board", after=last + 1) == await board.last_event()
        await expect(page.get_by_role("status").filter(has_text="Connected")).to_be_visible()
        assert page.url == place
        assert await page.evaluate("window.never") == "loaded anew"
        await expect(page.get_by_role("complementary", name=f"Task #{story['licence']}")).to_be_visible()
        later = await board.put("Added afterwards")
        await ready(page, "board", after=await board.last_event())
        await page.get_by_role("combobox", name="Filter").fill("added")
        for task in (added, later):
            await expect(page.get_by_role("main").locator(f'[data-task="{task.id}"]')).to_be_visible()
        await watched.context.close()
