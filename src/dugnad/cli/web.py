"""`dugnad web`: the board in a browser."""

from __future__ import annotations

import asyncio
import getpass
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadInput
from ..text import one_line
from .command import (
    board_option,
    board_url,
    examples,
    file_of,
    here,
    json_option,
    opened,
    reader_may_leave,
    show_json,
    shown_url,
)  # fmt: skip

if TYPE_CHECKING:
    from ..board import Board
    from ..config.project import Project
    from ..config.user import UserSettings
    from ..mcp.serve import ClientHost
    from ..web.serving import RunningServer

MCP_PATH = "/mcp"
_NO_TERMINAL = (
    "The links that this prints let anybody who reads them use the page, so they are shown on a terminal only; a "
    "program gets them with --json."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBoard:
    """A board to show."""

    project: Project
    url: str
    name: str
    root: Path | None  # The project's folder, for diffs.
    typed: bool | None = None  # The user named the board itself; None: if --board or DUGNAD_BOARD does.


@click.command("web", epilog=examples("dugnad web\ndugnad web ~/site ~/api --look"))
@click.argument("boards", metavar="[BOARD]...", nargs=-1)
@click.option("--look", is_flag=True, help="Only to look: nobody can steer, and the project need not be accepted.")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="N", help="[default: 7373, or the next that is free]")
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--origin", metavar="URL", help="Where browsers find the page, if a server with TLS is in front of it.")
@json_option
@board_option
def web(boards: tuple[str, ...], look: bool, as_json: bool, **place: Any) -> int:
    """See the team work, go back in time, and steer, in a browser. BOARD is a project's folder or a board's URL.

    The links are keys. The one to steer works once; Enter prints a new one. The one to look may be shared, and works
    until the server ends. Ctrl-C ends the server; a team that works goes on.
    """
    from ..config.user import read_user
    from ..web.serving import checked_address, checked_origin, listen
    from .trust import require_trust

    origin = None if place["origin"] is None else checked_origin(place["origin"])
    address = checked_address(place["address"], origin)
    user = read_user(os.environ)
    named = [_named(each, user) for each in boards] or [_here(user)]
    for each in named if not look else ():
        require_trust(each.project, each.url, makes=False, asks=not as_json, typed=each.typed)
    if not as_json and not sys.stdout.isatty():
        raise BadInput(_NO_TERMINAL)
    with listen(address, place["port"]) as listener:
        serve = _serve(named, user, listener=listener, origin=origin, look=look, as_json=as_json)
        return asyncio.run(serve)


def _here(user: UserSettings) -> NamedBoard:
    project = here()
    return NamedBoard(project=project, url=board_url(project, user), name=project.team, root=project.root)


def _named(given: str, user: UserSettings) -> NamedBoard:
    """The board of a project's folder, or at a URL. What the environment says is about the working folder."""
    from ..config.project import Project, read_project

    if "://" not in given:
        folder = Path(given).expanduser()
        if not folder.is_dir():
            raise BadInput(
                f"{given} is neither a project's folder nor a board's URL (sqlite:///path, postgresql://host)."
            )
        project = read_project(folder.resolve())
        elsewhere = {name: value for name, value in os.environ.items() if name != "DUGNAD_BOARD"}
        url = project.board_url(None, elsewhere, user)
        return NamedBoard(project=project, url=url, name=project.team, root=project.root, typed=False)
    path = file_of(given)
    root = path.parent.parent if path is not None and path.parent.name == ".dugnad" else None
    name = root.name if root is not None else (path.stem if path is not None else shown_url(given).rpartition("/")[2])
    project = Project(root=root or Path.cwd(), team=name)  # Its settings are not used, so nobody need accept them.
    return NamedBoard(project=project, url=given, name=name, root=root, typed=True)


