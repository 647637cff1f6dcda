"""Which sandbox a run's commands get: what is here, or none if that was typed."""

from __future__ import annotations

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

import dugnad
from tests.cli.shell import environment

SCRIPT = """
"*":
  - calls: [{bash: {command: "echo $((6 * 7)); cat ../secret"}}]
  - say: Done.
"""
REFUSED = "bubblewrap is not installed. Shell tools are refused. To fix it: sudo apt-get install bubblewrap"


class Place:
    """A project on a machine without bubblewrap: neither on the path nor beside the interpreter."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        (folder / "venv" / "bin").mkdir(parents=True)
        (folder / "venv" / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix, 'bin')}\n")
        self.python = folder / "venv" / "bin" / "python"
        self.python.symlink_to(os.path.realpath(sys.executable))
        (folder / "programs").mkdir()
        (folder / "programs" / "apt-get").touch(0o755)
        self.home = folder / "home"
        (self.home / ".config" / "dugnad").mkdir(parents=True)
        self.project.mkdir()
        (folder / "secret").write_text("hidden")
        (self.project / "script.yaml").write_text(SCRIPT)
        source = Path(dugnad.__file__).parents[1]
        self.environment = environment(
            PATH=str(folder / "programs"), HOME=str(self.home), DUGNAD_BOARD=f"sqlite:///{folder}/board.db",
            PYTHONPATH=":".join([str(source), *site.getsitepackages()]),
        )  # fmt: skip

    def configure(self, text: str) -> None:
        file = self.home / ".config" / "dugnad" / "config.toml"
        file.write_text(text)
        file.chmod(0o600)

    def says(self, *words: str, **more: str) -> tuple[str, str]:
        ran = subprocess.run(
            [self.python, "-m", "dugnad", *words], cwd=self.project, env={**self.environment, **more},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return ran.stdout, ran.stderr

    def run(self, *options: str, **more: str) -> tuple[str, str]:
        """What a run says to the person, and what its commands did."""
        words = ("run", "goal", "--agents", "1", "--model", "scripted:script.yaml", "--in-place", *options)
        _, errors = self.says(*words, **more)
        return errors, self.says("show", "1", "--transcript")[0]


@pytest.fixture
def place(folder: Path) -> Place:
    return Place(folder)


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["lines", "json"])
def test_without_one_no_command_runs_and_the_way_to_one_is_named(place: Place, options: tuple[str, ...]) -> None:
    errors, said = place.run(*options, DUGNAD_UNSAFE_NO_SANDBOX="1", DUGNAD_RUN_UNSAFE="1", DUGNAD_UNSAFE="1")
    assert errors.strip() == REFUSED
    assert "There is no tool 'bash'" in said


def test_typed_each_time_commands_run_without_one_and_the_log_says_so(place: Place) -> None:
    errors, said = place.run("--unsafe-no-sandbox")
    assert errors.startswith("UNSAFE: commands run without any sandbox, as you typed --unsafe-no-sandbox.")
    assert "42\n" in said
    assert "hidden" in said
    log, _ = place.says("log")
    assert log.count("human allowed commands without a sandbox on ") == 1
    errors, _ = place.run()
    assert errors.strip() == REFUSED


@pytest.mark.parametrize("key", ["landlock", "unsafe", "unsafe_no_sandbox"])
def test_no_file_of_a_project_can_loosen_it_nor_can_the_users_do_without(place: Place, key: str) -> None:
    (place.project / "dugnad.toml").write_text(f"[sandbox]\n{key} = true\n")
    errors, _ = place.run()
    assert errors.startswith("dugnad: ")
    assert "sandbox" in errors
    (place.project / "dugnad.toml").unlink()
    place.configure(f"[sandbox]\n{key} = true\n")
    errors, _ = place.run()
    assert f"[sandbox] has no key '{key}'; there are hosts, readable." in errors


def test_the_doctor_says_it_in_the_same_words(place: Place) -> None:
    found, _ = place.says("doctor")
    assert REFUSED in " ".join(found.split())
