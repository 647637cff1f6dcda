"""Measures the page in a browser, on a board with 10,000 tasks and a log of 100,000 events.

    python bench/web.py [--json] [--quick]

first_view_ms           from following a link to the first view with data on the screen, with an empty cache; median.
event_to_pixel_ms       from asking the board for a change, in another process, to a picture that shows it: the commit,
                        the push, the stream and the drawing are in it.
time_machine_ms         from a step to a random event number to a picture of the whole board as it was then.
log_read_ms             from the start of the server until it has read the whole log; pages show what it has so far.
client_bytes_compressed all files of the page, as they are sent.
cpu_percent_100_pages   of one core, by the server, with 100 open streams while nothing happens.
routes, routes_open     of the credential walk: how many routes there are, and how many answer without a credential.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import psutil
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from dugnad.board import Board, open_board
from dugnad.web.app import static_files
from tests.web.browser import FLAGS, find_browser
from tests.web.credential_walk import walk
from tests.web.large import EVENTS, TASKS, large_board

PATIENCE_MS = 120_000
# Notes when each event was on the screen: a task after the next frame runs when that frame was drawn.
NOTES = """
window.drawn = [];
new MutationObserver(() => {
  const [view, seq] = (document.documentElement.dataset.ready ?? ":").split(":");
  requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => window.drawn.push([view, +seq, performance.timeOrigin + performance.now()]);
    port2.postMessage(null);
  });
}).observe(document, { subtree: true, attributeFilter: ["data-ready"] });
"""
WHEN = """([view, at, after]) => {
  const found = window.drawn.find(([shown, seq]) => shown === view && (at === null ? seq >= after : seq === at));
  return found ? found[2] : false;
}"""


@dataclass(frozen=True)
class Server:
    """`dugnad web` as a process of its own."""

    url: str
    board: str
    key: str
    process: psutil.Process


@asynccontextmanager
async def server(board: str, folder: Path) -> AsyncIterator[Server]:
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dugnad", "web", "--look", "--json", "--port", "0", board, cwd=folder, env=environment,
        stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = json.loads(await process.stdout.readline())
        key = said["look"].partition("=")[2]
        yield Server(said["url"], said["boards"][0]["id"], key, psutil.Process(process.pid))
    finally:
        process.terminate()
        await process.wait()


async def entered(browser: Browser, site: Server) -> BrowserContext:
    """A fresh context with a session, and an empty cache."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE_MS)
    await context.add_init_script(NOTES)
    headers = {"Origin": site.url, "X-Dugnad": "1"}
    answer = await context.request.post(f"{site.url}/api/session", data={"key": site.key}, headers=headers)
    assert answer.ok, await answer.text()
    return context


async def drawn(page: Page, view: str, *, at: int | None = None, after: int = 0) -> float:
    """When the page showed this view at an event, or with one after it; in milliseconds since 1970."""
    found = await page.wait_for_function(WHEN, arg=[view, at, after])
    return float(await found.json_value())


async def read_log(browser: Browser, site: Server) -> float:
    """Wait until the server has read the whole log. How long that took, in milliseconds."""
    context = await entered(browser, site)
    while True:
        answer = await context.request.get(f"{site.url}/api/boards/{site.board}/state?at=1")
        if answer.ok and (await answer.json())["reading"] is None:
            await context.close()
            return (time.time() - site.process.create_time()) * 1_000
        await asyncio.sleep(0.2)


async def first_views(browser: Browser, site: Server, samples: int) -> list[float]:
    took = []
    for _ in range(samples + 1):
        context = await entered(browser, site)
        page = await context.new_page()
        begin = time.time() * 1_000
        await page.goto(f"{site.url}/?view=now", wait_until="commit")
        took.append(await drawn(page, "now") - begin)
        await context.close()
    return took[1:]  # The first one warmed up.


async def events_to_pixels(page: Page, board: Board, samples: int) -> list[float]:
    took = []
    for number in range(samples + 3):
        before = await board.last_event()
        begin = time.time() * 1_000
        await board.put(f"Measured {number}", role="nobody")
        took.append(await drawn(page, "board", after=before + 1) - begin)
        await asyncio.sleep(random.uniform(0.15, 0.35))
    return took[3:]


