"""dugnad's own agent: it takes a claim and works to an outcome, and records every step.

It does not settle the outcome; its caller does. After a crash the next attempt continues from the last recorded step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from ..board import Board
from ..board.around import Beginning
from ..board.roots import root_name
from ..clock import Sources
from ..errors import ContextOverflow, ModelMisconfigured, ModelTrouble, RequestRejected
from ..models.port import Model, Reply, Request, Said
from ..prompts import tell
from ..settings import AgentLimits
from ..text import NOTHING, Told, joined
from ..tools.built_in import BUILT_IN, LEADING, READING
from ..tools.context import Desk
from ..tools.message_tools import answer_since
from ..tools.offered import offered
from ..tools.policy import Decision, Policy
from ..tools.skills import Skill, find_skills
from ..tools.tool import Tool
from ..types import MESSAGES, Claim, Done, Failed, Outcome, Pace, Released, Spending, Teammate
from . import compaction
from .consult import consult
from .conversation import BYTES_PER_TOKEN, Conversation, Untold, size_bytes
from .decide import decide, nudge, reminder
from .model_calls import Asker, ModelAnswer, PutDown
from .packet import guide_text, identity, name_text, packet, standing, standing_is_due, system_text
from .resume import hand_over, recall, record_verdict, take_messages
from .stop import Stop
from .tool_calls import Actor, Result


@dataclass(kw_only=True)
class Agent:
    """A teammate's mind: who it is, which model it asks, what it can do."""

    board: Board
    teammate: Teammate
    model: Model
    summary_model: Model | None = None  # For summaries; None: the same.
    tools: Sequence[Tool] = ()  # Besides the built-in ones.
    policy: Policy = field(default_factory=Policy)  # Which tools a person is asked about, and which are denied.
    built_in: Sequence[Tool] = BUILT_IN  # Fewer make a shorter prompt, for a small model.
    team: str = "dugnad"
    role_prompt: str = ""  # The same for all teammates of its role.
    project: Path | None = None
    skills: tuple[Skill, ...] | None = None  # None: those of the project.
    limits: AgentLimits = field(default_factory=AgentLimits)
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    sources: Sources = field(default_factory=Sources)
    claimed: list[Claim] = field(default_factory=list)  # Claimed by name during another task; worked on next.
    may_act: Callable[[], bool] = lambda: True  # False: the host's lease ran out, so another may have the claim.
    joins: Callable[[str], bool] = lambda role: False  # Whether one joins for work of a role that nobody has.
    stop: Stop = field(default_factory=Stop)  # The host says: put the task down when the turn is recorded.
    hears: Callable[[Claim, str], None] | None = None  # Is told what the model writes to a person, as it comes.
    doing: str = ""  # What it does right now, for people who watch,
    doing_since: int = 0  # and since when.
    turn: int = 0
    wants_work = True  # Only a mind outside waits until it is asked.

    def __post_init__(self) -> None:
        self._skills: tuple[Skill, ...] = self.skills or ()
        may_have = self._skills or (self.skills is None and self.project is not None)
        built_in = [each for each in self.built_in if each.name != "use_skill" or may_have]
        leading = LEADING if self.teammate.lead else ()
        self._always = (*built_in, *leading, *self.tools)
        self._begun: set[tuple[int, str]] = set()
        self._talk = Conversation()  # Of the last claim.
        self.equip()

    def equip(
        self, tools: Sequence[Tool] = (), *, tree: Path | None = None, told: Told = NOTHING,
        readable: tuple[Path, ...] = (), follows: Told = NOTHING,
    ) -> None:  # fmt: skip
        """Give it the tools of the workspace of the next task, what it must know about that workspace, and what follows
        `finish` there."""
        every = (*self._always, *tools)
        self._tools = {each.name: each for each in every if self._decide(each.name) != "deny"}
        self._untold, self._follows = Untold(workspace=told), follows

    async def work(self, claim: Claim, *, told: Told = NOTHING, beginning: Beginning | None = None) -> Outcome:
        """Work on a task until its outcome is decided. `told` is something new to continue with, like a red check.
        `beginning`: what the board has of the claim, if the caller has just read it."""
        await self._find_skills()
        review, plan = claim.task.kind == "review", claim.task.plan or self.teammate.plan
        offers = offered(self._tools, review=review, plan=plan, lead=self.teammate.lead)
        self._specs = tuple(each.spec for each in offers)
        self._system = _shared(system_text(self.teammate, self.team, self._skills, self.role_prompt))
        self._untold.news = told or self._untold.news
        talk, resumed = await self._begin(claim, beginning)
        self._talk = talk
        try:
            while True:
                await self._act(claim, talk, resumed=resumed)
                outcome = decide(talk, self.limits)
                if outcome is not None and not self._holds_back(claim, talk, outcome):
                    break
                if self.stop:
                    raise PutDown(Released(self.stop.why, resume=True))
                before = talk.spending
                await self._take_messages(claim, talk)
                await self._make_room(claim, talk)
                await self._turn(claim, talk, before)
                resumed = False
        except PutDown as put_down:
            outcome = put_down.outcome
        except RequestRejected as rejected:
            outcome = Failed(str(rejected), retry=True)
        finally:
            self._note("")
        self._begun.clear()
        if isinstance(outcome, Done) and (who := talk.authors.get(talk.reply_at[0], claim.teammate)) != claim.teammate:
            outcome = replace(outcome, by=who)  # Nothing was said since; this teammate only brings it in.
        return await hand_over(self.board, claim, talk, outcome)

    async def _find_skills(self) -> None:
        """In a thread, because the disk of a project may not answer."""
        if self.skills is None and self.project is not None:
            self._skills = await asyncio.to_thread(find_skills, self.project)
        if not self._skills:
            self._tools.pop("use_skill", None)

    def _holds_back(self, claim: Claim, talk: Conversation, outcome: Outcome) -> bool:
        """A teammate that ends with plain text while its jobs run is told so once; `finish` says it in its result."""
        if not isinstance(outcome, Done) or talk.ended is not None:
            return False
        if left := self._actor(claim, talk).unfinished():
            talk.say(left)
        return bool(left)

    def _say(self, what: str) -> None:
        self.doing = what

    def _note(self, doing: str) -> None:
        self.doing, self.doing_since = doing, self.sources.now_ms()

    async def _begin(self, claim: Claim, beginning: Beginning | None) -> tuple[Conversation, bool]:
        """The conversation as far as it is recorded, in this attempt and those it continues."""
        talk = Conversation(desk=Desk(follows=self._follows, joins=self.joins))
        attempts = await recall(self.board, claim, talk, beginning, follow=True)
        self._must_be_priced(talk.spending)
        needs_plan = claim.task.plan or self.teammate.plan
        talk.plan_missing = needs_plan and not await self.board.plan_approved(claim.task.id)
        talk.may_end = not talk.plan_missing or claim.task.kind in MESSAGES
        talk.untold, resumed = self._untold, talk.replies > 0
        if resumed and (who := talk.authors.get(talk.reply_at[0], claim.teammate)) != claim.teammate:
            talk.say(tell("teammate.taken_over", who=who))
        if not resumed:
            # Where a summary is about to take the place of all before, the packet is whole.
            known = Conversation() if compaction.is_much(talk, self._window, self.limits) else talk
            given = (self.board, claim, attempts, self._packet_limits, self.project, known)
            talk.say(await packet(*given, check_told=bool(talk.untold.workspace)))
            talk.retold = known.retold
            if talk.plan_missing:
                talk.say(tell("teammate.plan_first"))
        elif not talk.open_calls and (answer := await answer_since(self.board, claim.task.id, talk.since)):
            talk.say(answer)  # To a question of the runtime and not of a tool: whether to take more turns.
        if talk.untold.news:
            await self._go_on(claim, talk, talk.untold.news)
        if talk.untold.workspace and talk.ended is None:  # Otherwise the model is not asked any more.
            talk.say(talk.untold.workspace)
        return talk, resumed

    def _must_be_priced(self, spending: Spending | None) -> None:
        for model in (self.model, self.summary_model or self.model):
            if spending is not None and spending.microdollars_max is not None and model.facts.price is None:
                raise ModelMisconfigured(
                    f"{root_name(spending.root)} has a cap in dollars, but the price of {model.name} is not known. "
                    "Give its price, or cap the tokens instead."
                )

    async def _go_on(self, claim: Claim, talk: Conversation, told: Told) -> None:
        """The attempt had ended and goes on: calls behind the end were never run, and something new is said."""
        if talk.ended is not None:
            for place in list(talk.open_calls):
                await self._actor(claim, talk).record(place, Result(text=tell("results.not_run")))
            if talk.finished is not None:  # Then this is the result of the call.
                await record_verdict(self.board, claim, talk, told, last=False)
                return
            talk.ended = None
        talk.say(told)

    async def keep_verdict(self, claim: Claim, told: Told) -> None:
        """What the work came to is the result of `finish`, if other tasks go on from this conversation. No model is
        asked, and the same again changes nothing."""
        if claim.context and self._talk.finished is not None:
            await record_verdict(self.board, claim, self._talk, told, last=True)

    async def _act(self, claim: Claim, talk: Conversation, *, resumed: bool) -> None:
        if talk.open_calls:
            try:
                await self._actor(claim, talk).act(resumed=resumed)
            finally:  # Also when the task is put down: the teammate holds what it claimed by name.
                held = {(each.task.id, each.epoch) for each in self.claimed}  # A call may run twice.
                self.claimed += [each for each in talk.desk.claims if (each.task.id, each.epoch) not in held]
                talk.desk.claims = []

    async def _take_messages(self, claim: Claim, talk: Conversation) -> None:
        await take_messages(self.board, claim, talk)
        for text in (nudge(talk, self.limits, review=claim.task.kind == "review"), reminder(talk, self.limits)):
            if text:
                talk.say(text)

    async def _turn(self, claim: Claim, talk: Conversation, before: Spending | None) -> None:
        """Build the request, ask within the budget, record the reply and its cost. `before`: the account as it was at
        the turn before."""
        for overflowed in range(3):
            if overflowed or talk.spending is None:
                talk.spending = await self.board.budget(claim.task.root)
            spending = talk.spending
            who = self._who if talk.who != self._who else NOTHING
            said = self._said(talk, who, before, spending)
            request = self._request(claim, talk, said)
            if self.hears is not None and claim.task.kind == "human_message":
                request = replace(request, hears=partial(self.hears, claim))
            try:
                self.turn = talk.turns + 1
                self._note(f"asks {self.model.name}")
                new = size_bytes(said) if said else 0
                known = talk.tokens and talk.size_tokens + new // BYTES_PER_TOKEN
                answer = await self._asker(claim).ask(request, spending, known)
                break
            except ContextOverflow as overflow:
                smaller = await self._compact(claim, talk, harder=overflowed + 1, overflowed=True)
                if not smaller:
                    smaller = await self._shorten(claim, talk, compaction.shortened_results(talk, 0, recent=0)[0])
                if overflowed == 2 or not smaller:
                    raise PutDown(Failed(f"the context is full and cannot be made smaller: {overflow}")) from None
        talk.room = talk.size_tokens / self._window
        body = talk.reply_turn(said, answer.reply, who)
        turn = talk.next_turn("reply", body, used=answer.used, reservation=answer.reservation, shown=tuple(talk.shown))
        talk.number = await self.board.record(claim, turn)
        talk.apply_reply(said, answer.reply, who)

    def _said(self, talk: Conversation, who: Told, before: Spending | None, spending: Spending) -> Said | None:
        """What is new, beginning with who the teammate is if it was not told yet. None: only results are new."""
        turn, most, tokens, window = talk.turns + 1, self.limits.turns_max, talk.size_tokens, self._window
        due = standing_is_due(turn, most, before, spending, (talk.room, tokens / window))
        # A reply is never the end of a request.
        due = due or (not talk.to_say and isinstance(talk.last, Reply))
        text = joined([who, *talk.to_say, standing(turn, most, spending, tokens, window) if due else None])
        return Said(text) if text else None

    def _request(self, claim: Claim, talk: Conversation, said: Said | None) -> Request:
        """Pure: the same conversation gives the same request."""
        return Request(
            system=self._system, tools=self._specs, memory=talk.memory,
            messages=(*talk.entries, said) if said else tuple(talk.entries),
            output_tokens_max=self.limits.output_tokens_max, seconds_max=self.limits.model_seconds_max,
            teammate=self.teammate.name, task=claim.task.id, title=claim.task.title, turn=talk.replies + 1,
        )  # fmt: skip

    @property
    def _packet_limits(self) -> AgentLimits:
        """A packet must not fill a small window."""
        most = min(self.limits.packet_chars_max, self._window * BYTES_PER_TOKEN * 2 // 5)
        return replace(self.limits, packet_chars_max=most)

    @cached_property
    def _who(self) -> Told:
        return name_text(self.teammate)

    # Making room.

    @property
    def _window(self) -> int:
        return self._window_of(self.model)

    def _window_of(self, model: Model) -> int:
        known = model.facts.window_tokens or self.limits.window_tokens_default
        return max(1_000, known - self.limits.output_tokens_max)

    async def _make_room(self, claim: Claim, talk: Conversation) -> None:
        """Rarely, and in one go, because a provider's cache is lost from the first change on."""
        if not talk.replies and compaction.is_much(talk, self._window, self.limits):
            await self._carry(claim, talk)
        elif talk.desk.compaction_wanted:
            await self._compact(claim, talk, harder=1)
        elif talk.size_tokens > self._window * self.limits.micro_share:
            low = int(self._window * self.limits.low_share)
            shortened, enough = compaction.shortened_results(talk, low)
            if enough or not await self._compact(claim, talk):
                await self._shorten(claim, talk, shortened)

    async def _shorten(self, claim: Claim, talk: Conversation, shortened: list[tuple[int, str]]) -> bool:
        """False: there was nothing to shorten."""
        if shortened:
            turn = talk.next_turn("summary", {"shortened": shortened})
            talk.number = await self.board.record(claim, turn)
            talk.apply_shortened(shortened)
        return bool(shortened)

    async def _compact(self, claim: Claim, talk: Conversation, *, harder: int = 0, overflowed: bool = False) -> bool:
        """Replace the older part of the view by a summary. False: there is nothing to summarise."""
        keep = int(self._window * self.limits.keep_share) >> (2 * harder)
        if not (kept_from := compaction.cut(talk, keep)):
            talk.desk.compaction_wanted = False
            return False
        answer = await self._summary(claim, talk, kept_from, overflowed=overflowed)
        words = answer.reply.text.strip() if answer else ""
        guide = await guide_text(self.project, self._packet_limits) if talk.tasks else NOTHING
        stays = (talk.opening, *(entry.text for entry in talk.entries[kept_from:]), *talk.to_say)
        lost = None if any(guide in each for each in stays) else guide  # Only the first packet of several had it.
        text = joined((lost, compaction.summary_text(talk, kept_from, words)))
        turn = talk.next_turn(
            "summary",
            {"summary": text, "kept_from": kept_from, "who": self._who},
            covers=(1, talk.number) if talk.number else None,
            **_paid(answer),
        )
        talk.number = await self.board.record(claim, turn)
        talk.apply_summary(text, kept_from, self._who)
        return True

    async def _carry(self, claim: Claim, talk: Conversation) -> None:
        """Replace the tasks in front of this one by a summary, before this one begins."""
        talk.opening = joined(talk.to_say)  # That stays.
        answer = await self._summary(claim, talk, len(talk.entries), overflowed=True)
        text = compaction.carried_text(talk, answer.reply.text.strip() if answer else "")
        turn = talk.next_turn("summary", {"carried": text}, **_paid(answer))
        talk.number = await self.board.record(claim, turn)
        talk.apply_carried(text)

    async def _summary(
        self, claim: Claim, talk: Conversation, kept_from: int, *, overflowed: bool
    ) -> ModelAnswer | None:  # fmt: skip
        if overflowed or self.summary_model is not None or talk.size_tokens > self._window:
            window, who = self._window_of(self.summary_model or self.model), identity(self.teammate, self.team)
            request = compaction.summary_request(talk, kept_from, who, window, self.limits)
            request = replace(request, teammate=self.teammate.name, task=claim.task.id)
        else:
            who = self._who if talk.who != self._who else NOTHING
            request = compaction.sum_up_request(self._request(claim, talk, None), talk, kept_from, who, self.limits)
        try:
            asker, talk.spending = self._asker(claim, self.summary_model), None  # It spends.
            return await asker.ask(request, await self.board.budget(claim.task.root))
        except ModelMisconfigured:
            raise
        except ContextOverflow:
            return None if overflowed else await self._summary(claim, talk, kept_from, overflowed=True)
        except ModelTrouble:  # A plain summary is better than a task that cannot go on.
            return None

    # The parts that work for one claim.

    async def _consult(self, claim: Claim, prompt: str, role: str | None) -> str:
        """Ask a second mind. Its tools only read; it has no transcript, so it cannot wait for a person."""
        tools = {each.name: each for each in READING if each.name in self._tools and self._decide(each.name) == "allow"}
        actor = partial(self._actor, claim, tools=tools)
        who = identity(self.teammate, self.team)
        return await consult(self._asker(claim), prompt, role, who=who, tools=tools.values(), actor=actor)

    def _asker(self, claim: Claim, other: Model | None = None) -> Asker:
        model = other or self.model
        own = (self.requests_per_minute, self.tokens_per_minute) if other is None else (None, None)
        return Asker(
            board=self.board, claim=claim, model=model, limits=self.limits, sources=self.sources,
            pace=Pace(key=model.key, requests_per_minute=own[0], tokens_per_minute=own[1]), doing=self._note,
            stop=self.stop,
        )  # fmt: skip

    def _decide(self, tool: str, roles: Sequence[str] | None = None) -> Decision:
        return self.policy.decide(tool, self.teammate.roles if roles is None else roles)

    def _actor(self, claim: Claim, talk: Conversation, tools: dict[str, Tool] | None = None) -> Actor:
        return Actor(
            board=self.board, claim=claim, teammate=self.teammate, talk=talk, limits=self.limits,
            tools=self._tools if tools is None else tools, now_ms=self.sources.working_ms, doing=self._note,
            saying=self._say, may_act=self.may_act, decide=self._decide, begun=self._begun, skills=self._skills,
            consult=partial(self._consult, claim),
        )  # fmt: skip


# The teammates of one role have the same system text; they hold it once.
_shared = lru_cache(maxsize=256)(Told)


def _paid(answer: ModelAnswer | None) -> dict[str, Any]:
    """What a summary cost, for its turn. None: no model made it."""
    return {"used": answer.used, "reservation": answer.reservation} if answer else {}
