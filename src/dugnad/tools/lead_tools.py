"""The lead's tools: teammates, plans, and the assignment of tasks."""

from __future__ import annotations

from ..board import Board
from ..errors import NotReady, ToolError
from ..prompts import tell
from ..types import HUMAN, Claim
from .context import Context
from .message_tools import GONE
from .teammates import how_it_is, roles_of
from .tool import own_tool


async def ask_to_stop(
    board: Board, name: str, *, by: str = HUMAN, why: str = "", now: bool = False, claim: Claim | None = None,
    key: str | None = None,
) -> str:  # fmt: skip
    """Ask a teammate to shut down, or stop it at once with `now`. Returns a sentence about what happened."""
    teammate = await board.teammate(name)
    if teammate.status in GONE:
        return f"{name} is {teammate.status} already."
    if now or teammate.status in ("wanted", "lost"):  # Such a teammate cannot be asked.
        await board.stop_teammate(name, by=by, reason=why or f"stopped by {by}")
        return f"{name} is stopped."
    if any(each.kind == "shutdown" for each in await board.requests(name)):
        return f"{name} was asked to shut down already, and has not answered yet."
    await board.tell(by, name, why or "Please shut down.", kind="shutdown", claim=claim, key=key)
    return f"{name} is asked to shut down. It answers at its next turn; without an answer its host ends it."


@own_tool()
async def spawn_teammate(context: Context, name: str, role: str | None = None, prompt: str = "") -> str:
    there = [member for member in await context.board.team() if member.status not in GONE]
    if len(there) >= context.limits.teammates_max and name not in {member.name for member in there}:
        raise ToolError(tell("results.team_full", count=len(there), most=context.limits.teammates_max))
    lead = context.teammate
    said = tell("results.brought", lead=lead.name, prompt=prompt)
    try:
        spawned = await context.board.spawn(
            name, roles=[role] if role else [], prompt=said if prompt else "", model=lead.model, by=lead.name
        )
    except NotReady:
        other = await context.board.teammate(name)
        doing = await how_it_is(context.board, other)
        raise ToolError(tell("results.there_otherwise", name=name, roles=roles_of(other), doing=doing)) from None
    roles = ", ".join(spawned.roles) or "no role, so it takes tasks for anyone"
    known = name in {member.name for member in there}
    return (
        tell("results.there_already", name=spawned.name, roles=roles) if known
        else tell("results.spawned", name=spawned.name, roles=roles)
    )  # fmt: skip


@own_tool()
async def shutdown_teammate(context: Context, name: str, reason: str) -> str:
    if name == context.teammate.name:
        raise ToolError(tell("results.not_yourself"))
    return await ask_to_stop(
        context.board, name, by=context.teammate.name, why=reason, claim=context.claim, key=context.key
    )


@own_tool()
async def assign(context: Context, task: int, name: str | None = None) -> str:
    await context.board.assign(task, name, by=context.teammate.name, key=context.key)
    return tell("results.assigned", task=task, name=name or "anyone")


@own_tool(early=True)
async def compact(context: Context) -> str:
    """Ask for a summary; the agent makes it before the next turn."""
    return tell("results.compacts")
