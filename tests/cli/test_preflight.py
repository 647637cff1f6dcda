"""Before anything is spent: the project's check runs on the project as it is, and red stops the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dugnad.cli.preflight import memory_of
from tests.cli.shell import Shell, accept, run, start, write_settings
from tests.cli.terminal import SECONDS, rest, until_line
from tests.proof import every
from tests.workspace.repository import git, new_repository

SCRIPT = """
"*":
  - calls: [{write_file: {path: b.txt, text: written}}]
  - say: Done.
"""
SETTINGS = """
check = [{check}]
[team]
idle_seconds = 1
"""
MODEL = ("--agents", "1", "--model", "scripted:script.yaml")
COUNTED = "echo ran >> /tmp/never; test -e good.txt || { echo first; seq 9000; echo last; exit 3; }"


def files(check: str, **more: str) -> dict[str, str]:
    return {"script.yaml": SCRIPT, "dugnad.toml": SETTINGS.format(check=json.dumps(check)), **more}


def make(folder: Path, kind: str, check: str, **more: str) -> tuple[Path, tuple[str, ...]]:
    """A project of each kind of place, and what has to be typed for it."""
    project = folder / "project"
    if kind == "git":
        new_repository(project, files(check, **more))
    else:
        project.mkdir()
        for name, text in files(check, **more).items():
            (project / name).write_text(text)
    accept(project)
    return project, ("--in-place",) if kind == "in place" else ()


@contextmanager
def beside(*words: str, project: Path) -> Iterator[subprocess.Popen[str]]:
    """A run beside the test, whose home is not the project."""
    program = start(*words, folder=project, home=project.parent)
    try:
        yield program
    finally:
        program.kill()
        rest(program)


def until_checking(program: subprocess.Popen[str], project: Path) -> None:
    while not any((project / ".dugnad" / "trees").glob("0-*.1/dugnad.toml")):
        assert program.poll() is None
        time.sleep(0.05)


KINDS = ("git", "folder", "in place")


@pytest.mark.parametrize("kind", every(3, KINDS))
def test_a_red_base_stops_the_run_before_anything_is_put_or_spent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    project, options = make(folder, kind, COUNTED)
    monkeypatch.chdir(project)
    shell = Shell(f"sqlite:///{folder}/board.db")
    ran = shell("run", "goal", *MODEL, *options)
    assert ran.exit_code == 1
    assert "fails on " in ran.stdout
    assert "before anybody has changed anything" in ran.stdout
    assert "\n  first\n" in ran.stdout
    assert "\n  last\n" in ran.stdout
    assert "characters left out" in ran.stdout
    assert "--red-base" in ran.stdout
    assert shell.json("tasks", "--all")["tasks"] == []
    assert shell.json("team")["teammates"] == []
    told = json.loads(shell("run", "goal", *MODEL, *options, "--json").stdout)
    assert (told["exit"], told["preflight"]["green"], told["tasks"]) == (1, False, [])
    assert "last" in told["preflight"]["output"]
    worked = shell("work", *MODEL, *options, "--json")
    assert worked.exit_code == 1
    assert json.loads(worked.stdout)["preflight"]["green"] is False
    if kind == "git":
        assert os.listdir(project / ".dugnad" / "trees") == []
        assert git(project, "branch", "--format=%(refname:short)").split() == ["dugnad/main", "main"]
        assert git(project, "for-each-ref", "refs/dugnad") == ""
    elif kind == "folder":
        assert os.listdir(project / ".dugnad" / "work") == []


@pytest.mark.parametrize("kind", every(3, KINDS))
def test_a_green_base_is_remembered_until_the_tree_or_the_check_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    project, options = make(folder, kind, "test -e good.txt", **{"good.txt": "good\n"})
    monkeypatch.chdir(project)
    shell = Shell(f"sqlite:///{folder}/board.db")
    monkeypatch.setenv("HOME", str(folder))
    said = "Before anything is spent, the project's check runs on"
    first = shell.says("run", "goal", *MODEL, *options)
    assert said in first
    assert "The check succeeded (" in first
    if kind != "git":  # What was done there changed the folder only where all work in place.
        again = shell.json("run", "again", *MODEL, *options)["preflight"]
        assert again["remembered"] is (kind == "folder")
    else:
        git(project, "branch", "--quiet", "--force", "dugnad/main", "main")
        assert shell.json("run", "again", *MODEL, *options)["preflight"]["remembered"] is True
    write_settings(project, SETTINGS.format(check='"test -e good.txt && true"'))
    if kind == "git":
        git(project, "commit", "--quiet", "--all", "--message", "Another check")
    assert shell.json("run", "third", *MODEL, *options)["preflight"]["remembered"] is False


def test_with_red_base_the_team_begins_and_everybody_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, _ = make(folder, "git", "test -e b.txt")
    monkeypatch.chdir(project)
    shell = Shell(f"sqlite:///{folder}/board.db")
    said = shell.says("run", "goal", *MODEL, "--red-base")
    assert "fails on dugnad/main already; every teammate is told so." in said
    said = shell.says("show", "1", "--transcript")
    assert "After finish: the runtime runs `test -e b.txt` in your tree" in said
    assert "was red before anybody changed anything" in said


def test_what_mends_a_red_check_outside_the_tree_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Red is looked at again, since a tree does not tell what was installed meanwhile."""
    project, _ = make(folder, "folder", "false")
    monkeypatch.chdir(project)
    shell = Shell(f"sqlite:///{folder}/board.db")
    assert shell("run", "goal", *MODEL).exit_code == 1
    known = json.loads(memory_of(project, os.environ).read_text())
    assert [each["green"] for each in known.values()] == [False]
    told = json.loads(shell("run", "goal", *MODEL, "--json").stdout)
    assert told["preflight"]["remembered"] is False


