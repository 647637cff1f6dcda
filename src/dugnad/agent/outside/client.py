"""The client of one teammate, as its mind and the server of the board's tools see it: who waits for what.

The mind offers work, and the client's calls are run on it, one at a time. A call that ends the work is answered when
the worker has delivered and settled it. The client outlives its mind: a host that was lost gets a new one.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ...errors import BoardTrouble, DugnadError, HostLost, StaleClaim
from ...models.port import Reply, Said, ToolCall, Usage
from ...prompts import tell
from ...text import NOTHING, Told, clean, joined, one_line, shorten
from ...tools.message_tools import inbox_text
from ...tools.tool import BadCall
from ...types import Amount, Claim, Done, Failed, Outcome, Waiting
from ..conversation import NOT_GRANTED, Conversation
from ..model_calls import PutDown
from ..tool_calls import Actor, Result

CALLS_MAX = 300  # Recorded in one attempt; then only its end is.
_NEWS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What a client says that it used. None: it does not know."""

    tokens: int | None = None
    dollars: float | None = None

    def of(self, most: Amount) -> Amount:
        """What counts: what was said, and otherwise the most that it can be."""
        tokens = most.tokens if self.tokens is None else max(0, self.tokens)
        dollars = most.microdollars if self.dollars is None else max(0, math.ceil(self.dollars * 1e6))
        return Amount(tokens=tokens, microdollars=dollars, milliseconds=most.milliseconds)


@dataclass(eq=False, slots=True, kw_only=True)
class OpenWork:
    """A claim that the client works on."""

    claim: Claim
    talk: Conversation
    actor: Actor
    text: Told  # All that the client must know to begin, or to go on without what it knew.
    again: Told  # What is new, if it goes on after an end that did not hold.
    tree: Path | None
    must_say_dollars: bool  # The goal has a cap in dollars.
    cost: Any  # (what was said) -> (the reservation, what counts of it); it is asked once.
    over: asyncio.Future[Outcome]

    @property
    def mark(self) -> tuple[int, int]:
        return self.claim.task.id, self.claim.epoch


