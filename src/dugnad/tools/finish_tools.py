"""Tools that end an attempt, and the one that claims a certain task."""

from __future__ import annotations

from ..errors import ToolError
from ..prompts import tell
from ..types import Done, Failed, Released
from .context import Context, Ends
from .tool import own_tool


@own_tool()
async def finish(context: Context, result: str, outcome: str | None = None) -> Ends:
    return Ends(Done(result, outcome), "Done.")


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
