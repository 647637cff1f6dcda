"""What a host needs of whoever works a task: our own loop, or somebody else's agent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ..text import NOTHING, Told
from ..tools import Tool
from ..types import Claim, Outcome, Teammate


class Mind(Protocol):
    """Takes a claim and works it to an outcome. Who runs it settles the outcome."""

    teammate: Teammate
    claimed: list[Claim]  # By name, while working another; theirs is the next turn.
    leaving: str  # Set by the host: why the task is to be put down when the step under way is recorded.
    doing: str  # For whoever watches: what it is at right now,
    doing_since: int  # and since when.
    turn: int

    def may_act(self) -> bool:
        """Put there by the host. False: its lease ran out, so the claim may be another's by now."""

    def equip(
        self, tools: Sequence[Tool] = (), *, tree: Path | None = None, told: Told = NOTHING,
        readable: tuple[Path, ...] = (),
    ) -> None:  # fmt: skip
        """Give it what belongs to the place where the next task is worked."""

    async def work(self, claim: Claim, *, told: Told = NOTHING) -> Outcome:
        """Work a task until it is decided how it ended. `told` is something new to go on with, like a red check."""
