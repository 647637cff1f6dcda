"""One run of an external agent: what is run, where, and within which bounds. Here: a command that prints its answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...errors import DugnadError
from ...models.port import Usage
from ...types import Amount, Spending
from ...workspace.sandbox.sandbox import Sandbox
from ..stop import Stop
from .command import ExternalCommand
from .reports import AgentReport, read_report

_OUTPUT_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """All that a run needs. `readable` is what it may read besides its own program."""

    command: ExternalCommand
    sandbox: Sandbox
    folder: Path
    prompt: str
    amount: Amount  # What it may cost.
    spending: Spending
    readable: tuple[Path, ...]
    stop: Stop

    @property
    def environment(self) -> dict[str, str]:
        given = dict(self.command.environment)
        if self.sandbox.bare:
            given.pop("IS_SANDBOX", None)  # It is not true here.
        return given


def not_run(refused: DugnadError) -> tuple[AgentReport, float]:
    """It did not run, so it cost nothing."""
    why = f"it could not be run: {refused}"
    return AgentReport(ended="failed", trouble=why, microdollars=0, usage=Usage()), 0.0


async def run_command(order: RunOrder) -> tuple[AgentReport, float]:
    """Run it until it ends. Returns what it reports, and how many seconds it took."""
    command = order.command
    try:
        ran = await order.sandbox.until(order.stop.said).using(command.services).run(
            command.line(order.amount, order.spending), tree=order.folder, seconds=order.amount.milliseconds / 1000,
            output_bytes_max=_OUTPUT_BYTES_MAX, environment=order.environment,
            readable=(*command.readable, *order.readable), hosts=command.hosts, stdin=order.prompt.encode(),
        )  # fmt: skip
    except DugnadError as refused:
        return not_run(refused)
    return read_report(command.reads, ran), ran.seconds
