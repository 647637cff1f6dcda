"""A command that runs, as a person sees it in the live view; and that nothing of it stays when the person leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.terminal import MODEL, make_project, terminal
from tests.workspace.running import MARK, marked

COMMAND = "printf 'one\\\\n\\\\033[31mtest_slugify\\\\033[0m ....F...'"
RUNS = f"""
"*":
  - calls: [{{bash: {{command: "{COMMAND}; bash -c 'exec -a {MARK} sleep 100'"}}}}]
  - say: It is done.
"""


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])
def test_its_last_line_stands_beside_the_teammate_and_ctrl_c_ends_it(folder: Path, columns: int, rows: int) -> None:
    project = folder / "project"
    project.mkdir()
    make_project(project, RUNS)
    words = ("run", "Build it", "--agents", "1", "--in-place", *MODEL)
    with terminal(*words, folder=project, columns=columns, rows=rows, HOME=str(folder)) as screen:
        screen.shows("....F...")
        (line,) = [each for each in screen.lines if "....F..." in each]
        assert "turn 1, bash: prin" in line
        assert line.endswith("test_slugify ....F..." if columns > 100 else "....F...")
        assert "\x1b[31m" not in screen.text
        screen.until(marked, "the command")
        screen.interrupt()
        assert screen.ends() == 130
        assert screen.is_sane
    assert not marked()
