"""A client as a teammate's mind: a program of the user's that works by itself and calls our tools over MCP.

The mind does not work; it waits. It says what the task is, runs the client's calls as if one of our teammates had made
them, and comes to an outcome when the client ends the work, asks a person, or is gone. Each call is a recorded turn, so
any other mind can go on where the client left off. The worker checks, reviews and merges as for anyone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...board import Board
from ...board.around import Beginning
from ...clock import Sources
from ...errors import DugnadError, NotReady, StaleClaim
from ...prompts import tell
from ...settings import AgentLimits
from ...text import NOTHING, Told, one_line
from ...tools.built_in import BUILT_IN
from ...tools.context import Desk
from ...tools.finish_tools import review_finish
from ...tools.message_tools import answer_since
from ...tools.policy import Decision, Policy
from ...tools.tool import Tool
from ...types import Amount, Budget, Claim, Failed, Outcome, Released, Spending, Teammate, Waiting
from ..conversation import Conversation, Untold
from ..external.command import ExternalCommand
from ..external.running import reserve_run
from ..model_calls import PutDown
from ..packet import packet, standing
from ..resume import hand_over, must_be_trusted, recall, record_verdict, take_messages
from ..stop import Stop
from ..tool_calls import Actor, Result
from .choice import payable
from .client import CALLS_MAX, OpenWork, OutsideClient, Reported, end_text
from .told import begin_text

PREFIX = "mcp:"
_CALLED = frozenset({"add_tasks", "wait_for", "finish", "give_up", "ask_human", "send_message", "respond", "note"})


def is_outside(member: Teammate) -> bool:
    """Whether the teammate's mind is a client. Only the host that the client calls can run it."""
    return member.model.startswith(PREFIX)


async def _progress(text: str) -> str:
    """Say how far the work is."""
    return tell("mcp.noted")


progress = Tool(_progress, name="progress", prompt="mcp_tools.progress", keyed=True, own=True, early=True)
TOOLS = {each.name: each for each in (*BUILT_IN, progress) if each.name in _CALLED or each is progress}


