"""`dugnad demo --web` in a pipe: the page shows the whole story live, and ends with the demo."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.cli.shell import environment
from tests.web.browser import IN_BROWSER, Visitor, ready

pytestmark = [IN_BROWSER, pytest.mark.proof]


async def test_a_page_watches_the_demo_from_the_first_task_to_the_last(folder: Path, visitor: Visitor) -> None:
    words = ["demo", "--web", "--keep", str(folder / "kept")]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dugnad", *words, cwd=folder, env=environment(HOME=str(folder)),
        stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        lines = []
        while not (line := (await process.stdout.readline()).decode()).startswith("Look: "):
            lines.append(line)
        assert not any("Steer:" in each for each in lines)  # Nobody reads a pipe's keys over a shoulder.
        link = line.split()[1]
        watched = await visitor.stranger(link.partition("/#")[0])
        # The demo ends before the page does, and then another server may come to its port.
        for trouble in ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "of 401"):
            watched.allow(trouble)
        page = await watched.context.new_page()
        await page.goto(link)
        await ready(page, "now")
        await expect(page.get_by_role("button", name="Add a task")).to_have_count(0)
        main = page.get_by_role("main")
        await expect(main.get_by_text(re.compile("carol claimed it and continues, attempt 2")).first).to_be_visible()
        said, _ = await process.communicate()
        assert process.returncode == 0
        assert "What they built works:" in said.decode()
        await expect(main.get_by_role("link", name=re.compile("^7 done$"))).to_be_visible()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
