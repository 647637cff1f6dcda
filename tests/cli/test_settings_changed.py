"""A project's file that changes during a run: said once, and read with the next run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dugnad.cli.workspaces import Settings
from tests.cli.terminal import BRIEF, MODEL, make_project, rest, started, until_line

SCRIPT = """
"*":
  - {seconds: 2, say: One.}
"""


def test_that_the_projects_file_changed_is_said_once(folder: Path) -> None:
    make_project(folder, SCRIPT)
    with started("run", "Goal", *MODEL, folder=folder) as program:
        until_line(program, " claimed it")
        (folder / "dugnad.toml").write_text(BRIEF + "\n# Changed.\n")
        out, _ = rest(program)
    assert program.returncode == 0
    assert out.count("dugnad.toml has changed; that takes effect with the next run.") == 1


@pytest.mark.parametrize("how", ["other words", "another file in its place", "gone"])
def test_whatever_way_it_changes_it_is_noticed(folder: Path, how: str) -> None:
    file = folder / "dugnad.toml"
    file.write_text("a = 1\n")
    settings = Settings(file)
    assert settings.changed() == ""
    if how == "gone":
        file.unlink()
    elif how == "other words":
        file.write_text("a = 12\n")
    else:
        (folder / "new").write_text("a = 1\n")
        (folder / "new").replace(file)
    assert "dugnad.toml has changed" in settings.changed()


def test_a_project_without_a_file_has_nothing_that_could_change() -> None:
    assert Settings(None).changed() == ""
