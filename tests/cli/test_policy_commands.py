"""Policies from the files to the shell: who says what, how a person answers, and a process that dies in between."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from dugnad.board import Board
from tests.cli.shell import Shell, run, start, write_settings

SCRIPT = """
"*":
  - calls: [{read_file: {path: dugnad.toml}}, {bash: {command: "echo made >> made.txt"}}]
  - calls: [{bash: {command: "echo more >> made.txt"}}]
  - say: Done.
"""
WORK = ("--agents", "1", "--model", "scripted:script.yaml", "--in-place")
QUICK = "[team]\nidle_seconds = 0\nlead = false\n"


@pytest.fixture
def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose bash is to be asked about, as the user's own file says, and whose teammates do not linger."""
    made = folder / "project"
    made.mkdir()
    (made / "script.yaml").write_text(SCRIPT)
    write_settings(made, QUICK)
    user_says(folder, '[policies]\nbash = "ask"\n')
    monkeypatch.chdir(made)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return made


def user_says(folder: Path, text: str) -> None:
    (folder / ".config" / "dugnad").mkdir(parents=True, exist_ok=True)
    (folder / ".config" / "dugnad" / "config.toml").write_text(text)


def made(project: Path) -> str:
    path = project / "made.txt"
    return path.read_text() if path.exists() else ""


def question_of(shell: Shell) -> str:
    (asked,) = shell.json("inbox", "--keep")["requests"]
    assert asked["kind"] == "question"
    return str(asked["id"])


def test_a_call_is_asked_about_and_each_way_of_answering_is_understood(folder: Path, project: Path) -> None:
    shell = Shell(f"sqlite:///{folder}/board.db")
    shell("run", "goal", *WORK)
    said = shell.says("inbox", "--keep")
    assert "bash for #1 'goal'?" in said
    assert "> echo made >> made.txt" in said
    assert "dugnad answer m" in said
    assert made(project) == ""
    assert shell.says("approve", question_of(shell)).startswith("Allowed, once: ")
    shell("run", *WORK)
    assert made(project) == "made\n"
    assert shell.says("reject", "1", "--why", "That is enough.").startswith("Refused: ")
    assert shell.json("run", *WORK)["tasks"][0]["state"] == "done"
    assert made(project) == "made\n"
    assert "A person refused: That is enough." in shell.says("show", "1", "--transcript")


def test_yes_but_is_no_and_that_is_said(folder: Path, project: Path) -> None:
    shell = Shell(f"sqlite:///{folder}/board.db")
    shell("run", "goal", *WORK)
    assert shell.says("answer", "1", "yes, but only once").startswith("Refused: ")
    shell("run", *WORK)
    assert made(project) == ""
    assert "A person refused: yes, but only once" in shell.says("show", "1", "--transcript")


def test_always_is_asked_once(folder: Path, project: Path) -> None:
    shell = Shell(f"sqlite:///{folder}/board.db")
    shell("run", "goal", *WORK)
    shell.says("answer", "1", "always")
    assert shell.json("run", *WORK)["tasks"][0]["state"] == "done"
    assert made(project) == "made\nmore\n"


@pytest.mark.parametrize(
    ("user", "mine", "said"),
    [
        ('bash = "deny"', 'bash = "allow"', "bash is denied"),
        ('bash = "ask"', 'bash = "deny"', "bash is denied"),
        ("", '"*" = "deny"', "read_file is denied"),
        ('bash = "deny"\n[policies.coder]\nbash = "allow"', "", "bash is denied"),
    ],
)
def test_a_project_narrows_and_never_widens(folder: Path, project: Path, user: str, mine: str, said: str) -> None:
    user_says(folder, f"[policies]\n{user}\n")
    write_settings(project, f"{QUICK}[policies]\n{mine}\n")
    shell = Shell(f"sqlite:///{folder}/board.db")
    shell.says("run", "goal", *WORK)
    assert said in shell.says("show", "1", "--transcript")
    assert made(project) == ""


def test_kill_9_between_question_and_answer(url: str, folder: Path, project: Path) -> None:
    write_settings(project, "[team]\nlead = false\n[limits]\nlease_seconds = 2\n")
    shell = Shell(url)
    shell.says("add", "goal")
    working = start("work", "--board", url, "--forever", *WORK, folder=project, home=folder)
    try:
        until_waiting(shell)
    finally:
        working.kill()
        working.communicate(timeout=120)
    assert made(project) == ""
    shell.says("answer", question_of(shell), "always")
    write_settings(project, QUICK)
    ran = run("run", "--board", url, *WORK, "--json", folder=project, HOME=str(folder))
    assert json.loads(ran.stdout)["tasks"][0]["state"] == "done", ran.stderr
    assert made(project) == "made\nmore\n"


def until_waiting(shell: Shell) -> None:
    """A process of its own takes a while to start where others are busy too."""

    async def waiting(board: Board) -> None:
        async with asyncio.timeout(120):
            with board.watch(["log"]) as watch:
                while (await board.find(1)).state != "waiting":
                    await watch.wait(0.2)

    shell.on_board(waiting)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[policies]\nbahs = "deny"', "[policies] speaks of 'bahs', and no tool has that name; did you mean 'bash'?"),
        ('[policies]\nbash = "never"', "[policies] bash must be allow, ask or deny, not 'never'."),
        ("[policies.coder]\nbash = 1", "[policies.coder] bash must be allow, ask or deny, not 1."),
        ('policies = "ask"', "policies must be a table, not 'ask'."),
        ('[policies]\n"rm -rf" = "deny"', "'rm -rf' is not the name of a tool"),
    ],
)
@pytest.mark.parametrize("whose", ["the user's", "the project's"])
def test_a_wrong_policy_is_one_sentence(folder: Path, project: Path, text: str, said: str, whose: str) -> None:
    if whose == "the user's":
        user_says(folder, text)
    else:
        (project / "dugnad.toml").write_text(text)
    found = Shell(f"sqlite:///{folder}/board.db").fails(2, "run", "goal", *WORK)
    assert said in found
    assert ("config.toml: " if whose == "the user's" else "dugnad.toml: ") in found


def test_names_of_servers_tools_and_patterns_are_taken_as_they_are(folder: Path, project: Path) -> None:
    user_says(folder, '[policies]\nmcp__github__push = "ask"\n"web*" = "deny"\nspawn_teammate = "ask"\nbash = "deny"')
    Shell(f"sqlite:///{folder}/board.db").says("run", "goal", *WORK)


def test_the_doctor_shows_what_holds(folder: Path, project: Path) -> None:
    (project / "dugnad.toml").write_text('[policies]\nbash = "allow"\n[policies.reviewer]\nwrite_file = "deny"\n')
    shell = Shell(f"sqlite:///{folder}/board.db")
    found = {each["name"]: each for each in json.loads(shell("doctor", "--json").stdout)["findings"]}
    assert found["policies"]["says"] == "everybody: bash ask; role reviewer: bash ask, write_file deny."
    (project / "dugnad.toml").write_text("")
    user_says(folder, "")
    assert "policies" not in {each["name"] for each in json.loads(shell("doctor", "--json").stdout)["findings"]}
