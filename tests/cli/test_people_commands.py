"""team, spawn, stop, tell, inbox, answer, approve, reject; and the log and the notes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.types import Done, Waiting
from tests.cli.shell import Shell, claimed


@pytest.fixture
def shell(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(folder)
    return Shell(url)


def test_a_teammate_is_wanted_with_its_settings(shell: Shell) -> None:
    words = ["--role", "coder,tester", "--role", "coder", "--prompt", "Be brief.", "--model", "a:b", "--lead", "--plan"]
    made = shell.json("spawn", "alice", *words)["teammate"]
    assert (made["name"], made["roles"], made["prompt"], made["model"]) == (
        "alice",
        ["coder", "tester"],
        "Be brief.",
        "a:b",
    )
    assert (made["lead"], made["plan"]) == (True, True)
    assert made["status"] == "wanted"
    assert shell.says("spawn", "bob") == "bob will join when a host starts (`dugnad run` or `dugnad work`).\n"
    said = shell.says("team").splitlines()
    assert said[1].split()[:2] == ["alice", "(lead)"]
    assert said[-1] == "No host is running; `dugnad run` or `dugnad work` starts one."


def test_the_team_shows_who_holds_what(shell: Shell) -> None:
    shell.says("add", "build it")
    shell.says("add", "ask about it")
    shell.settle("alice", Waiting(on="human", question="Which?"), task=2)
    shell.on_board(lambda board: claimed(board, "alice", task=1))
    row = shell.says("team").splitlines()[1]
    assert "working" in row
    assert "#1 build it; #2 ask about it (waits for a human)" in row
    team = shell.json("team")
    assert team["teammates"][0]["holds"] == [1, 2]
    assert team["hosts"][0]["alive"] is True


def test_a_teammate_nobody_runs_is_stopped_at_once(shell: Shell) -> None:
    shell.says("spawn", "alice")
    stopped = shell.json("stop", "alice", "--why", "enough", "--now")
    assert stopped["teammate"]["status"] == "stopped"
    assert stopped["said"].endswith(".")
    assert "shut down" in shell.fails(1, "tell", "alice", "hello?")


def test_a_message_reaches_its_inbox_and_looking_there_marks_nothing(shell: Shell) -> None:
    shell.says("spawn", "alice")
    assert shell.json("tell", "alice", "-", given="from a pipe\n")["message"]["text"] == "from a pipe\n"
    for _ in range(2):
        assert [each["text"] for each in shell.json("inbox", "alice")["messages"]] == ["from a pipe\n"]
    assert "human to alice" in shell.says("inbox", "alice")


def test_my_messages_are_shown_once_and_requests_until_they_are_answered(shell: Shell) -> None:
    shell.says("add", "ask")
    shell.settle("alice", Waiting(on="human", question="Red or blue?"))
    shell.on_board(lambda board: board.tell("alice", "human", "I began."))
    assert [each["text"] for each in shell.json("inbox", "--keep")["messages"]] == ["I began."]
    said = shell.says("inbox")
    assert "I began." in said
    assert 'Red or blue?\ndugnad answer m1 "..."' in said
    again = shell.json("inbox")
    assert again["messages"] == []
    assert [each["text"] for each in again["requests"]] == ["Red or blue?"]
    assert shell.says("answer", "1", "Blue.") == "alice is told, and #1 goes on.\n"
    assert shell.says("inbox") == "The inbox is empty.\n"
    assert [each["text"] for each in shell.json("inbox", "--all")["messages"]] == ["Red or blue?", "I began."]
    assert shell.json("show", "1")["task"]["state"] == "ready"


@pytest.mark.parametrize(
    ("words", "accepted"), [(["approve", "#1", "Good."], True), (["reject", "m1", "--why", "No."], False)]
)
def test_a_plan_is_approved_or_sent_back(shell: Shell, words: list[str], accepted: bool) -> None:
    shell.says("add", "a")
    shell.settle("alice", Waiting(on="plan", question="First this, then that."))
    assert "dugnad approve m1    or    dugnad reject m1 --why" in shell.says("inbox")
    message = shell.json(*words)["message"]
    assert (message["kind"], message["accepted"], message["text"]) == ("plan_reply", accepted, words[-1])
    assert shell.json("show", "1")["task"]["state"] == "ready"


def test_what_cannot_be_answered_says_so(shell: Shell) -> None:
    shell.says("add", "a")
    shell.settle("alice", Waiting(on="human", question="Which?"))
    shell.says("add", "b")
    assert "dugnad answer" in shell.fails(1, "approve", "1")
    assert "waits for no answer" in shell.fails(1, "answer", "2", "x")
    assert "no message m99" in shell.fails(2, "answer", "m99", "x")
    assert "The text is empty" in shell.fails(2, "answer", "1", "  ")
    shell.says("answer", "m1", "This one.")
    assert "already answered this" in shell.fails(1, "answer", "m1", "That one.")


def test_the_log_has_one_line_for_each_event_and_hides_the_machinery(shell: Shell) -> None:
    shell.says("add", "a")
    shell.settle("alice", Done("It works."))
    lines = shell.says("log").splitlines()
    assert [line.split("  ", 1)[1].strip() for line in lines if "#1" in line] == [
        '#1    human added "a"',
        "#1    alice claimed it, attempt 1",
        "#1    alice finished it: It works.",
    ]
    every = [json.loads(line) for line in shell.says("log", "--after", "0", "--json").splitlines()]
    assert [event["seq"] for event in every] == list(range(1, len(every) + 1))
    assert len(shell.says("log", "--all").splitlines()) == len(every)
    assert {event["task"] for event in map(json.loads, shell.says("log", "1", "--json").splitlines())} == {1}
    after = str(every[-2]["seq"])
    assert shell.says("log", "--after", after, "--json") == json.dumps(every[-1]) + "\n"


def test_notes_are_written_searched_and_shortened(shell: Shell) -> None:
    shell.says("add", "a")
    assert shell.says("notes") == "There are no notes.\n"
    long = "Fifty requests a minute. " * 100
    assert shell.json("notes", "--write", "API limits", long)["note"]["author"] == "human"
    shell.says("notes", "--write", "Names", "Use short ones.")
    assert [note["title"] for note in shell.json("notes")["notes"]] == ["Names", "API limits"]
    said = shell.says("notes", "api", "MINUTE")
    assert said.startswith("API limits  human, ")
    assert "(2,500 characters in all)" in said
    assert long.strip() in shell.says("notes", "minute", "--full")
    assert shell.says("notes", "nowhere") == "No note contains all of these words.\n"


def test_what_agents_write_moves_no_terminal(shell: Shell) -> None:
    """Every place where a person reads what an agent wrote."""
    evil = "\x1b]0;owned\x07 \x1b[2J \u202eback\u2066 \x9b31m [red]markup[/red] :smile: \r\n\tend"
    shell.says("add", "a", "--body", evil, "--check", evil)
    title = evil.replace("\r\n\t", " ")
    shell.says("add", title, "--under", "1")

    async def work(board: Board) -> None:
        claim = await claimed(board, "alice", task=2)
        await board.tell("alice", "human", evil, claim=claim)
        await board.write_note("alice", title, evil, claim=claim)
        await board.settle(claim, Waiting(on="human", question=evil))
        claim = await claimed(board, "alice", task=1)
        await board.settle(claim, Done(evil))

    shell.on_board(work)
    for words in (
        ["tasks"],
        ["show", "1"],
        ["show", "2"],
        ["log", "--all"],
        ["notes"],
        ["team"],
        ["budget"],
        ["inbox"],
    ):
        said = shell.says(*words)
        assert not set(said) & set("\x1b\x07\x9b\u202e\u2066\r\t"), words
        machine = shell.says(*words, "--json")
        assert machine.isascii()
        assert machine.isprintable() or "\n" in machine
        if "markup" in said:
            assert "[red]markup[/red] :smile:" in said
