"""An attempt whose teammate runs commands: a real board, a real sandbox, a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dugnad.board import Board
from dugnad.models.scripted import Step
from dugnad.settings import ShellLimits
from dugnad.tools.shell.bash import ShellTools
from dugnad.types import Claim, Outcome
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.stage_agent import Stage, last_results, set_stage, told
from tests.workspace.running import marked


@dataclass(kw_only=True)
class Attempt:
    stage: Stage
    claim: Claim
    commands: ShellTools
    logs: Path  # Where the task's outputs are.

    async def work(self) -> Outcome:
        return await self.stage.agent.work(self.claim)

    @property
    def results(self) -> list[str]:
        """Of the last reply."""
        return last_results(self.stage.model)

    def said(self, turn: int) -> str:
        """What the runtime said with a turn's request."""
        return told(self.stage.model.asked[turn - 1])

    def log(self, name: str) -> bytes:
        return (self.logs / f"{name}.log").read_bytes()


@asynccontextmanager
async def attempt(
    board: Board, sandbox: Sandbox, tree: Path, steps: Sequence[Step], *, begin: dict[str, Any] | None = None,
    stage: Stage | None = None, claim: Claim | None = None, commands: dict[str, Any] | None = None, **fields: Any,
) -> AsyncIterator[Attempt]:  # fmt: skip
    """A teammate with a claim and its commands; they are closed at the end, and then nothing of them is left."""
    more = list(fields.pop("tools", ()))
    stage = stage or await set_stage(board, steps, **fields)
    claim = claim or await stage.begin(**(begin or {}))
    outputs = tree.parent / "outputs"
    made = ShellTools(sandbox, tree, **{"claim": claim, "board": board, "outputs": outputs, **(commands or {})})
    stage.agent.equip((*made.tools, *more))
    try:
        yield Attempt(stage=stage, claim=claim, commands=made, logs=outputs / str(claim.task.id))
    finally:
        await made.close()
    assert not marked()


async def until_true(holds: Callable[[], object]) -> None:
    """Wait for something of this process to be so."""
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def small(**fields: Any) -> dict[str, Any]:
    return {"limits": ShellLimits(**fields)}
