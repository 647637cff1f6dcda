"""The prompt itself, with keys from a pipe: what each key does, on both databases."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory

from dugnad.board import Board
from dugnad.chat.commands import COMMANDS, STATES
from dugnad.chat.prompt import ChatCompleter, open_history
from dugnad.chat.status import BoardStatus, look
from dugnad.safe_open import user_state
from tests.cli.chat_stage import Lead, chatting, play_lead


async def heard(lead: Lead, count: int) -> list[str]:
    """What the lead was told, as soon as it is so much."""
    return [message.text for message in await lead.is_told(count=count)]


async def test_lines_go_to_the_lead_in_the_order_they_were_typed(board: Board, folder: Path) -> None:
    lead = await play_lead(board)
    async with chatting(board, folder) as (keys, _):
        keys.send_text("".join(f"line {number}\r" for number in range(5)))
        assert await heard(lead, 5) == [f"line {number}" for number in range(5)]
        keys.send_text("\x04")


async def test_alt_enter_and_a_backslash_begin_another_line(board: Board, folder: Path) -> None:
    lead = await play_lead(board)
    async with chatting(board, folder) as (keys, _):
        keys.send_text("one\x1b\rtwo\\\rthree\r")
        assert await heard(lead, 1) == ["one\ntwo\nthree"]
        keys.send_text("/quit\r")


async def test_control_c_clears_the_line_and_twice_on_an_empty_one_leaves(board: Board, folder: Path) -> None:
    lead = await play_lead(board)
    async with chatting(board, folder) as (keys, output):
        keys.send_text("wrong\x03right\r")
        assert await heard(lead, 1) == ["right"]
        keys.send_text("\x03")
        await output.until("Ctrl-C again")
        keys.send_text("still here\r")
        assert await heard(lead, 2) == ["right", "still here"]
        keys.send_text("\x03\x03")


async def test_control_d_leaves_an_empty_line_only(board: Board, folder: Path) -> None:
    lead = await play_lead(board)
    async with chatting(board, folder) as (keys, _):
        keys.send_text("ab\x02\x04c\r")  # Back over the b, which Ctrl-D then takes away.
        assert await heard(lead, 1) == ["ac"]
        keys.send_text("\x04")


async def test_tab_completes_a_command(board: Board, folder: Path) -> None:
    lead = await play_lead(board)
    async with chatting(board, folder) as (keys, _):
        keys.send_text("/compa\t\r")
        assert await heard(lead, 1) == ["Please make room in your context: call compact."]
        keys.send_text("\x04")


async def test_up_brings_back_what_was_typed_in_an_earlier_chat(board: Board, folder: Path) -> None:
    lead = await play_lead(board)
    async with chatting(board, folder) as (keys, _):
        keys.send_text("hello again\r")
        await heard(lead, 1)
        keys.send_text("\x04")
    async with chatting(board, folder) as (keys, _):
        keys.send_text("\x1b[A\r")
        assert await heard(lead, 2) == ["hello again", "hello again"]
        keys.send_text("\x04")
    kept = folder / "state" / "dugnad" / "chat_history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


async def test_an_input_that_ends_leaves(board: Board, folder: Path) -> None:
    async with chatting(board, folder) as (keys, _):
        keys.close()


async def test_a_chat_that_is_cancelled_lets_go_of_everything(board: Board, folder: Path) -> None:
    lead = await play_lead(board)
    before = asyncio.all_tasks()
    with contextlib.suppress(asyncio.CancelledError):
        async with chatting(board, folder) as (keys, output):
            keys.send_text("hello\r")
            await heard(lead, 1)
            (talk,) = [task for task in asyncio.all_tasks() - before if task.get_name() == "chat"]
            talk.cancel()
    assert talk.cancelled()
    left = [repr(task) for task in asyncio.all_tasks() - before if "dugnad board" not in task.get_name()]
    assert not left
    assert "you>" in output.text


async def test_what_else_prints_in_the_process_does_not_break_the_prompt(board: Board, folder: Path) -> None:
    lead = await play_lead(board)
    async with chatting(board, folder) as (keys, output):
        keys.send_text("half")
        print("a tool that prints")
        await output.until("a tool that prints")
        keys.send_text(" a line\r")
        assert await heard(lead, 1) == ["half a line"]
        keys.send_text("\x04")


def completions(text: str, standing: BoardStatus) -> list[str]:
    completer = ChatCompleter(COMMANDS, tuple(STATES), lambda: standing)
    return [each.text for each in completer.get_completions(Document(text), CompleteEvent())]


async def test_completion_knows_commands_teammates_tasks_and_requests(board: Board) -> None:
    lead = await play_lead(board, "alice", "albert")
    await lead.asks("alice", "Pick a licence", "Which?")
    for number in range(10):
        await board.put(f"Task {number}")
    await board.cancel(3)
    standing = await look(board)
    assert completions("/st", standing) == ["/stop", "/stop!"]
    assert sorted(completions("/tell al", standing)) == ["albert", "alice"]
    assert completions("/tell alice al", standing) == []
    assert completions("/show 1", standing) == ["#1", "#10", "#11"]
    assert completions("/show #10", standing) == ["#10"]
    assert completions("/retry ", standing) == ["#3"]
    assert completions("/answer ", standing) == ["m1"]
    assert completions("/tasks wai", standing) == ["waiting"]
    assert completions("/budget #1 tasks=3 do", standing) == ["dollars="]
    assert completions("/help qu", standing) == ["quit"]
    assert completions("hello al", standing) == []
    assert completions("/nonsense al", standing) == []
    assert len(completions("/", standing)) == len(COMMANDS)


def test_the_history_lies_in_the_users_state_folder() -> None:
    for given, folder in (("/state", "/state"), ("", "/home/me/.local/state"), ("relative", "/home/me/.local/state")):
        environment = {"XDG_STATE_HOME": given, "HOME": "/home/me"}
        assert user_state(environment, "chat_history") == Path(folder, "dugnad", "chat_history")


def test_a_history_that_cannot_be_kept_is_done_without(folder: Path) -> None:
    (folder / "file").write_text("")
    assert isinstance(open_history(folder / "file" / "history", 1_000), InMemoryHistory)
    kept = open_history(folder / "history", 1_000)
    (folder / "history").unlink()
    (folder / "history").mkdir()
    kept.store_string("lost, and nobody is troubled by it")
    assert list(kept.load_history_strings()) == []


def test_a_long_history_keeps_its_newer_half(folder: Path) -> None:
    path = folder / "history"
    history = open_history(path, 1_000_000)
    for number in range(100):
        history.store_string(f"line {number}\nand more")
    kept = list(open_history(path, 1_000).load_history_strings())
    assert path.stat().st_size <= 500
    assert kept[0] == "line 99\nand more"
    assert 5 < len(kept) < 50
