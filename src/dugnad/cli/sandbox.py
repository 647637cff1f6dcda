"""The sandbox that a run's commands get, or none; and what is said."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ..board import Board
from ..config.user import UserSettings
from ..text import plain
from ..types import HUMAN
from ..workspace.sandbox.sandbox import Sandbox, probe

UNSAFE = "--unsafe-no-sandbox"


async def find_sandbox(board: Board, root: Path, user: UserSettings, *, unsafe: bool) -> Sandbox | None:
    """None: there is none, and commands do not run. `unsafe` is what was typed just now; no file can say it.

    What is said goes to standard error: it is for the person, also where a program reads the rest.
    """
    found = await probe(os.environ.get("PATH", os.defpath), outside=root)
    # The interpreter that runs us may lie outside the system's folders, and a project's checks need one.
    own = tuple(dict.fromkeys(Path(each) for each in (sys.prefix, sys.base_prefix) if not each.startswith("/usr")))
    own += _folders(user.sandbox.readable)
    mend = f" To fix it: {found.mend}" if found.mend else ""
    if found.level == "none" and not unsafe:
        _warn(f"{found.says}{mend}", "yellow")
        return None
    if found.level == "none":
        _warn(
            f"UNSAFE: commands run without any sandbox, as you typed {UNSAFE}. {found.says.partition('. ')[0]}.", "red"
        )
        await board.remark(HUMAN, "unsandboxed", machine=platform.node(), why=found.says)
    elif unsafe:
        _warn(f"There is a sandbox here, and commands run in it: {UNSAFE} changes nothing.", "yellow")
    return Sandbox(found, unsafe=unsafe, readable=own)


def _warn(words: str, colour: str) -> None:
    click.secho(plain(words), fg=colour, bold=True, err=True)


def _folders(named: Sequence[str]) -> tuple[Path, ...]:
    return tuple(Path(each).expanduser() for each in named)
