"""What teammates of a simulated world can do outside the board: press a button, run a command that only takes its time.

The sandbox is the real one up to the request that would start a command. Making a tool's schema takes long, so the
tools are made once, and look up the world they are in.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..team.checking import check_in
from ..team.life import Check
from ..tools import Context, Tool
from ..tools.commands import command_tools
from ..types import Task
from ..workspace.sandbox import Probe, Sandbox
from .faults import AT_CHECK, Storm
from .witness import Witness

TREE = Path(__file__).parent  # It has to be a folder; nothing is run in it.
_STRICT = Probe(level="strict", says="", bwrap=Path("/usr/bin/bwrap"))
_NONE = Probe(level="none", says="There is no sandbox on this machine.")


class _Runs:
    """Stands for the helper process, which is there already."""

    returncode = None


@dataclass
class Outside:
    """The world outside the board, as the tools of one world see it."""

    witness: Witness
    storm: Storm
    random: random.Random
    note: Callable[[str, str], None]

    @property
    def has_sandbox(self) -> bool:
        return not self.storm.has("no sandbox")


class SimulatedSandbox(Sandbox):
    """Runs nothing; what would have been run is shown to the witness."""

    def __init__(self) -> None:
        super().__init__(_STRICT)
        self.outside: Outside | None = None

    def enter(self, outside: Outside) -> None:
        self.outside = outside
        self.found = _STRICT if outside.has_sandbox else _NONE

    async def _ask(self, request: dict[str, Any], on_output: Callable[[bytes], None] | None) -> dict[str, Any]:
        assert self.outside is not None
        self._starter = _Runs()  # type: ignore[assignment]
        if not self.outside.has_sandbox:
            self.outside.storm.happened("no sandbox")
        await self.start()  # Refuses, where there is no sandbox.
        self.outside.witness.command(request, str(TREE), self.outside.has_sandbox)
        await asyncio.sleep(1 + self.outside.random.random() * 30)
        fault = self.outside.storm.draw(AT_CHECK)
        says = {"red check": b"1 failed", "merge conflict": b"CONFLICT (content): Merge conflict in main.py"}
        return {
            "output": base64.b64encode(says.get(fault or "", b"ok")).decode(), "code": int(fault is not None),
            "timed_out": False, "shortened": False, "seconds": 1.0,
        }  # fmt: skip


@cache
def sandbox() -> SimulatedSandbox:
    """The one of this process; `enter` says in which world it is."""
    return SimulatedSandbox()


@cache
def tools() -> tuple[Tool, ...]:
    async def press(context: Context, button: str) -> str:
        """Press a button in the world outside.

        Args:
            button: Which.
        """
        outside = sandbox().outside
        assert outside is not None
        outside.witness.press(context.key, context.claim.host, context.teammate.name)
        outside.note(context.teammate.name, f"presses {button} for #{context.claim.task.id}")
        await asyncio.sleep(outside.random.random() * 40)
        return f"{button} is pressed."

    return (Tool(press), *command_tools(sandbox(), TREE))


def check_of(outside: Outside) -> Check:
    """A check in the sandbox, whose green light is looked at."""
    check = check_in(sandbox(), TREE)

    async def look(task: Task) -> str | None:
        red = await check(task)
        if red is None:
            outside.witness.checked(task, outside.has_sandbox)
        return red

    return look
