"""Nothing that others wrote reaches a terminal raw, whichever command shows it; and what is to be pasted is quoted."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from dugnad.board import Board
from dugnad.chat.incoming import Incoming, announcement
from dugnad.chat.screen import layout
from dugnad.chat.session import alongside
from dugnad.team.report import Deliveries, Report
from dugnad.text import pasted
from dugnad.types import Done, Failed, Message, Waiting
from dugnad.view.console import SafeConsole
from tests.cli.chat_stage import Paper, Talk, play_lead
from tests.cli.shell import Shell
from tests.conftest import Opener

# C0, DEL, C1, direction, and what nobody sees.
BAD = "\x07\x08\x0b\x1b\x7f\x80\x85\x9b\x9d\xad\u061c\u200b\u200e\u200f\u2028\u202a\u202e\u2060\u2066\ufeff\U000e0041"
EVIL = f"x{BAD}\x1b[2J\x1b]0;mine\x07\x9b31mred\u202eback"


def must_be_plain(text: str) -> None:
    assert not set(text) & set(BAD), ascii(text)
    assert not [each for each in text if ord(each) < 32 and each != "\n"], ascii(text)


@pytest.fixture
def shell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(folder)
    return Shell(f"sqlite:///{folder}/board.db")


async def fill(board: Board) -> None:
    await board.spawn("alice", prompt=EVIL)
    host = await board.start_host(f"label{EVIL}")
    await board.seat(host, name="alice")
    for outcome in (Done(EVIL), Failed(EVIL), Waiting(on="human", question=EVIL)):
        task = await board.put(f"t{EVIL}", body=EVIL, check=EVIL)
        claim = await board.claim("alice", host, task=task.id)
        assert claim is not None
        await board.hand_over(claim, EVIL)
        await board.write_note("alice", f"n{EVIL}", EVIL, claim=claim)
        await board.settle(claim, outcome)
    await board.tell("alice", "human", EVIL)
    await board.cool_down(f"key{EVIL}", seconds=60, reason=EVIL, by="alice")
    await board.fail_teammate("alice", by="board", reason=EVIL)


@pytest.mark.parametrize(
    "words",
    ["tasks", "show 1", "show 2", "show 3", "show 3 --transcript", "log", "log --all", "notes", "team", "inbox --all",
     "inbox", "budget 1", "doctor", "doctor --offline"],
)  # fmt: skip
def test_no_command_prints_what_a_terminal_would_obey(shell: Shell, words: str) -> None:
    shell.on_board(fill)
    ran = shell(*words.split())
    must_be_plain(ran.output)


@pytest.mark.parametrize("words", ["tasks", "show 3", "log", "notes", "team", "inbox"])
def test_json_is_valid_and_ascii(shell: Shell, words: str) -> None:
    shell.on_board(fill)
    ran = shell(*words.split(), "--json")
    assert ran.output.isascii()
    for line in ran.output.splitlines():
        json.loads(line)


@pytest.mark.parametrize("given", [EVIL, "\ud800", f"a{BAD}"])
def test_neither_does_an_error(shell: Shell, given: str) -> None:
    for words in (["show", given], ["tell", given, "x"], ["spawn", given], ["tasks", "--state", given], [given]):
        must_be_plain(shell(*words).output)


@pytest.mark.parametrize("colours", [True, False])
def test_whatever_was_forgotten_the_console_lets_nothing_through(colours: bool) -> None:
    stream = io.StringIO()
    console = SafeConsole(file=stream, force_terminal=colours, color_system="256" if colours else None, width=500)
    console.print(Text(EVIL, style="red"), markup=False)
    text = stream.getvalue().replace("\x1b[31m", "").replace("\x1b[0m", "")
    must_be_plain(text)
    assert "red" in text


# What a message says does not look like our own hints.


def message(text: str, **fields: Any) -> Message:
    blank: dict[str, Any] = dict.fromkeys(Message.__dataclass_fields__)
    usual = {"id": 3, "sender": "bob", "recipient": "human", "kind": "text", "text": text, "sent_at": 0}
    return Message(**{**blank, **usual, **fields})


FORGED = "bob asks about #3 (m3): May I?\n-> to answer: /answer m3 yes\ndugnad answer m3 yes"


@pytest.mark.parametrize("columns", [20, 40, 80, 2_000])
@pytest.mark.parametrize(
    "words",
    [FORGED, f"Hello.\n{FORGED}", FORGED.replace("\n", "\r"), FORGED.replace("\n", "\u2028"),
     *(" ".join(["x" * count, *FORGED.splitlines()]) for count in range(5, 90, 3)),
     "\n" + FORGED, f"{'x' * 30}{' ' * 60}-> to answer: /answer m3 yes"],
)  # fmt: skip
def test_no_words_of_a_message_begin_a_line_of_the_chat(words: str, columns: int) -> None:
    for kind in ("text", "question", "notice"):
        lines = layout(announcement(message(words, kind=kind), lead="lead"), columns, colours=False).splitlines()
        ours = [line for line in lines if line and not line.startswith("  ")]
        asks = kind == "question"
        assert ours[0].startswith("bob asks (m3):" if asks else "bob:")
        hint = " ".join(ours[1:])
        assert hint == ("-> to answer: /answer m3 TEXT" if asks else ""), lines


async def test_in_a_chat_only_our_hints_stand_at_the_beginning_of_a_line(opener: Opener) -> None:
    board = await opener()
    lead = await play_lead(board)
    await lead.says(FORGED)
    talk = Talk(board, trouble_seconds=0.01)
    paper: Paper = talk.paper
    async with alongside(talk.session, Incoming(talk.session).listen()):
        await paper.until("dugnad answer m3 yes")
    assert [line for line in paper.text.splitlines() if not line.startswith("  ")] == ["lead:"]


# What is to be pasted.


@pytest.mark.parametrize("name", ["a;touch x", "$(touch x)", "a'b", "a&b", "`id`", "-d", "--force", "a|b", "ok/main"])
def test_a_branch_in_a_command_is_one_word_and_no_option(name: str) -> None:
    end = Report(tasks=(), deliveries=Deliveries(target=name, commits=2, kept={}))
    command = end.next_steps()[0].partition("    ")[0]
    assert shlex.split(command) == ["git", "merge", f"refs/heads/{name}" if name.startswith("-") else name]
    assert shlex.split(f"git switch {pasted(name)}")[2].endswith(name)
