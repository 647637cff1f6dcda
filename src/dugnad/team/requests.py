"""What a person says to teammates that wait for it: an answer, the approval of a plan, a shutdown.

All of it is on the board, so it survives any restart. A person names a request by the number of the task that waits
("12", "#12") or of the message ("m34").
"""

from __future__ import annotations

import re
from shlex import quote

from ..board import Board
from ..errors import BadInput, NotReady
from ..tools import policy
from ..tools.lead_tools import ask_to_stop as stop
from ..tools.message_tools import GONE
from ..types import HUMAN, Message

__all__ = ["answer", "decide_plan", "find_request", "stop", "taken_as", "waiting_requests"]
_WHICH = re.compile(r"(?P<kind>#|m)?(?P<number>\d{1,18})")


async def find_request(board: Board, which: str) -> Message:
    """The request with this name, answered or not."""
    found = _WHICH.fullmatch(which.strip())
    if not found:
        raise BadInput(f"{which!r} is neither a task's number (12) nor a message's (m34); `dugnad inbox` shows them.")
    number = int(found["number"])
    if found["kind"] == "m":
        page = await board.inbox(None, queued=False, after=number - 1, page=1)
        if not page or page[0].id != number:
            raise BadInput(f"There is no message m{number}; `dugnad inbox` lists them.")
        if page[0].request is None or page[0].kind not in ("question", "plan", "shutdown"):
            raise NotReady(f"m{number} asks for no answer; `dugnad tell {quote(page[0].sender)} TEXT` writes back.")
        return page[0]
    task = await board.find(number)
    if task.request is None or task.state != "waiting":
        raise NotReady(f"#{number} is {task.state} and waits for no answer; `dugnad inbox` lists what does.")
    return (await board.request(task.request))[0]


async def answer(board: Board, which: str, text: str, *, by: str = HUMAN) -> Message:
    """Answer a question; the task that waits for it continues."""
    asked = await find_request(board, which)
    if asked.kind != "question":
        raise NotReady(f"This is a {asked.kind}: use `dugnad approve {which}`, or `dugnad reject {which} --why ...`.")
    assert asked.request is not None
    return await board.reply(asked.request, by, text)


async def decide_plan(board: Board, which: str, *, accept: bool, why: str = "", by: str = HUMAN) -> Message:
    """Approve a plan, or a call that a policy asks about, or refuse it with a reason; the task continues."""
    asked = await find_request(board, which)
    if asked.kind == "question" and not policy.is_question(asked.text):
        raise NotReady(f"This is a question: use `dugnad answer {which} TEXT`.")
    assert asked.request is not None
    return await board.reply(asked.request, by, why, accepted=accept)


async def taken_as(board: Board, reply: Message) -> str:
    """How an answer about a call was understood, as the beginning of a sentence; empty for other answers."""
    asked, _ = await board.request(reply.request or "")
    if asked.kind != "question" or not policy.is_question(asked.text):
        return ""
    said = policy.verdict(reply.text, reply.accepted)
    return "Allowed, also further ones: " if said.always else "Allowed, once: " if said.allowed else "Refused: "


async def waiting_requests(board: Board) -> list[Message]:
    """The requests that wait for the human: their own, and those of teammates that were shut down."""
    found = await board.requests(HUMAN)
    for member in await board.team():
        if member.status in GONE:
            found += [each for each in await board.requests(member.name) if each.kind != "shutdown"]
    return sorted(found, key=lambda message: message.id)
