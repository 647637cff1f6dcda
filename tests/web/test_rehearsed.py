"""The last rehearsal of a board is kept for the user who made it, and nothing of it is on the board."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.safe_open import user_state
from dugnad.web.rehearsed import KeptRehearsal, last_rehearsal
from tests.cli.shell import Shell


@pytest.fixture
def state(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return user_state(os.environ, "rehearsals")


def rehearsed(url: str) -> KeptRehearsal | None:
    Shell(url).says("rehearse", "--agents", "2")
    return kept(url)


def kept(url: str) -> KeptRehearsal | None:
    return last_rehearsal(os.environ, Shell(url).on_board(Board.identity))


def test_the_median_run_of_a_board_is_kept_with_its_tasks(url: str, state: Path) -> None:
    shell = Shell(url)
    shell.says("add", "Write it")
    shell.says("add", "Review it", "--needs", "1")
    before = shell.on_board(Board.last_event)
    found = rehearsed(url)
    assert found is not None
    assert (found.seq, found.agents, shell.on_board(Board.last_event)) == (before, 2, before)
    assert [(bar.task, bar.title) for bar in found.bars] == [(1, "#1 Write it"), (2, "#2 Review it")]
    assert found.bars[0].end <= found.bars[1].start
    assert found.milliseconds == found.bars[1].end
    (file,) = state.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"seq": 1, "bars": [1]}', "\x00"])
def test_a_damaged_file_is_no_rehearsal(url: str, state: Path, content: str) -> None:
    Shell(url).says("add", "Write it")
    rehearsed(url)
    (file,) = state.iterdir()
    file.write_text(content)
    assert kept(url) is None


def test_a_state_folder_that_cannot_be_written_loses_only_the_copy(url: str, state: Path) -> None:
    Shell(url).says("add", "Write it")
    state.write_text("a file, not a folder")
    assert rehearsed(url) is None
