"""What `dugnad doctor` does: it checks the setup, one line for each finding, with the way to fix it.

It makes nothing, and changes nothing except that it upgrades an old PostgreSQL board. It connects only to that board,
to the git remote that the user named for the project and, with --online, to the user's services and to the model, which
it asks one small question. With --check it runs the project's check as `dugnad run` would, in a worktree of its own. It
asks no model and runs no check before the user has accepted the project.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from rich.table import Table
from rich.text import Text

from ..errors import DugnadError
from ..text import one_line
from . import checks, checks_board
from .checks import BoardCheck, Check, Finding, Scene
from .command import ODD

# The order matters: later checks use what earlier ones opened.
CHECKS: tuple[tuple[str, Check], ...] = (
    ("project", checks.project_file), ("user", checks.user_settings), ("policies", checks.policies),
    ("board", checks_board.open_the_board), ("trust", checks_board.trust), ("disk", checks_board.disk),
    ("model", checks.choose_model), ("key", checks.find_key), ("price", checks.know_price),
    ("command", checks.know_command), ("policies", checks.hold_commands), ("window", checks.know_window),
    ("role models", checks.open_role_models), ("online", checks.ask_model), ("proxy", checks.proxy),
    ("git", checks.git), ("remote", checks.remote), ("sandbox", checks.sandbox), ("services", checks.services),
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


async def examine(scene: Scene) -> list[Finding]:
    findings: list[Finding | None] = []
    try:
        for name, check in CHECKS:
            findings.append(await _look(scene, name, partial(check, scene)))
            if name == "disk" and (board := scene.board) is not None:
                for its_name, its_check in BOARD_CHECKS:
                    findings.append(await _look(scene, its_name, partial(its_check, scene, board)))
    finally:
        for opened in (scene.board, scene.model):
            if opened is not None:
                await opened.close()
    return [each for each in findings if each is not None]


async def _look(
    scene: Scene, name: str, look: Callable[[], Finding | Awaitable[Finding | None] | None]
) -> Finding | None:
    try:
        found = look()
        found = await found if inspect.isawaitable(found) else found
        return found and replace(found, name=name)
    except DugnadError as trouble:  # The error says what to do next.
        return Finding(name, "wrong", str(trouble))
    except ODD as odd:
        if scene.board is None or scene.accepted is True:
            raise
        says = f"The board holds what no board holds ({type(odd).__name__}); restore a back-up or make a new board."
        return Finding(name, "wrong", says)
    except OSError as trouble:
        return Finding(name, "wrong", f"{trouble.filename or 'It'} cannot be read: {trouble.strerror or trouble}.")


def findings_table(findings: Sequence[Finding]) -> Table:
    table = Table.grid(padding=(0, 2))
    for each in findings:
        said = one_line(each.says, 1_000) + (f" To fix it: {one_line(each.mend, 300)}" if each.mend else "")
        table.add_row(Text(each.level, _STYLES[each.level]), Text(each.name), Text(said))
    return table