@dataclass(kw_only=True)
class OutsideMind:
    """`Agent` explains the fields that both have."""

    board: Board
    teammate: Teammate
    client: OutsideClient
    bounds: ExternalCommand  # Its name, and the most that it can spend in a time.
    quiet_seconds: float  # After so long without a call, the client is taken to be gone.
    team: str = "dugnad"
    role_prompt: str = ""
    project: Path | None = None
    policy: Policy = field(default_factory=Policy)
    limits: AgentLimits = field(default_factory=AgentLimits)
    sources: Sources = field(default_factory=Sources)
    claimed: list[Claim] = field(default_factory=list)
    may_act: Callable[[], bool] = lambda: True
    joins: Callable[[str], bool] = lambda role: False
    stop: Stop = field(default_factory=Stop)
    doing: str = ""
    doing_since: int = 0
    turn: int = 0
    _tree: Path | None = None
    _untold: Untold = field(default_factory=Untold)
    _follows: Told = NOTHING
    _came_to: Told = NOTHING
    _epoch: int = 0  # Of the claim that the client was told of last.

    @property
    def wants_work(self) -> bool:
        return self.client.asking > 0

    def equip(
        self, tools: Sequence[Tool] = (), *, tree: Path | None = None, told: Told = NOTHING,
        readable: tuple[Path, ...] = (), follows: Told = NOTHING,
    ) -> None:  # fmt: skip
        """Set the workspace of the next task. The client has tools of its own."""
        self._tree, self._untold, self._follows = tree, Untold(workspace=told), follows

    def may_answer(self, budget: Budget) -> bool:
        """Whether it may take a task with this budget."""
        return budget.dollars is None or self.client.reports_dollars

    async def claim_payable(self, claim: Callable[[int | None], object]) -> Claim | None:
        """Claim a task. If the client does not say what it costs, none under a cap in dollars."""
        free = None if self.client.reports_dollars else await payable(self.board)
        self.client.unpaid = free is not None
        for task in (None,) if free is None else free:
            with suppress(NotReady):  # It is not for this teammate, or somebody was quicker.
                if self.wants_work and (found := await claim(task)) is not None:  # type: ignore[misc]
                    return found  # type: ignore[no-any-return]
        return None

    async def work(self, claim: Claim, *, told: Told = NOTHING, beginning: Beginning | None = None) -> Outcome:
        """Let the client work until the outcome is decided; see `Agent.work`."""
        talk = Conversation(desk=Desk(follows=self._follows, joins=self.joins), client=True)
        actor = self._actor(claim, talk)
        told = self._untold.news = told or self._untold.news
        try:
            await self._begin(claim, talk, actor, beginning)
            outcome = talk.ended or await self._with_client(claim, talk, actor, told)
        except PutDown as put_down:
            outcome = put_down.outcome
        finally:
            self._note("")
        return await hand_over(self.board, claim, talk, outcome)

    async def keep_verdict(self, claim: Claim, told: Told) -> None:
        """What the work came to is the answer to the call that ended it."""
        self._came_to = told

    def ended(self, claim: Claim, outcome: Outcome, *, settled: bool) -> None:
        """The worker has settled the claim, or lost it."""
        came_to, self._came_to = self._came_to, NOTHING
        if claim.epoch == self._epoch or isinstance(outcome, Waiting | Failed) or came_to:
            self.client.ended(claim, end_text(claim, outcome, settled=settled, came_to=came_to))

    def _note(self, doing: str) -> None:
        self.doing, self.doing_since = doing, self.sources.now_ms()

    def _decide(self, tool: str, roles: Sequence[str] | None = None) -> Decision:
        return self.policy.decide(tool, self.teammate.roles if roles is None else roles)

    def _actor(self, claim: Claim, talk: Conversation) -> Actor:
        tools = {**TOOLS, "finish": review_finish} if claim.task.kind == "review" else TOOLS
        return Actor(
            board=self.board, claim=claim, teammate=self.teammate, talk=talk, tools=tools, limits=self.limits,
            now_ms=self.sources.working_ms, doing=self._note, may_act=self.may_act, decide=self._decide,
        )  # fmt: skip

    # The beginning.

    async def _begin(self, claim: Claim, talk: Conversation, actor: Actor, beginning: Beginning | None) -> None:
        """The conversation as far as it is recorded, with what is new for the client."""
        attempts = await recall(self.board, claim, talk, beginning)
        talk.untold, told = self._untold, self._untold.news
        answer = await answer_since(self.board, claim.task.id, talk.since) if not talk.open_calls else None
        await must_be_trusted(self.board, claim, self.teammate, f"{self.teammate.name}, a client over MCP,", answer)
        if talk.ended is not None and told:
            await self._go_on(claim, talk, actor, told)
        elif told:
            talk.say(told)
        if not talk.replies:
            given = (self.board, claim, attempts, self.limits, self.project, talk)
            talk.say(await packet(*given, check_told=bool(talk.untold.workspace)))
        elif (who := talk.authors.get(talk.reply_at[0], claim.teammate)) != claim.teammate:
            talk.say(tell("mcp.taken_over", who=who))
        if talk.begun:
            talk.say(tell("mcp.interrupted"))
        if answer:
            talk.say(answer)
        if talk.open_calls and talk.ended is None:  # A crash or a wait left them without a result.
            await actor.act(resumed=True)
        if talk.untold.workspace and talk.ended is None:
            talk.say(talk.untold.workspace)

    async def _go_on(self, claim: Claim, talk: Conversation, actor: Actor, told: Told) -> None:
        """The work had ended and goes on; what it came to is the result of the call that ended it."""
        for place in list(talk.open_calls):
            await actor.record(place, Result(text=tell("results.not_run")))
        if talk.finished is not None:
            await record_verdict(self.board, claim, talk, told, last=False)
        else:
            talk.ended = None
            talk.say(told)

    # The work.

    async def _with_client(self, claim: Claim, talk: Conversation, actor: Actor, told: Told) -> Outcome:
        """Offer the work to the client, and wait until one of its calls ends it."""
        await take_messages(self.board, claim, talk)
        account = _Reserved(self.board, claim, self.bounds, self.limits)
        spending = await account.reserve()
        if spending.microdollars_max is not None and not self.client.reports_dollars:
            await account.spend(Reported(tokens=0, dollars=0))  # The cap came after the claim; nothing was done.
            raise PutDown(Released(f"{self.teammate.name} does not say what it costs", resume=True))
        talk.number = await self.board.record(claim, talk.next_turn("request", {"command": self.bounds.name}))
        if not self.may_act():
            raise StaleClaim("The lease of the host ran out, so another teammate may hold the task.")
        self.turn = talk.turns + 1
        here = standing(talk.turns + 1, CALLS_MAX, spending)
        again = told if claim.epoch == self._epoch else NOTHING
        text = begin_text(claim, self.teammate, self.team, self.role_prompt, self._tree, talk, here)
        over: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        work = OpenWork(
            claim=claim, talk=talk, actor=actor, text=text, again=again, tree=self._tree, cost=account.cost,
            must_say_dollars=spending.microdollars_max is not None, over=over,
        )  # fmt: skip
        self._epoch = claim.epoch
        self.client.heard_at = asyncio.get_running_loop().time()
        self.client.offer(work)
        self._note(f"works outside ({one_line(self.bounds.name, 60)})")
        try:
            return await self._until_over(work, account)
        finally:
            self.client.withdraw(work)
            over.cancel()
            with suppress(DugnadError):
                await account.spend()

    async def _until_over(self, work: OpenWork, account: _Reserved) -> Outcome:
        """Until the client ends it, the host stops, the client is gone, or the goal has no time left."""
        clock = asyncio.get_running_loop().time
        asked = asyncio.ensure_future(self.stop.said.wait())
        try:
            while True:
                quiet = self.client.heard_at + self.quiet_seconds - clock()
                left = min(quiet, account.left())
                waits: set[asyncio.Future[object]] = {work.over, asked}  # type: ignore[arg-type]
                await asyncio.wait(waits, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
                if work.over.done():
                    return work.over.result()
                if self.stop:
                    return Released(self.stop.why, resume=True)
                if self.client.heard_at + self.quiet_seconds <= clock():
                    return Released(f"{self.teammate.name} was quiet for {self.quiet_seconds:g} seconds", resume=True)
                if account.left() <= 0:
                    await account.spend()
                    await account.reserve()
        finally:
            asked.cancel()


class _Reserved:
    """What is reserved for the client's work, from which moment on."""

    def __init__(self, board: Board, claim: Claim, bounds: ExternalCommand, limits: AgentLimits) -> None:
        self._board, self._claim, self._bounds, self._limits = board, claim, bounds, limits
        self._amount, self._reservation, self._since, self._timed = Amount(), "", 0.0, False

    async def reserve(self) -> Spending:
        given = (self._board, self._claim, self._bounds, self._limits)
        self._amount, self._reservation, spending = await reserve_run(*given)
        self._since, self._timed = asyncio.get_running_loop().time(), spending.milliseconds_max is not None
        return spending

    def left(self) -> float:
        """How many seconds the reservation lasts, if time is capped."""
        ends = self._since + self._amount.milliseconds / 1000
        return ends - asyncio.get_running_loop().time() if self._timed else float("inf")

    def cost(self, said: Reported) -> tuple[str | None, Amount]:
        """The reservation, which is taken, and what counts of it: what was said, and otherwise the most it can be."""
        most = self._bounds.at_most_in(asyncio.get_running_loop().time() - self._since, self._amount)
        taken, self._reservation = self._reservation or None, ""
        return taken, said.of(most)

    async def spend(self, said: Reported | None = None) -> None:
        reservation, used = self.cost(said or Reported())
        if reservation is not None:
            await self._board.spend(self._claim, reservation, used)
