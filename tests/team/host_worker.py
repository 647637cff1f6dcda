"""A host as a real process: a team on a board with a scripted model, until it is told to stop or killed.

    python host_worker.py '{"url": ..., "folder": ..., "teammates": ["alice"], "lease_seconds": 5.0, ...}'

A task called "together N" ends only when N of them are held at once; "long ..." leaves its mark in the first turn and
then, at a slow host, thinks for ten minutes; all others leave their mark and end. A mark is a line in a file that says
which task was marked by which process, so that what is done twice is seen.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dugnad import Team, tool
from dugnad.errors import StaleClaim
from dugnad.models.port import Reply, Request
from dugnad.models.scripted import ScriptedModel, Step
from dugnad.settings import Limits, TeamLimits
from dugnad.tools.tool import Tool
from dugnad.types import Claim, Outcome

FOR_EVER_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a worker is to be."""

    url: str
    folder: str
    teammates: tuple[str, ...]
    slow: bool = False
    lease_seconds: float = 5.0  # A busy machine may not run a process for a second or two.
    knows_neighbours: bool = False
    seats_max: int = 10_000

    def limits(self) -> Limits:
        return Limits(lease_seconds=self.lease_seconds, lease_seconds_max=1_200, backoff_seconds=0.05)


class Notes:
    """Lines in files of the test's folder, each written at once, and whole."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def add(self, name: str, line: str) -> None:
        with (self._folder / name).open("a") as file:
            file.write(f"{line}\n")


class Thinker(ScriptedModel):
    """Says in a file which of its calls were stopped from outside."""

    def __init__(self, order: Order, notes: Notes) -> None:
        super().__init__(self._step)
        self._slow = order.slow
        self._notes = notes

    def _step(self, request: Request) -> Step:  # type: ignore[override]
        if request.turn == 1:
            meet = request.title.startswith("together")
            calls = ("meet", {"count": int(request.title.split()[1])}) if meet else ("mark", {"title": request.title})
            return Step(say="I begin.", calls=(calls,))
        seconds = FOR_EVER_SECONDS if self._slow and request.title.startswith("long") else 0.0
        return Step(say=f"{request.title} is done.", seconds=seconds)

    async def ask(self, request: Request) -> Reply:
        try:
            return await super().ask(request)
        except asyncio.CancelledError:
            self._notes.add(f"stopped-{os.getpid()}", str(request.task))
            raise


def tools_for(team: Team, notes: Notes) -> list[Tool]:
    @tool
    def mark(title: str) -> str:
        """Leave a mark."""
        notes.add("marks", f"{title} {os.getpid()}")
        return "It is marked."

    @tool
    async def meet(count: int) -> str:
        """Wait until so many tasks were taken, by whoever; nobody can take two meanwhile."""
        with team.board.watch(["log"]) as watch:
            while True:
                counts = await team.board.count_tasks()
                if counts.get("claimed", 0) + counts.get("done", 0) >= count:
                    return "All are here."
                await watch.wait(1)

    return [mark, meet]


def note_refusals(team: Team, notes: Notes) -> None:
    """Say in a file which tasks could not be settled any more, being in other hands."""
    settle = team.board.settle

    async def noted(claim: Claim, outcome: Outcome, **options: Any) -> str:
        try:
            return await settle(claim, outcome, **options)
        except StaleClaim:
            notes.add(f"refused-{os.getpid()}", str(claim.task.id))
            raise

    team.board.settle = noted  # type: ignore[method-assign]


async def main(order: Order) -> None:
    notes = Notes(order.folder)
    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_stop.set)
    tools: list[Any] = []  # They write to the team's board, which is open only later.
    team = Team.open(
        order.url, model=Thinker(order, notes), tools=tools, board_limits=order.limits(),
        knows_neighbours=order.knows_neighbours,
        seats_max=order.seats_max,
        limits=TeamLimits(idle_seconds=FOR_EVER_SECONDS, stop_seconds=0.2, sweep_seconds=0.5),
    )  # fmt: skip
    async with team:
        tools += tools_for(team, notes)
        note_refusals(team, notes)
        for name in order.teammates:
            await team.spawn(name)
        await team.start()
        await told_to_stop.wait()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    asyncio.run(main(Order(**{**given, "teammates": tuple(given["teammates"])})))
