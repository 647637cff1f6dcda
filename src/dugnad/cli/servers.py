"""`dugnad servers` lists the user's MCP servers and approves them; `servers_in` opens them while a team works."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from ..config.agents import project_here
from ..config.project import Project
from ..config.reader import nearest, user_file
from ..config.servers import read_approved, write_approved
from ..config.user import UserSettings, read_user
from ..errors import BadInput, ToolError
from ..team.servers import ServerState, chosen, look_at, open_servers
from ..text import counted, one_line, plain
from ..tools.mcp.offer import Server
from ..tools.tool import Tool
from ..types import Teammate
from ..workspace.sandbox.sandbox import Sandbox, probe
from .command import answer, confirm, examples, json_option
from .workspaces import is_no_project

_STYLES = {"approved": "green", "new": "yellow", "changed": "bold yellow", "trouble": "bold red"}


@click.group("servers", invoke_without_command=True, epilog=examples("dugnad servers\ndugnad servers approve github"))
@json_option
@click.pass_context
def servers(context: click.Context, as_json: bool) -> int | None:
    """List your MCP servers: which are approved, which are new, and what changed in the others.

    Your config.toml names them; docs/configuration.md shows how. Each server is started, to ask what it offers.
    """
    if context.invoked_subcommand is not None:
        return None
    known = read_user(os.environ).servers
    if not known and not as_json:
        click.echo("You have no MCP servers. Your config.toml names them; docs/configuration.md shows how.")
        return 0
    found = asyncio.run(_look(known))
    answer(as_json, {"servers": [*map(_shape, found)]}, lambda: _table(found))
    for each in () if as_json else found:
        _explain(each)
    return 0


@servers.command("approve", epilog=examples("dugnad servers approve github"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Approve without asking. What is approved is still shown.")
@json_option
def approve(name: str, yes: bool, as_json: bool) -> int:
    """Show what a server says of itself, and let teammates use it in exactly this form.

    If any of it changes later, teammates do not get its tools until you approve it again.
    """
    standing = asyncio.run(_look([_named(name)]))[0]
    if standing.state == "trouble":
        raise ToolError(standing.says)
    if not as_json:
        _show_whole(standing)
    if standing.state != "approved":
        refusal = BadInput("There is no terminal to ask on; look at it, then approve it with --yes.")
        if not yes and not confirm(f"May teammates use {name} in this form?", refusal=refusal):
            click.echo("It is not approved.", err=True)
            return 1
        write_approved(os.environ, name, standing.text)
    says = f"{name} is approved{' already' if standing.state == 'approved' else ''}: {standing.hash}"
    answer(as_json, {"server": {**_shape(standing), "state": "approved", "says": ""}}, says)
    return 0


@servers.command("forget", epilog=examples("dugnad servers forget github"))
@click.argument("name")
@json_option
def forget(name: str, as_json: bool) -> int:
    """Remove the approval of a server."""
    if name not in read_approved(os.environ):
        raise BadInput(f"{name} is not approved; `dugnad servers` lists what is.")
    write_approved(os.environ, name, None)
    says = f"{name} is not approved any more; teammates that work now keep it until they end."
    answer(as_json, {"forgotten": name}, says)
    return 0


def _named(name: str) -> Server:
    known = {each.name: each for each in read_user(os.environ).servers}
    if name not in known:
        there = nearest(name, known) if known else f"{user_file(os.environ)} names none."
        raise BadInput(f"You have no MCP server {name!r}; {there}")
    return known[name]


async def _look(known: Sequence[Server]) -> list[ServerState]:
    sandbox = await _sandbox_for(known)
    try:
        return await look_at(known, read_approved(os.environ), sandbox)
    finally:
        if sandbox is not None:
            await sandbox.close()


async def _sandbox_for(known: Sequence[Server]) -> Sandbox | None:
    """The sandbox for servers that are commands; other servers need none."""
    if not any(each.command for each in known):
        return None
    return Sandbox(await probe(os.environ.get("PATH", os.defpath), outside=project_here(os.environ)))


def _table(found: Sequence[ServerState]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for each in found:
        where = each.server.url or " ".join(each.server.command)
        tools = counted(len(each.tools), "tool") if each.text else ""
        table.add_row(each.server.name, Text(each.state, style=_STYLES[each.state]), tools, one_line(where, 60))
    return table


def _explain(each: ServerState) -> None:
    for sentence in each.left_out:
        click.echo(plain(sentence))
    if each.state == "trouble":
        click.echo(f"\n{each.server.name}: {plain(each.says)}")
    elif each.state == "changed":
        click.echo(f"\n{each.server.name} changed since it was approved:\n{plain(each.says)}")
    if each.state in ("new", "changed"):
        click.echo(f"To let teammates use it: dugnad servers approve {each.server.name}")


def _show_whole(standing: ServerState) -> None:
    click.echo(plain(standing.text))
    for sentence in standing.left_out:
        click.echo(plain(sentence))
    if standing.state == "changed":
        click.echo(f"\nWhat changed since it was approved:\n{plain(standing.says)}\n")


def _shape(each: ServerState) -> dict[str, Any]:
    return {
        "name": each.server.name, "state": each.state, "command": list(each.server.command), "url": each.server.url,
        "tools": list(each.tools), "left_out": list(each.left_out), "hash": each.hash, "says": each.says,
    }  # fmt: skip


# While a team works.


@asynccontextmanager
async def servers_in(
    project: Project, user: UserSettings, *, in_place: bool, say: Callable[[str], None]
) -> AsyncIterator[Callable[[Teammate], Sequence[Tool]]]:
    """The tools of the approved servers, by teammate. `say` is told which servers cannot be used."""
    if not user.servers and not project.servers:
        yield lambda teammate: ()
        return
    approved = read_approved(os.environ)
    sandbox = await _sandbox_for([each for each in chosen(user, project) if each.name in approved])
    tree: Path | None = project.root if in_place and not is_no_project(project.root) else None
    found = await open_servers(user, project, sandbox, tree=tree)
    told = len(found.says)
    for sentence in found.says:
        say(sentence)
    try:
        yield found.tools_for
    finally:
        await found.close()
        if sandbox is not None:
            await sandbox.close()
        for sentence in found.says[told:]:
            say(sentence)
