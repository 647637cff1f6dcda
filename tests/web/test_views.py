"""Every view on a board with every state: what it shows, by role and text, as a person or a screen reader finds it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from playwright.async_api import Locator, Page, expect

from dugnad.board import open_board
from dugnad.settings import Limits
from dugnad.types import Task
from tests.web.boards import TRACEBACK
from tests.web.browser import IN_BROWSER, Shown, Visitor, show
from tests.web.telling import keep_alive

pytestmark = IN_BROWSER

VIEWS = {
    "now": "Now", "foryou": "For you", "board": "Board", "graph": "Graph", "timeline": "Timeline", "money": "Money",
    "team": "Team", "merges": "Merges", "log": "Log",
}  # fmt: skip
LONG_LEASES = Limits(lease_seconds_max=10_000)  # Those of `keep_alive`.


async def open_view(every: Shown, visitor: Visitor, view: str, **query: object) -> Page:
    return await show(await visitor.enter(every.server), every.server, view, **query)


async def tasks_of(every: Shown) -> list[Task]:
    async with await open_board(every.story.url) as board:
        return await board.list_tasks(page=1_000)


async def says(place: Page | Locator, *texts: str | re.Pattern[str]) -> None:
    for text in texts:
        await expect(place.get_by_text(text).first).to_be_visible()


async def test_every_view_has_a_name_a_heading_and_a_link(every: Shown, visitor: Visitor) -> None:
    page = await open_view(every, visitor, "now")
    nav = page.get_by_role("navigation", name="Views")
    for view, name in VIEWS.items():
        link = nav.get_by_role("link", name=re.compile(f"^{name}( \\d+)?$"))
        await link.click()
        await expect(page.get_by_role("main").get_by_role("heading", level=1, name=name)).to_be_visible()
        await expect(link).to_have_attribute("aria-current", "page")
        assert f"view={view}" in page.url
        assert name in await page.title()


async def test_now_says_what_waits_what_runs_what_is_next_and_what_is_left(every: Shown, visitor: Visitor) -> None:
    page = await open_view(every, visitor, "now")
    counts = Counter(task.state for task in await tasks_of(every))
    legend = page.get_by_role("list", name="Tasks by state")
    for state, number in counts.items():
        await expect(legend.get_by_role("link", name=re.compile(f"^{number} {state}$"))).to_be_visible()
    main = page.get_by_role("main")
    await says(
        main, "3 teammates work", "CC BY 4.0 or ODbL for the map?", "3 open tasks behind it",
        "1. Write all tables into tides.db.", "make publish", "anthropic:3f9a1c02",
    )  # fmt: skip
    for title in ("Draw the curve of a day", "Mark the phases of the moon", "Translate the page into Norwegian"):
        await expect(main.get_by_role("link", name=re.compile(re.escape(title))).first).to_be_visible()
    await says(main, "Held: the cap on dollars is reached.", "alice claimed it, attempt 1")


async def test_the_board_has_each_task_in_the_column_of_its_state(every: Shown, visitor: Visitor) -> None:
    page = await open_view(every, visitor, "board")
    tasks = await tasks_of(every)
    for state, number in Counter(task.state for task in tasks).items():
        noun = "task" if number == 1 else "tasks"
        column = page.get_by_role("region", name=f"{state.capitalize()}, {number} {noun}")
        head = column.get_by_role("heading").get_by_role("button")
        if await head.get_attribute("aria-expanded") == "false":
            await head.click()
        for task in (each for each in tasks if each.state == state):
            name = re.compile(f"^#{task.id} {re.escape(task.title)}, {state}$")
            await expect(column.get_by_role("link", name=name)).to_have_count(1)


async def test_the_filter_is_in_the_address_and_completes(every: Shown, visitor: Visitor) -> None:
    page = await open_view(every, visitor, "board", filter="state:waiting%20map")
    main, every_task = page.get_by_role("main"), f"{len(await tasks_of(every))} tasks"
    await says(main, f"1 of {every_task}")
    line = page.get_by_role("combobox", name="Filter")
    await expect(line).to_have_value("state:waiting map")
    await line.fill("role:rev")
    await expect(page.get_by_role("listbox", name="Completions").get_by_role("option").first).to_contain_text(
        "reviewer"
    )
    await line.press("Tab")
    await expect(page).to_have_url(re.compile("filter=role%3Areviewer"))
    await says(main, f"3 of {every_task}")
    await page.get_by_role("button", name="Clear the filter").click()
    await says(main, re.compile(f"^{every_task}$"))


async def test_the_graph_has_outcomes_and_broken_edges_with_their_reason(every: Shown, visitor: Visitor) -> None:
    page = await open_view(every, visitor, "graph")
    story, needs = every.story, page.get_by_role("group", name="Needs")
    for name in ("curve", "notes", "old", "old page"):
        await expect(page.locator(f'[data-node] >> text="#{story[name]}"').first).to_be_visible()
    await says(needs, re.compile("^rejected$"), re.compile("^ended$"))
    broken = needs.locator(".edge.broken [role=img]")
    assert await broken.count() == 3
    reasons = [await each.get_attribute("aria-label") or "" for each in await broken.all()]
    assert any(f"#{story['old']}" in reason and "failed" in reason for reason in reasons), reasons
    done = page.get_by_role("button", name=re.compile("done", re.IGNORECASE)).first
    await done.click()  # What is done was folded away.
    await expect(page.locator(f'[data-task="{story["read"]}"]')).to_have_count(1)
    await page.locator(f'[data-task="{story["notes"]}"]').click()
    await says(page, re.compile(r"nodes? before it, \d+ after it"))


async def test_the_timeline_has_a_row_for_each_teammate_and_a_bar_for_each_attempt(
    every: Shown, visitor: Visitor
) -> None:
    page = await open_view(every, visitor, "timeline")
    async with await open_board(every.story.url) as board:
        attempts = [each for task in await board.list_tasks(page=100) for each in await board.attempts(task.id)]
    rows = page.get_by_role("list", name="Teammates")
    for name, number in Counter(each.teammate for each in attempts).items():
        row = rows.get_by_role("listitem", name=name)
        await expect(row.get_by_role("link")).to_have_count(number)
    await expect(rows.get_by_role("link", name=re.compile("Keep the stations on disk.*lost")).first).to_be_visible()
    await says(page.get_by_role("list", name="How attempts ended"), "lost", "done", "failed", "at work", "rehearsed")
    await says(page, "rehearsed: 3 teammates, 20m")
    assert await page.get_by_title(re.compile("^Rehearsed: ")).count() == 10


async def test_a_task_has_its_attempts_its_review_its_needs_and_what_it_cost(every: Shown, visitor: Visitor) -> None:
    page = await open_view(every, visitor, "task", task=every.story["cache"])
    main = page.get_by_role("main")
    await says(
        main, "Stations stay on disk for a day.", "its host was lost", "carol continues", ".envrc",
        every.story.commits["cache"][:8],
    )  # fmt: skip
    await main.get_by_text("Handed over").first.click()
    await says(main, "cache.py has the reader; the writer is missing.")
    await show(page.context, every.server, "task", task=every.story["read"])
    await says(main, "approved", "Clear and tested.", "Needed by", "$0.04")
    await show(page.context, every.server, "task", task=every.story["old"])
    await says(main, "stayed red", "Troubles")
    await main.get_by_text("A bug ended attempt 2").click()
    await says(main, TRACEBACK.splitlines()[-1])


WHY = {
    "logo": "designer", "notes": "#5", "links": "due", "held": "dollars", "review 2 of rewrite": "dora",
    "translate": "ready", "old page": "#12",
}  # fmt: skip


async def test_a_task_that_does_not_run_says_why(every: Shown, visitor: Visitor) -> None:
    context = await visitor.enter(every.server)
    for name, words in WHY.items():
        await keep_alive(every.story.url, every.story.hosts)  # A slow machine may take longer than a lease.
        page = await show(context, every.server, "task", task=every.story[name])
        await expect(page.get_by_role("main").locator(".why")).to_contain_text(words, ignore_case=True)
    page = await show(context, every.server, "task", task=every.story["storage"])  # The request itself says it.
    await expect(page.get_by_role("article", name="Request of carol")).to_contain_text("carol shows a plan")


async def test_a_transcript_has_turns_with_calls_folded_and_costs(every: Shown, visitor: Visitor) -> None:
    page = await open_view(every, visitor, "task", task=every.story["read"], tab="transcript", attempt=1)
    turns = page.get_by_role("list", name="Turns")
    await says(turns, "First I look at what is there.", "2.4k tok", "$0.01")
    call = turns.get_by_role("group").filter(has_text="read_file").first
    await expect(call.get_by_text("Reads stations and their tides.")).to_be_hidden()
    await call.get_by_text("read_file").click()
    await expect(call.get_by_text("Reads stations and their tides.").first).to_be_visible()


async def test_a_diff_is_that_of_the_merged_commit(every: Shown, visitor: Visitor) -> None:
    page = await open_view(every, visitor, "task", task=every.story["read"], tab="diff")
    main = page.get_by_role("main")
    await says(
        main, "tides/stations.py", "from pathlib import Path", "dugnad/main", "+8", every.story.commits["read"][:8]
    )
    numbers = await page.evaluate(
        """() => [...document.querySelectorAll(".diff-line")].map((row) =>
            [...row.querySelectorAll(".gutter")].map((gutter) => gutter.textContent).join(" "))"""
    )
    beside = ["1 1", "2 2", "3 3", "4", "4 5", "5 6", "6 7", "7 8", "9", "10", "11", "12", "13"]
    assert numbers == beside  # On the left as it was, on the right as it is.


async def test_for_you_has_every_request_the_oldest_block_of_work_first(every: Shown, visitor: Visitor) -> None:
    page = await open_view(every, visitor, "foryou")
    queue = page.get_by_role("list", name="Requests").get_by_role("button")
    await expect(queue).to_have_count(4)
    for place, words in enumerate(
        ("carol asks", "carol shows a plan", "carol wants to call a tool", "reached its cap")
    ):
        await expect(queue.nth(place)).to_contain_text(words)
        await queue.nth(place).click()
        await expect(page.get_by_role("main").get_by_role("article").first).to_contain_text(words)
    await says(page.get_by_role("main"), "Unread messages", "The stations are merged. Shall the curve be blue?")
    # A visitor who may only look can do nothing here.
    await expect(page.get_by_role("button", name=re.compile("^(Answer|Approve|Reject|Raise)"))).to_have_count(0)


async def test_money_has_goals_teammates_models_tasks_and_cooling_keys(every: Shown, visitor: Visitor) -> None:
    page = await open_view(every, visitor, "money")
    main = page.get_by_role("main")
    async with await open_board(every.story.url) as board:
        spent = await board.budget(every.story["goal"])
    await says(
        main, "Publish tide tables for every harbour", f"${spent.spent.microdollars / 1e6:.2f} of $5.00",
        "scripted:tides", "scripted:critic", "anthropic:3f9a1c02", "429: too many requests",
        "Held: the cap on dollars is reached.",
    )  # fmt: skip
    by_teammate = main.get_by_role("table").filter(has=page.get_by_role("columnheader", name="Teammate"))
    for name in ("alice", "bob", "carol", "dora", "frank"):
        await expect(by_teammate.get_by_role("row").filter(has_text=name)).to_have_count(1)
    await expect(main.get_by_role("img", name=re.compile("^Spent from"))).to_be_visible()


async def test_team_has_who_works_where_on_what_and_the_hosts(every: Shown, visitor: Visitor) -> None:
    page = await open_view(every, visitor, "team")
    main = page.get_by_role("main")
    async with await open_board(every.story.url, limits=LONG_LEASES) as board:
        team = await board.team()
    for member in team:
        row = main.get_by_role("row").filter(has=page.get_by_role("rowheader", name=re.compile(f"^{member.name}\\b")))
        if member.status == "stopped":
            await main.get_by_text("1 teammate left").click()
        await expect(row).to_contain_text(member.status)
    await expect(main.get_by_role("row", name=re.compile("^bob"))).to_contain_text("Draw the curve of a day")
    await says(main, "harbour, process 4711", "lighthouse, process 815", "trawler, process 2024")
    await expect(main.get_by_role("img", name=re.compile("of the context is full")).first).to_be_visible()
    await expect(main.get_by_role("img", name=re.compile("The lease lasts for")).first).to_be_visible()


async def test_merges_has_commits_red_checks_and_conflicts_of_both_tasks(every: Shown, visitor: Visitor) -> None:
    page = await open_view(every, visitor, "merges")
    main, story = page.get_by_role("main"), every.story
    merged = main.get_by_role("list", name="Merged, newest first")
    for name in ("cache", "read"):
        await expect(merged.get_by_role("listitem").filter(has_text=story.commits[name][:8])).to_have_count(1)
    await says(main, "runs: .envrc", "Correct the datum of the heights", "AssertionError: 2.31 != 2.13")
    conflict = main.locator("section", has=page.get_by_role("heading", name="Conflicts"))
    await says(conflict, "tides/stations.py")
    for name in ("conflict", "read"):
        await expect(conflict.get_by_role("link", name=re.compile(f"^#{story[name]} ")).first).to_be_visible()


async def test_the_log_has_events_messages_and_notes(every: Shown, visitor: Visitor) -> None:
    page = await open_view(every, visitor, "log")
    main = page.get_by_role("main")
    await says(main, "bob claimed it, attempt 1", "alice asked dora to shut down")
    search = main.get_by_role("searchbox")
    await search.fill("was lost")
    await says(main, "a host was lost (trawler, process 2024)")
    await search.fill("")
    await main.get_by_role("button", name="Messages").click()
    await says(main, "Blue is fine.")
    await main.get_by_role("button", name="Notes").click()
    await says(main, "All heights count from chart datum, in metres.")


async def test_a_person_without_a_link_sees_nothing_but_how_to_get_one(every: Shown, visitor: Visitor) -> None:
    watched = await visitor.stranger(every.server)
    watched.allow("status of 401")
    page = await watched.context.new_page()
    await page.goto(f"{every.server.url}/?view=board")
    await expect(page.get_by_role("heading", name="This page needs a link")).to_be_visible()
    await expect(page.get_by_text("tides")).to_have_count(0)


async def test_a_link_of_the_terminal_opens_the_page_once_and_leaves_no_key_behind(
    every: Shown, visitor: Visitor
) -> None:
    watched = await visitor.stranger(every.server)
    watched.allow("status of 401")
    page = await watched.context.new_page()
    link = every.server.steer_link()
    await page.goto(link)
    await expect(page.get_by_role("heading", name="Now")).to_be_visible()
    key = link.partition("=")[2]
    kept = await page.evaluate(
        "JSON.stringify([location.href, history.length, {...localStorage}, {...sessionStorage}, document.cookie])"
    )
    assert key not in kept
    other = await visitor.stranger(every.server)
    other.allow("status of 401")
    second = await other.context.new_page()
    await second.goto(link)
    await expect(second.get_by_text("This link was used already")).to_be_visible()


async def test_an_empty_board_says_what_to_do_next_in_every_view(folder: Path, visitor: Visitor) -> None:
    async with visitor.served(f"sqlite:///{folder}/board.db") as server:
        context = await visitor.enter(server)
        for view, name in VIEWS.items():
            page = await show(context, server, view)
            await expect(page.get_by_role("main").get_by_role("heading", level=1, name=name)).to_be_visible()
            await says(page.get_by_role("main"), re.compile(r"Nothing|Nobody|No "))
