"""What the tests of the sandbox share: one that is there, a way to run a command in it, and a look at what is left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import psutil

from dugnad.workspace.sandbox.profile import Confinement
from dugnad.workspace.sandbox.sandbox import CommandResult, Probe, Sandbox, find_bwrap
from tests.workspace.attempts import command_of

MARK = f"dugnad-test-mark-{os.getpid()}"


def found_bwrap() -> Path:
    bwrap = find_bwrap(os.environ["PATH"], outside=Path("/nonexistent"))
    assert bwrap is not None, "bubblewrap is missing: run make setup, or install it"
    return bwrap


def strict_here() -> Probe:
    return Probe(level="strict", says="", bwrap=found_bwrap())


async def run(
    sandbox: Sandbox, command: str, tree: Path, seconds: float = 30, output_bytes_max: int = 100_000
) -> CommandResult:
    return await sandbox.run(command, tree=tree, seconds=seconds, output_bytes_max=output_bytes_max)


def marked() -> list[int]:
    """Processes whose command line bears the mark, dead ones that nobody fetched among them."""
    return [each.pid for each in psutil.process_iter() if any(MARK in word for word in command_of(each))]


async def until(what: Callable[[], object], *, holds: bool = True) -> None:
    async with asyncio.timeout(120):
        while bool(what()) != holds:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def direct(sandbox: Sandbox, command: str, tree: Path) -> list[str]:
    """Bubblewrap's own command line, for what the starter would hide."""
    made = sandbox.profile(Confinement(tree=tree), sandbox._machine())
    return [str(found_bwrap()), *(word for each in made.arguments for word in each), "--", "/bin/bash", "-c", command]
