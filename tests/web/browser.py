"""A real browser on the real page. A page that complains, runs what it should not, or asks another host fails its test.

One browser for each process of tests, a new context for each test. All of it lives in the loop of the session, and so
do the tests that use it: they are marked with `IN_BROWSER`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, async_playwright, expect

from dugnad.board import open_board
from dugnad.web.following import followed
from dugnad.web.serving import RunningServer, listen, serving
from tests.web.boards import Story

IN_BROWSER = pytest.mark.asyncio(loop_scope="session")
PATIENCE_MS = 120_000  # The machine may be busy; what is awaited comes at once on an idle one.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
WINDOWS = {"scripted:tides": 12_000, "scripted:critic": 12_000, "": 12_000}
# A violation is a message too, but not of every kind in every version.
TELLS_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy violated: ${event.violatedDirective} by ${event.blockedURI || event.sample}`));
"""
GO = """to => {
  delete document.documentElement.dataset.ready;
  history.pushState(null, "", to);
  dispatchEvent(new PopStateEvent("popstate"));
}"""
TWO_FRAMES = "async () => { for (const _ of [1, 2]) await new Promise(requestAnimationFrame); }"


def find_browser() -> str:
    """The browser that `make test` brings, or one that is here already."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    found = next(filter(None, (shutil.which(name, path=path) for name in NAMES)), None)
    assert found, "There is no browser: `make test` brings Debian's Chromium, or install it (apt install chromium)."
    return found


@dataclass
class Watched:
    """A page and what went wrong on it."""

    context: BrowserContext
    origin: str
    troubles: list[str] = field(default_factory=list)
    _allowed: list[str] = field(default_factory=list)

    def allow(self, words: str) -> None:
        """The browser reports a request that is refused, or that nobody answers. A test that makes one says so."""
        self._allowed.append(words)

    def watch(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._note(f"error: {error}"))
        page.on("crash", lambda _: self._note("the page crashed"))
        page.on("request", lambda request: self._request(request.url))
        page.on("popup", lambda _: self._note("a window was opened"))

    async def dialog(self, dialog: Dialog) -> None:
        self._note("a dialog was opened")
        await dialog.dismiss()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert") or "Content Security Policy" in message.text:
            self._note(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _request(self, url: str) -> None:
        if not url.startswith((f"{self.origin}/", "data:")):
            self._note(f"a request to {url}")

    def _note(self, trouble: str) -> None:
        if not any(words in trouble for words in self._allowed):
            self.troubles.append(trouble)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as driver:
        started = await driver.chromium.launch(executable_path=find_browser(), args=list(FLAGS))
        yield started
        await started.close()


@asynccontextmanager
async def served(url: str, project: Path | None = None) -> AsyncIterator[RunningServer]:
    """The real server for one board, in the loop of the test."""
    async with (
        await open_board(url) as board,
        followed(board, name="tides", where=url, root=project, windows=WINDOWS) as shown,
    ):
        with listen(port=0) as listener:
            async with serving([shown], listener=listener, who="ada", environment=os.environ) as server:
                yield server


@dataclass(frozen=True)
class Shown:
    """A story, and the server that shows it."""

    story: Story
    server: RunningServer


class Visitor:
    """Opens pages in one fresh context, as a person who has a link does."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._watched: list[Watched] = []

    async def enter(
        self, server: RunningServer, scope: Literal["look", "steer"] = "look", **options: Any
    ) -> BrowserContext:
        """A new context with a session. The link is exchanged without a page; one test opens it as a person does."""
        watched = await self.stranger(server, **options)
        link = server.look_link if scope == "look" else server.steer_link()
        answer = await watched.context.request.post(
            f"{server.url}/api/session", data={"key": link.partition("=")[2]},
            headers={"Origin": server.url, "X-Dugnad": "1"},
        )  # fmt: skip
        assert answer.ok, await answer.text()
        return watched.context

    async def stranger(self, server: RunningServer | str, **options: Any) -> Watched:
        """A new context without a session."""
        options.setdefault("viewport", {"width": 1280, "height": 800})
        options.setdefault("reduced_motion", "reduce")
        context = await self._browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        await context.add_init_script(TELLS_VIOLATIONS)
        watched = Watched(context, server if isinstance(server, str) else server.url)
        self._watched.append(watched)
        context.on("page", watched.watch)
        context.on("dialog", watched.dialog)
        return watched

    @asynccontextmanager
    async def served(self, url: str, project: Path | None = None) -> AsyncIterator[RunningServer]:
        """A server for this test alone. The pages are closed before it ends: they would complain."""
        async with served(url, project) as server:
            yield server
            await self.leave()

    @property
    def watched(self) -> Watched:
        """The newest context."""
        return self._watched[-1]

    def allow(self, words: str) -> None:
        self.watched.allow(words)

    async def leave(self) -> list[str]:
        for each in self._watched:
            await each.context.close()
        return [trouble for each in self._watched for trouble in each.troubles]


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(browser: Browser) -> AsyncIterator[Visitor]:
    made = Visitor(browser)
    yield made
    if troubles := await made.leave():
        pytest.fail("On the page: " + "\n".join(troubles))


async def show(context: BrowserContext, server: RunningServer, view: str = "now", **query: Any) -> Page:
    """A page of this context, at this view, once it shows the board. An open page goes there as with one of its links:
    to load it again takes six times as long."""
    words = "&".join(f"{name}={value}" for name, value in {"view": view, **query}.items())
    if context.pages and context.pages[0].url.startswith(f"{server.url}/"):
        page = context.pages[0]
        await page.evaluate(GO, f"?{words}")
    else:
        page = await context.new_page()
        await page.goto(f"{server.url}/?{words}")
    await ready(page, view, at=query.get("at"))
    return page


async def ready(page: Page, view: str, *, at: int | None = None, after: int | None = None) -> int:
    """Wait until the page shows this view: at an event, or with all events up to one. Returns the event it shows."""
    await page.wait_for_function(
        """([view, at, after]) => {
            const [shown, seq] = (document.documentElement.dataset.ready ?? "").split(":");
            return shown === view && (at === null || +seq === at) && (after === null || +seq >= after);
        }""",
        arg=[view, at, after],
    )
    await page.evaluate(TWO_FRAMES)  # A part of the view may begin to read only now.
    await page.wait_for_function("() => !/^(Reading|Opening) .*…$/m.test(document.querySelector('main').innerText)")
    return int((await page.evaluate("document.documentElement.dataset.ready")).partition(":")[2])
