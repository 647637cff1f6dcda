"""`dugnad demo --web` on a terminal: it waits for a page or Enter, stays until Ctrl-C, and runs no check of others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dugnad.cli.demo import _check
from dugnad.types import HUMAN
from tests.cli.shell import Shell, run
from tests.cli.terminal import terminal


def test_it_waits_for_a_page_or_enter_and_ctrl_c_ends_it_before_it_began(folder: Path) -> None:
    with terminal("demo", "--web", "--keep", str(folder / "kept"), folder=folder, rows=40) as screen:
        screen.shows("The demo begins when you open a link, or at Enter.")
        for scope in ("Steer", "Look"):
            assert re.search(rf"{scope}: +http://127\.0\.0\.1:\d+/#{scope.lower()}=", screen.everything)
        screen.interrupt()
        assert screen.ends() == 130
    assert Shell(f"sqlite:///{folder}/kept/.dugnad/board.db").json("tasks", "--all")["tasks"] == []


@pytest.mark.proof
def test_enter_begins_it_and_the_page_stays_until_ctrl_c(folder: Path) -> None:
    with terminal("demo", "--web", "--keep", str(folder / "kept"), folder=folder, rows=60) as screen:
        screen.shows("The demo begins when you open a link, or at Enter.")
        screen.type("\n")
        screen.shows("The page stays open until Ctrl-C")
        assert "What they built works" in screen.everything
        screen.interrupt()
        assert screen.ends() == 0


def test_it_is_for_people(folder: Path) -> None:
    ran = run("demo", "--web", "--json", folder=folder)
    assert ran.returncode == 2
    assert "--web is for people" in ran.stderr


async def test_a_check_that_a_person_adds_on_the_page_is_not_run(folder: Path) -> None:
    """A check is a command of a shell, and the demo has no sandbox."""
    from dugnad.board import open_board

    async with await open_board(f"sqlite:///{folder}/board.db") as board:
        task = await board.put("Look around", check=f"touch {folder}/ran", by=HUMAN)
    assert "no sandbox" in (await _check(folder, task) or "")
    assert not (folder / "ran").exists()
