"""What teammates of a run may do with the files of the project: read them, and write them only if that was typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import Shell

SCRIPT = """
"*":
  - calls: [{read_file: {path: a.txt}}, {write_file: {path: b.txt, text: written}}, {read_file: {path: ../secret}}]
  - say: Done.
"""


def transcript_of_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    project = folder / "project"
    project.mkdir()
    (folder / "secret").write_text("hidden")
    (project / "a.txt").write_text("visible\n")
    (project / "script.yaml").write_text(SCRIPT)
    monkeypatch.chdir(project)
    shell = Shell(f"sqlite:///{folder}/board.db")
    shell.says("run", "goal", "--agents", "1", "--model", "scripted:script.yaml", *options)
    return shell.says("show", "1", "--transcript")


def test_files_are_read_and_not_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = transcript_of_a_run(folder, monkeypatch)
    assert "visible" in said
    assert "There is no tool 'write_file'" in said
    assert "hidden" not in said
    assert not (folder / "project" / "b.txt").exists()


def test_files_are_written_when_that_was_typed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = transcript_of_a_run(folder, monkeypatch, "--in-place")
    assert "hidden" not in said
    assert (folder / "project" / "b.txt").read_text() == "written"


def test_a_home_is_no_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder / "project"))
    assert "There is no tool 'read_file'" in transcript_of_a_run(folder, monkeypatch, "--in-place")
