"""Where the lines go: the user's own files, a bounded number of them, one for each process; or standard error."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dugnad.logs import handlers, logger
from dugnad.logs.handlers import start_logging
from tests.cli.shell import Shell, run

_LOG = logger("dugnad.tests")


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    yield
    start_logging(None, keeps=False, screen=False, folder=Path("/nowhere"))


def begun(folder: Path, level: str | None = None, *, keeps: bool = True, screen: bool = False) -> Path:
    told = start_logging(level, keeps=keeps, screen=screen, folder=folder / "logs")
    assert told.startswith("Log: ")
    return Path(told.removeprefix("Log: "))


def test_the_file_is_the_users_own_and_has_all_from_info_on(folder: Path) -> None:
    file = begun(folder, "error")
    _LOG.debug("hidden")
    _LOG.info("seen")
    assert file == folder / "logs" / "dugnad-1.log"
    assert [each.partition("event=")[2] for each in file.read_text().splitlines()] == ["seen"]
    assert (file.parent.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_the_last_five_files_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "FILE_BYTES_MAX", 500)
    file = begun(folder)
    for number in range(100):
        _LOG.info("turn number=%d", number)
    names = sorted(each.name for each in file.parent.glob("*.log*"))
    assert names == ["dugnad-1.log", *(f"dugnad-1.log.{number}" for number in range(1, 5))]
    assert all(
        (each.stat().st_size <= 500, each.stat().st_mode & 0o777) == (True, 0o600)
        for each in file.parent.glob("*.log*")
    )
    assert "number=99" in file.read_text()


def test_two_processes_have_a_file_each(folder: Path) -> None:
    begun(folder)
    program = (
        "import sys; from pathlib import Path; from dugnad.logs.handlers import start_logging\n"
        "print(start_logging(None, keeps=True, screen=False, folder=Path(sys.argv[1])))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(folder / "logs")], capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip
    assert ran.stdout.strip().endswith("/dugnad-2.log")


def test_a_link_in_the_place_of_the_file_is_not_followed(folder: Path) -> None:
    logs = folder / "logs"
    logs.mkdir()
    (logs / "dugnad-1.log").symlink_to(folder / "elsewhere")
    told = start_logging(None, keeps=True, screen=False, folder=folder / "logs")
    assert told.startswith("Log: none; ")
    assert not (folder / "elsewhere").exists()


def test_a_folder_that_cannot_be_made_is_told_and_the_work_goes_on(folder: Path) -> None:
    (folder / "logs").write_text("in the way")
    told = start_logging("info", keeps=True, screen=True, folder=folder / "logs")
    assert told.startswith(f"Log: none; {folder}/logs cannot be written: ")
    _LOG.info("goes nowhere")


def test_lines_go_to_standard_error_unless_a_view_is_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert start_logging("debug", keeps=False, screen=False, folder=Path("/nowhere")) == ""
    _LOG.debug("seen")
    assert capsys.readouterr().err.endswith("event=seen\n")
    file = begun(folder, "debug", keeps=False, screen=True)
    _LOG.debug("kept")
    assert capsys.readouterr().err == ""
    assert file.read_text().endswith("event=kept\n")


def test_a_disk_that_is_full_stops_nobody(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun(folder)
    (handler,) = [each for each in logging.getLogger("dugnad").handlers if hasattr(each, "path")]
    with open("/dev/full", "w") as full:
        kept, handler.stream = handler.stream, full  # type: ignore[attr-defined]
        _LOG.info("lost")
        handler.stream = kept  # type: ignore[attr-defined]
        try:
            full.close()
        except OSError:
            pass
    assert capsys.readouterr().err == ""


def test_work_names_its_log_and_writes_it(folder: Path) -> None:
    given = {"DUGNAD_MODEL": "scripted:", "XDG_STATE_HOME": str(folder / "state")}
    assert run("add", "x", "--role", "nobody", folder=folder, **given).returncode == 0
    (folder / "dugnad.toml").write_text("[team]\nidle_seconds = 0.2\n")
    assert run("trust", "--yes", folder=folder, **given).returncode == 0
    ran = run("work", "--agents", "1", "--roles", "coder", folder=folder, **given)
    file = folder / "state" / "dugnad" / "logs" / "dugnad-1.log"
    assert f"Log: {file}\n" in ran.stdout
    assert "event=host-started host=" in file.read_text()
    assert "event=host-stopped host=" in file.read_text()
    assert "log " in (said := run("doctor", folder=folder, **given).stdout)
    assert str(file.parent) in said


def test_the_level_comes_from_the_option_or_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(f"sqlite:///{folder}/board.db")
    shell("add", "x")
    assert shell.says("tasks")
    ran = shell("--log-level", "shout", "tasks")
    assert (ran.exit_code, ran.stdout) == (2, "")
    monkeypatch.setenv("DUGNAD_LOG", "shout")
    assert "DUGNAD_LOG" in shell.fails(2, "tasks")
    monkeypatch.setenv("DUGNAD_LOG", "Debug")
    assert shell("tasks").exit_code == 0
    assert logging.getLogger("dugnad").level == logging.DEBUG
