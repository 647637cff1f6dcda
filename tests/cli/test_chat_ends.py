"""What a chat says when it ends: how to get the work that was merged in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import run
from tests.cli.terminal import MODEL, make_project
from tests.workspace.repository import git, new_repository

NEXT = "git merge dugnad/main    brings the finished work into your branch: 1 commit"
SCRIPT = """
"*":
  - calls: [{write_file: {path: made.txt, text: made}}]
  - say: It is made.
"""


@pytest.fixture
def project(folder: Path) -> Path:
    made = new_repository(folder / "project")
    make_project(made, SCRIPT)
    return made


def chat(project: Path, given: str) -> str:
    """What a chat prints into a pipe. The home folder itself is no project."""
    ran = run("chat", *MODEL, folder=project, given=given, HOME=str(project.parent))
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_a_chat_ends_with_how_to_get_what_was_merged_in_it(project: Path) -> None:
    said = chat(project, "Make it\n")
    assert "It is made." in said
    assert said.endswith(f"{NEXT}\n")
    assert git(project, "show", "dugnad/main:made.txt") == "made"


def test_a_chat_in_which_nothing_was_merged_says_nothing_of_it(project: Path) -> None:
    chat(project, "Make it\n")
    assert "git merge" not in chat(project, "/tasks\n/quit\n")
