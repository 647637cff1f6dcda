"""Where a run works gets all that was said about it: typed, in the user's own file, and in the project's."""

from __future__ import annotations

from pathlib import Path

import pytest

from dugnad.board import open_board
from dugnad.cli.workspaces import Wishes, workplaces
from dugnad.config.project import read_project
from dugnad.config.user import read_user
from dugnad.team.workspaces.worktrees import Worktrees
from tests.workspace.repository import new_repository

PROJECT = """
check = ["make test"]
review = "reviewer"
"""
USER = """
[sandbox]
hosts = ["files.example.org"]
readable = ["~/tools"]
"""


async def test_a_place_has_the_checks_the_reviewer_the_hosts_and_the_folders_that_were_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = new_repository(tmp_path / "p")
    (root / "dugnad.toml").write_text(PROJECT)
    home = tmp_path / "home"
    (home / ".config" / "dugnad").mkdir(parents=True)
    (home / ".config" / "dugnad" / "config.toml").write_text(USER)
    (home / ".config" / "dugnad" / "config.toml").chmod(0o600)
    (home / "tools").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    wishes = Wishes(hosts=("typed.example.org",), into="dugnad/elsewhere")
    async with (
        await open_board(f"sqlite:///{tmp_path}/board.db") as board,
        workplaces(board, read_project(root), read_user(), wishes, lambda words: None) as given,
    ):
        places = given.places
        assert isinstance(places, Worktrees)
        assert places.shop.hosts == ("typed.example.org", "files.example.org")
        assert places.shop.project_checks == ("make test",)
        assert places.trees.target == "dugnad/elsewhere"
        assert given.reviewer == "reviewer"
        assert given.sandbox is not None
        assert home / "tools" in given.sandbox.readable
