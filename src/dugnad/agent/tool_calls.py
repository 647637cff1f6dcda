"""Running the tools that the model called. Each result is recorded before anything else happens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import orjson

from ..board import Board
from ..board.verbs.settle import check_outcome
from ..errors import (
    BoardTrouble,
    BudgetSpent,
    DugnadError,
    HostLost,
    LimitReached,
    ModelMisconfigured,
    StaleClaim,
    ToolError,
    UnknownRequest,
)
from ..logs import logger
from ..logs.steps import step
from ..models.port import ToolCall
from ..prompts import tell
from ..settings import AgentLimits
from ..text import Told, clean, joined, shorten
from ..tools.context import Consult, Context, Ends, Keeper, Piece
from ..tools.message_tools import answer_to
from ..tools.note_tools import piece_of
from ..tools.policy import Decision, Permission, can_be_asked, question, reaches, strictest, verdict
from ..tools.skills import Skill
from ..tools.tool import BadCall, Tool
from ..types import HUMAN, Amount, Claim, Done, Outcome, Teammate, Waiting
from .conversation import Conversation, outcome_body
from .model_calls import PutDown

T = TypeVar("T")
_LOG = logger(__name__)
# What these tools put on the board bears a name. A teammate that takes over the task acts in the author's name.
_SIGNED = frozenset({"add_task", "add_tasks", "broadcast", "delegate", "note", "schedule_followup", "send_message"})
_LABEL = re.compile(r"(?:t([0-9]{1,18})\.)?([0-9]{1,9})\.([0-9]{1,9})")  # A task, an epoch and the number of a turn.
# These errors concern the attempt and not the call.
_NOT_FOR_THE_MODEL = (StaleClaim, HostLost, BoardTrouble, ModelMisconfigured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    text: str
    ends: Outcome | None = None
    bad: bool = False
    always: bool = False  # A person allowed this tool for the rest of the task.
    used: Amount = field(default_factory=Amount)
    reservation: str | None = None
    shown: tuple[int, ...] = ()  # Messages that this result shows to the model.


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Runs the tools that are called in one conversation."""

    board: Board
    claim: Claim
    teammate: Teammate
    talk: Conversation
    tools: Mapping[str, Tool]
    limits: AgentLimits
    now_ms: Callable[[], int]
    doing: Callable[[str], None]  # Is told which tool runs, for people who watch,
    saying: Callable[[str], None] = lambda text: None  # and what goes on in it.
    may_act: Callable[[], bool] = lambda: True
    decide: Callable[..., Decision] = lambda tool, roles=(): "allow"  # What the policy says of a tool, and of roles.
    begun: set[tuple[int, str]] = field(default_factory=set)  # Calls by epoch and key that have no result yet.
    skills: tuple[Skill, ...] = ()
    consult: Consult | None = None

    def _context(self, key: str, since: int | None) -> Context:
        """For a call with this key, which has waited since that epoch."""
        return Context(
            board=self.board, claim=self.claim, teammate=self.teammate, limits=self.limits, key=key,
            desk=self.talk.desk, skills=self.skills, since=since, read_output=self.read_output, consult=self.consult,
        )  # fmt: skip

    async def act(self, *, resumed: bool) -> None:
        """Answer every open call of the last reply. Those marked safe run side by side, the others one by one."""
        # The call that put the task down before was the first one without a result. Calls run in order, so only the
        # first batch can have begun before a crash.
        talk = self.talk
        waited = min(talk.open_calls) if resumed and talk.since is not None else None
        others: list[int] = []  # Tasks that calls of this reply wait for, all together.
        behind: list[int] = []  # A call that would wait for a person while the task waits for other tasks.

        async def take(place: int, result: Result) -> None:
            if not isinstance(result.ends, Waiting):
                await self.record(place, result)
                return
            if result.reservation:
                await self.board.spend(self.claim, result.reservation, result.used)
            if result.ends.on == "tasks":
                others.extend(result.ends.tasks)
            elif not others:
                raise PutDown(result.ends)
            else:  # An answer goes to the first open call, so this call asks when it is the first.
                behind.append(place)

        for number, batch in enumerate(self._batches(talk.open_calls)):
            # While an earlier call waits, only calls that may run twice can run.
            if talk.ended is not None or (others and not all(map(self._is_keyed, batch))):
                break
            begun = resumed and number == 0
            results = await _side_by_side([self.run(place, resumed=begun, waited=place == waited) for place in batch])
            for place, result in zip(batch, results, strict=True):  # In the order of the calls, whichever ended first.
                await take(place, result)
            if behind:
                break
        if others and talk.ended is None:
            raise PutDown(Waiting(on="tasks", tasks=tuple(others)))

    def _is_keyed(self, place: int) -> bool:
        name = self.talk.open_calls[place].name
        return name in self.tools and self.tools[name].keyed

    def _asks(self, name: str) -> bool:
        """Whether a person may have to be asked about a call. Such a call runs alone: an answer goes to the first call
        without a result."""
        return any(self.decide(each) == "ask" for each in reaches(name))

    def _batches(self, calls: Mapping[int, ToolCall]) -> list[list[int]]:
        batches: list[list[int]] = []
        was_safe = False
        for place, call in calls.items():
            safe = call.name in self.tools and self.tools[call.name].safe and not self._asks(call.name)
            if safe and was_safe:
                batches[-1].append(place)
            else:
                batches.append([place])
            was_safe = safe
        return batches

    async def record(self, place: int, result: Result) -> None:
        talk = self.talk
        whole = clean(result.text).encode()[: self.limits.tool_bytes_max].decode(errors="ignore")
        if (size := len(orjson.dumps(whole))) > 2 * self.limits.tool_bytes_max:  # Control characters, six bytes each.
            whole = whole[: len(whole) * self.limits.tool_bytes_max // size]
        label, most = talk.label(talk.number + 1), self.limits.tool_chars_max
        text = shorten(whole, most, tell("results.shows_them", output=label)) if len(whole) > most else whole
        more = {
            "whole": whole if text != whole else None, "ends": result.ends and outcome_body(result.ends),
            "bad": result.bad, "always": result.always,
        }  # fmt: skip
        body = {"place": place, "text": text, **{key: value for key, value in more.items() if value}}
        turn = talk.next_turn("tool", body, used=result.used, reservation=result.reservation, shown=tuple(result.shown))
        talk.number = await self.board.record(self.claim, turn)
        talk.apply_result(place, text, ends=result.ends, bad=result.bad, always=result.always)

    async def run(self, place: int, *, resumed: bool = False, waited: bool = False) -> Result:
        """One call. The model is told what is wrong with it; a guard asks a person."""
        talk, call = self.talk, self.talk.open_calls[place]
        epoch, number = talk.reply_at
        who = talk.authors.get(epoch, self.claim.teammate)
        context = self._context(f"t{self.claim.task.id}.e{epoch}.{number}.{place}", talk.since if waited else None)
        try:
            found = self._find(call.name)
            arguments = found.check(call.arguments)
            if talk.plan_missing and not found.early:
                raise ToolError(tell("results.plan_first", tool=call.name))
            decision = self._decide_call(found.name, arguments)
            may_i = partial(question, who, self.claim.task, found.name, arguments, context.key)
            said_at, said = await self._verdict(may_i)
            if said is not None and not said.allowed:
                return Result(text=_refusal(said))
            if said_at is not None and said_at == talk.since:
                context = self._context(context.key, None)  # The answer was for the policy and not for the tool.
            # A call that waited, and did not begin since, ended with the wait: it runs again.
            asked_again = (
                waited and self.claim.continues == talk.since and (self.claim.epoch, context.key) not in self.begun
            )
            if who != self.claim.teammate:
                author = await self.board.teammate(who)
                its_own = self.decide(found.name, author.roles)
                if found.name in _SIGNED and its_own != "deny":
                    context, decision = replace(context, teammate=author), strictest((decision, its_own))
                elif not found.safe and not waited:
                    return Result(text=tell("results.taken_over", who=who))
            if resumed and not found.keyed and not asked_again:
                return Result(text=tell("results.interrupted"), always=said is not None and said.always)
            if said is None and decision == "ask" and found.name not in talk.allowed:
                return Result(text="", ends=Waiting(on="human", question=can_be_asked(found.name, may_i())))
            self._must_have_lease(found)
            self.doing(call.name)
            with step("tool", call.name, arguments=call.arguments) as facts:
                result = await self._timed(found, context, arguments)
                facts["result"] = result.text
            return _with_word(result, said)
        except LimitReached as guard:
            # When a person has answered, the model gets the answer; otherwise it would meet the guard again.
            if answer := await answer_to(context):
                return Result(text=tell("results.guard", guard=guard, answer=answer))
            what_now = f"A guard stopped {self.claim.teammate}: {guard} What now?"
            return Result(text="", ends=Waiting(on="human", question=what_now))
        except _NOT_FOR_THE_MODEL:
            raise
        except BadCall as bad:
            cut = f" {tell('results.reply_cut_off')}" if talk.cut_off else ""
            return Result(text=f"Error: {bad}{cut}", bad=True)
        except DugnadError as error:
            return Result(text=f"Error: {error}")

    def _must_have_lease(self, found: Tool) -> None:
        """The board refuses stale calls of our own tools; the world outside does not."""
        if not found.own and not self.may_act():
            raise StaleClaim("The lease of the host ran out, so another teammate may hold the task.")

    def _find(self, name: str) -> Tool:
        found = self.tools.get(name)
        if self.decide(name) == "deny":
            raise BadCall(tell("results.denied", tool=name))
        if found is None:
            offered = sorted(each.name for each in self.tools.values() if not each.former)
            raise BadCall(tell("results.no_tool", tool=name, tools=", ".join(offered)))
        return found

    def _decide_call(self, name: str, arguments: Mapping[str, Any]) -> Decision:
        decision = strictest(self.decide(each) for each in reaches(name, arguments))
        if decision == "deny":
            raise BadCall(tell("results.command_denied", tool=name))
        return decision

    async def _verdict(self, may_i: Callable[[], str]) -> tuple[int, Permission] | tuple[None, None]:
        """What a person last answered to this question about a call, and the attempt that asked."""
        for epoch in reversed(self.talk.waits):
            try:
                asked, reply = await self.board.request(f"task-{self.claim.task.id}-{epoch}")
            except UnknownRequest:  # It did not wait for an answer.
                continue
            # The whole text must match: a question that somebody else worded says nothing about this call.
            if reply is None or asked.text != may_i():
                continue
            if reply.shown_at is None:  # This call shows the answer, so the inbox need not.
                await self.board.show(reply.recipient, [reply.id])
            if reply.sender == HUMAN:
                return epoch, verdict(reply.text, reply.accepted)
        return None, None

    async def _timed(self, found: Tool, context: Context, arguments: dict[str, Any]) -> Result:
        """Run a tool within its time and, unless it is our own, within the root's seconds."""
        # Our own tools take as long as the board does; a consulted mind reserves for its own calls.
        seconds: float | None = None
        reservation = None
        if not found.own:
            seconds, reservation = await self._reserve(found.seconds(arguments) or self.limits.tool_seconds_max)
            self._must_have_lease(found)  # It may have run out while the board answered.
        context = replace(context, seconds=seconds, say=lambda text: self.saying(f"{found.name}: {text}"))
        began = self.now_ms()
        text, ends = "", None
        try:
            self.begun.add((self.claim.epoch, context.key))  # The board may be away when the result is recorded.
            async with asyncio.timeout(seconds):
                answer = await found.run(context, arguments)
            if isinstance(answer, Ends):
                ends = check_outcome(answer.outcome, self.board.limits)
            text = answer.say if isinstance(answer, Ends) else answer
            if isinstance(ends, Done) and (left := self.unfinished()):
                text, ends = left, None
            elif isinstance(ends, Done) and (failed := self.talk.failed):
                text, ends = tell("results.not_handed_in", calls=", ".join(dict.fromkeys(failed))), None
        except TimeoutError:
            if seconds is None:
                raise
            text = tell("results.too_slow", tool=found.name, seconds=seconds)
        except ToolError as error:
            text = f"Error: {error}"
        except DugnadError:  # Give back the reservation first.
            if reservation:
                await self.board.spend(self.claim, reservation, Amount(milliseconds=max(0, self.now_ms() - began)))
            raise
        took = self.now_ms() - began
        _LOG.debug("tool-called tool=%s ms=%d ok=%s", found.name, took, not text.startswith("Error: "))
        spent = min(took, int(seconds * 1000)) if seconds is not None else 0
        used = Amount(milliseconds=max(0, spent))
        return Result(text=text, ends=ends, used=used, reservation=reservation, shown=tuple(context.shown))

    async def _reserve(self, seconds: float) -> tuple[float, str | None]:
        if self.talk.spending is not None and self.talk.spending.milliseconds_max is None:
            return seconds, None
        if (left := (await self.board.budget(self.claim.task.root)).left("milliseconds")) is None:
            return seconds, None
        # A call that asks for more than usual gets at most half of what is left.
        most = min(seconds * 1000, max(self.limits.tool_seconds_max * 1000, left / 2))
        amount = Amount(milliseconds=int(min(most, max(1_000, left))))
        try:
            return amount.milliseconds / 1000, await self.board.reserve(self.claim, amount)
        except BudgetSpent as spent:
            raise PutDown(Waiting(on="budget", question=str(spent), amount=amount)) from None

    @property
    def _keepers(self) -> list[Keeper]:
        return list(dict.fromkeys(each.keeper for each in self.tools.values() if each.keeper is not None))

    def unfinished(self) -> Told:
        """What still runs beside the conversation and would end with it. Each is told once."""
        return joined((each.unfinished() for each in self._keepers), "\n")

    async def read_output(self, label: str, start: int, most: int) -> Piece:
        """A part of a tool's output: from the files that the tool keeps, or from the transcript."""
        if not (found := _LABEL.fullmatch(label)):
            for keeper in self._keepers:
                if piece := await asyncio.to_thread(keeper.piece, label, start, most):
                    return piece
            raise ToolError(tell("results.output_gone", output=label))
        task, epoch, number = int(found[1] or self.claim.task.id), int(found[2]), int(found[3])
        known = task == self.claim.task.id or task in self.talk.tasks
        turns = await self.board.transcript(task, epoch, after=number - 1, page=1) if known else []
        if not turns or turns[0].number != number or turns[0].kind != "tool":
            raise ToolError(tell("results.no_output", output=label))
        body = orjson.loads(turns[0].body)
        return piece_of(str(body.get("whole") or body["text"]), label, start, most)


def _refusal(said: Permission) -> Told:
    if not said.words:
        return tell("results.refused")
    if "\n" in said.words:
        return tell("results.refused_with", words=said.words)
    return tell("results.refused_because", words=said.words)


def _with_word(result: Result, said: Permission | None) -> Result:
    """The result of the call, behind what a person said when they allowed it."""
    if said is None:
        return result
    words = f"{tell('results.allowed_with', words=said.words)}\n\n" if said.words else ""
    return replace(result, text=f"{words}{result.text}", always=said.always)


async def _side_by_side(work: Sequence[Coroutine[Any, Any, T]]) -> Sequence[T]:
    """What each of them gives. If one fails, cancel the others and raise its error as it is."""
    if len(work) == 1:
        return [await work[0]]
    running = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*running)
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
