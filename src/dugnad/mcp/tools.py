"""The ten tools that a client has, on its seat at this host. Each answer carries what is new.

A claim is (task, epoch) in the arguments, so that nothing depends on what the client remembers, and an old claim is
refused by the board. A refusal is an answer, too, in the board's own words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..agent.outside.client import Reported, why_not_held
from ..errors import BadInput, BoardTrouble, DugnadError, HostLost, StaleClaim
from ..prompts import tell
from ..text import NOTHING, Told, joined
from ..tools.finish_tools import APPROVED, CHANGES
from ..tools.mcp.serving import Answer, Call, ServedTool
from ..tools.message_tools import inbox_text, leads_but
from ..tools.note_tools import note_text
from ..tools.policy import reaches, strictest
from ..tools.task_tools import TaskToAdd, need_of, task_line, task_lines, task_text
from ..tools.tool import BadCall, Tool
from ..types import Need, TaskState
from .seats import NotHere, Seat

WAIT_SECONDS = 45.0  # A client may wait 60 seconds for a call, and no longer.
_NOTES = 20
_GOALS_MAX = 50  # That one client may have open.
_TOKENS_MAX, _DOLLARS_MAX = 10**12, 10**6  # That one call may say.
How = Literal["done", "failed", "released", "waiting"]
_READS = frozenset({"task", "tasks", "search_notes"})


@dataclass(kw_only=True)
class ClientTools:
    """What one client can do."""

    seat: Callable[[], Awaitable[Seat]]
    wait_seconds: float = WAIT_SECONDS

    def served(self) -> list[ServedTool]:
        made = (
            self.next_task, self.task, self.tasks, self.add_task, self.finish, self.progress, self.ask_human,
            self.message, self.note, self.search_notes,
        )  # fmt: skip
        hidden = ("seat", "call")
        return [self._served(Tool(each, prompt=f"mcp_tools.{each.__name__}", own=True, hidden=hidden)) for each in made]

    def _served(self, tool: Tool) -> ServedTool:
        async def run(call: Call) -> Answer:
            from ..tools.mcp.transport import in_whole

            try:
                arguments = tool.check(in_whole(call.arguments).decode())
                seat = await self.seat()
                seat.client.heard_at = asyncio.get_running_loop().time()
                extra = {"call": call} if tool.name == "ask_human" else {}
                text, refused = await self._said(seat, tool.function(seat, **arguments, **extra))
            except (BadCall, NotHere) as wrong:
                return Answer(str(wrong), refused=True)
            except BoardTrouble as trouble:
                return Answer(tell("mcp.board_trouble", why=trouble), refused=True)
            except DugnadError as wrong:
                return Answer(tell("mcp.refused", why=wrong), refused=True)
            news = await self._news(seat, tool.name)
            return Answer(f"{text}\n\n{news}" if news else text, refused)

        return ServedTool(spec=tool.spec, call=run, reads=tool.name in _READS)

    async def _said(self, seat: Seat, work: Awaitable[str]) -> tuple[str, bool]:
        """The answer, and whether it is a refusal."""
        try:
            return await work, False
        except _Stale as stale:
            return await why_not_held(seat.client, seat.board, seat.name, stale.mark), True
        except BadCall as bad:
            return str(bad), True
        except (BoardTrouble, NotHere):
            raise
        except DugnadError as refused:
            return tell("mcp.refused", why=refused), True

    async def _news(self, seat: Seat, tool: str) -> Told:
        told = await seat.client.news()
        if seat.client.work is None and tool != "next_task" and await seat.board.has_unread(seat.name):
            told = joined((told, tell("mcp.mail")))
        return told

    # Reading.

    async def next_task(self, seat: Seat, reports_cost: bool | None = None) -> str:
        client = seat.client
        if reports_cost is not None:
            client.reports(reports_cost)
        clock = asyncio.get_running_loop().time
        ends = clock() + self.wait_seconds
        while (work := await client.next_work(max(0.0, ends - clock()))) is None:  # Or its seat was lost meanwhile.
            await seat.taken()  # It says so if the teammate was shut down.
            if clock() >= ends:
                nothing = joined((tell("mcp.nothing_yet"), tell("mcp.unpaid") if client.unpaid else None), "\n")
                return joined((nothing, await _notices(seat)))
        return work.text

    async def task(self, seat: Seat, task: int) -> str:
        return await task_text(seat.board, task)

    async def tasks(
        self, seat: Seat, state: TaskState | None = None, goal: int | None = None, after: int = 0
    ) -> str:  # fmt: skip
        states = [state] if state else None
        lines, last = await task_lines(seat.board, states=states, root=goal, after=after)
        return "\n".join([*lines, *([tell("mcp.more_tasks", after=last)] if last else ())])

    async def search_notes(self, seat: Seat, words: str = "", before: int | None = None) -> str:
        found = await seat.board.search_notes(words, root=None, before=before, page=_NOTES)
        more = [tell("mcp.more_notes", before=found[-1].id)] if len(found) == _NOTES else []
        none = tell("results.no_note_with", words=words) if words.strip() else tell("results.no_notes")
        return "\n\n".join([*map(note_text, found), *more]) or none

    # The task that it holds.

    async def finish(
        self, seat: Seat, task: int, epoch: int, how: How = "done", result: str = "", outcome: str | None = None,
        wait_for: Sequence[str | int] = (), tokens: int | None = None, dollars: float | None = None,
    ) -> str:  # fmt: skip
        spent = _reported(tokens, dollars)
        if how == "waiting":
            return await self._use(seat, (task, epoch), "wait_for", {"tasks": list(wait_for)}, spent)
        work = seat.client.work
        if how == "done":
            if work is not None and work.claim.task.kind == "review" and outcome not in (APPROVED, CHANGES):
                raise BadCall(tell("delivery.no_verdict", approved=APPROVED, changes=CHANGES))
            said = {"result": result, **({"outcome": outcome} if outcome else {})}
            return await self._use(seat, (task, epoch), "finish", said, spent)
        later = {"later_minutes": 0} if how == "released" else {}
        return await self._use(seat, (task, epoch), "give_up", {"reason": result, **later}, spent)

    async def progress(self, seat: Seat, task: int, epoch: int, text: str) -> str:
        return await self._use(seat, (task, epoch), "progress", {"text": text})

    async def ask_human(
        self, seat: Seat, task: int, epoch: int, question: str, tokens: int | None = None,
        dollars: float | None = None, *, call: Call | None = None,
    ) -> str:  # fmt: skip
        """A person at the client is asked first, if the client can do that; otherwise the task waits."""
        words = await call.ask(question) if call is not None and seat.allows("ask_human") else None
        if words is not None:
            known = tell("mcp.asked_and_answered", who="The human", words=words)
            return await self._use(seat, (task, epoch), "ask_human", {"question": question}, known=known)
        spent = _reported(tokens, dollars)
        return await self._use(seat, (task, epoch), "ask_human", {"question": question}, spent)

    # With or without a task.

    async def add_task(
        self, seat: Seat, title: str, body: str = "", needs: Sequence[str | int] = (), role: str | None = None,
        check: str | None = None, delay_minutes: float = 0, task: int | None = None, epoch: int | None = None,
    ) -> str:  # fmt: skip
        given: dict[str, Any] = {
            "title": title, "body": body, "needs": list(map(str, needs)), "role": role, "check": check,
            "delay_minutes": delay_minutes,
        }  # fmt: skip
        given = {name: value for name, value in given.items() if value or name == "title"}
        if (mark := _mark(task, epoch)) is not None:
            return await self._use(seat, mark, "add_tasks", {"tasks": [given]})
        self._must_allow(seat, "add_tasks", {"tasks": [TaskToAdd(**given)], "check": check})
        return await self._put_goal(seat, given)

    async def message(
        self, seat: Seat, text: str, to: str | None = None, request: str | None = None, accept: bool | None = None,
        task: int | None = None, epoch: int | None = None,
    ) -> str:  # fmt: skip
        if bool(to) == bool(request):
            raise BadCall(tell("mcp.needs_whom"))
        mark, name = _mark(task, epoch), seat.name
        if request is not None:
            if accept is None and (await seat.board.request(request))[0].kind != "question":
                raise BadCall(tell("mcp.say_accept"))
            accept = accept is not False  # Of a question it says nothing.
            said = {"request": request, "accept": accept, "text": text}
            if mark is not None:
                return await self._use(seat, mark, "respond", said)
            self._must_allow(seat, "respond", said)
            return await _respond(seat, request, accept, text)
        assert to is not None
        if mark is not None:
            return await self._use(seat, mark, "send_message", {"to": to, "text": text})
        self._must_allow(seat, "send_message", {})
        if to == "everyone":
            told = await seat.board.broadcast(name, text)
            return tell("results.sent", to=", ".join(sorted(each.recipient for each in told)))
        if to == "lead":
            if not (leads := leads_but(name, await seat.board.team())):
                raise BadCall(tell("results.no_lead"))
            to = leads[0]
        await seat.board.tell(name, to, text)
        return tell("results.sent", to=to)

    async def note(
        self, seat: Seat, title: str, text: str, everyone: bool = False, task: int | None = None,
        epoch: int | None = None,
    ) -> str:  # fmt: skip
        if (mark := _mark(task, epoch)) is not None:
            return await self._use(seat, mark, "note", {"title": title, "text": text, "everyone": everyone})
        self._must_allow(seat, "note", {})
        made = await seat.board.write_note(seat.name, title, text, everyone=everyone)
        return tell("results.note_written", id=made.id)

    # How.

    async def _use(
        self, seat: Seat, mark: tuple[int, int], tool: str, arguments: dict[str, Any], spent: Reported | None = None,
        known: str | None = None,
    ) -> str:  # fmt: skip
        try:
            return await seat.client.call(mark, tool, arguments, seconds=self.wait_seconds, spent=spent, known=known)
        except (StaleClaim, HostLost):
            raise _Stale(mark) from None

    def _must_allow(self, seat: Seat, tool: str, arguments: dict[str, Any]) -> None:
        """Without a task nobody can be asked, so only what is allowed is done."""
        decision = strictest(seat.policy.decide(each, seat.roles) for each in reaches(tool, arguments))
        if decision == "deny":
            raise BadCall(tell("results.denied", tool=tool))
        if decision == "ask":
            raise BadCall(tell("mcp.only_with_a_task"))

    async def _put_goal(self, seat: Seat, given: dict[str, Any]) -> str:
        mine = [
            each for each in await seat.board.list_tasks(states=["blocked", "scheduled", "ready", "claimed", "waiting"])
            if each.put_by == seat.name and each.parent is None
        ]  # fmt: skip
        if len(mine) >= _GOALS_MAX:
            raise BadCall(tell("mcp.not_so_many", count=len(mine)))
        same = next((each for each in mine if (each.title, each.body) == (given["title"], given.get("body", ""))), None)
        if same is None:
            needs: list[Need] = [need_of(each) for each in given.pop("needs", ())]
            delay = float(given.pop("delay_minutes", 0)) * 60
            same = await seat.board.put(
                by=seat.name, needs=needs, delay_seconds=delay, budget=seat.budget, **given
            )  # fmt: skip
        return tell("mcp.goal_put", line=task_line(same))


class _Stale(Exception):
    """A claim that the client does not hold."""

    def __init__(self, mark: tuple[int, int]) -> None:
        super().__init__(str(mark))
        self.mark = mark


def _mark(task: int | None, epoch: int | None) -> tuple[int, int] | None:
    if (task is None) != (epoch is None):
        raise BadCall(tell("mcp.no_claim_given"))
    return None if task is None or epoch is None else (task, epoch)


def _reported(tokens: int | None, dollars: float | None) -> Reported:
    if not (0 <= (tokens or 0) <= _TOKENS_MAX and 0 <= (dollars or 0) <= _DOLLARS_MAX):  # Also refuses nan.
        raise BadCall(tell("mcp.odd_cost", tokens=_TOKENS_MAX, dollars=_DOLLARS_MAX))
    return Reported(tokens=tokens, dollars=dollars)


async def _notices(seat: Seat) -> Told:
    """The unread notices, once. Nobody has to answer them, so they become no task."""
    found = [each for each in await seat.board.inbox(seat.name) if each.kind == "notice"]
    if not found:
        return NOTHING
    leads = frozenset(each.name for each in await seat.board.team() if each.lead)
    await seat.board.show(seat.name, [each.id for each in found])
    return inbox_text(found, leads, client=True)


async def _respond(seat: Seat, request: str, accept: bool, text: str) -> str:
    asked, _ = await seat.board.request(request)
    if asked.recipient != seat.name:
        raise BadInput(tell("results.asked_of_another", who=asked.recipient))
    accepted = None if asked.kind == "question" else accept
    await seat.board.reply(request, seat.name, text, accepted=accepted)
    words = text.strip() or ("yes" if accept else "no")
    return tell("results.responded", who=asked.sender, kind=asked.kind, words=words)
