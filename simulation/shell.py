"""What teammates of a simulated world can do outside the board: press a button, run a command that only takes its time.

The sandbox is the real one up to the request that would start a command. Making a tool's schema takes long, so the
tools are made once, and look up the world they are in.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dugnad.board import Board
from dugnad.settings import ShellLimits
from dugnad.team.workspaces.workspace import OpenWorkspace, RedCheck, TreeWorkspace, Workshop, Workspace
from dugnad.tools.context import Context
from dugnad.tools.shell.bash import ran_text
from dugnad.tools.shell.runner import MARGIN_SECONDS, Shell, within
from dugnad.tools.tool import Tool
from dugnad.types import Attempt, Claim, Task
from dugnad.workspace.sandbox.profile import Confinement
from dugnad.workspace.sandbox.sandbox import Probe, Sandbox

from .faults import AT_CHECK, Storm
from .witness import Witness

TREE = Path(__file__).parent  # It has to be a folder; nothing is run in it.
_STRICT = Probe(level="strict", says="", bwrap=Path("/usr/bin/bwrap"))
_NONE = Probe(level="none", says="There is no sandbox on this machine.")


@dataclass
class OutsideWorld:
    """The world outside the board, as the tools of one world see it."""

    witness: Witness
    storm: Storm
    random: random.Random
    note: Callable[[str, str], None]

    @property
    def has_sandbox(self) -> bool:
        return not self.storm.has("no sandbox")


class _FakeHelper:
    """Stands for the helper process: it is there, and whatever it is asked to run only takes its time."""

    def __init__(self) -> None:
        self.outside: OutsideWorld | None = None

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def ask(self, request: dict[str, Any], *, files: Sequence[int] = (), **_: Any) -> dict[str, Any]:
        assert self.outside is not None
        for each in files:
            os.close(each)
        self.outside.witness.command(request, str(TREE), self.outside.has_sandbox)
        await asyncio.sleep(1 + self.outside.random.random() * 30)
        fault = self.outside.storm.draw(AT_CHECK)
        says = {"red check": b"1 failed", "merge conflict": b"CONFLICT (content): Merge conflict in main.py"}
        return {
            "output": base64.b64encode(says.get(fault or "", b"ok")).decode(), "code": int(fault is not None),
            "timed_out": False, "shortened": False, "seconds": 1.0,
        }  # fmt: skip


class SimulatedSandbox(Sandbox):
    """Runs nothing; what would have been run is shown to the witness."""

    def __init__(self) -> None:
        super().__init__(_STRICT)
        self.starter = _FakeHelper()
        self._starter = self.starter  # type: ignore[assignment]

    @property
    def outside(self) -> OutsideWorld | None:
        return self.starter.outside

    def enter(self, outside: OutsideWorld) -> None:
        self.starter.outside = outside
        self.found = _STRICT if outside.has_sandbox else _NONE

    async def _sockets(self, policy: Confinement) -> tuple[Path, ...]:
        return ()  # There are no files in this world, and no threads to look for them.

    async def start(self) -> None:
        if self.outside is not None and not self.outside.has_sandbox:
            self.outside.storm.happened("no sandbox")
        await super().start()  # Refuses, where there is no sandbox.


@cache
def sandbox() -> SimulatedSandbox:
    """The one of this process; `enter` says in which world it is."""
    return SimulatedSandbox()


def command_tools(sandbox: Sandbox, tree: Path) -> tuple[Tool, ...]:
    """`bash` alone, for a teammate and not for an attempt: it is always waited for, and what it prints is a result like
    others."""
    shell, limits = Shell(sandbox, tree, None), ShellLimits()

    def asked(seconds: float) -> float:
        return within(seconds, limits.seconds_max)

    async def bash(context: Context, command: str, seconds: float = limits.seconds) -> str:
        """Run a command of the shell in the workspace, and wait for its end.

        Args:
            command: The command, as for bash -c.
            seconds: After so many it is ended; 1800 at most.
        """
        return ran_text(await shell.in_call(context, command, asked(seconds), None))

    return (Tool(bash, seconds=lambda arguments: asked(arguments["seconds"]) + MARGIN_SECONDS),)


@cache
def tools() -> tuple[Tool, ...]:
    async def press(context: Context, button: str) -> str:
        """Press a button in the world outside.

        Args:
            button: Which.
        """
        outside = sandbox().outside
        assert outside is not None
        task = context.claim.task
        outside.witness.press(context.key, context.claim, button)
        outside.note(context.teammate.name, f"presses {button} for #{task.id}")
        seconds = outside.random.random() * 40
        await asyncio.sleep(seconds)
        outside.witness.worked(task.id, seconds)
        return f"{button} is pressed."

    return (Tool(press), *command_tools(sandbox(), TREE))


@dataclass(kw_only=True)
class _Looked(TreeWorkspace):
    """A workspace whose green checks are noted."""

    async def check(self, task: Task) -> RedCheck | None:
        red = await super().check(task)
        outside = sandbox().outside
        if red is None and task.check and outside is not None:
            outside.witness.checked(task, outside.has_sandbox)
        return red


def places_of(board: Board) -> OpenWorkspace:
    """One folder for all; what is run there is run in the sandbox."""
    shop = Workshop(board=board, sandbox=sandbox(), outputs=TREE)

    async def open_workspace(claim: Claim, attempts: Sequence[Attempt]) -> Workspace:
        return _Looked(shop=shop, claim=claim, tree=TREE)

    return open_workspace
