"""`dugnad mcp`: the board as an MCP server, for agents that work on their own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadInput, DugnadError
from ..text import plain
from .command import board_option, examples, here
from .running import place_options, plan_of

if TYPE_CHECKING:
    from ..config.project import Project
    from ..config.user import UserSettings
    from ..mcp.seats import Seat
    from ..mcp.serve import ClientHost
    from ..team import RunPlan
    from ..tools.mcp.serving import Link
    from .workspaces import Wishes

_MEET_SECONDS = 3.0  # So long the first answer waits for what may go wrong at the start.
_START_SECONDS = 8.0  # For a call that comes before everything is ready; the call itself may wait, too.


@click.group("mcp", invoke_without_command=True, epilog=examples("dugnad mcp\ndugnad mcp --as ada --roles coder"))
@click.option("--as", "name", metavar="NAME", help="The teammate's name. [default: that of the program that calls]")
@click.option("--roles", default="", help="Its roles, separated by commas. It also takes tasks for anyone.")
@place_options
@board_option
@click.pass_context
def mcp(context: click.Context, /, name: str | None, roles: str, **typed: Any) -> int:
    """Serve the board to an agent over MCP, on standard input and output.

    A program such as Claude Code, Codex or opencode starts this by itself. The program then is a teammate: it takes
    tasks, works on them in their own folders, and gives back what it holds when it ends.
    """
    if context.invoked_subcommand is not None:
        return 0
    if sys.stdin.isatty():
        raise BadInput(
            "A client starts this and speaks MCP with it; `dugnad mcp install --help` says how to set it up."
        )
    try:
        start = _read(name, roles, typed)
    except DugnadError as refused:
        click.echo(f"dugnad: {plain(str(refused))}", err=True)
        asyncio.run(_refuse(str(refused)))
        return 2 if isinstance(refused, BadInput) else 1
    from ..team.guardian import guarded

    with guarded(start.plan.url) as ends:
        return asyncio.run(_serve(start, ends))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """What the files and the options say."""

    project: Project
    user: UserSettings
    plan: RunPlan
    wishes: Wishes
    name: str | None
    roles: tuple[str, ...]


def _read(name: str | None, roles: str, typed: dict[str, Any]) -> _Start:
    from ..board import rules
    from ..config.user import read_user
    from ..errors import BoardUnreachable
    from .command import exists, file_of
    from .trust import require_trust
    from .workspaces import Wishes

    project, user = here(), read_user(os.environ)
    plan = plan_of(project, user)
    if name is not None:
        rules.name("teammate's name", name, project.limits)
    wanted = tuple(rules.name("role", each.strip(), project.limits) for each in roles.split(",") if each.strip())
    path = file_of(plan.url)
    if path is not None and not exists(path):
        raise BoardUnreachable(f"There is no board at {path} yet; `dugnad add` or `dugnad run` makes one.")
    require_trust(project, plan.url, makes=False, asks=False, runs=True)
    return _Start(
        project=project, user=user, plan=plan, wishes=Wishes.typed(typed), name=name, roles=wanted
    )  # fmt: skip


async def _refuse(sentence: str) -> None:
    """Tell the client why there is nothing here, as the answer to whatever it asks first."""
    from ..mcp.serve import served
    from ..tools.mcp.lines import LineServer, own_streams

    async def met(link: Link) -> None:
        raise DugnadError(sentence)

    with own_streams() as (read_from, write_to):
        await LineServer(served=replace(served(), met=met), read_from=read_from, write_to=write_to).serve()


async def _serve(start: _Start, ends: Callable[[], object]) -> int:
    from ..tools.mcp.lines import LineServer, own_streams
    from .signals import stopping

    session = _StdioClient(start)
    with own_streams() as (read_from, write_to):
        holding = asyncio.create_task(session.hold())
        async with stopping("the server was stopped", at_once=False) as stop:
            line = LineServer(served=session.served(), read_from=read_from, write_to=write_to)
            await stop.unless(line.serve())
            ends()
        session.over.set()
        with suppress(DugnadError):
            await holding
    return 0


class _StdioClient:
    """One client on standard input and output: the host behind it, and its seat there."""

    def __init__(self, start: _Start) -> None:
        self.over = asyncio.Event()
        self._start = start
        self._host: asyncio.Future[ClientHost] = asyncio.get_running_loop().create_future()
        self._seat: asyncio.Task[Seat] | None = None

    async def hold(self) -> None:
        """The host, until the client is gone. It is opened beside the first messages, which must not wait for it."""
        from ..mcp.serve import client_host
        from ..team.team import opened
        from .workspaces import workplaces

        start = self._start
        try:
            async with (
                opened(start.plan) as board,
                workplaces(board, start.project, start.user, start.wishes, _say) as given,
                client_host(
                    replace(start.plan, workspaces=given.places, sandbox=given.sandbox, reviewer=given.reviewer), board
                ) as host,
            ):  # fmt: skip
                self._host.set_result(host)
                await self.over.wait()
                if self._seat is not None:
                    self._seat.cancel()
        except DugnadError as trouble:
            _say(f"dugnad: {trouble}")
            if self._host.done():
                raise
            self._host.set_exception(trouble)
            self._host.exception()

    def served(self) -> Any:
        from ..mcp.serve import offered

        return replace(offered(self.seat, self._hosted), met=self._met)

    async def _hosted(self) -> ClientHost:
        return await asyncio.shield(self._host)

    async def _met(self, link: Link) -> None:
        """Take a seat for the client, under its own name unless another was given."""
        from ..mcp.seats import name_for

        if self._seat is None:
            name = self._start.name or name_for(link.name)
            self._seat = asyncio.create_task(self._sit(name))
            self._seat.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait({self._seat}, timeout=_MEET_SECONDS)
        if self._seat.done():
            self._seat.result()

    async def _sit(self, name: str) -> Seat:
        host = await asyncio.shield(self._host)
        return await host.seat(name, roles=self._start.roles, exactly=self._start.name is not None)

    async def seat(self) -> Seat:
        assert self._seat is not None
        await asyncio.wait({self._seat}, timeout=_START_SECONDS)
        if not self._seat.done():
            raise DugnadError("The host is still starting; call this again.")
        seat = self._seat.result()
        await seat.taken()
        return seat


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)
