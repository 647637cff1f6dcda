"""What can go wrong with `dugnad run`: the model, the goal, the disk, the database. It is said, and nothing spins."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.shell import environment, run
from tests.cli.terminal import BRIEF, MODEL, SECONDS, make_project, rest, started, terminal, told, until_line
from tests.models.provider_server import Answer, Fault, ProviderServer
from tests.postgres_server import PostgresServer

QUICK = """
"*":
  - calls: [{note: {title: A word, text: for all}}]
  - say: It is done.
"""
HASTY = f"{BRIEF}[limits]\nretries_max = 1\nretry_seconds = 0.05\ncooldown_seconds = 0.2\n"


@pytest.fixture
def project(folder: Path) -> Path:
    make_project(folder, QUICK)
    return folder


def sentence(ran: subprocess.CompletedProcess[str], code: int) -> str:
    """The one sentence of a run that did not begin."""
    assert ran.returncode == code, ran
    assert ran.stdout == ""
    assert ran.stderr.startswith("dugnad: ")
    assert ran.stderr.count("\n") == 1
    return ran.stderr.removeprefix("dugnad: ").strip()


# The model.


def test_without_a_model_the_three_ways_on_are_named(project: Path) -> None:
    said = sentence(run("run", "Build it", folder=project), 1)
    for way in ("ANTHROPIC_API_KEY", "OpenAI-compatible server", "`dugnad demo`"):
        assert way in said
    ran = run("run", "Build it", "--json", folder=project)
    assert json.loads(ran.stdout)["error"] == {"kind": "ModelMisconfigured", "message": said, "exit": 1}
    assert not (project / ".dugnad").exists()  # Nothing was made for a run that cannot begin.


def test_a_provider_nobody_knows_is_named(project: Path) -> None:
    said = sentence(run("run", "Build it", "--model", "nonesuch:x", folder=project), 1)
    assert "nonesuch" in said
    assert said.endswith(".")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "script.yaml cannot be read"),
        ('"*":\n  - calls: [{ask: {question: Which?}}]\n', "line 2"),
        ('"*":\n  - says: something\n', "does not know says"),
        ("just text", "script.yaml"),
    ],
)
def test_a_broken_script_is_named_with_its_place(project: Path, script: str | None, words: str) -> None:
    path = project / "script.yaml"
    if script is None:
        path.unlink()
    else:
        path.write_text(script)
    said = sentence(run("run", "Build it", *MODEL, folder=project), 2)
    assert words in said
    assert "script.yaml" in said


def provided(project: Path, *words: str, url: str) -> subprocess.CompletedProcess[str]:
    """A run with a model of the provider on loopback."""
    return run(*words, "--model", "openai:x", folder=project, OPENAI_API_KEY="wrong", DUGNAD_BASE_URL=url)


async def test_a_wrong_key_ends_the_run_and_a_right_one_goes_on(project: Path) -> None:
    make_project(project, QUICK, HASTY.replace("[team]\n", "[team]\nagents_start = 3\n"))
    async with ProviderServer([Fault(status=401)]) as server:
        ran = await asyncio.to_thread(provided, project, "run", "Build it", url=server.url)
        assert len(server.seen) <= 3  # One for each teammate at most; nothing spins.
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "failed  alice: openai:x: The request failed with 401." in ran.stdout
    assert "ready  #1 Build it" in ran.stdout
    (step,) = [line for line in ran.stdout.splitlines() if line.startswith("     next")]
    assert step.startswith("     next  dugnad doctor    ")
    assert "`dugnad run`" in step
    async with ProviderServer([Answer(text="It is done.")]) as server:
        ran = await asyncio.to_thread(provided, project, "run", "--json", url=server.url)
    said = json.loads(ran.stdout)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert said["failed_teammates"] == {}  # That is mended, and was told before.
    assert len(told(project, "team")["teammates"]) == 3  # Those who failed came back; no strangers in their place.


def test_a_provider_that_cannot_be_reached_is_said_and_waited_for(project: Path) -> None:
    make_project(project, QUICK, HASTY)
    more = {"OPENAI_API_KEY": "any", "DUGNAD_BASE_URL": "http://127.0.0.1:9"}
    with terminal("run", "Build it", "--model", "openai:x", folder=project, columns=140, **more) as screen:
        screen.shows("alice paused openai:", "cannot be reached")
        screen.interrupt()
        assert screen.ends() == 130
        assert "ready  #1 Build it" in screen.text
        assert "Unclosed" not in screen.everything


# The goal and the options.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", ""], "The goal is empty"),
        (["run", " \n "], "The goal is empty"),
        (["run", "Build it", "--agents", "0"], "--agents"),
        (["run", "Build it", "--agents", "many"], "--agents"),
        (["run", "Build it", "--tasks", "0"], "--tasks"),
        (["run", "Build it", "--dollars", "nan"], "dollars"),
        (["run", "Build it", "--minutes", "inf"], "seconds"),
        (["run", "Build", "it"], "it"),
        (["run", "--tasks", "3"], "A budget belongs to one goal"),
    ],
)
def test_a_wrong_word_is_answered_with_one_sentence(project: Path, words: list[str], said: str) -> None:
    if words[1:] == ["--tasks", "3"]:
        run("add", "One", folder=project)
        run("add", "Two", folder=project)
    assert said in sentence(run(*words, *MODEL, folder=project), 2)


def test_bytes_that_are_no_text_are_refused(project: Path) -> None:
    command = [os.fsencode(word) for word in (sys.executable, "-m", "dugnad", "run")] + [b"half \xff of it"]
    ran = subprocess.run(
        [*command, *map(os.fsencode, MODEL)], cwd=project, env=environment(HOME=str(project)), capture_output=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert b"Traceback" not in ran.stderr


def test_a_goal_may_be_as_long_as_a_page(project: Path) -> None:
    goal = "Build a house.\n" + "It has a door and a window and a roof. " * 200
    assert run("run", goal, *MODEL, folder=project).returncode == 0
    (task,) = told(project, "tasks", "--all")["tasks"]
    assert task["title"].startswith("Build a house.")
    assert len(task["title"]) <= 200
    assert task["body"].strip() == goal.strip()


# The disk.


def test_a_folder_that_cannot_be_made_is_named(project: Path) -> None:
    """Where nobody can make one, root as little as anybody."""
    ran = run("--board", "sqlite:////proc/nowhere/board.db", "run", "Build it", *MODEL, folder=project)
    assert "The folder /proc/nowhere for the board cannot be made: " in sentence(ran, 1)


def test_a_board_of_a_newer_version_is_left_alone(project: Path) -> None:
    run("add", "Build it", folder=project)
    with sqlite3.connect(project / ".dugnad" / "board.db") as raw:
        raw.execute("PRAGMA user_version = 9999")
    raw.close()
    assert "Upgrade dugnad on this machine; nothing was changed." in sentence(run("run", *MODEL, folder=project), 1)


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A disk of two megabytes, where that can be had."""
    place.mkdir()
    try:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], check=False, capture_output=True
        )
    except OSError:
        made = None
    if made is None or made.returncode:
        pytest.skip("Only root can make a small disk.")
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_full_disk_is_said_and_the_run_goes_on_when_there_is_room(folder: Path) -> None:
    place = folder / "small"
    with small_disk(place):
        make_project(place, QUICK.replace("- say", "- seconds: 2\n    say"))
        with started("run", "Build it", *MODEL, folder=place) as program:
            until_line(program, 'wrote the note "A word"')
            with (place / "filler").open("wb", buffering=0) as filler:
                try:
                    while filler.write(bytes(4096)):
                        pass
                except OSError:
                    pass
            until_line(program, "The board is in trouble: ")
            (place / "filler").unlink()
            until_line(program, "The board answers again.")
            out, err = rest(program)
        assert (program.returncode, err) == (0, "")
        assert "All done." in out


