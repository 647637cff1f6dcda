"""What arrives for the human: printed as it comes, once, and safe for a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dugnad.board import Board
from dugnad.chat.incoming import Incoming
from dugnad.chat.session import alongside
from dugnad.types import HUMAN
from tests.cli.chat_stage import SECONDS, Paper, Talk, play_lead, until_read
from tests.conftest import Opener
from tests.team.stage_team import AnswerLost


@asynccontextmanager
async def listening(board: Board) -> AsyncIterator[Paper]:
    talk = Talk(board, trouble_seconds=0.01)
    async with alongside(talk.session, Incoming(talk.session).listen()):
        yield talk.paper


async def test_messages_are_printed_as_they_come_and_marked_as_shown(opener: Opener) -> None:
    lead = await play_lead(await opener())
    board = await opener()
    await lead.says("Said before.")
    async with listening(board) as paper:
        await paper.until("lead: Said before.")
        await lead.says("Said meanwhile.")
        await paper.until("lead: Said meanwhile.")
        await until_read(board)
    assert paper.text == "lead: Said before.\nlead: Said meanwhile.\n"


async def test_a_message_of_many_lines_is_set_apart(board: Board) -> None:
    lead = await play_lead(board)
    await lead.says("Three things:\n1. this\n2. that\n")
    async with listening(board) as paper:
        await paper.until("that")
    assert paper.text == "lead:\n  Three things:\n  1. this\n  2. that\n"


async def test_a_message_cannot_give_orders_to_the_terminal(board: Board) -> None:
    lead = await play_lead(board)
    await lead.says("\x1b]0;mine\x07\x1b[2J\x01\u202e[bold]and text[/bold]")
    async with listening(board) as paper:
        await paper.until("and text")
    assert not set(paper.text) & set("\x1b\x07\x01\u202e")
    assert "[bold]and text[/bold]" in paper.text


async def test_questions_and_plans_come_with_how_to_answer_them(board: Board) -> None:
    lead = await play_lead(board, "alice", "bob")
    await lead.asks("alice", "Pick a licence", "Which?")
    await lead.asks("bob", "Move the data", "1. Copy\n2. Switch", plan=True)
    async with listening(board) as paper:
        await paper.until("/answer", "/approve")
    assert paper.text.splitlines() == [
        "alice asks about #1 (m1): Which?",
        "-> to answer: /answer m1 TEXT",
        "bob shows a plan about #2 (m2):",
        "  1. Copy",
        "  2. Switch",
        "-> to decide: /approve m2   or   /reject m2 WHY",
    ]


async def test_an_open_question_comes_again_with_the_next_chat_and_an_answered_one_does_not(board: Board) -> None:
    lead = await play_lead(board, "alice")
    await lead.asks("alice", "Pick a licence", "Which?")
    for _ in range(2):
        async with listening(board) as paper:
            await paper.until("/answer m1")
            await until_read(board)
        assert paper.text.count("Which?") == 1
    await Talk(board).says("/answer MIT")
    await lead.says("Thanks.")
    async with listening(board) as paper:
        await paper.until("Thanks.")
    assert "Which?" not in paper.text


async def test_a_question_answered_elsewhere_before_it_was_seen_asks_for_nothing(board: Board) -> None:
    lead = await play_lead(board, "alice")
    await lead.asks("alice", "Pick a licence", "Which?")
    await Talk(board).says("/answer MIT")
    async with listening(board) as paper:
        await board.tell("alice", "human", "Thank you.")
        await paper.until("Thank you.")
    assert "Which?" not in paper.text


async def test_a_question_to_a_lead_that_went_away_comes_to_the_human(opener: Opener) -> None:
    lead = await play_lead(await opener(), "alice")
    async with listening(await opener()) as paper:
        await lead.board.tell("alice", "lead", "May I?", kind="question")
        await lead.board.stop_teammate("lead")
        await paper.until("alice to lead asks (m1): May I?", "/answer m1")


async def test_replies_say_what_was_decided(board: Board) -> None:
    await play_lead(board, "alice", "bob")
    for name, accepted, why in (("alice", True, ""), ("bob", False, "I am in the middle of it.")):
        asked = await board.tell("human", name, "Done?", kind="shutdown")
        assert asked.request is not None
        await board.reply(asked.request, name, why, accepted=accepted)
    async with listening(board) as paper:
        await paper.until("bob")
    assert paper.text == "alice agrees to shut down.\nbob refuses to shut down: I am in the middle of it.\n"


async def test_an_answer_is_printed_after_what_its_question_prints(opener: Opener) -> None:
    lead = await play_lead(await opener(), "alice")
    looking: list[asyncio.Task[None]] = []

    async def alice_answers() -> None:
        """Before the chat knows that its message was taken. The answer gets the time to be printed too early."""
        await lead.board.tell("alice", HUMAN, "Half-way.")
        looking.append(asyncio.create_task(Incoming(talk.session).arrive()))
        await asyncio.wait(looking, timeout=0.3)

    talk = Talk(AnswerLost(await opener(), "tell", alice_answers))  # type: ignore[arg-type]
    await talk.says("/tell alice How far are you?")
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*looking)
    assert talk.paper.text == "Sent to alice.\nalice: Half-way.\n"


async def test_trouble_is_told_once_while_it_lasts(opener: Opener) -> None:
    await opener()
    board = await opener()
    talk = Talk(board, trouble_seconds=7)
    incoming = Incoming(talk.session)
    assert await incoming.look() == 0
    await board.close()
    assert [await incoming.look() for _ in range(3)] == [7, 7, 7]
    assert talk.paper.text == "The board was closed; open it again.\n"


async def test_a_long_absence_is_caught_up_with_page_by_page(board: Board) -> None:
    lead = await play_lead(board)
    for number in range(120):
        await lead.says(f"Message {number}.")
    async with listening(board) as paper:
        await paper.until("Message 119.")
    assert paper.text.splitlines() == [f"lead: Message {number}." for number in range(120)]
