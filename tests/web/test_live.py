"""A scripted team works while a page watches, and a person steers it from the page. Nothing is loaded anew."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Page, expect

from dugnad.board import Board, open_board
from dugnad.settings import Limits
from dugnad.types import HUMAN, Budget, Event
from tests.team.stage_team import hosting, until, until_ended, until_state
from tests.web.browser import IN_BROWSER, Visitor, ready, show
from tests.web.live_team import GOAL, LAMPS, PAINT, PLANKS, ROPES, team_model

pytestmark = IN_BROWSER


@dataclass
class Live:
    """A board, a team on it, and a page of a person who may steer."""

    board: Board
    page: Page

    async def shows(self, title: str, state: str) -> None:
        """The task stands on the board of the page, in this state."""
        name = re.compile(f"^#\\d+ {re.escape(title)}, {state}$")
        await expect(self.page.get_by_role("main").get_by_role("link", name=name)).to_be_visible()

    async def has(self, title: str) -> int:
        """The number of the task with this title, once it is there."""
        link = self.page.get_by_role("main").get_by_role("link", name=re.compile(f"^#\\d+ {re.escape(title)}, "))
        return int(await link.get_attribute("data-task") or "")

    async def said(self, text: str) -> None:
        """The page says what came of an act."""
        await expect(self.page.locator("#toast")).to_contain_text(text)

    async def go(self, view: str, name: str) -> None:
        nav = self.page.get_by_role("navigation", name="Views")
        await nav.get_by_role("link", name=re.compile(f"^{name}( \\d+)?$")).click()
        await ready(self.page, view)

    async def steered(self) -> list[Event]:
        events = await self.board.events()
        return [event for event in events if event.kind == "steered"]


@pytest_asyncio.fixture(loop_scope="session")
async def live(folder: Path, visitor: Visitor) -> AsyncIterator[Live]:
    url = f"sqlite:///{folder}/board.db"
    async with await open_board(url, limits=Limits(backoff_seconds=0.01)) as board, visitor.served(url) as server:
        for name in ("alice", "bob"):
            await board.spawn(name)
        async with hosting(board, team_model()):
            page = await show(await visitor.enter(server, "steer"), server, "board")
            await page.get_by_role("button", name="List").click()
            await page.evaluate("window.never = 'loaded anew'")
            yield Live(board, page)
            assert await page.evaluate("window.never") == "loaded anew"
        assert await board.replayed_state() == await board.observed_state()


async def test_a_page_shows_each_step_of_a_team_and_an_answer_lets_it_go_on(live: Live) -> None:
    await live.board.put(GOAL)
    await live.shows(GOAL, "done")
    await live.shows(PLANKS, "waiting")
    await live.shows(PAINT, "blocked")
    await live.go("foryou", "For you")
    await expect(live.page.get_by_text("Oak or pine?").first).to_be_visible()
    await live.page.get_by_role("textbox", name="Answer ").fill("Oak")
    await live.page.get_by_role("button", name="Answer").click()
    await live.go("board", "Board")
    await live.shows(PLANKS, "done")
    await live.shows(PAINT, "done")
    planks = next(task for task in await live.board.list_tasks() if task.title == PLANKS)
    told = await live.board.recent_talk(planks.teammate or "")
    assert "Oak" in [message.text for message in told if message.sender == HUMAN]
    assert [event.data["who"] for event in await live.steered()] == ["ada"]


async def test_a_plan_is_approved_and_another_rejected_with_a_reason(live: Live) -> None:
    ropes = await live.board.put(ROPES, plan=True)
    await live.shows(ROPES, "waiting")
    await live.go("foryou", "For you")
    await live.page.get_by_role("button", name=re.compile("^Reject")).click()
    dialog = live.page.get_by_role("dialog")
    await dialog.get_by_role("textbox", name="Why").fill("Dry them first.")
    await dialog.get_by_role("button", name="Reject").click()
    await expect(dialog).to_be_hidden()
    refused = await until_state(live.board, ropes, "done", "waiting")
    assert refused.id == ropes.id
    _, reply = await live.board.request(
        next(message.request or "" for message in await live.board.inbox(HUMAN, queued=False) if message.kind == "plan")
    )
    assert reply is not None
    assert (reply.accepted, reply.text) == (False, "Dry them first.")


async def test_an_approved_plan_goes_on_at_once(live: Live) -> None:
    await live.board.put(ROPES, plan=True)
    await live.shows(ROPES, "waiting")
    await live.go("foryou", "For you")
    await expect(live.page.get_by_text("2. Splice them.").first).to_be_visible()
    await live.page.get_by_role("button", name=re.compile("^Approve")).click()
    await expect(live.page.get_by_text("Nothing waits for you.")).to_be_visible()
    await live.go("board", "Board")
    await live.shows(ROPES, "done")


async def test_a_raised_cap_lets_held_work_go_on(live: Live) -> None:
    task = await live.board.put("Sweep the quay", budget=Budget(tokens=10))
    await live.shows("Sweep the quay", "waiting")
    await live.go("money", "Money")
    await live.page.get_by_role("button", name="Raise the cap").click()
    dialog = live.page.get_by_role("dialog")
    await dialog.get_by_role("textbox", name="Tokens").fill("100000")
    await dialog.get_by_role("button", name="Raise the cap").click()
    await live.go("board", "Board")
    await live.shows("Sweep the quay", "done")
    assert (await live.board.budget(task.id)).tokens_max == 100_010


async def test_a_task_that_is_added_on_the_page_is_done_by_the_team(live: Live) -> None:
    await live.page.get_by_role("button", name="Add a task").click()
    dialog = live.page.get_by_role("dialog")
    await dialog.get_by_role("textbox", name="Title").fill("Mend the nets")
    await dialog.get_by_role("textbox", name="Text").fill("All of them.")
    await dialog.get_by_role("textbox", name="Priority").fill("3")
    await dialog.get_by_role("button", name="Add the task").click()
    await live.shows("Mend the nets", "done")
    task = await live.board.find(await live.has("Mend the nets"))
    given = (task.body, task.priority, task.put_by, task.result)
    assert given == ("All of them.", 3, HUMAN, "I did as you said.")


async def test_a_failed_task_is_retried_and_an_open_one_cancelled_with_its_dependents(live: Live) -> None:
    lamps = await live.board.put(LAMPS)
    await live.shows(LAMPS, "failed")
    await live.page.get_by_role("main").get_by_role("link", name=re.compile(LAMPS)).click()
    panel = live.page.get_by_role("complementary", name=re.compile("^Task"))
    await panel.get_by_role("button", name="Retry").click()

    async def failed_again() -> bool:
        kinds = [event.kind for event in await live.board.events(task=lamps.id)]
        return "retried" in kinds and kinds.count("failed") == 2

    await until(live.board, failed_again)
    first = await live.board.put("Wait for the tide", assignee="nobody")
    second = await live.board.put("Sail", needs=(first.id,))
    await live.page.get_by_role("main").get_by_role("link", name=re.compile("Wait for the tide")).click()
    await panel.get_by_role("button", name="Cancel the task").click()
    dialog = live.page.get_by_role("dialog")
    await dialog.get_by_role("textbox", name="Why").fill("There is none.")
    await dialog.get_by_role("checkbox").check()
    await dialog.get_by_role("button", name="Cancel the task").click()
    await live.shows("Sail", "cancelled")
    ended = await until_ended(live.board, first, second)
    assert [(task.state, task.reason) for task in ended[:1]] == [("cancelled", "There is none.")]


async def test_a_message_reaches_a_teammate_and_what_the_board_refuses_is_said(live: Live, visitor: Visitor) -> None:
    await live.go("team", "Team")
    await live.page.get_by_role("button", name="Message alice").click()
    dialog = live.page.get_by_role("dialog")
    await dialog.get_by_role("textbox", name="Text").fill("Well done.")
    await dialog.get_by_role("button", name="Send").click()
    await expect(dialog).to_be_hidden()
    assert "Well done." in [message.text for message in await live.board.inbox("alice", queued=False)]
    visitor.allow("status of 4")
    await live.page.get_by_role("button", name="Add a teammate").click()
    await dialog.get_by_role("textbox", name="Name").fill("two words")
    await dialog.get_by_role("button", name="Add the teammate").click()
    await expect(live.page.get_by_role("alert")).to_be_visible()
    await expect(dialog).to_be_visible()  # What was typed is not lost.