@dataclass(eq=False, kw_only=True)
class OutsideClient:
    """`asking`: how many of its calls wait for a task now. A worker claims for it only then."""

    model: str  # mcp:NAME, which stands where other teammates have their model.
    asking: int = 0
    reports_dollars: bool = False
    heard_at: float = 0.0  # When it last called, by the loop's clock.
    work: OpenWork | None = None
    unpaid: bool = False  # There is work that it may not take, because it does not say what it costs.
    _ending: tuple[Any, ...] | None = None  # The call that ended the work, until its answer was fetched.
    _answer: Told = NOTHING  # What that came to.
    _last: tuple[tuple[Any, ...], Told] | None = None  # The last such call that ended a claim, and its answer.
    _on_ask: Callable[[], None] | None = None
    _news: deque[Told] = field(default_factory=lambda: deque(maxlen=_NEWS_MAX))
    _fetching: int = 0  # How many calls wait for that answer.
    _under_way: set[asyncio.Future[str | None]] = field(default_factory=set)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    # What the host and the mind say.

    @property
    def is_seated(self) -> bool:
        return self._on_ask is not None

    def seat(self, on_ask: Callable[[], None]) -> None:
        """It has a worker, which `on_ask` wakes."""
        self._on_ask = on_ask
        self.wake()

    def unseat(self, on_ask: Callable[[], None]) -> None:
        if self._on_ask == on_ask:
            self._on_ask = None
            self.wake()

    def wake(self) -> None:
        """Let everybody look again who waits here."""
        self._changed.set()
        self._changed = asyncio.Event()

    def offer(self, work: OpenWork) -> None:
        self.work = work
        if self._ending is not None and self._ending[:2] == work.mark:  # It is not done yet; this says why.
            self._answer = work.again or work.text
        self.wake()

    def reports(self, dollars: bool) -> None:
        """Whether it says what it costs. It cannot take that back while it has work."""
        self.reports_dollars = dollars or (self.reports_dollars and (self.work or self._ending) is not None)

    def withdraw(self, work: OpenWork) -> None:
        if self.work is work:
            self.work = None

    def ended(self, claim: Claim, told: Told) -> None:
        """The claim is over, and this is what it came to."""
        mark = (claim.task.id, claim.epoch)
        if self._ending is not None and self._ending[:2] == mark:
            self._answer = told
            self._last = (self._ending, told)
        else:
            self._news.append(told)
        self.wake()

    # What the client asks for.

    async def until(self, seconds: float, is_so: Any) -> bool:
        """Wait until something is so. False: the time is over."""
        try:
            async with asyncio.timeout(seconds):
                while not is_so():
                    await self._changed.wait()
        except TimeoutError:
            return bool(is_so())
        return True

    async def next_work(self, seconds: float) -> OpenWork | None:
        """The work it has, or the next one. None: there is nothing yet."""
        self.asking += 1
        try:
            if self._on_ask is not None:
                self._on_ask()
            await self.until(seconds, lambda: self.work is not None or not self.is_seated)
        finally:
            self.asking -= 1
        return self.work

    async def call(
        self, mark: tuple[int, int], tool: str, arguments: dict[str, Any], *, seconds: float,
        spent: Reported | None = None, known: str | None = None,
    ) -> Told | str:  # fmt: skip
        """Run one of our tools on the claim. `spent`: it is a call that ends the work. `known`: the answer of a person
        who was asked already. If the call ends the work, the answer is what that came to; the same call again is the
        same end."""
        written = orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS).decode()
        ending = (*mark, tool, written, spent)
        if self._ending != ending:
            if self._last is not None and self._last[0] == ending:
                return self._last[1]
            # A call that is hung up on goes on: what it records must be whole.
            running = asyncio.ensure_future(self._take_turn(ending, ToolCall("call", tool, written), spent, known))
            self._under_way.add(running)
            running.add_done_callback(self._over)
            if (text := await asyncio.shield(running)) is not None:
                return text
        self._fetching += 1
        try:
            if not await self.until(seconds, lambda: bool(self._answer)):
                return tell("mcp.still_checking", id=mark[0])
        finally:
            self._fetching -= 1
        return self._fetched()

    def _over(self, running: asyncio.Future[str | None]) -> None:
        self._under_way.discard(running)
        if not running.cancelled():
            running.exception()  # Somebody heard it, or hung up.

    async def _take_turn(
        self, ending: tuple[Any, ...], call: ToolCall, spent: Reported | None, known: str | None
    ) -> str | None:  # fmt: skip
        """The answer to a call, one call at a time. None: it ended the work, so the answer comes later."""
        async with self._lock:
            work = self._held(ending[:2])
            text = await self._run(work, call, spent, known)
            if not work.over.done():
                return text
            self._ending, self._answer = ending, NOTHING
            return None

    def _fetched(self) -> Told:
        answer, self._answer, self._ending = self._answer, NOTHING, None
        return answer

    def _held(self, mark: tuple[Any, ...]) -> OpenWork:
        work = self.work
        if work is None or work.mark != mark or work.over.done():
            raise StaleClaim(f"You do not hold #{mark[0]} with epoch {mark[1]}.")
        return work

    async def _run(self, work: OpenWork, call: ToolCall, spent: Reported | None, known: str | None) -> str:
        work.actor.tools[call.name].check(call.arguments)  # A call that is wrong is not recorded.
        if work.talk.turns >= CALLS_MAX and spent is None:
            raise BadCall(tell("mcp.too_many_calls", most=CALLS_MAX))
        if spent is not None and spent.dollars is None and work.must_say_dollars:
            raise BadCall(tell("mcp.say_dollars", id=work.claim.task.id))
        try:
            outcome = await self._act(work, call, spent, known)
        except (BoardTrouble, StaleClaim, HostLost) as trouble:
            # Nobody knows what was recorded. The mind begins anew with what the board has.
            if not work.over.done():
                work.over.set_exception(trouble)
                work.over.exception()
            raise
        if outcome is not None and not work.over.done():
            work.over.set_result(outcome)
        return getattr(work.talk.last, "text", "")

    async def _act(self, work: OpenWork, call: ToolCall, spent: Reported | None, known: str | None) -> Outcome | None:
        """Record the call, run it, and count what the client says the work cost. BadCall: it is refused, and free."""
        talk, actor = work.talk, work.actor
        try:
            await self._record(work, call, spent)
            if known is not None:
                await actor.record(min(talk.open_calls), Result(text=known))
            else:
                await actor.act(resumed=False)
            outcome, text = talk.ended, getattr(talk.last, "text", "")
            if outcome is None and (spent is not None or text.startswith(NOT_GRANTED)):
                raise BadCall(text)
        except PutDown as put_down:
            outcome = put_down.outcome
        if spent is not None:
            reservation, used = work.cost(spent)
            told = {"text": f"{work.claim.teammate} used {used.tokens:,} tokens, ${used.microdollars / 1e6:.2f}"}
            turn = talk.next_turn("live", told, used=used, reservation=reservation)
            talk.number = await actor.board.record(work.claim, turn)
        return outcome

    async def _record(self, work: OpenWork, call: ToolCall, spent: Reported | None) -> None:
        """The call as the reply of this mind, with what it was told before."""
        talk = work.talk
        said = Said(joined(talk.to_say)) if talk.to_say else None
        usage = Usage(output_tokens=max(0, spent.tokens or 0)) if spent is not None else Usage()
        reply = Reply(text="", calls=(call,), stop="tools", model=self.model, usage=usage)
        body = talk.reply_turn(said, reply)
        turn = talk.next_turn("reply", body, shown=tuple(talk.shown))
        talk.number = await work.actor.board.record(work.claim, turn)
        talk.apply_reply(said, reply)
        talk.recorded = work.claim.epoch

    async def news(self) -> Told:
        """What happened since the last answer: how work ended, and new messages."""
        told = list(self._news)
        self._news.clear()
        if self._answer and not self._fetching:  # To a call that gave up waiting, and did not come again.
            told.append(self._fetched())
        if (work := self.work) is not None and not work.over.done():
            async with self._lock:
                told.append(await _unread(work))
        return joined(told)


