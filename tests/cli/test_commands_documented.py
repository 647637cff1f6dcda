"""What docs/commands.md and the help texts promise, compared with what the commands do."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from dugnad.board import Board
from dugnad.cli import SECTIONS, main
from dugnad.types import Amount, Failed, NewTurn, Waiting
from tests.cli.shell import Shell, claimed, environment, run, write_settings

PAGE = (Path(__file__).parent.parent.parent / "docs" / "commands.md").read_text()
VERBS = [name for verbs in SECTIONS.values() for name, _, _ in verbs]
ELSEWHERE = {"chat"}  # It has a page of its own.
RUNNING = {"run", "work", "demo", "doctor", "status"}  # Compared below, each in its own way;
SERVING = {"servers", "web", "mcp"}  # or in `test_servers_command`, `test_web_command` and `tests/mcp`.


def section(name: str) -> str:
    found = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/commands.md has no section {name}"
    return found[1]


def documented_keys(shape: str) -> set[str]:
    rows = re.findall(r"^\| (`.*?`) \|", section(shape), re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def promised(verb: str) -> dict[str, Any]:
    """All keys the section of a verb promises, each with the shape or the plain thing behind it."""
    told = re.search(r"^JSON: (.*?)\n\n", section(verb) + "\n\n", re.MULTILINE | re.DOTALL)
    assert told, f"{verb} has no line about its JSON"
    keys: dict[str, Any] = {}
    for spec in re.findall(r"`(\{.*?\})`", told[1].replace("\n", " ")):
        keys |= json.loads(re.sub(r"([:\[] ?)([A-Za-z_]+)", r'\1"\2"', spec))
    return keys


def compare(where: str, wanted: Any, found: Any) -> None:
    """Whether what was printed has just the documented keys, all the way down."""
    if isinstance(wanted, list):
        assert found, f"{where}: the test has none to look at"
        for each in found:
            compare(where, wanted[0], each)
    elif wanted[0].isupper():
        more = {"holds"} if wanted == "Teammate" and where == "team" else set()
        assert set(found) == documented_keys(wanted) | more, where
        for key in {"used", "spent", "reserved"} & set(found):
            compare(where, "Amount", found[key])


@pytest.fixture
def shell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A board on which every verb has something to show."""
    monkeypatch.chdir(folder)
    (folder / "todo.md").write_text("- [ ] more\n")
    shell = Shell(f"sqlite:///{folder}/board.db")
    for words in (["goal"], ["part", "--under", "1", "--needs", "1"], ["fails"], ["asks"], ["plans"], ["held"]):
        shell.says("add", *words)

    async def work(board: Board) -> None:
        claim = await claimed(board, "alice", task=1)
        await board.record(claim, NewTurn(number=1, kind="reply", body="{}", used=Amount(tokens=1)))
        await board.settle(claim, Failed("x", retry=True))
        await board.settle(await claimed(board, "alice", task=3), Failed("y"))
        await board.settle(await claimed(board, "alice", task=4), Waiting(on="human", question="Which?"))
        await board.settle(await claimed(board, "alice", task=5), Waiting(on="plan", question="So."))
        await claimed(board, "alice", task=6)
        await board.tell("alice", "human", "Hello.")
        await board.write_note("alice", "found", "it")

    shell.on_board(work)
    return shell


