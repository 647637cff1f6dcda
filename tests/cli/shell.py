"""The command line as the tests use it: in this process where that is enough, as a process where it matters."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner, Result

from dugnad.board import Board, open_board
from dugnad.cli import main
from dugnad.cli.accepted import Accepted
from dugnad.cli.unaccepted import flat
from dugnad.config.project import read_project
from dugnad.types import Claim, Outcome
from tests.cli.forking import Call, Forks

T = TypeVar("T")


class Shell:
    """Commands on one board."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *words: str, given: str | bytes | None = None) -> Result:
        ran = CliRunner().invoke(main, ["--board", self.url, *words], input=given)
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return ran

    def says(self, *words: str, given: str | None = None) -> str:
        """What a command that succeeds prints."""
        ran = self(*words, given=given)
        assert ran.exit_code == 0, ran.output
        assert ran.stderr == ""
        return ran.stdout

    def json(self, *words: str, given: str | None = None) -> Any:
        said = self.says(*words, "--json", given=given)
        assert said.count("\n") == 1
        return json.loads(said)

    def fails(self, code: int, *words: str, given: str | bytes | None = None) -> str:
        """The one sentence of a command that fails with this code."""
        ran = self(*words, given=given)
        assert ran.exit_code == code, (ran.exit_code, ran.stdout, ran.stderr)
        assert ran.stdout == ""
        assert ran.stderr.startswith("dugnad: ")
        assert ran.stderr.count("\n") == 1, ran.stderr
        return ran.stderr.removeprefix("dugnad: ").strip()

    def on_board(self, work: Callable[[Board], Awaitable[T]]) -> T:
        """Do something on the board that no command does."""

        async def once() -> T:
            async with await open_board(self.url) as board:
                return await work(board)

        return asyncio.run(once())

    def settle(self, name: str, outcome: Outcome, *, task: int | None = None) -> Claim:
        """Let a teammate claim a task and end it so."""

        async def work(board: Board) -> Claim:
            claim = await claimed(board, name, task=task)
            await board.settle(claim, outcome)
            return claim

        return self.on_board(work)


async def claimed(board: Board, name: str, *, task: int | None = None) -> Claim:
    """A claim of this teammate, who is spawned and seated for it."""
    if name not in {member.name for member in await board.team()}:
        await board.spawn(name)
    host = (await board.teammate(name)).host
    if host is None:
        host = await board.start_host("test")
        await board.seat(host, name=name)
    claim = await board.claim(name, host, task=task)
    assert claim is not None
    return claim


def accept(folder: Path) -> None:
    """What `dugnad trust --yes` does for a project's settings."""
    Accepted(os.environ).add_settings(folder.resolve(), flat(read_project(folder, environment={}).given))


def write_settings(folder: Path, text: str) -> None:
    (folder / "dugnad.toml").write_text(text)
    accept(folder)


def environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH", "XDG_STATE_HOME") if name in os.environ}
    return {**kept, **more}


@cache
def _forks() -> Forks:
    made = Forks()
    atexit.register(made.close)
    return made


def run(*words: str, folder: Path, given: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """`dugnad ...` as its own process, in a folder, with its output in pipes; forked from one that has imported it."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(given or "")
        file.flush()
        ran = _forks().run(
            Call(
                words=list(words), folder=str(folder), given=file.name if given is not None else "/dev/null",
                environment=environment(**{"HOME": str(folder), **more}), memory_bytes_max=None,
            )
        )  # fmt: skip
    assert not ran.late, (words, ran)
    return subprocess.CompletedProcess(["dugnad", *words], ran.code, ran.out, ran.err)


def run_anew(*words: str, folder: Path, given: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """The same with an interpreter of its own, for what depends on how that starts."""
    return subprocess.run(
        [sys.executable, "-m", "dugnad", *words], cwd=folder, env=environment(**{"HOME": str(folder), **more}),
        input=given, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def start(*words: str, folder: Path, home: Path | None = None, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dugnad", *words], cwd=folder, env=environment(HOME=str(home or folder)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
    )  # fmt: skip
