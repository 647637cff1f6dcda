"""Tools that give work to others: a question to a second mind, or a task whose result comes back."""

from __future__ import annotations

from ..errors import ToolError
from ..prompts import tell
from ..text import Told
from ..types import Task, Waiting
from .context import Context, Ends
from .message_tools import GONE
from .task_tools import put_text, whole_result
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
    if role is not None and wait:
        roles = {each for member in await context.board.team() if member.status not in GONE for each in member.roles}
        if role not in roles:
            there = ", ".join(sorted(roles)) or "none"
            raise ToolError(tell("results.nobody_has_role", role=role, roles=there))
    put = await context.board.follow_up(context.claim, task, body=body, role=role, by=context.teammate.name)
    if not wait:
        return put_text(put)
    if put.ended:
        return result_text(put)
    if await _waits_for(context, put.id, context.claim.task.id):
        raise ToolError(tell("results.waits_for_this", id=put.id, title=put.title))
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
    """How a task ended, in the words of its teammate."""
    how = task.state + (f", {task.outcome}" if task.outcome else "")
    if not (words := whole_result(task) or task.reason):
        return tell("results.ended", id=task.id, title=task.title, how=how)
    how += f" ({task.teammate})" if task.teammate else ""
    return tell("results.ended_with", id=task.id, title=task.title, how=how, words=words)
