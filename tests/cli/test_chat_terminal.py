"""The chat as a person sees it, in a pseudo-terminal; the lead is in another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.chat_stage import COLUMNS, Terminal, play_lead, terminal
from tests.conftest import Opener


@pytest.fixture
def url(folder: Path) -> str:
    """The terminal is the same on both databases; what the chat does on them is tested with a pipe input."""
    return f"sqlite:///{folder}/board.db"


async def ready(screen: Terminal) -> None:
    await screen.shows("What you type goes to lead", "you>")
    await screen.until(lambda: "nobody works" in screen.bar or " on #" in screen.bar)


async def test_a_message_that_arrives_leaves_what_is_typed_alone(opener: Opener, url: str, folder: Path) -> None:
    lead = await play_lead(await opener())
    async with terminal(url, folder) as screen:
        await ready(screen)
        screen.type("half a sent")
        await screen.has_typed("half a sent")
        await lead.says("I have planned three tasks.")
        await screen.shows("lead: I have planned three tasks.")
        await screen.has_typed("half a sent")
        screen.type("ence\r")
        assert [message.text for message in await lead.hears()] == ["half a sentence"]
        screen.type("\x04")
        await screen.leaves()
        assert screen.text.count("I have planned") == 1
        assert screen.text.count("half a sentence") == 1


async def test_the_bar_follows_the_board(opener: Opener, url: str, folder: Path) -> None:
    lead = await play_lead(await opener(), "alice")
    async with terminal(url, folder) as screen:
        await ready(screen)
        assert screen.bar == " no tasks | nobody works"
        await lead.board.put("Write a parser")
        await screen.until(lambda: "1 ready" in screen.bar)
        await lead.claim("alice")
        await screen.until(lambda: screen.bar.startswith(" 1 claimed | alice on #1 Write a parser | #1:"))
        assert screen.typed == "you>"


async def test_a_question_appears_by_itself_and_is_answered(opener: Opener, url: str, folder: Path) -> None:
    lead = await play_lead(await opener(), "alice")
    async with terminal(url, folder) as screen:
        await ready(screen)
        screen.type("words for the lead")
        await screen.has_typed("words for the lead")
        await lead.asks("alice", "Pick a licence", "Which licence?")
        await screen.shows("alice asks about #1 (m1): Which licence?", "-> to answer: /answer m1 TEXT")
        await screen.until(lambda: "1 question for you: /answer" in screen.bar)
        screen.type("\r")  # What was typed before the question came is still for the lead.
        assert [message.text for message in await lead.hears()] == ["words for the lead"]
        assert (await lead.board.find(1)).state == "waiting"
        screen.type("/answer MIT\r")
        await screen.shows("Answered; alice is told about #1.")
        await screen.until(lambda: "question" not in screen.bar)
        assert (await lead.board.find(1)).state == "ready"


async def test_tab_up_and_more_lines_are_drawn(opener: Opener, url: str, folder: Path) -> None:
    lead = await play_lead(await opener(), "alice")
    async with terminal(url, folder) as screen:
        await ready(screen)
        screen.type("/tell al\t")
        await screen.has_typed("/tell alice")
        screen.type(" hello\r")
        await screen.shows("Sent to alice.")
        screen.type("\x1b[A")
        await screen.has_typed("/tell alice hello")
        screen.type("\x03")
        await screen.has_typed("")
        screen.type("one\\\rtwo\x1b\rthree")
        await screen.shows("you> one\n...  two\n...  three")
        screen.type("\r")
        assert [message.text for message in await lead.hears()] == ["one\ntwo\nthree"]


async def test_typing_a_slash_offers_the_commands(opener: Opener, url: str, folder: Path) -> None:
    await play_lead(await opener())
    async with terminal(url, folder) as screen:
        await ready(screen)
        screen.type("/te")
        await screen.shows("/team", "List the teammates and what each is doing.", "/tell")
        screen.type("\x03")
        await screen.until(lambda: "/team" not in screen.text)


async def test_tables_fit_the_terminal(opener: Opener, url: str, folder: Path) -> None:
    lead = await play_lead(await opener())
    await lead.board.put("A title " + "that is long " * 14)
    async with terminal(url, folder) as screen:
        await ready(screen)
        screen.type("/tasks\r")
        await screen.shows("#  state  who  when  title", "1  ready")
        (row,) = [line for line in screen.text.splitlines() if line.startswith("1  ready")]
        assert row.endswith("…")
        assert len(row) <= COLUMNS


async def test_a_hostile_message_draws_nothing(opener: Opener, url: str, folder: Path) -> None:
    lead = await play_lead(await opener())
    async with terminal(url, folder) as screen:
        await ready(screen)
        await lead.says("\x1b[2J\x1b[H\x1b]0;mine\x07gone")
        await screen.shows("lead: ␛[2J␛[H␛]0;mine␇gone", "What you type goes to lead")


async def test_control_c_twice_leaves(opener: Opener, url: str, folder: Path) -> None:
    await play_lead(await opener())
    async with terminal(url, folder) as screen:
        await ready(screen)
        screen.type("not this")
        await screen.has_typed("not this")
        screen.type("\x03")
        await screen.has_typed("")
        screen.type("\x03")
        await screen.shows("Press Ctrl-C again, or Ctrl-D, to leave.")
        screen.type("\x03")
        await screen.leaves()
