"""The systemd unit of `dugnad work`: systemd takes it as it is, and its command starts and stops as the unit says.

No systemd runs here: a test starts the unit's command as systemd would, and reads its end as the unit tells systemd to.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import click
import pytest

from dugnad.cli import main
from dugnad.cli.command import EXIT_BAD_USE
from dugnad.settings import TeamLimits
from tests.cli.shell import run
from tests.cli.terminal import BRIEF, SECONDS, rest, told, until_line
from tests.workspace.repository import new_repository

UNIT = Path(__file__).parents[2] / "examples" / "systemd" / "dugnad-work.service"
PROGRAM = "/opt/dugnad/bin/dugnad"
SYSTEMD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # What a service gets.
SCRIPT = """
Long:
  - calls: [{write_file: {path: a.txt, text: "a"}}]
  - calls: [{bash: {command: "echo begun > b.txt; sleep 600"}}]
"""


def setting(name: str) -> str:
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(found)


def verified(folder: Path, text: str) -> str:
    """What `systemd-analyze verify` has against a unit. Its program is one that exists here."""
    analyze = shutil.which("systemd-analyze")
    assert analyze, "There is no systemd-analyze, so the unit cannot be checked: install Debian's package systemd."
    unit = folder / UNIT.name
    unit.write_text(text.replace(PROGRAM, sys.executable))
    ran = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert bool(ran.returncode) is bool(ran.stderr), (ran.returncode, ran.stderr)
    return ran.stderr


def test_systemd_takes_the_unit_as_it_is(tmp_path: Path) -> None:
    assert verified(tmp_path, UNIT.read_text()) == ""


@pytest.mark.parametrize("wrong", ["ExecStart=nowhere/dugnad work", "ExecStart=/no/such/program"])
def test_the_check_of_the_unit_finds_what_is_wrong(tmp_path: Path, wrong: str) -> None:
    text = re.sub(r"^ExecStart=.*$", wrong, UNIT.read_text(), flags=re.MULTILINE)
    assert wrong.partition("=")[2].split()[0] in verified(tmp_path, text)


def test_its_command_is_one_of_ours_and_its_exit_codes_are_those_of_the_command() -> None:
    program, verb, *words = shlex.split(setting("ExecStart"))
    assert (program, verb) == (PROGRAM, "work")
    command = main.get_command(click.Context(main), verb)
    assert command is not None
    assert command.make_context(verb, words).params["forever"] is True
    assert setting("SuccessExitStatus") == "130"  # As `test_run_background` sees it after SIGTERM.
    assert setting("RestartPreventExitStatus") == str(EXIT_BAD_USE)


@pytest.fixture
def project(folder: Path) -> Path:
    """A project of the unit's user, whose home is the folder above it."""
    where = new_repository(folder / "project")
    (where / "dugnad.toml").write_text(BRIEF)
    (where / "script.yaml").write_text(SCRIPT)
    return where


@contextmanager
def as_the_unit_says(project: Path, board: str) -> Iterator[subprocess.Popen[str]]:
    """The unit's command as systemd starts it: with the unit's folder and variables, and none of ours."""
    variables = {"DUGNAD_BOARD": board, "DUGNAD_MODEL": "scripted:script.yaml"}
    places = {
        PROGRAM: Path(sys.executable).with_name("dugnad"),
        "/srv/dugnad/project": project,
        "/etc/dugnad/work.env": project.parent / "work.env",
    }
    places[setting("EnvironmentFile")].write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    read = dict(line.split("=", 1) for line in places[setting("EnvironmentFile")].read_text().splitlines())
    program, *words = shlex.split(setting("ExecStart"))
    process = subprocess.Popen(
        [places[program], *words], cwd=places[setting("WorkingDirectory")], stdin=subprocess.DEVNULL,
        env={"PATH": SYSTEMD_PATH, "LANG": "C.UTF-8", "HOME": str(project.parent), "USER": setting("User"), **read},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    limit = Timer(SECONDS, process.kill)
    limit.start()
    try:
        yield process
    finally:
        limit.cancel()
        process.kill()
        process.communicate()


def until_the_command_runs(project: Path) -> None:
    until = time.monotonic() + SECONDS
    while not list((project / ".dugnad" / "trees").glob("*/b.txt")):
        assert time.monotonic() < until
        time.sleep(0.05)


def is_started_again(code: int) -> bool:
    """Whether systemd starts it again after it ended by itself so."""
    assert setting("Restart") == "always"
    return str(code) not in setting("RestartPreventExitStatus").split()


def test_its_command_works_and_a_stop_of_the_unit_gives_the_task_back(project: Path) -> None:
    home, board = {"HOME": str(project.parent), "XDG_STATE_HOME": ""}, f"sqlite:///{project.parent}/board.db"
    assert run("trust", "--yes", folder=project, **home).returncode == 0
    assert run("add", "Long", "--board", board, folder=project, **home).returncode == 0
    with as_the_unit_says(project, board) as process:
        until_line(process, "claimed it")
        until_the_command_runs(project)
        assert "KillSignal" not in UNIT.read_text()  # So it is SIGTERM.
        process.send_signal(signal.SIGTERM)
        process.wait(float(setting("TimeoutStopSec")))  # Later, systemd would kill it.
        out, err = rest(process)
    assert process.returncode in (0, *map(int, setting("SuccessExitStatus").split()))
    assert err.startswith("Stopping: turns under way are being recorded.")
    assert "released it" in out
    shown = told(project, "show", "1", "--board", board)
    assert [each["ended_as"] for each in shown["attempts"]] == ["released"]
    assert shown["task"]["state"] == "ready"
    assert is_started_again(process.returncode)  # If another than systemd stopped it.


def test_it_has_more_time_to_stop_than_a_host_takes() -> None:
    usual = TeamLimits()
    assert usual.stop_seconds + 4 * usual.cancel_seconds < float(setting("TimeoutStopSec"))


def test_a_project_that_nobody_has_accepted_is_not_started_again_and_again(project: Path) -> None:
    with as_the_unit_says(project, f"sqlite:///{project.parent}/board.db") as process:
        _, err = rest(process)
    assert "dugnad trust" in err
    assert not is_started_again(process.returncode)


def test_a_remote_that_is_away_when_the_machine_starts_is_tried_again(project: Path) -> None:
    home = {"HOME": str(project.parent), "XDG_STATE_HOME": ""}
    assert run("trust", "--yes", folder=project, **home).returncode == 0
    config = project.parent / ".config" / "dugnad" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[remotes]\n"{project}" = "https://127.0.0.1:1/p.git"\n')
    config.chmod(0o600)
    with as_the_unit_says(project, f"sqlite:///{project.parent}/board.db") as process:
        _, err = rest(process)
    assert "https://127.0.0.1:1/p.git cannot be reached: " in err
    assert is_started_again(process.returncode)


def test_a_board_that_is_away_is_tried_again(project: Path) -> None:
    home = {"HOME": str(project.parent), "XDG_STATE_HOME": ""}
    assert run("trust", "--yes", folder=project, **home).returncode == 0
    with as_the_unit_says(project, "postgresql://nobody@127.0.0.1:1/none") as process:
        _, err = rest(process)
    assert err.startswith("dugnad: ")
    assert is_started_again(process.returncode)
    assert setting("StartLimitIntervalSec") == "0"
