"""One run of an external agent: what is run, where, and within which bounds. Here: a command that prints its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...board import Board
from ...errors import BudgetSpent, DugnadError
from ...models.port import Usage
from ...settings import AgentLimits
from ...types import Amount, Claim, Released, Spending, Waiting
from ...workspace.sandbox.sandbox import Sandbox
from ..model_calls import PutDown
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


async def reserve_run(
    board: Board, claim: Claim, command: ExternalCommand, limits: AgentLimits, *,
    check: Callable[[Spending], None] = lambda _: None, note: Callable[[str], None] = lambda _: None,
) -> tuple[Amount, str, Spending]:  # fmt: skip
    """Reserve what a run may cost. If others may give something back, wait for that."""
    root = claim.task.root
    with board.watch([f"budget:{root}"]) as watch:
        for _ in range(limits.patience_max):
            spending = await board.budget(root)
            check(spending)
            amount = command.at_most(spending)
            try:
                return amount, await board.reserve(claim, amount), spending
            except BudgetSpent as spent:
                if not spent.may_free_up:
                    raise PutDown(Waiting(on="budget", question=str(spent), amount=amount)) from None
            note("waits for others to give back what they reserved")
            await watch.wait(60)
    raise PutDown(Released("others hold what is left of the budget", limits.give_back_seconds, True))


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
