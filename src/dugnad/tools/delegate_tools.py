"""Thinking with others: a second mind for a moment, or a task for another whose result comes back."""

from __future__ import annotations

from ..errors import ToolError
from ..text import Told, one_line, tell
from ..types import Task, Waiting
from .context import Context, Ends
from .message_tools import GONE
from .tool import own_tool

_LOOK_MAX = 500


@own_tool(keyed=False, early=True)
async def consult(context: Context, prompt: str, role: str | None = None) -> str:
    """A nested conversation; only its answer comes back."""
    assert context.consult is not None
    return await context.consult(prompt, role)


@own_tool()
async def delegate(
    context: Context, task: str, body: str = "", role: str | None = None, wait: bool = True
) -> str | Ends:
    """A task for another, waited for or not."""
    if role is not None and wait:
        roles = {each for member in await context.board.team() if member.status not in GONE for each in member.roles}
        if role not in roles:
            there = ", ".join(sorted(roles)) or "none"
            raise ToolError(
                f"Nobody on the team has the role {role!r}, so this would wait for ever; there are: {there}."
            )
    put = await context.board.follow_up(context.claim, task, body=body, role=role, by=context.teammate.name)
    if not wait:
        return f"#{put.id} {one_line(put.title)!r} is on the board ({put.state})."
    if put.ended:
        return result_text(put)
    if await _waits_for(context, put.id, context.claim.task.id):
        raise ToolError(
            f"#{put.id} {one_line(put.title)!r} waits for this very task; do it yourself, or say it otherwise."
        )
    return Ends(Waiting(on="tasks", tasks=(put.id,)))


async def _waits_for(context: Context, task: int, other: int) -> bool:
    """Whether a task needs another to end first, directly or through others."""
    seen: set[int] = set()
    ahead = [task]
    while ahead and len(seen) < _LOOK_MAX:
        each = ahead.pop()
        if each == other:
            return True
        if each not in seen:
            seen.add(each)
            ahead += [need.task for need, state in await context.board.needs_of(each) if state == "open"]
    return False


def result_text(task: Task) -> Told:
    """How a task ended, in its worker's words."""
    how = task.state + (f", {task.outcome}" if task.outcome else "")
    words = task.result or task.reason
    by = f" ({task.teammate})" if task.teammate and words else ""
    head = tell("#{id} {title:q} ended as {how}", id=task.id, title=task.title, how=f"{how}{by}")
    return tell("{head}:\n{words:quoted}", head=head, words=words) if words else tell("{head}.", head=head)