COMMANDS = [
    ["add", "x"], ["tasks"], ["show", "1", "--transcript"], ["show", "2"], ["notes"], ["notes", "--write", "a", "b"],
    ["team"], ["spawn", "bob"], ["stop", "alice", "--now"], ["tell", "alice", "x"], ["inbox"], ["answer", "4", "this"],
    ["approve", "5"], ["reject", "5", "--why", "no"], ["retry", "3"], ["cancel", "2"], ["release", "6"], ["budget"],
    ["budget", "1"], ["model", "anthropic:claude-sonnet-5-5"], ["rehearse", "--seeds", "2"],
    ["prune"], ["trust"], ["import", "todo.md"], ["export", "out.md"],
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_json_of_a_verb_has_the_documented_keys(shell: Shell, words: list[str]) -> None:
    keys, found = promised(words[0]), json.loads(shell.says(*words, "--json"))
    assert set(found) <= set(keys), words
    for key, value in found.items():
        empty_is_fine = words == ["show", "2"] or (key in ("needs", "children", "attempts") and not value)
        if not (empty_is_fine and not value):
            compare(words[0], keys[key], value)


def test_every_documented_verb_is_among_those_compared() -> None:
    told = {verb for verb in VERBS if verb not in ELSEWHERE}
    assert told - RUNNING - SERVING - {"log", "completion"} == {words[0] for words in COMMANDS}
    assert set(re.findall(r"^### ([a-z]+)$", PAGE, re.MULTILINE)) == told


def test_a_run_prints_the_documented_keys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    shell = Shell(f"sqlite:///{folder}/board.db")
    (folder / "script.yaml").write_text('"*": [{calls: [{ask_human: {question: Which one}}]}]')
    write_settings(folder, "[team]\nidle_seconds = 0.2")
    ran = shell("run", "goal", "--tasks", "3", "--agents", "1", "--model", "scripted:script.yaml", "--json")
    found = json.loads(ran.stdout)
    assert set(found) == set(promised("run"))
    assert (found["exit"], ran.exit_code) == (1, 1)
    for key in ("tasks", "budgets", "requests", "spent"):
        compare("run", promised("run")[key], found[key])
    compare("run", "Amount", found["by"]["alice"])


def test_working_and_the_doctor_print_the_documented_keys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    shell = Shell(f"sqlite:///{folder}/board.db")
    write_settings(folder, "[team]\nidle_seconds = 0.2")
    found = json.loads(shell("work", "--agents", "2", "--model", "scripted:", "--json").stdout)
    assert set(found) == set(promised("work"))
    found = json.loads(shell("doctor", "--json").stdout)
    assert set(found) == set(promised("doctor"))
    compare("doctor", promised("doctor")["findings"], found["findings"])


def test_the_status_prints_the_documented_keys(shell: Shell) -> None:
    shell.on_board(lambda board: board.cool_down("anthropic:3f9a1c02", seconds=600, reason="429", by="alice"))
    found = json.loads(shell("status", "--json").stdout)
    assert set(found) == set(promised("status"))
    for key in ("troubles", "status"):
        compare("status", promised("status")[key], found[key])
    compare("status", ["Cooldown"], found["status"]["cooldowns"])


def test_the_events_of_the_log_have_the_documented_keys(shell: Shell) -> None:
    for line in shell.says("log", "--json").splitlines():
        assert set(json.loads(line)) == documented_keys("Event")


def test_an_error_has_the_documented_keys(shell: Shell) -> None:
    assert set(json.loads(shell("show", "99", "--json").stdout)["error"]) == documented_keys("Error")


def test_a_backlog_prints_the_documented_list(shell: Shell) -> None:
    compare("add", promised("add")["tasks"], shell.json("add", "--file", "-", given="a\nb\n")["tasks"])


# Help.


def command_of(verb: str) -> click.Command:
    command = main.get_command(click.Context(main), verb)
    assert command is not None
    return command


def parses(example: str) -> None:
    words = shlex.split(example)
    assert words[0] == "dugnad"
    command_of(words[1]).make_context(words[1], words[2:])


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example_in_its_help_that_parses(verb: str) -> None:
    ran = Shell("sqlite:///x")(verb, "--help")
    assert ran.exit_code == 0
    shown = re.findall(r"^ +(dugnad .*)$", ran.stdout, re.MULTILINE)
    assert shown, f"{verb} --help has no example"
    for example in shown:
        parses(example)
        assert shlex.split(example)[1] == verb


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "completion"])
def test_every_verb_speaks_json(verb: str) -> None:
    options = {option for parameter in command_of(verb).params for option in parameter.opts}
    assert verb in ("chat", "demo", "mcp") or "--json" in options


def test_the_examples_of_the_page_parse() -> None:
    shown = [
        line
        for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    assert len(shown) > 30
    for example in shown:
        parses(example)


def test_help_lists_every_verb_once_in_its_section() -> None:
    said = Shell("sqlite:///x")("--help").stdout
    for title, verbs in SECTIONS.items():
        assert f"{title}:\n" in said
        for name, _, what in verbs:
            assert len(re.findall(rf"^  {name} +{re.escape(what)}$", said, re.MULTILINE)) == 1
    assert max(map(len, said.splitlines())) <= 80


def test_help_waits_for_nothing_heavy(folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dugnad", "--help"],
        cwd=folder, env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    for heavy in (
        "rich",
        "asyncio",
        "sqlite3",
        "dugnad.board",
        "dugnad.team",
        "dugnad.view.tables",
        "dugnad.cli.tasks",
        "mcp",
        "starlette",
        "uvicorn",
        "dugnad.web",
    ):
        assert heavy not in imported


def test_without_a_verb_help_is_shown() -> None:
    ran = Shell("sqlite:///x")()
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Usage: dugnad ")


# Completion.


def completed(url: str, *words: str) -> dict[str, str | None]:
    *before, incomplete = words
    shell = ShellComplete(main, {}, "dugnad", "_DUGNAD_COMPLETE")
    return {item.value: item.help for item in shell.get_completions(["--board", url, *before], incomplete)}


def test_the_shell_completes_what_the_board_knows(shell: Shell) -> None:
    assert completed(shell.url, "sh") == {"show": "Show everything about one task."}
    assert completed(shell.url, "retry", "") == {"3": "fails"}
    assert completed(shell.url, "release", "") == {"4": "asks", "5": "plans", "6": "held"}
    assert completed(shell.url, "tell", "al") == {"alice": "working"}
    assert completed(shell.url, "answer", "m") == {"m1": "alice: Which?", "m2": "alice: So."}
    assert set(completed(shell.url, "add", "x", "--needs", "")) == {"1", "2", "3", "4", "5", "6"}
    assert "--ready" in completed(shell.url, "tasks", "--r")


@pytest.mark.parametrize("url", ["sqlite:////nowhere/at/all.db", "mysql://x", "postgresql://127.0.0.1:1/x"])
def test_completion_never_fails(url: str) -> None:
    assert completed(url, "show", "") == {}


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_says_how_to_install_it(folder: Path, name: str) -> None:
    ran = run("completion", name, folder=folder)
    assert ran.returncode == 0
    assert "_DUGNAD_COMPLETE" in ran.stdout
    assert f"dugnad completion {name}" in ran.stdout.splitlines()[-1]
    assert run("completion", folder=folder, SHELL=f"/bin/{name}").stdout == ran.stdout
    assert run("completion", folder=folder, SHELL="/bin/other").returncode == 2
