"""Who is on the team, and what each teammate is doing, in words; and the tool that lists them."""

from __future__ import annotations

from collections.abc import Sequence

from ..board import Board
from ..prompts import tell
from ..text import Told
from ..types import Teammate
from .context import Context
from .message_tools import may_come_back
from .task_tools import waits_for
from .tool import own_tool


def roles_of(member: Teammate) -> str:
    return ", ".join(("lead", *member.roles) if member.lead else member.roles) or "any work"


async def described(board: Board, members: Sequence[Teammate]) -> list[Told]:
    """Each with its roles and what it is doing."""
    doing = [await how_it_is(board, each) for each in members]
    return [
        tell("packet.mate", name=each.name, roles=roles_of(each), doing=how)
        for each, how in zip(members, doing, strict=True)
    ]


async def how_it_is(board: Board, member: Teammate) -> Told:
    """What the teammate is doing, or why it is not there."""
    if member.task is not None:
        return tell("packet.working", id=member.task, title=member.task_title or "")
    waiting = await board.list_tasks(states=["waiting"], teammate=member.name) if member.status == "waiting" else ()
    if waiting:
        return tell("packet.waits_now", what=await waits_for(board, waiting[0]))
    if may_come_back(member):
        return tell("packet.resting")
    others = {
        "wanted": tell("packet.joining"), "lost": tell("packet.moving"), "stopped": tell("packet.shut_down"),
        "failed": tell("packet.failed"),
    }  # fmt: skip
    return others.get(member.status, tell("packet.free"))


@own_tool(safe=True)
async def list_teammates(context: Context) -> str:
    team = await context.board.team()
    lines = zip(team, await described(context.board, team), strict=True)
    return "\n".join(f"{line} (you)" if each.name == context.teammate.name else line for each, line in lines)
