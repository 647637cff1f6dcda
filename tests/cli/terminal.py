"""A terminal with a person in front of it: `dugnad ...` in a pseudo-terminal, and the screen as it is seen.

Nothing here waits for a time to pass: whatever is waited for is looked at anew whenever the program has drawn. Also
what such tests share: a project whose model is a script, programs beside the test, and what the board says afterwards.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pyte

from tests.cli.shell import accept, environment, run, start

SECONDS = 120.0  # At most, for anything. Nothing is expected to take so long.
MODEL = ("--model", "scripted:script.yaml")
BRIEF = "[team]\nidle_seconds = 1\nstop_seconds = 0.3\ncancel_seconds = 0.5\n"


def make_project(folder: Path, script: str, settings: str = BRIEF) -> None:
    """A project in which the model says what the script says, and a run that is stopped is stopped soon."""
    (folder / "dugnad.toml").write_text(settings)
    (folder / "script.yaml").write_text(script)
    accept(folder)


def told(folder: Path, *words: str) -> Any:
    """What `dugnad ... --json` says, in another process."""
    ran = run(*words, "--json", folder=folder)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def states(folder: Path) -> dict[str, str]:
    """Every task by its title."""
    return {task["title"]: task["state"] for task in told(folder, "tasks", "--all")["tasks"]}


@contextmanager
def started(*words: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`dugnad ...` beside the test, with its output in pipes; it does not outlive the block, nor the patience."""
    program = start(*words, folder=folder)
    limit = Timer(SECONDS, program.kill)
    limit.start()
    try:
        yield program
    finally:
        limit.cancel()
        program.kill()
        program.communicate()


def until_line(program: subprocess.Popen[str], words: str) -> list[str]:
    """The lines up to the one with these words."""
    assert program.stdout is not None
    lines: list[str] = []
    for line in program.stdout:
        lines.append(line)
        if words in line:
            return lines
    raise AssertionError(f"{words!r} was never printed, but:\n{''.join(lines)}")


def rest(program: subprocess.Popen[str]) -> tuple[str, str]:
    """What a program still prints until it ends. `communicate` would lose lines that were read ahead."""
    assert program.stdout is not None
    assert program.stderr is not None
    said = program.stdout.read(), program.stderr.read()
    program.wait()
    return said


class Terminal:
    """A program, its keyboard and its screen."""

    def __init__(self, command: list[str], *, folder: Path, env: Mapping[str, str], columns: int, rows: int) -> None:
        self.drawn = b""  # All that was ever sent to the screen.
        self.screen = pyte.HistoryScreen(columns, rows, history=5_000)
        self._stream = pyte.ByteStream(self.screen)
        # The program's end is kept open here too, so that the terminal can be looked at after the program has left.
        self._ours, self._theirs = pty.openpty()
        self._set_size(columns, rows)
        self.program = subprocess.Popen(
            command, cwd=folder, env=dict(env), stdin=self._theirs, stdout=self._theirs, stderr=self._theirs,
            start_new_session=True, preexec_fn=_take_terminal,  # noqa: PLW1509 (it does one system call)
        )  # fmt: skip

    # What is seen.

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()

    @property
    def above(self) -> list[str]:
        """What has scrolled off the top."""
        return [_line_of(row, self.screen.columns) for row in self.screen.history.top]

    @property
    def everything(self) -> str:
        return "\n".join([*self.above, *self.lines]).rstrip()

    @property
    def cursor_is_visible(self) -> bool:
        return not self.screen.cursor.hidden

    @property
    def is_sane(self) -> bool:
        """The cursor is there, what is typed is seen and taken line by line, and Ctrl-C is a signal."""
        modes = int(termios.tcgetattr(self._theirs)[3])
        wanted = termios.ECHO | termios.ICANON | termios.ISIG
        return self.cursor_is_visible and modes & wanted == wanted

    @property
    def lives(self) -> bool:
        return self.program.poll() is None

    def until(self, true: Callable[[], object], what: str = "it") -> None:
        deadline = time.monotonic() + SECONDS
        while not true():
            assert time.monotonic() < deadline, f"{what} was never seen:\n{self.everything}"
            lived = self.lives
            if not self.read(0.2) and not lived:
                assert true(), f"{what} was never seen, and the program ended:\n{self.everything}"

    def shows(self, *words: str) -> None:
        """All of this, at one moment."""
        self.until(lambda: all(word in self.text for word in words), repr(words))

    def ends(self) -> int:
        """How the program ended, once it has, with all that it drew on the screen."""
        self.until(lambda: not self.lives, "its end")
        while self.read(0):
            pass
        return self.program.returncode

    def read(self, seconds: float) -> bool:
        """Take in what is drawn, if something is before the time is over."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        data = os.read(self._ours, 65_536)
        self.drawn += data
        self._stream.feed(data)
        return True

    # What is done.

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        self.type("\x03")

    def resize(self, columns: int, rows: int) -> None:
        """As terminals do it: what is empty below the cursor goes first, then lines scroll off the top."""
        screen = self.screen
        off_the_top = max(0, screen.cursor.y + 1 - rows)
        at, screen.cursor.y = screen.cursor.y, screen.lines - 1
        for _ in range(off_the_top):
            screen.index()
        screen.cursor.y = at - off_the_top
        for row in [row for row in screen.buffer if row >= rows]:
            del screen.buffer[row]
        screen.lines = rows
        screen.resize(rows, columns)
        self._set_size(columns, rows)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        if self.lives:
            self.program.kill()
        self.program.wait()
        os.close(self._ours)
        os.close(self._theirs)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _line_of(row: Mapping[int, Any], columns: int) -> str:
    return "".join(row[column].data for column in range(columns)).rstrip()


@contextmanager
def terminal(
    *words: str, folder: Path, columns: int = 100, rows: int = 30, command: list[str] | None = None, **more: str
) -> Iterator[Terminal]:  # fmt: skip
    """`dugnad ...` on a terminal of this size; or another command."""
    env = environment(**{"HOME": str(folder), "TERM": "xterm-256color", "LANG": "C.UTF-8", **more})
    window = Terminal(
        command or [sys.executable, "-m", "dugnad", *words], folder=folder, env=env, columns=columns, rows=rows
    )
    try:
        yield window
    finally:
        window.close()
