"""Errands: a message to a teammate without a task becomes a small task, which is paid for like any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ..board import Board
from ..board.roots import drawing_on
from ..board.verbs.followed import ADDED
from ..errors import BudgetSpent, LimitReached, NotReady, UnknownTask
from ..prompts import tell
from ..text import shorten
from ..types import BOARD, HUMAN, Budget, Claim, Message, Task
from .plan import RunPlan

_WORDS_CHARS_MAX = 50_000
_NAMES = {BOARD: "the runtime"}
ClaimTask = Callable[[int], Awaitable[Claim | None]]


@dataclass(frozen=True, kw_only=True)
class Errands:
    """Turns the messages to one teammate into tasks."""

    board: Board
    teammate: str
    plan: RunPlan
    scope: tuple[int, ...] | None  # The roots of the host's work; None: all.
    payer: int | None  # The root that pays for errands about no task; None: each is a root of its own.

    async def to_answer(self, unread: Sequence[Message]) -> list[Message]:
        """Those that are no notices. Nobody has to answer a notice: it is read with the next turn. If it is about a
        background job, or about work added for a task that has ended, nobody needs it any more, and it counts as
        read."""
        notices = [each for each in unread if each.kind == "notice"]
        added = {each.task for each in notices if each.task is not None and each.key.startswith(ADDED)}
        ended = {task for task, found in (await self.board.find_all(added)).items() if found.ended} if added else set()
        own = {each.id for each in notices if each.sender == self.teammate and each.task is not None}
        if over := own | {each.id for each in notices if each.key.startswith(ADDED) and each.task in ended}:
            await self.board.show(self.teammate, sorted(over))
        return [each for each in unread if each not in notices]

    async def are_pressing(self, unread: Sequence[Message]) -> bool:
        """Whether they come before work from the board: the human or a lead wrote, or somebody waits for an answer."""
        if any(message.sender == HUMAN or message.kind in ("question", "plan") for message in unread):
            return True
        leads = {member.name for member in await self.board.team() if member.lead}
        return any(message.sender in leads for message in unread)

    async def claim(self, unread: Sequence[Message], claim: ClaimTask) -> Claim | None:
        """Put a task to answer, and claim it. If that cannot be, the messages count as read, and the next packet shows
        them."""
        errand: Task | None = None
        try:
            errand = await self._put(unread)
            if not errand.ended:
                return await claim(errand.id)
            if len(unread) > 1:  # The errand of the first message has ended; that does not concern the others.
                await self.board.show(self.teammate, [unread[0].id])
                return await self.claim(unread[1:], claim)
        except NotReady:
            if errand is not None and errand.state in ("ready", "claimed", "scheduled", "waiting"):
                return None  # It is on the board already, and becomes ready after a pause or a lost host.
        except (LimitReached, BudgetSpent, UnknownTask):
            pass
        await self.board.show(self.teammate, [message.id for message in unread])
        return None

    async def _put(self, unread: Sequence[Message]) -> Task:
        """Put the errand; the same messages find the errand that was put before."""
        words = "\n\n".join(message.text for message in unread if message.sender == HUMAN)
        from_human = any(message.sender == HUMAN for message in unread)
        told_in = next((message.task for message in unread if message.task is not None), None)
        parent = None if from_human else told_in  # No goal pays for what a person says.
        if parent is None or (self.scope is not None and (await self.board.find(parent)).root not in self.scope):
            parent = self.payer
        return await self.board.put(
            f"Answer {', '.join(sorted({_NAMES.get(each.sender, each.sender) for each in unread}))}"[:200],
            # What follows from it has the person's words as its goal.
            body=shorten(words, _WORDS_CHARS_MAX) if from_human else tell("delivery.errand"),
            by=HUMAN if from_human else self.teammate, assignee=self.teammate, priority=1,
            **({"budget": own_budget(self.plan)} if parent is None else drawing_on(parent)),
            kind="human_message" if from_human else "message",
            key=f"errand:{'human' if from_human else 'team'}:{self.teammate}:{unread[0].id}",
        )  # fmt: skip


def own_budget(plan: RunPlan) -> Budget:
    """What a person asks in a message may grow like any goal, so it has a cap."""
    small = Budget(tasks=plan.limits.errand_tasks_max, tokens=plan.limits.errand_tokens_max)
    return small if plan.budget == Budget() else plan.budget
