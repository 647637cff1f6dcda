"""Errands: a message to a teammate without a task becomes a small task of its own, which is paid for like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..board import Board
from ..prompts import tell
from ..settings import TeamLimits
from ..types import HUMAN, Budget, Message, Task


@dataclass(frozen=True, kw_only=True)
class Errands:
    """Makes tasks of the messages to one teammate."""

    board: Board
    teammate: str
    limits: TeamLimits
    budget: Budget  # For what a person asks for in passing.
    scope: tuple[int, ...] | None  # The roots of the host's work; None: all.
    payer: int | None  # The root that pays for errands about no task; None: each is a root of its own.

    async def are_pressing(self, unread: Sequence[Message]) -> bool:
        """Whether they go before work from the board: a person or a lead wrote, or somebody waits for an answer."""
        if any(message.sender == HUMAN or message.kind in ("question", "plan") for message in unread):
            return True
        leads = {member.name for member in await self.board.team() if member.lead}
        return any(message.sender in leads for message in unread)

    async def put(self, unread: Sequence[Message]) -> Task:
        """The task of answering these; the same call finds the one that was put before."""
        from_human = any(message.sender == HUMAN for message in unread)
        told_in = next((message.task for message in unread if message.task is not None), None)
        parent = None if from_human else told_in  # What a person says is not a goal's to pay for.
        if parent is None or (self.scope is not None and (await self.board.find(parent)).root not in self.scope):
            parent = self.payer
        return await self.board.put(
            f"Answer {', '.join(sorted({message.sender for message in unread}))}"[:200],
            body=tell("delivery.errand_for_human") if from_human else tell("delivery.errand"),
            assignee=self.teammate,
            priority=1,
            parent=parent,
            budget=self._own_budget() if parent is None else None,
            kind="human_message" if from_human else "message",
            key=f"errand:{'human' if from_human else 'team'}:{self.teammate}:{unread[0].id}",
            by=self.teammate,
        )

    def _own_budget(self) -> Budget:
        """What a person asks for in passing may become a goal like any other; so it has a cap like any other."""
        if self.budget != Budget():
            return self.budget
        return Budget(tasks=self.limits.errand_tasks_max, tokens=self.limits.errand_tokens_max)
