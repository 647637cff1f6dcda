"""What is typed after `dugnad chat` is a cap for what the chat sets going."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from shell import run
from terminal import BRIEF, MODEL, make_project

from dugnad.board import open_board
from dugnad.types import Budget, Spending

SCRIPT = """
"*":
  - say: Gladly.
"""


async def accounts(folder: Path) -> list[Spending]:
    """Of every goal on the board, those that are no work of their own among them."""
    async with await open_board(f"sqlite:///{folder}/.dugnad/board.db") as board:
        roots = sorted({task.root for task in await board.list_tasks(page=1_000)})
        return [await board.budget(root) for root in roots]


@pytest.mark.parametrize(
    ("typed", "cap"),
    [
        (("--tasks", "7"), Budget(tasks=7)),
        (("--tokens", "123456"), Budget(tokens=123_456)),
        (("--minutes", "2.5"), Budget(seconds=150)),
        (("--tokens", "123456", "--tasks", "7"), Budget(tokens=123_456, tasks=7)),
    ],
    ids=["tasks", "tokens", "minutes", "both"],
)
def test_what_is_said_in_a_chat_is_charged_to_an_account_with_the_caps_that_were_typed(
    folder: Path, typed: tuple[str, ...], cap: Budget
) -> None:
    make_project(folder, SCRIPT, f"{BRIEF}[budget]\ntasks = 99\n")
    ran = run("chat", "--agents", "1", *typed, *MODEL, folder=folder, given="Hello\n")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Gladly." in ran.stdout
    used = [account for account in asyncio.run(accounts(folder)) if account.spent.tokens]
    assert [account.caps for account in used] == [Budget(tasks=cap.tasks or 99, tokens=cap.tokens, seconds=cap.seconds)]
