"""Tools that a model is not offered any more. They can still be called: by a call in a resumed transcript, by a model
that remembers them, and by an external agent. `policy.SUCCESSORS` says which tool took the place of which."""

from __future__ import annotations

from functools import partial

from ..errors import ToolError
from ..prompts import tell
from ..types import Released
from .context import Context, Ends
from .message_tools import message_text, tell_everyone
from .note_tools import notes
from .task_tools import TaskToAdd, add, check_roles, put, until_ended
from .tool import own_tool

_former = partial(own_tool, former=True)


@_former()
async def schedule_followup(
    context: Context, title: str, body: str = "", for_me: bool = False, delay_minutes: float = 0
) -> str:
    """Add a task for the same role."""
    role = None if for_me else next(iter(context.teammate.roles), None)
    return await add(
        context, [TaskToAdd(title=title, body=body, role=role, for_me=for_me, delay_minutes=delay_minutes)]
    )


@_former()
async def add_task(
    context: Context, title: str, body: str = "", needs: list[str] | None = None, role: str | None = None,
    assignee: str | None = None, priority: int = 0, check: str | None = None, review: str = "", network: bool = False,
) -> str:  # fmt: skip
    """Add one task."""
    new = TaskToAdd(
        title=title, body=body, needs=needs or (), role=role, assignee=assignee, priority=priority, check=check,
        review=review, network=network,
    )  # fmt: skip
    return await add(context, [new])


@_former()
async def delegate(
    context: Context, task: str, body: str = "", role: str | None = None, wait: bool = True
) -> str | Ends:
    """Add one task and wait for its end."""
    new = TaskToAdd(title=task, body=body, role=role)
    if not wait:
        return await add(context, [new])
    await check_roles(context, [role])
    return await until_ended(context, await put(context, [new]))


@_former(early=True)
async def release(context: Context, reason: str, delay_minutes: float = 0) -> Ends:
    """Give the task back."""
    return Ends(Released(reason, max(0.0, delay_minutes) * 60), "Released.")


@_former(early=True)
async def idle(context: Context) -> Ends:
    """Give the task back, for others to take first."""
    return Ends(Released("there is nothing more for me to do", 30.0), "Idle.")


@_former()
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


@_former()
async def broadcast(context: Context, text: str) -> str:
    """Tell everybody something."""
    return await tell_everyone(context, text)


@_former(early=True)
async def read_inbox(context: Context) -> str:
    """Show the messages that are not read yet."""
    found = await context.board.take(context.teammate.name, context.key)
    leads = frozenset(member.name for member in await context.board.team() if member.lead)
    context.shown.extend(message.id for message in found)
    return "\n\n".join(message_text(message, leads) for message in found) or tell("results.inbox_empty")


@_former(safe=True)
async def read_notes(context: Context, before: int | None = None) -> str:
    """Show the notes on this goal."""
    return str(await notes(context, before=before))


@_former(safe=True)
async def search_notes(context: Context, words: str) -> str:
    """Find notes by their words."""
    return str(await notes(context, words))


@_former()
async def approve_plan(context: Context, request: str, approve: bool, text: str = "") -> str:
    """Approve a plan, or send it back."""
    asked, _ = await context.board.request(request)
    if asked.kind != "plan":
        raise ToolError(tell("results.not_a_plan", request=request, kind=asked.kind))
    await context.board.reply(request, context.teammate.name, text, accepted=approve)
    if approve:
        return tell("results.plan_approved", who=asked.sender)
    return tell("results.plan_sent_back", who=asked.sender)


@_former(early=True)
async def todo(context: Context, items: list[str]) -> str:
    """Keep a private list. The conversation folds the list from these calls."""
    return "\n".join(items) or tell("results.no_todo")


@_former(keyed=False, early=True)
async def consult(context: Context, prompt: str, role: str | None = None) -> str:
    """A nested conversation; only its answer comes back."""
    assert context.consult is not None
    return await context.consult(prompt, role)
