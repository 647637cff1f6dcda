"""Where teammates of a run work: in git trees, in a copy, or in the very folder if that was typed; and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import Shell, write_settings
from tests.workspace.repository import at, git, new_repository

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


def test_outside_git_each_task_is_worked_in_a_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = transcript_of_a_run(folder, monkeypatch)
    assert "visible" in said
    assert "hidden" not in said
    assert "[its files are in .dugnad/work/1]" in said
    assert not (folder / "project" / "b.txt").exists()
    assert (folder / "project" / ".dugnad" / "work" / "1" / "b.txt").read_text() == "written"


def test_in_git_what_is_done_is_merged_and_the_checkout_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = new_repository(folder / "project", {"a.txt": "visible\n", "script.yaml": SCRIPT})
    (project / "a.txt").write_text("not committed\n")
    monkeypatch.chdir(project)
    shell = Shell(f"sqlite:///{folder}/board.db")
    said = shell.says("run", "goal", "--agents", "1", "--model", "scripted:script.yaml")
    assert "changes that are not committed; the team does not see them" in said
    assert "git merge dugnad/main    brings the finished work into your branch: 1 commit\n" in said
    assert at(project, "dugnad/main", "b.txt") == "written"
    assert git(project, "status", "--porcelain") == "M a.txt"
    told = shell.json("run", "another", "--agents", "1", "--model", "scripted:script.yaml", "--into", "elsewhere")
    assert (told["deliveries"]["target"], told["deliveries"]["commits"]) == ("elsewhere", 1)


def test_a_target_that_cannot_be_is_refused_before_anything_begins(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(new_repository(folder / "project", {"script.yaml": SCRIPT}))
    shell = Shell(f"sqlite:///{folder}/board.db")
    for branch, words in (("main", "is checked out in"), ("a..b", "cannot be the name of a branch")):
        ran = shell("run", "goal", "--model", "scripted:script.yaml", "--into", branch)
        assert (ran.exit_code, words in ran.output) == (2, True)
    assert shell.json("tasks")["tasks"] == []


def test_a_repository_without_a_commit_is_refused_before_anything_is_spent(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = folder / "project"
    project.mkdir()
    git(project, "init", "--quiet", ".")
    (project / "script.yaml").write_text(SCRIPT)
    monkeypatch.chdir(project)
    shell = Shell(f"sqlite:///{folder}/board.db")
    ran = shell("run", "goal", "--agents", "1", "--model", "scripted:script.yaml")
    assert ran.exit_code == 2
    assert (
        "has no commit yet; make a first one, so that there is something to work from. (With --in-place" in ran.stderr
    )
    assert shell.json("tasks")["tasks"] == []


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
  - calls: [{finish: {result: I say it is done.}}]
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
    assert "the check is red" in said
    assert "there is no ok" in said


def test_a_check_that_stays_red_is_not_believed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "script.yaml").write_text('"*": [{say: Done.}, {say: Done.}, {say: Done.}, {say: Done.}]')
    write_settings(folder, "[limits]\nattempts_max = 1")
    monkeypatch.chdir(folder)
    shell = Shell(f"sqlite:///{folder}/board.db")
    shell.says("add", "Never", "--check", "false")
    ran = shell("run", "--agents", "1", "--model", "scripted:script.yaml", "--in-place", "--json")
    assert ran.exit_code == 1
    assert "stayed red" in shell.says("show", "1")


def test_changes_that_make_other_programs_run_are_named_before_they_are_merged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = "conftest.py/.github/workflows/\\u009b\\u202ex\\n.yml"
    script = (
        '"*":\n  - calls: [{write_file: {path: .github/workflows/ci.yml, text: x}},'
        f' {{write_file: {{path: b.txt, text: b}}}}, {{write_file: {{path: "{odd}", text: x}}}}]\n  - say: Done.\n'
    )
    project = new_repository(folder / "project", {"script.yaml": script})
    monkeypatch.chdir(project)
    shell = Shell(f"sqlite:///{folder}/board.db")
    said = shell.says("run", "goal", "--agents", "1", "--model", "scripted:script.yaml")
    assert "careful" in said
    assert ".github/workflows/ci.yml (CI)" in " ".join(said.split())
    shown = shell.says("show", "1")
    assert "it changes what other programs run: .github/workflows/ci.yml (CI)" in " ".join(shown.split())
    assert "b.txt (" not in said
    for text in (said, shown):
        assert not set(text) & set("\x9b\u202e")
    told = shell.json("run", "another", "--agents", "1", "--model", "scripted:script.yaml", "--json")
    assert told["deliveries"]["runs"] == {
        ".github/workflows/ci.yml": "CI",
        "conftest.py/.github/workflows/\x9b\u202ex\n.yml": "CI",
    }