# The database.


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own: it is stopped and started here."""
    made = PostgresServer()
    try:
        made.start()
        yield made
    finally:
        made.remove()


def test_a_server_that_is_not_there_is_said(project: Path) -> None:
    ran = run("--board", "postgresql://postgres@127.0.0.1:9/postgres", "run", "Build it", *MODEL, folder=project)
    assert "Check that the server runs and that the address is right." in sentence(ran, 1)


def test_a_run_goes_on_when_its_server_is_back(project: Path, server: PostgresServer) -> None:
    make_project(project, QUICK.replace("- say", "- seconds: 2\n    say"))
    board = f"{server.url}?board=back"
    with terminal("--board", board, "run", "Build it", *MODEL, folder=project) as screen:
        screen.shows("turn 2, asks")
        server.stop()
        try:
            screen.shows("The board does not answer")
            assert "Build it   1 claimed" in screen.text  # The rest of the view stays.
        finally:
            server.start()
        assert screen.ends() == 0
        assert "done  #1 Build it" in screen.text
    (attempt,) = told(project, "--board", board, "show", "1")["attempts"]
    assert attempt["ended_as"] == "done"


def test_control_c_ends_a_run_whose_server_is_away(project: Path, server: PostgresServer) -> None:
    make_project(project, QUICK.replace("- say", "- seconds: 60\n    say"))
    board = f"{server.url}?board=away"
    with started("--board", board, "run", "Build it", *MODEL, folder=project) as program:
        until_line(program, 'wrote the note "A word"')
        server.stop()
        try:
            program.send_signal(signal.SIGINT)
            out, _ = rest(program)
        finally:
            server.start()
    assert program.returncode == 130
    assert "`dugnad run` goes on" in out
    make_project(project, QUICK)
    assert run("--board", board, "run", *MODEL, folder=project).returncode == 0
