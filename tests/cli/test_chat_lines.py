"""The chat as a script sees it: lines in, plain lines out, ended when what was said is answered."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from dugnad.types import NewTurn
from tests.cli.chat_stage import DRIVER, SECONDS, environment, play_lead, terminal
from tests.conftest import Opener


async def started(url: str, folder: Path, *, pickup_seconds: float = SECONDS) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, str(DRIVER), url, str(pickup_seconds), env=environment(folder), stdin=PIPE, stdout=PIPE,
        stderr=PIPE,
    )  # fmt: skip


async def ended(process: Process, lines: str) -> str:
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate(lines.encode())
    assert err == b""
    assert process.returncode == 0
    assert b"\x1b" not in out
    return out.decode()


async def test_commands_print_plain_lines_and_the_chat_ends_with_them(opener: Opener, url: str, folder: Path) -> None:
    board = await opener()
    await play_lead(board)
    await board.put("Write a parser with a title that is far longer than eighty columns, " + "word " * 20)
    printed = await ended(await started(url, folder), "/tasks\n/add One more\\\nwith a body\n/show 2")
    assert "word word\n" in printed
    assert "#2 is on the board (ready).\n" in printed
    assert "with a body\n" in printed
    assert "you>" not in printed
    assert "What you type goes" not in printed
    assert printed.endswith("\nleft\n")


async def test_the_answer_to_what_was_said_is_waited_for(opener: Opener, url: str, folder: Path) -> None:
    lead = await play_lead(await opener())
    process = await started(url, folder)
    talk = asyncio.create_task(ended(process, "How far are you?\n"))
    await lead.is_told()
    assert process.returncode is None
    await lead.errand("Half of it is done.")
    assert await talk == "lead: Half of it is done.\nleft\n"


async def test_an_answer_is_enough_where_the_work_goes_on(opener: Opener, url: str, folder: Path) -> None:
    lead = await play_lead(await opener(), "alice")
    await lead.board.put("Something long")
    claim = await lead.claim("alice")
    talk = asyncio.create_task(ended(await started(url, folder), "/tell alice How far are you?\n"))
    unread = await lead.is_told("alice")
    await lead.board.record(claim, NewTurn(number=1, kind="reply", body="{}", shown=(unread[0].id,)))
    await lead.board.tell("alice", "human", "Half-way.", claim=claim)
    assert await talk == "Sent to alice.\nalice (#1): Half-way.\nleft\n"
    assert (await lead.board.find(1)).state == "claimed"


async def test_nobody_to_answer_is_not_waited_for(opener: Opener, url: str, folder: Path) -> None:
    lead = await play_lead(await opener())
    talk = asyncio.create_task(ended(await started(url, folder), "Hello?\n"))
    await lead.is_told()
    await lead.board.stop_teammate("lead")
    assert await talk == "left\n"


async def test_a_lead_that_never_reads_is_not_waited_for_without_end(opener: Opener, url: str, folder: Path) -> None:
    await play_lead(await opener())
    printed = await ended(await started(url, folder, pickup_seconds=0.2), "Hello?\n")
    assert printed == "lead has not read your message; `dugnad inbox` shows later answers.\nleft\n"


async def test_quit_ends_before_the_lines_do(opener: Opener, url: str, folder: Path) -> None:
    board = await opener()
    await ended(await started(url, folder), "/quit\n/add never\n")
    assert await board.list_tasks() == []


async def test_a_question_is_answered_through_a_pipe(opener: Opener, url: str, folder: Path) -> None:
    lead = await play_lead(await opener(), "alice")
    await lead.asks("alice", "Pick a licence", "Which?")
    talk = asyncio.create_task(ended(await started(url, folder), "/answer MIT\n"))
    printed = await talk  # Whoever asked works on with it; there is nothing more to wait for.
    assert (await lead.board.find(1)).state == "ready"
    assert "alice asks about #1 (m1): Which?" in printed
    assert "Answered; alice is told about #1." in printed


async def test_lines_may_come_from_a_file(opener: Opener, url: str, folder: Path) -> None:
    await opener()
    (folder / "lines").write_bytes(b"/add caf\xc3\xa9 \xff\r\n\r\n/tasks ready")
    with (folder / "lines").open("rb") as lines:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(DRIVER), url, env=environment(folder), stdin=lines, stdout=PIPE, stderr=PIPE
        )
        async with asyncio.timeout(SECONDS):
            out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert "café \ufffd" in out.decode()


async def test_nobody_reading_the_lines_is_no_error(opener: Opener, url: str, folder: Path) -> None:
    await opener()
    process = await started(url, folder)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(b"/help\n")
    await process.stdout.readline()
    process.stdout._transport.close()  # type: ignore[attr-defined]
    process.stdin.write(b"/help\n" * 100)
    process.stdin.close()
    async with asyncio.timeout(SECONDS):
        assert await process.stderr.read() == b""
        assert await process.wait() == 0


async def test_a_dumb_terminal_gets_plain_lines(opener: Opener, url: str, folder: Path) -> None:
    lead = await play_lead(await opener())
    async with terminal(url, folder, term="dumb") as screen:
        await screen.shows("What you type goes to lead")
        screen.type("hello\n")
        assert [message.text for message in await lead.hears()] == ["hello"]
        await lead.says("Good morning.")
        await screen.shows("lead: Good morning.")
        screen.type("\x04")
        await screen.leaves()
        assert "you>" not in screen.text


async def test_nobody_is_waited_for_who_failed(opener: Opener, url: str, folder: Path) -> None:
    lead = await play_lead(await opener())
    talk = asyncio.create_task(ended(await started(url, folder), "How far are you?\n"))
    await lead.is_told()
    await lead.board.fail_teammate("lead", by="lead", reason="its key is wrong")
    assert "has not read" not in await talk
