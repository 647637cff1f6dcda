"""Caps typed after `dugnad chat` are for the whole chat, and reach the board."""

from __future__ import annotations

from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.chat.status import bar, look
from dugnad.types import Budget
from tests.cli.shell import run
from tests.cli.terminal import MODEL, make_project, states, told

SCRIPT = """
"*":
  - say: Hello.
"""


@pytest.fixture
def project(folder: Path) -> Path:
    make_project(folder, SCRIPT)
    return folder


@pytest.mark.parametrize(
    ("option", "amount", "key", "cap"),
    [
        ("--tasks", "7", "tasks_max", 7), ("--tokens", "90000", "tokens_max", 90_000),
        ("--minutes", "3", "seconds_max", 180.0),
    ],
)  # fmt: skip
def test_each_cap_typed_after_chat_is_that_of_its_one_account(
    project: Path, option: str, amount: str, key: str, cap: float
) -> None:
    ran = run("chat", option, amount, *MODEL, folder=project, given="Hi\nAnd you?\n")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "lead: Hello." in ran.stdout
    budget = told(project, "budget", "b1")["budget"]
    assert budget[key] == cap
    assert budget["runs"] >= 1
    answers = [task for task in told(project, "tasks", "--all")["tasks"] if task["title"] == "Answer human"]
    assert {task["root"] for task in answers} == {-1}
    assert min(task["id"] for task in answers) == 1
    assert told(project, "budget", "1")["budget"] == told(project, "budget")["budgets"][0] == budget


def test_a_chat_at_its_cap_says_so_and_how_to_raise_it_and_then_goes_on(project: Path) -> None:
    ran = run("chat", "--tasks", "1", *MODEL, folder=project, given="Hi\n/add More\n")
    assert "This chat has reached its cap on tasks." in ran.stdout
    assert "/budget tasks=+10" in ran.stdout
    assert told(project, "budget", "b1")["budget"]["runs"] == 1
    assert states(project)["More"] == "ready" or states(project)["Answer human"] == "ready"


def test_a_capped_chat_leaves_what_else_is_on_the_board_alone_unless_told_otherwise(project: Path) -> None:
    run("add", "Left over", folder=project)
    ran = run("chat", "--tokens", "90000", *MODEL, folder=project, given="Hi\n")
    assert "1 other task waits on this board" in ran.stdout
    assert states(project)["Left over"] == "ready"


def test_a_cap_in_dollars_that_cannot_be_kept_is_refused_before_anything_begins(project: Path) -> None:
    ran = run("chat", "--dollars", "2", *MODEL, folder=project, given="Hi\n")
    assert ran.returncode == 2
    assert "A cap in dollars cannot be kept" in ran.stderr
    assert states(project) == {}


def test_without_a_cap_each_message_has_its_own_small_one(project: Path) -> None:
    run("chat", *MODEL, folder=project, given="Hi\n")
    (answer,) = [task for task in told(project, "tasks", "--all")["tasks"] if task["title"] == "Answer human"]
    assert answer["root"] == answer["id"]
    assert told(project, "budget", str(answer["id"]))["budget"]["tokens_max"] == 2_000_000


async def test_the_bar_shows_the_account_of_the_chat(board: Board) -> None:
    account = await board.open_budget(Budget(tasks=3, dollars=2.0))
    await board.put("Part", account=account)
    await board.put("Another goal")
    said = bar(await look(board, account), 200)
    assert said == "2 ready | nobody works | chat: 0 of 3 tasks, $0.00 of $2.00, 0 tokens"