def test_without_a_check_nothing_is_run_and_nothing_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = new_repository(folder / "project", {"script.yaml": SCRIPT})
    monkeypatch.chdir(project)
    shell = Shell(f"sqlite:///{folder}/board.db")
    told = shell.json("run", "goal", *MODEL)
    assert (told["exit"], told["preflight"]) == (0, None)
    assert not memory_of(project, os.environ).exists()


@pytest.mark.parametrize("kind", every(3, KINDS))
def test_what_lies_in_the_project_is_not_believed(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The key can be computed by anybody who has the repository, so where it is kept is what counts."""
    project, options = make(folder, kind, "false")
    monkeypatch.chdir(project)
    shell = Shell(f"sqlite:///{folder}/board.db")
    assert shell("run", "goal", *MODEL, *options).exit_code == 1
    kept = memory_of(project, os.environ)
    assert not kept.is_relative_to(project)
    known = json.loads(kept.read_text())
    green = {key: {**verdict, "green": True} for key, verdict in known.items()}
    (project / ".dugnad" / "preflight.json").write_text(json.dumps(green))
    ran = shell("run", "goal", *MODEL, *options)
    assert (ran.exit_code, "fails on " in ran.stdout) == (1, True)


def test_what_is_known_of_one_project_is_not_known_of_its_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, _ = make(folder, "git", "test -e good.txt", **{"good.txt": ""})
    shell = Shell(f"sqlite:///{folder}/board.db")
    monkeypatch.chdir(project)
    assert shell.json("run", "goal", *MODEL)["preflight"]["remembered"] is False
    other = folder / "other"
    git(folder, "clone", "--quiet", str(project), str(other))
    accept(other)
    monkeypatch.chdir(other)
    assert shell.json("run", "goal", *MODEL)["preflight"]["remembered"] is False


@pytest.mark.parametrize(
    "wrong",
    every(
        4,
        [{"output": 5}, {"green": 1}, {"green": "yes"}, {"where": None}, {"seconds": "x"}, {"more": 1}, None, []],
    ),
)
def test_a_memory_of_the_wrong_shape_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch, wrong: object) -> None:
    project, _ = make(folder, "folder", "false")
    monkeypatch.chdir(project)
    shell = Shell(f"sqlite:///{folder}/board.db")
    assert shell("run", "goal", *MODEL).exit_code == 1
    kept = memory_of(project, os.environ)
    known = json.loads(kept.read_text())
    planted = {
        key: {**each, "green": True, **wrong} if isinstance(wrong, dict) else wrong for key, each in known.items()
    }
    kept.write_text(json.dumps(planted))
    told = json.loads(shell("run", "goal", *MODEL, "--red-base", "--json").stdout)
    assert (told["preflight"]["green"], told["preflight"]["remembered"]) == (False, False)


def test_a_memory_that_is_a_link_or_no_json_is_neither_followed_nor_believed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, _ = make(folder, "folder", "false")
    secret = folder / "secret"
    secret.write_text("hidden")
    kept = memory_of(project, os.environ)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.symlink_to(secret)
    monkeypatch.chdir(project)
    shell = Shell(f"sqlite:///{folder}/board.db")
    assert shell("run", "goal", *MODEL).exit_code == 1
    assert secret.read_text() == "hidden"
    for wrong in ("[1]", '{"a": 1', "x" * 300_000, "[" * 100_000):
        kept.unlink()
        kept.write_text(wrong)
        assert shell("run", "goal", *MODEL).exit_code == 1


@pytest.mark.parametrize("verb", [("run", "goal"), ("work",)])
def test_ctrl_c_during_the_check_ends_it_and_leaves_nothing(folder: Path, verb: tuple[str, ...]) -> None:
    project, _ = make(folder, "git", "echo begun; sleep 300")
    with beside(*verb, *MODEL, project=project) as program:
        until_line(program, "Before anything is spent")
        until_checking(program, project)
        program.send_signal(signal.SIGINT)
        out, err = rest(program)
    assert (program.returncode, err) == (130, "")
    assert "Nothing was begun and nothing was spent." in out
    assert os.listdir(project / ".dugnad" / "trees") == []
    assert git(project, "for-each-ref", "refs/dugnad") == ""


def test_a_tree_that_a_killed_check_left_is_taken_away_by_the_next(folder: Path) -> None:
    project, _ = make(folder, "git", "test -e good.txt || sleep 300", **{"good.txt": ""})
    (project / "good.txt").unlink()
    git(project, "commit", "--quiet", "--all", "--message", "Without it")
    with beside("run", "goal", *MODEL, project=project) as program:
        until_checking(program, project)
        program.kill()
        program.wait(SECONDS)
    assert os.listdir(project / ".dugnad" / "trees") != []
    (project / "good.txt").write_text("")
    git(project, "add", "good.txt")
    git(project, "commit", "--quiet", "--message", "Mended")
    with beside("run", "goal", *MODEL, project=project) as program:
        out, _ = rest(program)
    assert program.returncode == 0, out
    assert os.listdir(project / ".dugnad" / "trees") == []


def test_the_doctors_check_makes_no_board_so_that_the_next_run_begins(folder: Path) -> None:
    project, _ = make(folder, "git", "true")
    looked = run("doctor", "--check", folder=project, HOME=str(folder), DUGNAD_MODEL="scripted:script.yaml")
    assert "`true` succeeds" in " ".join(looked.stdout.split()), looked.stdout
    assert not (project / ".dugnad" / "board.db").exists()
    ran = run("run", "Do it", *MODEL, folder=project, HOME=str(folder))
    assert ran.returncode == 0, ran.stdout + ran.stderr
