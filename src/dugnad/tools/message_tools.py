"""Tools to talk with teammates, the lead and the human."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..board import Board
from ..errors import StoppedTeammate, ToolError, UnknownRequest
from ..prompts import tell
from ..text import Told, joined, quote
from ..types import BOARD, HUMAN, Message, Released, Teammate, Waiting
from .context import Context, Ends
from .tool import own_tool

GONE = ("stopped", "failed")
# Why a teammate left by itself. `list_teammates` in members.sql has these words, too.
RESTED, MADE_ROOM = "rested: there was nothing to do", "made room for "
EVERYONE, LEAD = "everyone", "lead"  # Whom `send_message` can reach besides a name.


def may_come_back(member: Teammate) -> bool:
    """Whether the teammate left by itself, and not because somebody shut it down."""
    reason = member.reason or ""
    return member.status == "stopped" and (reason == RESTED or reason.startswith(MADE_ROOM))


def by_runtime(message: Message) -> bool:
    """Whether the runtime says it, as the board or in the name of the one who reads it."""
    return message.sender == BOARD or (message.kind == "notice" and message.sender == message.recipient)


def message_text(
    message: Message, leads: frozenset[str], *, outside: bool = False, client: bool = False
) -> Told:  # fmt: skip
    """A message as the model reads it: the sender, the kind, and the quoted text. `outside`: to an external agent;
    `client`: to one that has the tools of the MCP server."""
    runtime, own = by_runtime(message), message.sender == message.recipient
    who = "the runtime" if runtime else "the human" if message.sender == HUMAN else message.sender
    who += " (lead)" if message.sender in leads and not runtime else ""
    kind = "" if message.kind == "text" or runtime else f" [{message.kind.replace('_', ' ')}]"
    about = f", about #{message.task}" if message.task else ""
    head = tell("results.from", who=f"{who}{kind}{about}")
    if runtime and own and message.task is not None:
        head = tell("results.from_runtime")
    lines = [head, quote(message.text)]
    if message.accepted is not None:
        lines.insert(1, tell("results.accepted") if message.accepted else tell("results.declined"))
    if message.kind in ("shutdown", "plan", "question"):
        answer = tell("external.respond", request=message.request) if outside else None
        answer = tell("mcp.respond", request=message.request) if client else answer
        lines.append(answer or tell("results.answer_with", request=message.request))
    if message.kind == "shutdown":
        lines.append(tell("results.shutdown"))
    return joined(lines, "\n")


def inbox_text(
    messages: Sequence[Message], leads: frozenset[str], *, outside: bool = False, client: bool = False
) -> Told:  # fmt: skip
    """An inbox as the model reads it. A line of a message cannot look like ours: it starts with "> "."""
    told = (message_text(each, leads, outside=outside, client=client) for each in messages)
    return tell("results.inbox", messages=joined(told, "\n"))


@own_tool(early=True)
async def send_message(context: Context, to: str, text: str) -> str:
    team = await context.board.team() if to in (EVERYONE, LEAD) else []
    named = {member.name for member in team}
    if to == EVERYONE and to not in named:
        return await tell_everyone(context, text)
    if to == LEAD and to not in named:
        if not (leads := leads_but(context.teammate.name, team)):
            raise ToolError(tell("results.no_lead"))
        to = leads[0]
    try:
        await context.board.tell(context.teammate.name, to, text, claim=context.claim, key=context.key)
    except StoppedTeammate:
        rests = may_come_back(await context.board.teammate(to))
        raise ToolError(
            tell("results.rests", who=to) if rests else tell("results.reads_nothing", who=to)
        ) from None  # fmt: skip
    return tell("results.sent", to=to)


async def tell_everyone(context: Context, text: str) -> str:
    told = await context.board.broadcast(context.teammate.name, text, claim=context.claim, key=context.key)
    to = ", ".join(sorted(message.recipient for message in told))
    return tell("results.sent", to=to) if to else tell("results.sent_to_nobody")


def leads_but(name: str, team: Sequence[Teammate]) -> list[str]:
    """The leads that can be reached, without this teammate."""
    leads = (member.name for member in team if member.lead and member.status not in GONE)
    return sorted(lead for lead in leads if lead != name)


@own_tool(early=True)
async def ask_human(context: Context, question: str) -> str | Ends:
    if answer := await answer_to(context):
        return answer
    return Ends(Waiting(on="human", question=question or "May I go on?"))


@own_tool(early=True)
async def submit_plan(context: Context, plan: str) -> str | Ends:
    if answer := await answer_to(context):
        return answer
    leads = leads_but(context.teammate.name, await context.board.team())
    return Ends(Waiting(on="plan", question=plan or "No plan.", ask=leads[0] if leads else HUMAN))


async def answer_to(context: Context) -> Told | None:
    """The answer to the question for which this call let the task wait, if there is one."""
    return await answer_since(context.board, context.claim.task.id, context.since)


async def answer_since(board: Board, task: int, epoch: int | None) -> Told | None:
    """The answer to the question for which a task waited in that epoch."""
    reply = None
    if epoch is not None:
        with suppress(UnknownRequest):
            _, reply = await board.request(f"task-{task}-{epoch}")
    if reply is None:
        return None
    if reply.shown_at is None:  # It is the answer to this call; it need not come through the inbox as well.
        await board.show(reply.recipient, [reply.id])
    verdict = "" if reply.accepted is None else ("Approved. " if reply.accepted else "Not approved. ")
    who = "The human" if reply.sender == HUMAN else reply.sender
    words = reply.text or ("yes" if reply.accepted is not False else "no")
    return tell("results.answered", who=f"{verdict}{who}", words=words)


@own_tool(early=True)
async def respond(context: Context, request: str, accept: bool, text: str = "") -> str | Ends:
    """Answer a request; accepting a shutdown ends the attempt."""
    asked, _ = await context.board.request(request)
    if asked.recipient != context.teammate.name:
        raise ToolError(tell("results.asked_of_another", who=asked.recipient))
    if asked.kind == "shutdown" and asked.sent_at < context.teammate.spawned_at:
        raise ToolError(tell("results.asked_before_spawn"))
    accepted = None if asked.kind == "question" else accept
    await context.board.reply(request, context.teammate.name, text, accepted=accepted)
    if asked.kind == "shutdown" and accept:
        why = f"{context.teammate.name} was asked by {asked.sender} to shut down"
        return Ends(Released(why, resume=True), "Goodbye.")
    words = text.strip() or ("yes" if accept else "no")
    return tell("results.responded", who=asked.sender, kind=asked.kind, words=words)
