"""What else a person can do on the page: each act changes the board as the command does, and stands in its log."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from dugnad.board import Board, open_board
from dugnad.types import HUMAN
from dugnad.web.serving import RunningServer
from tests.team.stage_team import until_state
from tests.web.boards import Story, every_state
from tests.web.browser import IN_BROWSER, Visitor, show

pytestmark = IN_BROWSER


@dataclass
class Desk:
    """The board with every state, for one test alone, and a page that may steer."""

    story: Story
    board: Board
    server: RunningServer
    page: Page

    async def open(self, view: str, **query: object) -> Locator:
        await show(self.page.context, self.server, view, **query)
        return self.page.get_by_role("main")

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    async def confirm(self, verb: str) -> None:
        await self.dialog.get_by_role("button", name=verb).click()
        await expect(self.dialog).to_be_hidden()

    async def last_act(self) -> str:
        """What the log says that somebody did on the page."""
        steered = [event for event in await self.board.events() if event.kind == "steered"]
        assert {event.data["who"] for event in steered} == {"ada"}
        return str(steered[-1].data["what"])


@pytest_asyncio.fixture(loop_scope="session")
async def desk(folder: Path, visitor: Visitor) -> AsyncIterator[Desk]:
    story = await every_state(folder / "tides")
    async with await open_board(story.url) as board, visitor.served(story.url, story.project) as server:
        page = await show(await visitor.enter(server, "steer"), server, "now")
        yield Desk(story, board, server, page)
        assert await board.replayed_state() == await board.observed_state()


@pytest.mark.parametrize("becomes", ["message", "task"])
async def test_a_comment_on_a_line_of_a_diff_becomes_a_message_or_a_follow_up_with_the_quote(
    desk: Desk, becomes: str
) -> None:
    main = await desk.open("task", task=desk.story["read"], tab="diff")
    await main.get_by_role("button", name="Comment on line 9", exact=True).click()
    await main.get_by_role("textbox", name=re.compile("^Comment on line 9")).fill("Why sorted?")
    await main.get_by_role("button", name="Send to bob" if becomes == "message" else "Make it a follow-up").click()
    await expect(main.get_by_role("textbox", name=re.compile("^Comment on line 9"))).to_have_count(0)
    if becomes == "message":
        text = (await desk.board.inbox("bob", queued=False))[-1].text
    else:
        text = (await desk.board.list_tasks(page=1_000))[-1].body
    for words in ("Why sorted?", "tides/stations.py", 'return sorted(json.loads(text)["stations"])'):
        assert words in text
    assert await desk.last_act()


async def test_a_note_is_written_and_messages_are_marked_as_read(desk: Desk) -> None:
    main = await desk.open("log", tab="notes")
    await main.get_by_role("button", name="Write a note").click()
    await desk.dialog.get_by_role("textbox", name="Title").fill("Fridays")
    await desk.dialog.get_by_role("textbox", name="Text").fill("Nothing is published on a Friday.")
    await desk.confirm("Write the note")
    await expect(main.get_by_text("Nothing is published on a Friday.").first).to_be_visible()
    assert [note.author for note in await desk.board.search_notes("Fridays")] == [HUMAN]
    main = await desk.open("foryou")
    await main.get_by_role("button", name="Mark as read").click()
    await expect(main.get_by_text("Unread messages")).to_have_count(0)
    assert [each.kind for each in await desk.board.inbox(HUMAN) if each.kind in ("text", "notice")] == []


async def test_a_tool_call_is_allowed_and_a_task_released(desk: Desk) -> None:
    main = await desk.open("task", task=desk.story["publish"])
    await main.get_by_role("button", name="Approve", exact=True).click()
    allowed = await until_state(desk.board, desk.story["publish"], "ready")
    assert allowed.request is not None
    _, reply = await desk.board.request(allowed.request)
    assert reply is not None
    assert reply.accepted is True
    main = await desk.open("task", task=desk.story["curve"])
    await main.get_by_role("button", name="Release").click()
    await desk.dialog.get_by_role("textbox", name="Why").fill("Somebody else should look.")
    await desk.confirm("Release")
    released = await until_state(desk.board, desk.story["curve"], "ready")
    assert released.reason == "Somebody else should look."


@pytest.mark.proof
async def test_a_teammate_is_stopped_and_another_added(desk: Desk) -> None:
    main = await desk.open("team")
    await main.get_by_role("button", name="Stop carol").click()
    await desk.dialog.get_by_role("checkbox").check()
    await desk.confirm("Stop")
    await main.get_by_text("2 teammates left").click()
    assert (await desk.board.teammate("carol")).status == "stopped"
    await main.get_by_role("button", name="Add a teammate").click()
    await desk.dialog.get_by_role("textbox", name="Name").fill("ivar")
    await desk.dialog.get_by_label("Roles").fill("designer, coder")
    await desk.confirm("Add the teammate")
    await expect(main.get_by_role("row", name=re.compile("^ivar"))).to_contain_text("designer")
    assert (await desk.board.teammate("ivar")).roles == ("designer", "coder")


@pytest.mark.proof
async def test_all_tasks_of_a_filter_are_cancelled_or_opened_again_after_a_question(desk: Desk) -> None:
    main = await desk.open("board", filter="state:ready")
    ready = await desk.board.list_tasks(states=["ready"])
    number = len(ready)
    await main.get_by_role("button", name=f"Cancel {number}").click()
    await expect(desk.dialog.get_by_role("heading", name=f"Cancel {number} tasks?")).to_be_visible()
    await desk.dialog.get_by_role("textbox", name="Why").fill("The season is over.")
    await desk.confirm(f"Cancel {number} tasks")
    ended = (await desk.board.find_all(task.id for task in ready)).values()
    assert {(task.state, task.reason) for task in ended} == {("cancelled", "The season is over.")}
    counts = await desk.board.count_tasks()
    main = await desk.open("board", filter="state:cancelled")
    await main.get_by_role("button", name=f"Retry {counts['cancelled']}").click()
    await desk.confirm(f"Retry {counts['cancelled']} tasks")
    assert (await desk.board.count_tasks()).get("cancelled", 0) == 0


ACTS = re.compile(r"^(Add|Answer|Approve|Reject|Raise|Message|Stop|Cancel|Retry|Release|Follow-up|Send|Write|Mark)\b")


def offered(page: Page) -> Locator:
    """What can be done in this view. The row of a goal has the goal's title as its name, such as "Answer bob"."""
    return page.get_by_role("button", name=ACTS).and_(page.locator(":not(.goal-row)"))


async def test_a_visitor_who_may_only_look_is_offered_nothing_to_do(desk: Desk, visitor: Visitor) -> None:
    for view in ("now", "board", "money", "team"):
        await desk.open(view)
        await expect(offered(desk.page).first).to_be_visible()
    context = await visitor.enter(desk.server, "look")
    for view in ("now", "foryou", "board", "money", "team", "merges", "log"):
        page = await show(context, desk.server, view)
        await expect(offered(page)).to_have_count(0)
    for tab in ("overview", "diff"):
        page = await show(context, desk.server, "task", task=desk.story["read"], tab=tab)
        await expect(offered(page)).to_have_count(0)
        await expect(page.get_by_role("button", name=re.compile("^Comment"))).to_have_count(0)
    await page.keyboard.press("n")
    await expect(page.get_by_role("dialog")).to_have_count(0)
