"""`dugnad mcp token` and `dugnad mcp install`: letting a client in, and telling a client about the server."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from typing import TYPE_CHECKING

import click

from ..errors import BadInput
from .command import answer, board_option, board_url, confirm, examples, here, json_option, opened
from .mcp import mcp

if TYPE_CHECKING:
    from ..mcp.tokens import TokenHolder


@mcp.command("token", epilog=examples("dugnad mcp token alice\ndugnad mcp token alice --revoke\ndugnad mcp token"))
@click.argument("name", required=False)
@click.option("--roles", default="", help="The teammate's roles, separated by commas.")
@click.option("--revoke", is_flag=True, help="The teammate's token no longer works.")
@board_option
@json_option
def token(name: str | None, roles: str, revoke: bool, as_json: bool) -> int:
    """Make the token with which a client works as this teammate over HTTP. It is shown once, and only its hash is kept.

    `dugnad web` serves clients under /mcp; they send the token in the header Authorization. A new token takes the place
    of the old one. Without a name, the teammates that have a token are listed.
    """
    from ..board import rules
    from ..mcp.tokens import TokenHolder, Tokens
    from .trust import require_trust

    project = here()
    url = board_url(project)
    require_trust(project, url, makes=False, asks=not as_json)
    tokens, board = Tokens(os.environ), asyncio.run(_identity(url))
    if name is None:
        if revoke:
            raise BadInput("Say whose token to revoke: dugnad mcp token NAME --revoke")
        found = tokens.of(board)
        answer(as_json, {"teammates": [each.teammate for each in found]}, _listed(found))
        return 0
    rules.name("teammate's name", name, project.limits)
    if rules.is_taken(name, lead=False):
        raise BadInput(f"{name!r} is a reserved name, or looks like one; choose another name.")
    if revoke:
        count = tokens.revoke(board, name)
        says = f"The token of {name} no longer works." if count else f"{name} has no token."
        answer(as_json, {"revoked": count}, says)
        return 0
    wanted = tuple(rules.name("role", each.strip(), project.limits) for each in roles.split(",") if each.strip())
    made = tokens.give(TokenHolder(board=board, teammate=name, roles=wanted))
    if not as_json:
        click.echo(f"The token of {name}; it is shown once. `dugnad web` serves /mcp, and its header is:", err=True)
    answer(as_json, {"teammate": name, "token": made}, f"Authorization: Bearer {made}")
    return 0


async def _identity(url: str) -> str:
    async with opened(here(), url) as board:
        return await board.identity()


def _listed(found: list[TokenHolder]) -> str:
    if not found:
        return "Nobody has a token for this board; `dugnad mcp token NAME` makes one."
    return "\n".join(f"{each.teammate}  {', '.join(each.roles)}".rstrip() for each in found)


@mcp.command("install", epilog=examples("dugnad mcp install claude\ndugnad mcp install codex --yes"))
@click.argument("client", type=click.Choice(["claude", "codex", "opencode"]))
@click.option("--yes", is_flag=True, help="Write without asking. What is written is still shown.")
@json_option
def install(client: str, yes: bool, as_json: bool) -> int:
    """Add this server to the configuration of a client, after showing what is added.

    Claude Code and opencode read a file in the project; Codex reads one in your home folder. Nothing else in the file
    is changed, and a second time changes nothing.
    """
    from ..mcp.install import change_for

    command = (_own_command(), "mcp")
    change = change_for(client, command=command, project=here().root, environment=os.environ)
    shape = {"file": str(change.file), "changed": not change.is_there, "adds": change.adds}
    if change.is_there:
        answer(as_json, shape, f"{change.file} has the server already.")
        return 0
    if not as_json:
        click.echo(f"This is added to {change.file}:\n{change.adds}", err=True)
    if not yes:
        refusal = "There is no terminal to ask on; look at what is added, then use --yes."
        if not confirm("Write it?", refusal=BadInput(refusal)):
            raise BadInput("It was not written.")
    change.write()
    answer(as_json, shape, f"{change.file} has the server now. Start {client} in a project with a board.")
    return 0


def _own_command() -> str:
    """How a client starts this program: by its name if that finds it, and otherwise by its path."""
    own = os.path.abspath(sys.argv[0])
    found = shutil.which("dugnad")
    if found is not None and os.path.realpath(found) == os.path.realpath(own):
        return "dugnad"
    beside = os.path.join(os.path.dirname(sys.executable), "dugnad")
    return own if os.path.basename(own) == "dugnad" else beside
