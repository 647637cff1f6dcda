"""The sandbox of a simulated world: the real policy and the real request, and a command that only takes its time."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..types import Task
from ..workspace.sandbox import Probe, Sandbox
from .faults import AT_CHECK, Storm
from .witness import Witness

_STRICT = Probe(level="strict", says="", bwrap=Path("/usr/bin/bwrap"))
_NONE = Probe(level="none", says="There is no sandbox on this machine.")


class _Runs:
    """Stands for the helper process, which is there already."""

    returncode = None


class SimulatedSandbox(Sandbox):
    """Runs nothing; what would have been run is shown to the witness."""

    def __init__(self, witness: Witness, storm: Storm, chance: random.Random, tree: Path) -> None:
        self.there = not storm.has("no sandbox")
        super().__init__(_STRICT if self.there else _NONE)
        self.tree = tree
        self._witness, self._storm, self._chance = witness, storm, chance

    async def _ask(self, request: dict[str, Any], on_output: Callable[[bytes], None] | None) -> dict[str, Any]:
        self._starter = _Runs()  # type: ignore[assignment]
        if not self.there:
            self._storm.happened("no sandbox")
        await self.start()  # Refuses, where there is no sandbox.
        self._witness.command(request, str(self.tree), self.there)
        await asyncio.sleep(1 + self._chance.random() * 30)
        fault = self._storm.draw(AT_CHECK)
        says = {"red check": b"1 failed", "merge conflict": b"CONFLICT (content): Merge conflict in main.py"}
        return {
            "output": base64.b64encode(says.get(fault or "", b"ok")).decode(), "code": int(fault is not None),
            "timed_out": False, "shortened": False, "seconds": 1.0,
        }  # fmt: skip


def witnessed(check: Callable[[Task], Any], witness: Witness, there: bool) -> Callable[[Task], Any]:
    """A check whose green light is looked at."""

    async def look(task: Task) -> str | None:
        red: str | None = await check(task)
        if red is None:
            witness.checked(task, there)
        return red

    return look
