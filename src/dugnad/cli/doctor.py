"""`dugnad doctor`: checks the setup, one line for each finding, with the way to fix it.

It makes nothing, and changes nothing except that it upgrades an old PostgreSQL board. It connects only to that board
and, with --online, to the model, which it asks one small question. With --check it runs the project's check as
`dugnad run` would, in a worktree of its own. It does neither before the user has accepted the project.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from ..errors import DugnadError
from . import checks, checks_board
from .checks import BoardCheck, Check, Finding, Scene
from .command import board_given, board_option, examples, json_option, show, show_json, working_folder

if TYPE_CHECKING:
    from rich.table import Table

# The order matters: later checks use what earlier ones opened.
CHECKS: tuple[tuple[str, Check], ...] = (
    ("project", checks.project_file), ("user", checks.user_settings), ("policies", checks.policies),
    ("board", checks_board.open_the_board), ("trust", checks_board.trust), ("disk", checks_board.disk),
    ("model", checks.choose_model), ("key", checks.find_key), ("price", checks.know_price),
    ("command", checks.hold_commands), ("window", checks.know_window), ("role models", checks.open_role_models),
    ("online", checks.ask_model), ("proxy", checks.proxy), ("git", checks.git), ("sandbox", checks.sandbox),
    ("check", checks.base_check), ("log", checks.log),
)  # fmt: skip
# Once the board is open.
BOARD_CHECKS: tuple[tuple[str, BoardCheck], ...] = (
    ("writing", checks_board.write), ("size", checks_board.size), ("clock", checks_board.clocks),
    ("hosts", checks_board.hosts), ("answers", checks_board.answers), ("budget", checks_board.budgets),
    ("roles", checks_board.lanes), ("teammates", checks_board.teammates),
    ("rate limits", checks_board.cooldowns),
)  # fmt: skip
_STYLES = {"ok": "green", "warning": "yellow", "wrong": "bold red"}


@click.command("doctor", epilog=examples("dugnad doctor\ndugnad doctor --online"))
@board_option
@json_option
@click.option("--online", is_flag=True, help="Also ask the model one small question.")
@click.option("--check", "runs_check", is_flag=True, help="Also run the project's check.")
@click.pass_context
def doctor(context: click.Context, as_json: bool, online: bool, runs_check: bool) -> None:
    """Check the setup and say how to fix it. The exit code is 1 if anything is wrong."""
    scene = Scene(
        start=working_folder(), environment=os.environ, board_given=board_given(), online=online, runs_check=runs_check
    )
    findings = asyncio.run(examine(scene))
    wrong, warnings = (sum(each.level == level for each in findings) for level in ("wrong", "warning"))
    if as_json:
        show_json({"findings": [asdict(each) for each in findings], "wrong": wrong, "warnings": warnings})
    else:
        show(_picture(findings))
        show(f"{wrong or 'Nothing'} wrong, {warnings or 'no'} warning{'' if warnings == 1 else 's'}.")
    context.exit(1 if wrong else 0)


async def examine(scene: Scene) -> list[Finding]:
    findings: list[Finding | None] = []
    try:
        for name, check in CHECKS:
            findings.append(await _look(name, partial(check, scene)))
            if name == "disk" and (board := scene.board) is not None:
                for its_name, its_check in BOARD_CHECKS:
                    findings.append(await _look(its_name, partial(its_check, scene, board)))
    finally:
        for opened in (scene.board, scene.model):
            if opened is not None:
                await opened.close()
    return [each for each in findings if each is not None]


async def _look(name: str, look: Callable[[], Finding | Awaitable[Finding | None] | None]) -> Finding | None:
    try:
        found = look()
        return await found if inspect.isawaitable(found) else found
    except DugnadError as trouble:  # The error says what to do next.
        return Finding(name, "wrong", str(trouble))
    except OSError as trouble:
        return Finding(name, "wrong", f"{trouble.filename or 'It'} cannot be read: {trouble.strerror or trouble}.")


def _picture(findings: Sequence[Finding]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from ..text import one_line

    table = Table.grid(padding=(0, 2))
    for each in findings:
        said = one_line(each.says, 1_000) + (f" To fix it: {one_line(each.mend, 300)}" if each.mend else "")
        table.add_row(Text(each.level, _STYLES[each.level]), Text(each.name), Text(said))
    return table
