"""`dugnad demo --web`: the demo, live in a browser."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from ..board import Board
from ..web.following import FollowedBoard, followed
from ..web.serving import RunningServer, listen, serving
from .signals import stopping
from .web import login_name, on_enter


@dataclass(frozen=True, slots=True)
class DemoPage:
    """The page of a demo. Somebody at a terminal may take time; in a pipe nobody waits."""

    server: RunningServer
    shown: FollowedBoard

    async def opened(self) -> bool:
        """On a terminal, wait for a page or for Enter. False: the person wants to end instead."""
        if not _on_terminal():
            return True
        click.echo("The demo begins when you open a link, or at Enter.")
        async with stopping("the demo ended", at_once=False) as stop:
            with on_enter(self.shown.watched.set, listens=True):
                await stop.unless(self.shown.watched.wait())
        return not stop

    async def stays(self) -> None:
        """On a terminal, serve the page until Ctrl-C; else until it was told of everything."""
        if not _on_terminal():
            await self.shown.wait(await self.shown.board.last_event() - 1)
            return
        click.echo("The page stays open until Ctrl-C; its slider goes back to any moment of the demo.")
        async with stopping("the demo ended", at_once=False) as stop:
            with on_enter(self._say_steer, listens=True):
                await stop.said.wait()

    def say_links(self) -> None:
        if _on_terminal():
            self._say_steer()
        click.echo(f"Look:  {self.server.look_link}")

    def _say_steer(self) -> None:
        click.echo(f"Steer: {self.server.steer_link()}")


@asynccontextmanager
async def demo_page(board: Board, folder: Path) -> AsyncIterator[DemoPage]:
    """Serve the board of a demo as long as the block lasts."""
    async with followed(board, name="demo", where=str(folder), root=folder) as shown:
        with listen() as listener:
            async with serving([shown], listener=listener, who=login_name(), environment=os.environ) as server:
                page = DemoPage(server, shown)
                page.say_links()
                yield page


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