async def _serve(
    named: Sequence[NamedBoard], user: UserSettings, *, listener: Any, origin: str | None, look: bool, as_json: bool
) -> int:
    from ..mcp.over_http import mcp_over_http
    from ..mcp.tokens import Tokens
    from ..web.following import followed
    from ..web.serving import serving, settle_memory
    from ..web.windows import ModelWindows
    from .notifying import notifying
    from .signals import stopping

    async with AsyncExitStack() as stack:
        boards: dict[str, Any] = {}
        hosts: dict[str, Any] = {}
        for each in named:
            board = await stack.enter_async_context(opened(each.project, each.url))
            windows = ModelWindows(each.project.model_name(None, os.environ) or user.model, user)
            found = await stack.enter_async_context(
                followed(board, name=each.name, where=shown_url(each.url), root=each.root, windows=windows)
            )
            if boards.setdefault(found.identity, found) is found:
                outside = each.root or Path.cwd()
                await stack.enter_async_context(
                    notifying(board, user.notify, where=shown_url(each.url), outside=outside)
                )
                if each.root is not None and not look:
                    hosts[found.identity] = partial(_client_host, each, user, board)
        clients = await stack.enter_async_context(mcp_over_http(hosts, Tokens(os.environ)))
        server = await stack.enter_async_context(
            serving(
                [*boards.values()], listener=listener, who=login_name(), environment=os.environ, origin=origin,
                mounts={MCP_PATH: clients},
            )
        )  # fmt: skip
        settling = asyncio.create_task(settle_memory(server.boards))
        stack.callback(settling.cancel)
        stop = await stack.enter_async_context(stopping("the server was stopped", at_once=False))
        _show(server, look=look, as_json=as_json)
        with on_enter(lambda: _show_new_link(server, as_json=as_json), listens=not look):
            await stop.said.wait()
    if not as_json:
        click.echo("\nThe server has ended. An open page goes on when you start it again on this port.")
    return 0


@asynccontextmanager
async def _client_host(named: NamedBoard, user: UserSettings, board: Board) -> AsyncIterator[ClientHost]:
    """The host of the clients of one board, which work in the project's folder."""
    from ..mcp.serve import client_host
    from .running import plan_of
    from .workspaces import Wishes, workplaces

    plan = replace(plan_of(named.project, user), url=named.url)

    def say(sentence: str) -> None:
        click.echo(sentence, err=True)

    async with (
        workplaces(board, named.project, user, Wishes(), say) as given,
        client_host(
            replace(plan, workspaces=given.places, sandbox=given.sandbox, reviewer=given.reviewer), board
        ) as host,
    ):  # fmt: skip
        yield host


def login_name() -> str:
    """The login name of the person who steers."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return f"user {os.getuid()}"


def _show(server: RunningServer, *, look: bool, as_json: bool) -> None:
    steer = None if look else server.steer_link()
    if as_json:
        boards = [{"id": each.id, "name": each.name, "where": each.where} for each in server.boards]
        show_json({"url": server.url, "port": server.port, "steer": steer, "look": server.look_link, "boards": boards})
        return
    for each in server.boards:
        click.echo(f"Serving {one_line(each.name, 60)} ({one_line(each.where, 200)})")
    if steer is not None:
        click.echo(f"Steer: {steer}")
    click.echo(f"Look:  {server.look_link}")
    if steer is not None:
        click.echo("The link to steer works once; Enter prints a new one.")
    click.echo("The link to look may be shared, and works until the server ends. Ctrl-C ends it.")


def _show_new_link(server: RunningServer, *, as_json: bool) -> None:
    steer = server.steer_link()
    with reader_may_leave():
        if as_json:
            show_json({"steer": steer})
        else:
            click.echo(f"Steer: {steer}")


@contextmanager
def on_enter(act: Callable[[], None], *, listens: bool) -> Iterator[None]:
    """Act on each line that is typed, or that a program writes."""
    kind = stat.S_IFMT(os.fstat(0).st_mode)
    if not listens or not (sys.stdin.isatty() or kind in (stat.S_IFIFO, stat.S_IFSOCK)):
        yield
        return
    loop = asyncio.get_running_loop()

    def read() -> None:
        if sys.stdin.isatty() and os.tcgetpgrp(0) != os.getpgrp():
            return  # It is typed for another program; who reads in the background is stopped.
        try:
            data = os.read(0, 4_096)
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(0)
        for _ in range(min(1, data.count(b"\n"))):
            act()

    loop.add_reader(0, read)
    try:
        yield
    finally:
        loop.remove_reader(0)
