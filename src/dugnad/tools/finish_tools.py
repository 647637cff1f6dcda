"""Tools that end an attempt, and the one that claims a certain task."""

from __future__ import annotations

from typing import Literal

from ..errors import ToolError
from ..prompts import tell
from ..text import Told
from ..types import Done, Failed, Released
from .context import Context, Ends
from .tool import Tool, own_tool

APPROVED, CHANGES = "approved", "changes-requested"
Verdict = Literal["approved", "changes-requested"]


@own_tool()
async def finish(context: Context, result: str, outcome: str | None = None) -> Ends:
    return Ends(Done(result, outcome), _handed_in(context))


async def _finish_review(context: Context, outcome: Verdict, result: str) -> Ends:
    return Ends(Done(result, outcome), _handed_in(context))


# The `finish` of a review: its outcome is a choice of two, and must be given.
review_finish = Tool(_finish_review, name="finish", keyed=True, own=True, prompt="review_finish")


def _handed_in(context: Context) -> Told:
    """Nobody reads this as the last word: if the work goes on, the verdict takes its place."""
    follows = context.desk.follows
    return tell("results.handed_in", follows=follows) if follows else tell("results.handed_in_last")


@own_tool(early=True)
async def give_up(context: Context, reason: str) -> Ends:
    return Ends(Failed(reason or "given up without a reason"), "Given up.")


@own_tool(early=True)
async def release(context: Context, reason: str, delay_minutes: float = 0) -> Ends:
    return Ends(Released(reason, max(0.0, delay_minutes) * 60), "Released.")


@own_tool(early=True)
async def idle(context: Context) -> Ends:
    """Put the task back, for others to take first."""
    return Ends(Released("there is nothing more for me to do", 30.0), "Idle.")


@own_tool()
async def claim_task(context: Context, task: int) -> str:
    """Claim a task by its number, to work on it after this attempt."""
    claim = await context.board.claim(context.teammate.name, context.claim.host, task=task, key=context.key)
    if claim is None:
        found = await context.board.find(task)
        raise ToolError(tell("results.cannot_claim", task=task, state=found.state))
    if (claim.task.state, claim.task.epoch, claim.host) != ("claimed", claim.epoch, context.claim.host):
        # The call was made before a crash, and the claimed task has changed since.
        return tell("results.held_before", task=task, state=claim.task.state)
    context.desk.claims.append(claim)
    return tell("results.claimed", task=task, title=claim.task.title)
