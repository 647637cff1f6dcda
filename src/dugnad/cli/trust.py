"""`dugnad trust`, and the question that other commands ask: what a project brings is used once it is accepted."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import click

from ..board import open_board
from ..config.project import Project
from .accepted import Accepted
from .command import (
    answer,
    board_option,
    board_url,
    confirm,
    examples,
    file_of,
    here,
    json_option,
    make_folder,
    show_json,
    typed_board,
)  # fmt: skip
from .tracked import refuse_tracked
from .unaccepted import Found, NotAccepted, changed, lines_of, look, where_of

_HOW = "`dugnad trust` shows what it brings, and asks once"
_SETTINGS_ASKED = 18  # So that they and the question fit on one screen.


def require_trust(
    project: Project, url: str, *, makes: bool, asks: bool = True, runs: bool = False, typed: bool | None = None
) -> None:
    """Go on only with settings and a board that this user made or accepted; otherwise ask, or refuse.

    `makes`: the board is made if there is none. `runs`: a team will work, so git is asked about the board even if it
    was accepted before. `typed`: the user named the board; None: if --board or DUGNAD_BOARD does.
    """
    accepted, typed = Accepted(os.environ), typed_board() if typed is None else typed
    found = asyncio.run(_look(project, url, typed=typed, runs=runs))
    if not found.board_known:
        with accepted.alone():  # Another process of the user may be making it.
            found = asyncio.run(_look(project, url, typed=typed, runs=runs))
    if not found.known:
        if not asks or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise NotAccepted(_refusal(found))
        for each in lines_of(found, project.root, most=_SETTINGS_ASKED):
            click.echo(each, err=True)
        if not click.confirm("Do you accept it?", err=True):  # Outside of the loop, so that Ctrl-C ends it.
            raise NotAccepted("It was not accepted, and nothing was done.")
    _accept(project, found)
    if makes and not found.identity:
        with accepted.alone():
            found = asyncio.run(_look(project, url, typed=typed, runs=runs))
            if not found.identity:
                asyncio.run(_make(project, url))
        if not found.board_known:
            raise NotAccepted(_refusal(found))


async def _look(project: Project, url: str, *, typed: bool, runs: bool) -> Found:
    found = await look(project, url, Accepted(os.environ), typed=typed)
    if found.identity and not typed and (runs or not found.board_known):
        await refuse_tracked(project, url)
    return found


def _accept(project: Project, found: Found) -> None:
    accepted = Accepted(os.environ)
    if not found.settings_known:
        accepted.add_settings(project.root, found.settings)
    if not found.board_known:
        accepted.add_board(found.where, found.identity)


async def _make(project: Project, url: str) -> None:
    """Make the board. A board that was not there before is the user's own."""
    if (path := file_of(url)) is not None:
        make_folder(path.parent)
    elif url.startswith("sqlite"):
        return  # It is in memory, so there is nothing to remember.
    async with await open_board(url, limits=project.limits) as board:
        Accepted(os.environ).add_board(where_of(url), await board.identity())


def _refusal(found: Found) -> str:
    if found.before is not None:
        keys = changed(found.before, found.settings)
        few = ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
        return f"dugnad.toml changed since you accepted it ({few}): {_HOW}."
    settings, board = not found.settings_known, not found.board_known
    what = (
        "its dugnad.toml and its board are" if settings and board else "its board is" if board else "its dugnad.toml is"
    )
    return f"This project is new to you, and {what} not accepted yet: {_HOW}."


@click.command("trust", epilog=examples("dugnad trust\ndugnad trust --yes"))
@click.option("--yes", is_flag=True, help="Accept without asking. What is accepted is still shown.")
@click.option("--forget", is_flag=True, help="Remove the acceptance, so that dugnad asks again.")
@board_option
@json_option
def trust(yes: bool, forget: bool, as_json: bool) -> int:
    """Show what this project brings (its dugnad.toml, or a board that somebody else made), and accept it.

    Commands that change the board or run a team ask by themselves on a terminal. For a script, run this once. dugnad
    remembers what you accepted, for you alone, and asks again when the settings change.
    """
    project = here()
    url = board_url(project)
    if forget:
        count = Accepted(os.environ).forget(project.root, where_of(url))
        says = "It is forgotten; you are asked again." if count else "Nothing of this project was accepted."
        answer(as_json, {"forgotten": count}, says)
        return 0
    found = asyncio.run(_look(project, url, typed=False, runs=True))
    if not as_json:
        lines = lines_of(found, project.root) if not found.known else []
        for each in lines or [_nothing_new(found)]:
            click.echo(each)
    if not found.known and not yes and not as_json:
        refusal = "There is no terminal to ask on; look at it, then accept it with `dugnad trust --yes`."
        if not confirm("Do you accept it?", refusal=NotAccepted(refusal)):
            raise NotAccepted("It was not accepted.")
    if not found.known and (yes or not as_json):
        _accept(project, found)
        found = asyncio.run(_look(project, url, typed=False, runs=False))
        if not as_json:
            click.echo("It is accepted.")
    if as_json:
        show_json(_shape(project, found))
    return 0


def _nothing_new(found: Found) -> str:
    if not found.settings and not found.identity:
        return "There is nothing to accept: no dugnad.toml that sets anything, and no board."
    return "All of it is accepted."


def _shape(project: Project, found: Found) -> dict[str, Any]:
    return {
        "root": str(project.root), "accepted": found.known, "settings": dict(found.settings),
        "settings_accepted": found.settings_known, "board": found.where if found.identity else None,
        "board_accepted": found.board_known, "says": list(found.board_says),
    }  # fmt: skip
