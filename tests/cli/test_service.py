"""The systemd unit of `dugnad work`: systemd takes it as it is, and so does the command line."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dugnad.cli import main
from dugnad.cli.command import EXIT_BAD_USE

UNIT = Path(__file__).parents[2] / "examples" / "systemd" / "dugnad-work.service"
PROGRAM = "/opt/dugnad/bin/dugnad"


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
