"""What the lead writes is shown while it is written: whole words, safe for a terminal, and once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dugnad.board import Board
from dugnad.chat.incoming import Incoming
from dugnad.chat.session import alongside
from dugnad.chat.spoken import Spoken
from dugnad.models import ScriptedModel
from dugnad.models.scripted import Step
from dugnad.types import Claim
from tests.agent.stage_agent import call, set_stage
from tests.cli.chat_stage import Paper, Talk, play_lead, until_read


@asynccontextmanager
async def listening(board: Board) -> AsyncIterator[tuple[Paper, Spoken]]:
    talk = Talk(board, trouble_seconds=0.01)
    spoken = talk.session.spoken
    spoken.name, spoken.screen = "lead", talk.paper
    showing = asyncio.ensure_future(spoken.follow())
    async with alongside(talk.session, Incoming(talk.session).listen()):
        yield talk.paper, spoken
    showing.cancel()


async def errand(board: Board, words: str) -> Claim:
    lead = await play_lead(board)
    put = await board.put("Answer human", body=words, by="human", assignee="lead", kind="human_message")
    return await lead.claim("lead", put.id)


async def test_rows_are_shown_before_the_reply_is_whole_and_the_message_is_not_printed_again(board: Board) -> None:
    claim = await errand(board, "Well?")
    whole = "First line.\nAnd a second one, which is much longer than a row of the terminal is, and so it is cut. End."
    async with listening(board) as (paper, spoken):
        spoken.hear(claim, "")
        for word in whole.split(" ")[:-1]:
            spoken.hear(claim, f"{word} ")
        await paper.until("First line.", "which is much longer")
        assert "End." not in paper.text
        spoken.hear(claim, "End.")
        await board.tell("lead", "human", whole, claim=claim)
        await until_read(board)
        await paper.until("End.")
        await board.tell("lead", "human", "Another.", claim=claim)
        await paper.until("lead: Another.")
    shown = paper.text.removesuffix("lead: Another.\n")
    assert shown.startswith("lead:\n  First line.\n  And a second")
    assert shown.count("lead") == 1
    assert " ".join(shown.split()) == "lead: " + " ".join(whole.split())


async def test_a_message_that_differs_from_what_was_written_is_printed_whole(board: Board) -> None:
    claim = await errand(board, "Well?")
    async with listening(board) as (paper, spoken):
        spoken.hear(claim, "")
        spoken.hear(claim, "Something\n")
        await board.tell("lead", "human", "Something else.", claim=claim)
        await paper.until("lead: Something else.")


async def test_what_is_shown_gives_no_orders_to_the_terminal_and_tells_no_secret(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hush-hush-0123456789")
    claim = await errand(board, "Well?")
    async with listening(board) as (paper, spoken):
        spoken.hear(claim, "")
        for character in (
            "\x1b]0;mine\x07\x1b[2J\x9b2J\u202eThe key is hush-hush-0123456789, they say.\n" + "x" * 71 + " y\n"
        ):
            spoken.hear(claim, character)
        await paper.until("they say.", "y")
    assert not set(paper.text) & set("\x1b\x07\x9b\u202e")
    assert "hush-hush" not in paper.text
    assert "[SOME_API_KEY]" in paper.text


async def test_words_of_others_and_of_a_reply_that_broke_off_do_not_get_mixed(board: Board) -> None:
    claim = await errand(board, "Well?")
    async with listening(board) as (paper, spoken):
        spoken.name = "bob"
        spoken.hear(claim, "Not mine.\n")
        spoken.name = "lead"
        spoken.hear(claim, "")
        spoken.hear(claim, "It broke")
        spoken.hear(claim, "")  # The same request is made again.
        spoken.hear(claim, "It is whole.")
        await board.tell("lead", "human", "It is whole.", claim=claim)
        await paper.until("It is whole.")
        await until_read(board)
    assert paper.text == "lead:\n  It broke\nlead:\n  It is whole.\n"


async def test_only_what_is_written_to_a_person_is_heard(board: Board) -> None:
    heard: list[str] = []
    stage = await set_stage(
        board, model=ScriptedModel({"Answer human": [call("list_tasks"), Step(say="It is so.")]}),
        hears=lambda claim, piece: heard.append(piece),
    )  # fmt: skip
    await stage.run("Build it")
    assert heard == []
    await stage.run("Answer human", kind="human_message", assignee="alice")
    assert heard == ["", "", "It ", "is ", "so."]
