"""add, tasks, show, retry, cancel, release, budget: as a script sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.types import Amount, Done, Failed, NewTurn, Waiting
from tests.cli.shell import Shell, claimed


@pytest.fixture
def shell(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(folder)
    return Shell(url)


def test_a_task_is_put_with_everything_that_can_be_said_about_it(shell: Shell) -> None:
    shell.says("add", "first")
    shell.says("add", "second")
    words = ["--body", "How.", "--needs", "1,#2:ended", "--role", "coder", "--priority", "5", "--check", "true"]
    put = shell.json("add", "third", *words, "--key", "k", "--plan", "--tasks", "3", "--dollars", "1.5")["task"]
    assert put["id"] == 3
    assert put["state"] == "blocked"
    assert (put["body"], put["role"], put["priority"], put["check"], put["key"]) == ("How.", "coder", 5, "true", "k")
    assert put["plan"] is True
    shown = shell.json("show", "3")
    assert shown["needs"] == [
        {"task": 1, "outcome": None, "state": "open"},
        {"task": 2, "outcome": "ended", "state": "open"},
    ]
    budget = shell.json("budget", "3")["budget"]
    assert (budget["tasks_max"], budget["dollars_max"], budget["tokens_max"]) == (3, 1.5, None)


def test_a_task_says_whose_approval_it_asks_for(shell: Shell) -> None:
    assert shell.json("add", "plain")["task"]["review"] is None
    put = shell.json("add", "Write it", "--review", "reviewer")["task"]
    assert (put["review"], put["not_for"]) == ("reviewer", None)
    assert shell.json("show", "2")["task"] == put
    assert "by another reviewer" in shell.says("show", "2")
    assert "review" not in shell.says("show", "1")
    assert "'a b' cannot be a role" in shell.fails(2, "add", "t", "--review", "a b")
    assert "--review" in shell.fails(2, "add", "t", "--review")


def test_the_same_key_is_the_same_task(shell: Shell) -> None:
    assert shell.says("add", "once", "--key", "k") == shell.says("add", "once", "--key", "k") == "#1 ready: once\n"


@pytest.mark.parametrize(
    ("delay", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86400), ("1h30m", 5400)]
)
def test_a_delay_is_said_as_people_say_it(shell: Shell, delay: str, seconds: int) -> None:
    put = shell.json("add", "later", "--delay", delay)["task"]
    assert put["state"] == "scheduled"
    assert put["due_at"] - put["put_at"] == seconds * 1000


def test_the_body_comes_from_standard_input(shell: Shell) -> None:
    assert shell.json("add", "t", "--body", "-", given="line one\nline two\n")["task"]["body"] == "line one\nline two\n"


def test_a_backlog_is_put_as_a_whole_or_not_at_all(shell: Shell, folder: Path) -> None:
    shell.says("add", "goal")
    (folder / "backlog.txt").write_text("one\n\n  two  \n")
    put = shell.json("add", "--file", str(folder / "backlog.txt"), "--under", "1")["tasks"]
    assert [(task["title"], task["parent"]) for task in put] == [("one", 1), ("two", 1)]
    assert "characters" in shell.fails(2, "add", "--file", "-", given="good\n" + "x" * 500)
    assert [child["title"] for child in shell.json("show", "1")["children"]] == ["one", "two"]


def test_the_open_tasks_come_first_and_then_the_last_that_ended(shell: Shell) -> None:
    for title in ("done first", "still open", "done last"):
        shell.says("add", title)
    shell.settle("alice", Done("ok"), task=1)
    shell.settle("alice", Done("ok", "approved"), task=3)
    said = shell.says("tasks").splitlines()
    assert [line.split()[0] for line in said[1:4]] == ["2", "1", "3"]
    assert "(approved)" in said[3]
    assert said[-1] == "1 ready, 2 done"
    assert shell.json("tasks")["counts"] == {"ready": 1, "done": 2}


def test_states_roles_names_and_goals_choose_what_is_listed(shell: Shell) -> None:
    shell.says("add", "a", "--role", "coder")
    shell.says("add", "b", "--needs", "1")
    shell.says("add", "c", "--delay", "1h")
    shell.says("add", "d", "--under", "2")
    shell.settle("alice", Waiting(on="human", question="Which?"), task=4)

    def ids(*words: str) -> list[int]:
        return [task["id"] for task in shell.json("tasks", *words)["tasks"]]

    assert ids("--ready") == [1]
    assert ids("--blocked", "--scheduled") == [2, 3]
    assert ids("--waiting") == ids("--by", "alice") == [4]
    assert ids("--root", "2") == [2, 4]
    assert ids("--role", "coder") == [1]
    assert ids("--claimed") == ids("--ended") == []
    assert "waits for a human: Which?" in shell.says("tasks", "--waiting")
    assert shell.says("tasks", "--ended").startswith("No task matches. On the board: ")


def test_a_long_list_comes_in_pages_and_says_so(shell: Shell) -> None:
    shell.says("add", "--file", "-", given="\n".join(f"task {number}" for number in range(1, 8)))
    first = shell.json("tasks", "--limit", "5")
    assert ([task["id"] for task in first["tasks"]], first["more_after"]) == ([1, 2, 3, 4, 5], 5)
    second = shell.json("tasks", "--limit", "5", "--after", "5")
    assert ([task["id"] for task in second["tasks"]], second["more_after"]) == ([6, 7], None)
    assert "There are more tasks: add --after 5 to the same command." in shell.says("tasks", "--limit", "5")


def test_the_newest_that_ended_are_found_at_the_end_of_a_long_board(shell: Shell) -> None:
    shell.says("add", "--file", "-", given="\n".join(f"task {number}" for number in range(1, 601)))
    shell.says("cancel", "3")
    shell.says("cancel", "599")
    assert [task["id"] for task in shell.json("tasks", "--limit", "1")["tasks"]] == [1, 599]
    assert [task["id"] for task in shell.json("tasks", "--limit", "2")["tasks"]] == [1, 2, 3, 599]


def test_a_page_tells_all_about_a_task(shell: Shell) -> None:
    shell.says("add", "goal", "--body", "Make it\nso.")
    shell.says("add", "part", "--under", "1", "--needs", "1")
    shell.settle("alice", Failed("no disk", retry=True), task=1)
    said = shell.says("show", "1")
    for words in ("#1 goal  scheduled", "Make it\n  so.", "1. alice", "retry after", "no disk", "#2 blocked: part"):
        assert words in said
    assert "#1 done (open) goal" in shell.says("show", "#2")


def test_a_transcript_reads_as_a_conversation_and_is_whole_in_json(shell: Shell) -> None:
    shell.says("add", "talk")
    long = "x" * 5_000
    reply = (
        '{"said": "You are alice.", "reply": {"text": "I look.", "calls": [["c1", "read", "{\\"path\\": \\"a\\"}"]], '
        '"usage": [1, 2, 0, 0], "stop": "tools", "model": "m", "native": null}}'
    )

    async def work(board: Board) -> None:
        claim = await claimed(board, "alice")
        await board.record(claim, NewTurn(number=1, kind="reply", body=reply, used=Amount(tokens=7)))
        await board.record(claim, NewTurn(number=2, kind="tool", body=f'{{"place": 0, "text": "{long}"}}'))
        await board.record(claim, NewTurn(number=3, kind="request", body='{"odd": "\\u001b[2J"}'))

    shell.on_board(work)
    said = shell.says("show", "1", "--transcript")
    for words in ("told:\n    You are alice.", "alice (7 tokens) says:\n    I look.", 'calls read {"path": "a"}'):
        assert words in said
    assert "read returned:" in said
    assert "(5,000 characters in all)" in said
    assert "\x1b" not in said
    turns = shell.json("show", "1", "--transcript")["transcript"]
    assert [turn["kind"] for turn in turns] == ["reply", "tool", "request"]
    assert turns[1]["body"]["text"] == long


def test_failed_and_cancelled_tasks_are_opened_again_with_what_was_skipped(shell: Shell) -> None:
    shell.says("add", "a")
    shell.says("add", "b", "--needs", "1")
    shell.says("add", "c", "--needs", "1")
    assert shell.says("cancel", "1", "--why", "wrong") == "Cancelled: #1.\n"
    assert shell.json("show", "2")["task"]["state"] == "skipped"
    assert shell.says("cancel", "1") == "#1 was cancelled already.\n"
    assert sorted(shell.json("retry", "1")["reopened"]) == [1, 2, 3]
    assert {task["state"] for task in shell.json("tasks")["tasks"]} == {"ready", "blocked"}
    assert sorted(shell.json("cancel", "1", "--dependents")["cancelled"]) == [1, 2, 3]
    shell.says("add", "d")
    shell.settle("alice", Done("x"), task=4)
    assert shell.fails(1, "cancel", "4") == "#4 has already ended as done."


def test_a_task_is_taken_from_its_holder(shell: Shell) -> None:
    shell.says("add", "a")
    shell.on_board(lambda board: claimed(board, "alice"))
    assert shell.json("release", "1", "--why", "stuck", "--delay", "1h")["task"]["state"] == "scheduled"
    assert shell.fails(1, "release", "1") == "#1 is scheduled; only a claimed or waiting task can be released."


def test_naming_one_cap_leaves_the_others(shell: Shell) -> None:
    shell.says("add", "goal", "--tasks", "5", "--tokens", "1000")
    shell.says("add", "part", "--under", "1")
    changed = shell.json("budget", "2", "--dollars", "2.5", "--tokens", "none")["budget"]
    assert (changed["root"], changed["tasks_max"], changed["tokens_max"], changed["dollars_max"]) == (1, 5, None, 2.5)
    added = shell.json("budget", "1", "--add", "--tasks", "10", "--minutes", "1")["budget"]
    assert (added["tasks_max"], added["dollars_max"], added["seconds_max"]) == (15, 2.5, None)
    assert "0 of 15 tasks, $0.00 of $2.50" in shell.says("budget")


def test_held_work_says_how_it_goes_on_and_does_so(shell: Shell) -> None:
    shell.says("add", "goal", "--tasks", "1")
    shell.says("add", "part", "--under", "1")

    async def use_up(board: Board) -> None:
        claim = await claimed(board, "alice", task=2)
        await board.settle(claim, Done("x"))
        assert await board.claim("alice", claim.host) is None

    shell.on_board(use_up)
    assert "Held: the cap on tasks is reached." in shell.says("budget", "1")
    assert "dugnad budget 1 --add --tasks 10" in shell.says("budget", "1")
    assert shell.json("budget", "1", "--add", "--tasks", "10")["budget"]["held"] is None


def test_minutes_are_counted_in_seconds_wherever_they_are_typed(shell: Shell) -> None:
    shell.says("add", "goal", "--minutes", "2.5")
    assert shell.json("budget", "1")["budget"]["seconds_max"] == 150
    assert shell.json("budget", "1", "--minutes", "2")["budget"]["seconds_max"] == 120
    assert shell.json("budget", "1", "--add", "--minutes", "0.5")["budget"]["seconds_max"] == 150