async def steps_in_time(page: Page, last: int, samples: int) -> list[float]:
    chance = random.Random(7)
    took = []
    for _ in range(samples + 2):
        at = chance.randrange(1, last)
        begin = await page.evaluate(
            """(at) => {
                window.drawn.length = 0;
                const begin = performance.timeOrigin + performance.now();
                history.pushState(null, "", `?view=board&at=${at}`);
                dispatchEvent(new PopStateEvent("popstate"));
                return begin;
            }""",
            at,
        )
        took.append(await drawn(page, "board", at=at) - begin)
    return took[2:]


async def idle_percent(site: Server, streams: int, seconds: float) -> float:
    """What the server uses while so many pages are open and nothing happens."""
    host, _, port = site.url.removeprefix("http://").rpartition(":")
    cookie = await _cookie(site, host, int(port))
    opened = [await _stream(site, host, int(port), cookie) for _ in range(streams)]
    reading = [asyncio.create_task(_read_on(reader)) for reader, _ in opened]
    await asyncio.sleep(2)
    before, begin = site.process.cpu_times(), time.perf_counter()
    await asyncio.sleep(seconds)
    after, wall = site.process.cpu_times(), time.perf_counter() - begin
    assert not any(each.done() for each in reading), "a stream ended"
    for each in reading:
        each.cancel()
    for _, writer in opened:
        writer.close()
    return (after.user + after.system - before.user - before.system) / wall * 100


async def _cookie(site: Server, host: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    body = json.dumps({"key": site.key}).encode()
    head = (
        f"POST /api/session HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {site.url}\r\nX-Dugnad: 1\r\n"
        f"Connection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = (await reader.read()).decode()
    writer.close()
    found = next(line for line in answer.splitlines() if line.lower().startswith("set-cookie:"))
    return found.partition(":")[2].partition(";")[0].strip()


async def _stream(site: Server, host: str, port: int, cookie: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port)
    head = f"GET /api/boards/{site.board}/stream HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\n\r\n"
    writer.write(head.encode())
    answer = await reader.readline()
    assert b" 200 " in answer, answer
    return reader, writer


async def _read_on(reader: asyncio.StreamReader) -> None:
    while await reader.read(65_536):
        pass


def spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {"p50": round(statistics.median(ordered), 1), "p99": round(p99, 1)}


async def measure(quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="dugnad-bench-") as made:
        folder = Path(made)
        tasks, events = (1_000, 10_000) if quick else (TASKS, EVENTS)
        url = await asyncio.to_thread(large_board, folder / "board.db", tasks=tasks, events=events)
        async with server(url, folder) as site, await open_board(url) as board, async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=find_browser(), args=list(FLAGS))
            reading = await read_log(browser, site)
            first = await first_views(browser, site, 3 if quick else 9)
            page = await (await entered(browser, site)).new_page()
            await page.goto(f"{site.url}/?view=board")
            await drawn(page, "board")
            pixels = await events_to_pixels(page, board, 20 if quick else 200)
            steps = await steps_in_time(page, events, 20 if quick else 200)
            await browser.close()
            idle = await idle_percent(site, 100, 5 if quick else 30)
    walked = await walk()
    return {
        "first_view_ms": round(statistics.median(first), 1),
        "event_to_pixel_ms": spread(pixels),
        "time_machine_ms": spread(steps),
        "log_read_ms": round(reading),
        "client_bytes_compressed": sum(len(each.packed) for each in static_files().values()),
        "cpu_percent_100_pages": round(idle, 2),
        "routes": walked.routes,
        "routes_open": walked.open,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--quick", action="store_true", help="on a smaller board, in under a minute")
    options = parser.parse_args()
    report = asyncio.run(measure(options.quick))
    if options.json:
        print(json.dumps(report))
        return
    print("page")
    for name, value in report.items():
        print(f"  {name:24} {json.dumps(value)}")


if __name__ == "__main__":
    main()
