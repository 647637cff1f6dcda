"""Every command × everything that can be wrong around it: a sentence and an exit code, never a traceback, never more
memory than a command may need, and a board as it was where the call was refused.

The commands come from click's own tree, so a new one is tried without being named here.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest

from dugnad.cli import main
from tests.cli.forking import Call, Forks, Ran
from tests.cli.shell import environment
from tests.proof import every, sample

CODES = {0, 1, 2, 3, 130}
LINES_MAX = 3
SLOW = {"demo"}  # Builds a whole project each time; it is tried where it is refused at once.
LONG = {"run", "work", "chat", "doctor", "rehearse"}  # They do much before they end; fewer values are tried.
REPORTS = {"doctor"}  # What it finds is its answer, and goes where answers go.
VALUES = {"TaskId": "1", "Asked": "1", "TeammateName": "alice"}
NUMBERS = (
    "9" * 30, "-" + "9" * 30, "9" * 5_000, "9223372036854775808", "1e400", "nan", "inf", "-inf", "-1", "0", "1_0", "٣",
    "0x10", "1e308d", "", " ",
)  # fmt: skip
FILES = (
    "/dev/zero", "/dev/full", "/proc/self/mem", "pipe", "sparse", "folder", "binary", "circle", "nowhere", "a\udcff",
    "x" * 100_000, "\x1b[2J\u202e",
)  # fmt: skip
ADDRESSES = (
    *(f"{scheme}{file}" for scheme in ("scripted:", "sqlite:///") for file in FILES), "sqlite:////dev/zero",
    "sqlite://", "postgresql://[/x", "postgresql://127.0.0.1:99999999/x", "postgresql://%zz/x",
    "postgresql:///x?port=a", "command:x", "openai:", ":", "//",
)  # fmt: skip


def commands() -> dict[str, click.Command]:
    """Every command, those of groups too, by the words that are typed for it."""

    def walk(group: click.Group, context: click.Context, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield " ".join((*words, name)), command
            if isinstance(command, click.Group):
                yield from walk(command, click.Context(command, context), (*words, name))

    return dict(walk(main, click.Context(main), ()))


COMMANDS = commands()


def usual(command: click.Command, but: click.Parameter | None = None, value: str = "") -> list[str]:
    """The words that have to be typed, with this value for one parameter."""
    options, arguments = [], []
    for each in command.params:
        said = value if each is but else VALUES.get(type(each.type).__name__, "word")
        if not each.required and each is not but:
            continue
        words = [said] * max(1, each.nargs)
        if isinstance(each, click.Option):
            options += [each.opts[0], *words]
        else:
            arguments += words
    return [*options, "--", *arguments]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.close()


class Place:
    """A project with a board, and odd files lying about."""

    def __init__(self, forks: Forks, folder: Path) -> None:
        self.forks, self.folder = forks, folder
        self.environment = environment(HOME=str(folder), XDG_STATE_HOME=str(folder / "state"), DUGNAD_MODEL="scripted:")
        (folder / "dugnad.toml").write_text("[team]\nidle_seconds = 0.1\n")
        os.mkfifo(folder / "pipe")
        (folder / "folder").mkdir()
        (folder / "binary").write_bytes(bytes(range(256)) * 20)
        (folder / "circle").symlink_to("circle")
        with (folder / "sparse").open("w") as file:
            file.truncate(10**10)
        for words in (["trust", "--yes"], ["add", "one"], ["spawn", "alice"]):
            assert self.run(words).code == 0, words

    def run(self, words: list[str], change: dict[str, str | None] | None = None, **how: Any) -> Ran:
        given = {name: value for name, value in {**self.environment, **(change or {})}.items() if value is not None}
        return self.forks.run(Call(words=words, folder=how.pop("folder", str(self.folder)), environment=given, **how))

    def last_event(self) -> int:
        with closing(sqlite3.connect(self.folder / ".dugnad" / "board.db")) as board:
            (last,) = board.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
        return int(last)

    def check(self, words: list[str], change: dict[str, str | None] | None = None, **how: Any) -> Ran:
        """Run it, and see that however it ended, it ended in order."""
        before = self.last_event()
        ran = self.run(words, change, **how)
        what = ([word[:60] for word in words], ran.code, ran.err[-2_000:])
        assert not ran.late, what
        assert "Traceback" not in ran.err, what
        assert ran.code in CODES, what
        assert ran.err.count("\n") <= LINES_MAX, what
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", ran.err), what
        if ran.code == 2 and not (words[0] == "chat" and "given" in how):  # Which had begun when it read that.
            assert self.last_event() == before, what
        if ran.code in (1, 2) and how.get("err", "") == "" and words[0] not in REPORTS:
            assert ran.err.startswith("dugnad: ") or ran.out, what
        return ran


@pytest.fixture
def place(forks: Forks, folder: Path) -> Place:
    return Place(forks, folder)


# The streams.

STREAMS: dict[str, dict[str, Any]] = {
    "closed output": {"out": None},
    "full output": {"out": "/dev/full"},
    "closed errors": {"err": None},
    "full errors": {"err": "/dev/full"},
    "closed input": {"given": None},
    "endless input": {"given": "/dev/zero"},
    "nothing open": {"given": None, "out": None, "err": None},
    "all full": {"given": "/dev/zero", "out": "/dev/full", "err": "/dev/full"},
}


@pytest.mark.parametrize("streams", every(3, STREAMS.values()), ids=STREAMS)
def test_streams_that_are_closed_full_or_endless(place: Place, streams: dict[str, Any]) -> None:
    for name, command in COMMANDS.items():
        if name in SLOW and streams.get("out", "") is not None:
            continue
        ran = place.check([*name.split(), *usual(command)], **streams)
        if streams.get("out", "") is None:
            assert ran.code == 2, name
            assert streams.get("err", "") is None or "Standard output is closed, so nothing was done" in ran.err
        if streams == {"out": "/dev/full"}:
            assert place.check([*name.split(), "--help"], **streams).code == 1


def test_an_answer_that_cannot_be_printed_is_a_failure_that_says_so(place: Place) -> None:
    for words in (["tasks"], ["show", "1", "--json"], ["log"], ["--help"], ["add", "two"], ["completion", "bash"]):
        ran = place.check(words, out="/dev/full")
        assert ran.code == 1
        assert "The answer could not be printed: No space left on device." in ran.err


def test_a_text_on_standard_input_has_a_bound(place: Place) -> None:
    for words in (
        ["tell", "alice", "-"],
        ["add", "x", "--body", "-"],
        ["add", "--file", "-"],
        ["spawn", "b", "--prompt", "-"],
    ):
        ran = place.check(words, given="/dev/zero")
        assert (ran.code, "Standard input has more than 4096 KiB" in ran.err) == (2, True)


# The surroundings.

SURROUNDINGS: dict[str, dict[str, str | None]] = {
    "no home": {"HOME": None},
    "a home that is nowhere": {"HOME": "/nonexistent/home"},
    "a home that is no path": {"HOME": "x"},
    "nothing set": {"HOME": None, "PATH": None, "LANG": None, "DUGNAD_MODEL": None},
    "no columns": {"COLUMNS": "0", "LINES": "0", "TERM": "nonsense"},
    "absurd columns": {"COLUMNS": "9" * 30, "LINES": "x", "TMPDIR": "/nonexistent"},
    "half letters": {"HOME": "/tmp/\udcff", "XDG_CONFIG_HOME": "/tmp/\udcff", "DUGNAD_MODEL": "a\udcff"},
    "an endless script": {"DUGNAD_MODEL": "scripted:/dev/zero"},
    "a board that is no board": {"DUGNAD_BOARD": "\udcff\x1b"},
    "a strange server and user": {"DUGNAD_BASE_URL": "http://[::", "SUDO_UID": "9" * 9_000},
}


@pytest.mark.parametrize("change", every(4, SURROUNDINGS.values()), ids=SURROUNDINGS)
def test_odd_surroundings(place: Place, change: dict[str, str | None]) -> None:
    for name, command in COMMANDS.items():
        if name not in SLOW:
            place.check([*name.split(), *usual(command)], change)


def test_a_working_folder_that_is_gone(place: Place) -> None:
    for name, command in COMMANDS.items():
        gone = place.folder / "gone"
        gone.mkdir()
        ran = place.check([*name.split(), *usual(command)], folder=str(gone), removes_folder=True)
        assert ran.code in (0, 1, 2)
        if name in ("tasks", "add", "run", "work", "chat", "doctor", "prune", "rehearse", "demo"):
            assert (ran.code, "The working folder is gone" in ran.err) == (2, True), (name, ran)


@pytest.mark.parametrize("mode", every(4, [0o000, 0o111, 0o555, 0o444]), ids=oct)
def test_a_working_folder_that_cannot_be_used(place: Place, tmp_path: Path, mode: int) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(mode)
    for name, command in COMMANDS.items():
        if name not in SLOW:
            place.check([*name.split(), *usual(command)], {"HOME": "/nonexistent"}, folder=str(closed), plain=True)
    closed.chmod(0o700)


# Values.


def _tried(parameter: click.Parameter, name: str) -> tuple[str, ...]:
    """Numbers where a number is asked for, else files; addresses where one is named."""
    if name in LONG:
        return tuple(_tried(parameter, "")[::6])
    if parameter.name in ("board", "model"):
        return ADDRESSES
    kind = type(parameter.type).__name__
    if kind.startswith("String") or kind in ("Path", "File", "TeammateName", "Choice"):
        return (*FILES, "", " ", "nan")
    return NUMBERS + FILES[-3:]


@pytest.mark.parametrize("name", sample(sorted(COMMANDS.keys() - SLOW), lambda name: name == "tasks"))
def test_values_that_nobody_meant(place: Place, name: str) -> None:
    command = COMMANDS[name]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.is_flag:
            continue
        for value in _tried(parameter, name):
            place.check([*name.split(), *usual(command, parameter, value)])


# What forking cannot show: how the interpreter itself starts.


@pytest.mark.parametrize(
    ("shell", "code"),
    [("tasks >&-", 2), ("tasks 2>&-", 0), ("show 99 2>&-", 2), ("tasks <&-", 0), ("tasks >/dev/full", 1),
     ("tasks | head -n 0", 0), ("tasks >&- 2>&- <&-", 2), ("show 99 2>/dev/full", 2), ("add t --file <(echo one)", 2),
     ("add --file <(echo one)", 0), ("--help | true", 0)],
)  # fmt: skip
def test_a_real_shell(place: Place, shell: str, code: int) -> None:
    script = f"set -o pipefail; {sys.executable} -m dugnad {shell}"
    ran = subprocess.run(
        ["bash", "-c", script], cwd=place.folder, env=place.environment, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in ran.stderr
    assert "Exception ignored" not in ran.stderr
    assert (ran.returncode, ran.stderr.count("\n") <= 1) == (code, True), ran.stderr


@pytest.mark.parametrize("language", every(4, ["C", "POSIX", "nonsense", ""]))
@pytest.mark.parametrize("utf8", ["0", "1"])
def test_letters_in_a_language_that_has_none(place: Place, language: str, utf8: str) -> None:
    for words in (["add", "Skriv på norsk, 漢字"], ["tasks"], ["log", "--json"], ["show", "ø"]):
        ran = subprocess.run(
            [sys.executable, "-m", "dugnad", *words], cwd=place.folder, capture_output=True, check=False,
            env={**place.environment, "LC_ALL": language, "PYTHONUTF8": utf8, "PYTHONCOERCECLOCALE": "0"},
        )  # fmt: skip
        assert b"Traceback" not in ran.stderr
        assert ran.returncode == (2 if words[0] == "show" or (words[0] == "add" and ran.stderr) else 0)
