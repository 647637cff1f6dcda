"""A run reads what people wrote once, and nothing of its plan changes afterwards."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from dugnad.team import RunPlan
from tests.cli.shell import environment
from tests.cli.terminal import MODEL, make_project
from tests.workspace.repository import new_repository

# Counts each time the process opens the user's file, however it is opened.
COUNTING = """
import sys
opened = []
sys.addaudithook(lambda event, given: event == "open" and str(given[0]).endswith("/config.toml") and opened.append(1))
from dugnad.cli import main
try:
    main()
finally:
    print("opened", len(opened), file=sys.stderr)
"""


@pytest.mark.parametrize("words", [("run", "Good"), ("work", "--agents", "1"), ("chat",)], ids=lambda words: words[0])
def test_the_users_file_is_opened_once_in_a_run(folder: Path, words: tuple[str, ...]) -> None:
    project = new_repository(folder / "project")
    (folder / ".config" / "dugnad").mkdir(parents=True)
    (folder / ".config" / "dugnad" / "config.toml").write_text("[sandbox]\nreadable = ['~/tools']\n")
    make_project(project, '"*":\n  - say: It is done.\n')
    ran = subprocess.run(
        [sys.executable, "-c", COUNTING, *words, *MODEL], cwd=project, env=environment(HOME=str(folder)), input="",
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.splitlines()[-1] == "opened 1"


@pytest.mark.parametrize("words", [("run", "Good", *MODEL), ("tasks",), ("rehearse",)], ids=lambda words: words[0])
def test_the_users_file_is_opened_once_where_the_project_names_a_server(folder: Path, words: tuple[str, ...]) -> None:
    project = new_repository(folder / "project")
    (folder / ".config" / "dugnad").mkdir(parents=True)
    (folder / ".config" / "dugnad" / "config.toml").write_text("boards = ['127.0.0.1']\n")
    make_project(project, '"*":\n  - say: It is done.\n')
    (project / "dugnad.toml").write_text('board = "postgresql://127.0.0.1:1/nowhere"\n')
    ran = subprocess.run(
        [sys.executable, "-c", COUNTING, *words], cwd=project, env=environment(HOME=str(folder)), input="",
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode in (1, 2), ran.stderr
    assert ran.stderr.splitlines()[-1] == "opened 1"


def test_a_plan_is_frozen() -> None:
    plan = RunPlan(url="sqlite:///:memory:")
    with pytest.raises(FrozenInstanceError):
        plan.agents = 3  # type: ignore[misc]
