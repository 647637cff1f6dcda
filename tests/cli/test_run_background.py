"""A run in the background of a shell: Ctrl-C and a closed window are not meant for it; SIGTERM still is."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest

from tests.cli.shell import environment, run, start
from tests.cli.terminal import BRIEF, MODEL, SECONDS, make_project, rest, told, until_line

SCRIPT = """
Ask:
  - calls: [{ask_human: {question: "Which colour?"}}]
  - say: So be it.
Long:
  - {seconds: 60, say: Too late.}
"*":
  - say: Gladly.
"""
NOT_MEANT_FOR_IT = (signal.SIGINT, signal.SIGHUP)


@contextmanager
def in_background(*words: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """As `nohup dugnad ... &` starts it in a script: with both signals ignored."""
    program = subprocess.Popen(
        ["sh", "-c", 'trap "" INT HUP; exec "$0" -m dugnad "$@"', sys.executable, *words], cwd=folder,
        env=environment(HOME=str(folder)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    limit = Timer(SECONDS, program.kill)
    limit.start()
    try:
        yield program
    finally:
        limit.cancel()
        program.kill()
        program.communicate()


@pytest.fixture
def project(folder: Path) -> Path:
    make_project(folder, SCRIPT, BRIEF.replace("idle_seconds = 1", "idle_seconds = 30"))
    return folder


def test_a_run_in_the_background_goes_on_through_ctrl_c_and_a_closed_window(project: Path) -> None:
    with in_background("run", "Ask", *MODEL, folder=project) as program:
        until_line(program, "waits for the human")
        for number in NOT_MEANT_FOR_IT:
            program.send_signal(number)
        run("answer", "1", "Blue.", folder=project)
        out, err = rest(program)
    assert (program.returncode, err) == (0, "")
    assert "So be it." in out


@pytest.mark.parametrize("command", ["run", "work"])
def test_sigterm_stops_it_in_order_whatever_came_before(project: Path, command: str) -> None:
    run("add", "Long", folder=project)
    with in_background(command, *MODEL, folder=project) as program:
        until_line(program, "claimed it")
        for number in (*NOT_MEANT_FOR_IT, signal.SIGTERM):
            program.send_signal(number)
        out, err = rest(program)
    assert program.returncode == 130
    assert err.startswith("Stopping: turns under way are being recorded.")
    assert "released it" in out
    (attempt,) = told(project, "show", "1")["attempts"]
    assert attempt["ended_as"] == "released"


def test_sigterm_ends_a_chat_in_order_and_as_interrupted(project: Path) -> None:
    program = start("chat", "--agents", "1", *MODEL, folder=project, stdin=subprocess.PIPE)
    limit = Timer(SECONDS, program.kill)
    limit.start()
    try:
        assert program.stdin is not None
        program.stdin.write("Hello\n")
        program.stdin.flush()
        until_line(program, "Gladly.")
        program.send_signal(signal.SIGTERM)
        program.wait(SECONDS)
    finally:
        limit.cancel()
        program.kill()
        program.communicate()
    assert program.returncode == 130
    assert {member["status"] for member in told(project, "team")["teammates"]} == {"wanted"}  # By the next host.
