"""What a host needs of whoever works a task: our own loop, or somebody else's agent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..text import NOTHING, Told
from ..tools import Tool
from ..types import Attempt, Claim, Outcome, Teammate

T = TypeVar("T")


class Stop:
    """The one way to ask for an orderly end, with the reason: of a mind's work, and of a whole run."""

    def __init__(self) -> None:
        self.why = ""
        self.said = asyncio.Event()

    def say(self, why: str) -> None:
        self.why = why
        self.said.set()

    def __bool__(self) -> bool:
        return self.said.is_set()

    async def unless(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What the work comes to; None, and the work is cancelled, if this is said before."""
        task, asked = asyncio.ensure_future(work), asyncio.ensure_future(self.said.wait())
        try:
            await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
            return None if self else await task
        finally:
            for each in (task, asked):
                each.cancel()
            await asyncio.gather(task, asked, return_exceptions=True)


class Mind(Protocol):
    """Takes a claim and works it to an outcome. Who runs it settles the outcome."""

    teammate: Teammate
    claimed: list[Claim]  # By name, while working another; theirs is the next turn.
    stop: Stop  # Said by the host: the task is to be put down when the step under way is recorded.
    doing: str  # For whoever watches: what it is at right now,
    doing_since: int  # and since when.
    turn: int

    def may_act(self) -> bool:
        """Handed to it when it was made. False: the host's lease ran out, so the claim may be another's by now."""

    def equip(
        self, tools: Sequence[Tool] = (), *, tree: Path | None = None, told: Told = NOTHING,
        readable: tuple[Path, ...] = (),
    ) -> None:  # fmt: skip
        """Give it what belongs to the place where the next task is worked."""

    async def work(
        self, claim: Claim, *, told: Told = NOTHING, attempts: Sequence[Attempt] | None = None
    ) -> Outcome:  # fmt: skip
        """Work a task until it is decided how it ended. `told` is something new to go on with, like a red check.
        `attempts` are those at the task, if they are known already."""