async def _unread(work: OpenWork) -> Told:
    """The messages that this conversation has not shown yet. The next recorded call marks them as read."""
    board, talk, name = work.actor.board, work.talk, work.claim.teammate
    unread = await board.inbox(name) if await board.has_unread(name) else []
    found = [each for each in unread if each.id not in talk.shown]
    if not found:
        return NOTHING
    leads = frozenset(member.name for member in await board.team() if member.lead)
    told = inbox_text(found, leads, client=True)
    talk.say(told)
    talk.shown += [each.id for each in found]
    return told


def end_text(claim: Claim, outcome: Outcome, *, settled: bool, came_to: Told) -> Told:
    """What the end of a claim came to, in the words for a client."""
    number = claim.task.id
    if not settled:
        return tell("mcp.lost", id=number)
    if isinstance(outcome, Done):
        return joined((tell("mcp.done", id=number), came_to, tell("mcp.go_on")), " ")
    if isinstance(outcome, Failed):
        return tell("mcp.failed", id=number, why=shorten(outcome.reason, 6_000))
    if not isinstance(outcome, Waiting):
        return tell("mcp.released", id=number, why=one_line(outcome.why, 500))
    if outcome.on == "tasks":
        return tell("mcp.waits_for_tasks", id=number, tasks=", ".join(f"#{each}" for each in outcome.tasks))
    if outcome.on == "budget":
        return tell("mcp.waits_for_budget", id=number, why=outcome.question)
    return tell("mcp.waits_for_person", id=number, question=clean(outcome.question))


async def why_not_held(client: OutsideClient, board: Any, name: str, mark: tuple[int, int]) -> Told:
    """Why a client does not hold this claim, from the board."""
    number, epoch = mark
    try:
        task = await board.find(number)
    except DugnadError as unknown:
        return tell("mcp.refused", why=str(unknown))
    if task.state == "claimed" and task.teammate == name and task.epoch >= epoch:
        newer = tell("mcp.newer_epoch", id=number, epoch=epoch, now=task.epoch)
        return newer if task.epoch > epoch else tell("mcp.being_ended", id=number)
    who = f" by {task.teammate}" if task.state == "claimed" and task.teammate else ""
    return tell("mcp.not_held", id=number, epoch=epoch, state=f"{task.state}{who}", now=task.epoch)
