"""A run that has to wait for its turn to merge says for whom, and goes on when it is over."""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.shell import start
from tests.cli.terminal import MODEL, rest, until_line
from tests.workspace.repository import at, new_repository

SCRIPT = """
"*":
  - calls: [{{write_file: {{path: {file}, text: written}}}}]
  - say: Done.
"""
WAITS = "Waiting for the merge queue: bob merges #9 (process 12 on elsewhere).\n"


@contextmanager
def another_holds_it(project: Path) -> Iterator[None]:
    folder = project / ".git" / "dugnad"
    folder.mkdir(exist_ok=True)
    with (folder / "main.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        json.dump({"what": "bob merges #9", "host": "elsewhere", "pid": 12, "beat": 0}, lock)
        lock.flush()
        yield


@contextmanager
def running(project: Path, goal: str, file: str) -> Iterator[subprocess.Popen[str]]:
    (project / "script.yaml").write_text(SCRIPT.format(file=file))
    with start("run", goal, "--agents", "1", *MODEL, folder=project, home=project.parent) as program:
        try:
            yield program
        finally:
            program.kill()


def test_before_it_begins_and_while_it_merges_a_run_says_whom_it_waits_for(folder: Path) -> None:
    project = new_repository(folder / "project", {"a.txt": "a\n"})
    with running(project, "One", "b.txt") as first:
        with another_holds_it(project):  # The target has to be made, and that is a move too.
            assert until_line(first, "Waiting")[-1] == WAITS
        rest(first)
        assert first.returncode == 0
    with running(project, "Two", "c.txt") as second:
        with another_holds_it(project):
            lines = until_line(second, "Waiting")
            assert any("claimed it" in each for each in lines)  # Nothing had to move before, so it did not wait.
            assert lines[-1] == WAITS
        rest(second)
        assert second.returncode == 0
    assert at(project, "dugnad/main", "c.txt") == "written"
