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


COMMANDS = """
"*":
  - calls: [{bash: {command: "echo $((6 * 7)); cat ../secret; echo x > ../made; sleep 1000 & true"}}]
  - say: I say it is done.
  - calls: [{write_file: {path: ok, text: "ok"}}]
  - say: Now it is.
"""


def test_commands_run_inside_and_a_red_check_goes_back_to_the_mind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = folder / "project"
    project.mkdir()
    (folder / "secret").write_text("hidden")
    (project / "script.yaml").write_text(COMMANDS)
    monkeypatch.chdir(project)
    shell = Shell(f"sqlite:///{folder}/board.db")
    shell.says("add", "Make ok", "--check", "test -f ok || { echo there is no ok; exit 1; }")
    found = shell.json("run", "--agents", "1", "--model", "scripted:script.yaml", "--in-place")
    assert (found["exit"], found["tasks"][0]["state"]) == (0, "done")
    said = shell.says("show", "1", "--transcript")
    assert "[exit code 0]\n    42" in said
    assert "hidden" not in said
    assert not (folder / "made").exists()
    assert "its check is red" in said
    assert "there is no ok" in said


def test_a_check_that_stays_red_is_not_believed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "script.yaml").write_text('"*": [{say: Done.}, {say: Done.}, {say: Done.}, {say: Done.}]')
    (folder / "dugnad.toml").write_text("[limits]\nattempts_max = 1")
    monkeypatch.chdir(folder)
    shell = Shell(f"sqlite:///{folder}/board.db")
    shell.says("add", "Never", "--check", "false")
    ran = shell("run", "--agents", "1", "--model", "scripted:script.yaml", "--in-place", "--json")
    assert ran.exit_code == 1
    assert "stayed red" in shell.says("show", "1")
