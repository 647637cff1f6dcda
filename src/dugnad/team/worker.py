"""The worker: one teammate at a host. It claims a task, opens a workspace, lets the mind work, delivers and settles.

Its inbox and work that it may take wake it, in this order: shutdown, human, lead, teammates, then the board. A message
that comes while it has no task becomes an errand: a small task of its own, so that the answer is durable, fenced and
paid for like all other work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from ..agent.mind import ExternalAgent, Mind, OutsideMind
from ..board import Board
from ..board.around import Beginning
from ..board.store.watch import Watch
from ..errors import (
    BoardTrouble,
    DugnadError,
    HostLost,
    ModelMisconfigured,
    NotReady,
    StaleClaim,
    StoppedTeammate,
    ToolError,
)  # fmt: skip
from ..logs import about, logger, traceback_text, without_secrets
from ..logs.steps import step
from ..text import NOTHING, Told, joined, shorten
from ..tools.finish_tools import review_finish
from ..tools.message_tools import RESTED
from ..tools.task_tools import whole_result
from ..types import HUMAN, Attempt, Claim, Done, Failed, Outcome, Released, Teammate, Waiting
from ..workspace.git.ownership import GitTrouble
from .delivery import Delivery
from .errands import Errands
from .plan import RunPlan
from .workspaces.workspace import Again, Workspace

_LOG = logger(__name__)
_PAUSE_SECONDS = 1.0
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(kw_only=True)
class Worker:
    """A teammate with a seat at this host."""

    board: Board
    host: str
    agent: Mind
    errands: Errands
    plan: RunPlan
    on_move: Callable[[], None] = lambda: None  # Is called whenever a task came to this teammate or left it.
    claim: Claim | None = None  # What it works on now.
    settling: bool = False  # It is giving up the claim at this moment, so losing it does not matter.
    asked_to_stop: bool = False
    trouble: str = ""  # Why the board cannot be reached at the moment.
    failed: str = ""  # Why it failed.
    model_is_wrong: bool = False  # Other teammates with the same model would fail too.
    left_behind: list[asyncio.Future[Outcome]] = field(default_factory=list)  # Work that did not end in time.
    _watch: Watch | None = None
    _work_watch: Watch | None = None
    _claim_key: str | None = None
    _why_dropped: str = ""
    _workspace: Workspace | None = None
    _beginning: Beginning | None = None
    _closing: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.agent.teammate.name

    async def live(self) -> None:
        """Run until it is told to leave, moves to another host, or has had nothing to do for long enough."""
        try:
            while (claim := await self._next_claim()) is not None and await self._work(claim):
                pass
            for claim in self.agent.claimed:  # Claimed by name, and not worked on any more.
                await self._settle(claim, Released(self.agent.stop.why or f"{self.name} left", resume=True))
        except Exception as bug:  # Outside of the work on a task, so the task is not to blame.
            why = await self._note_bug(bug)
            if self.claim is not None:
                await self._settle(self.claim, Released(why, resume=True))
            await self._fail(bug)

    async def _work(self, claim: Claim) -> bool:
        """Work on a task and settle its outcome. False: the teammate failed and cannot go on."""
        self.claim, self.settling = claim, False
        about(task=claim.task.id, attempt=claim.epoch, teammate=self.name)
        _LOG.info("claimed number=%d continues=%s", claim.number, claim.continues)
        self.on_move()
        trouble: Exception | None = None
        try:
            outcome = await self._unless_dropped(claim, self._attempt(claim))
        except (StaleClaim, HostLost) as lost:
            # If another teammate holds the task now, the board refuses this; otherwise it frees the task.
            outcome = Released(str(lost), resume=True)
        except ModelMisconfigured as wrong:
            self.model_is_wrong = True  # Before the task is free again: nobody may join for it with this model.
            outcome, trouble = Released(str(wrong), resume=True), wrong
        except Exception as bug:
            outcome, trouble = Failed(await self._note_bug(bug), retry=True), bug
        self.settling = True
        if not isinstance(outcome, Done):  # The next attempt must find the workspace free; finished work stays there.
            await self._close(outcome, settled=False)
        settled = await self._settle(claim, outcome)
        await self._close(outcome, settled=settled)
        if isinstance(self.agent, OutsideMind):
            self.agent.ended(claim, outcome, settled=settled)
        self.claim = None
        about(task=None, attempt=None)
        if isinstance(outcome, Released):
            self.asked_to_stop = True  # Perhaps it gave the task back because it was asked to leave: look first.
        self.on_move()
        if trouble is not None:
            await self._fail(trouble)
        return trouble is None

    async def _attempt(self, claim: Claim) -> Outcome:
        self._beginning = beginning = await self._patiently(self.board.beginning, claim)
        with step("attempt", self.name, claim=claim, attempts=beginning.attempts) as facts:
            outcome = facts["outcome"] = await self._until_outcome(claim, beginning)
        return outcome

    async def _until_outcome(self, claim: Claim, beginning: Beginning) -> Outcome:
        """Open a workspace, let the mind work there, and deliver; again, as long as the delivery sends it back."""
        try:
            workspace = self._workspace = await self._open(claim, attempts := beginning.attempts)
        except GitTrouble as trouble:  # Trying again would not help.
            why = f"#{claim.task.id} cannot be begun: {str(trouble).rstrip('.')}"
            return Waiting(on="human", question=f"{why}. Fix that, then answer.")
        except (ToolError, OSError) as trouble:
            delay = self.plan.limits.no_place_seconds
            return Released(f"no workspace could be opened: {trouble}", delay_seconds=delay, resume=True)
        outside = isinstance(self.agent, ExternalAgent)
        delivery = Delivery(board=self.board, plan=self.plan, workspace=workspace, attempts=attempts, outside=outside)
        if (outcome := await self._patiently(delivery.needs_no_work, claim)) is not None:
            return outcome
        told = self._told_at_first(claim, delivery, delivery.follows(claim.task, beginning.behind))
        left = self.plan.limits.check_rounds_max
        while True:
            outcome = await self._think(claim, told)
            if not isinstance(outcome, Done):
                return outcome
            end = await self._patiently(delivery.deliver, claim, outcome, left)
            if not isinstance(end, Again):
                if isinstance(end, Done) and delivery.came_to and not isinstance(self.agent, ExternalAgent):
                    await self._patiently(self.agent.keep_verdict, claim, delivery.came_to)
                await self._answer_human(claim, end)
                return end
            if end.in_the_end is not None:
                if not left:
                    return end.in_the_end
                left -= 1
            told = end.told

    # Rest and wake.

    async def _next_claim(self) -> Claim | None:
        """Rest until there is a task. None: this teammate has no more work here."""
        clock = asyncio.get_running_loop().time
        quiet_since = clock()
        lost = False
        member = self.agent.teammate
        while not self.agent.stop:
            with self._watching(member) as watch:
                self._watch = watch
                try:
                    if lost and (await self.board.teammate(self.name)).host != self.host:
                        return None  # Another host has it now.
                    lost = False
                    if not self.agent.may_act():  # The lease is being renewed or is lost; one of them shows soon.
                        raise HostLost
                    mail = await self.board.has_unread(self.name)
                    if (mail or self.asked_to_stop) and await self._asked_to_leave():
                        return None
                    if (claim := await self._look_for_work(mail)) is not None:
                        return claim
                    left = self.plan.limits.idle_seconds - (clock() - quiet_since)
                    if left <= 0:
                        if await self._rest():
                            return None
                        left = self.plan.limits.sweep_seconds  # A message came just now, or cannot be answered yet.
                except StoppedTeammate:
                    return None
                except HostLost:
                    left, lost = _PAUSE_SECONDS, True
                except BoardTrouble as trouble:
                    await self._pause(trouble)
                    continue
                self.trouble = ""
                await watch.wait(max(0.0, min(left, 3_600.0)))
        return None

    def _watching(self, member: Teammate) -> Watch:
        """A mind that wants no work must not be woken for it instead of another."""
        if not self.agent.wants_work:
            return self.board.watch([f"inbox:{self.name}"])
        return self.board.watch_for(self.name, member.roles, lead=member.lead)

    async def _patiently(self, ask: Callable[P, Awaitable[T]], *given: P.args, **named: P.kwargs) -> T:
        """Ask until the board answers. Only for calls that may be made twice."""
        while True:
            try:
                return await ask(*given, **named)
            except BoardTrouble as trouble:
                await self._pause(trouble)

    async def _pause(self, trouble: BoardTrouble) -> None:
        self.trouble = str(trouble)
        await asyncio.sleep(_PAUSE_SECONDS)

    def wake(self) -> None:
        if self._watch is not None:
            self._watch.wake("host")

    async def _rest(self) -> bool:
        """Stop by itself. False: a message came just now."""
        try:
            await self.board.stop_teammate(
                self.name, by=self.name, reason=RESTED, seat=self.agent.teammate.seat, if_quiet=True
            )
        except NotReady:
            return False
        return True

    async def _asked_to_leave(self) -> bool:
        """Accept a shutdown without asking the model: between tasks nothing speaks against it."""
        asked = [each for each in await self.board.requests(self.name) if each.kind == "shutdown"]
        known = await self.board.shutdown_requests(self.host)
        for each in asked:
            assert each.request is not None
            await self.board.reply(each.request, self.name, "Nothing holds me.", accepted=True)
        self.asked_to_stop = False
        senders = [each.sender for each in asked]
        senders += [each.sender for each in known if each.teammate == self.name and each.accepted]
        if not senders:
            return False
        reason, seat = "shut down as asked", self.agent.teammate.seat
        await self.board.stop_teammate(self.name, by=senders[0], reason=reason, seat=seat)
        return True

    async def _look_for_work(self, mail: bool) -> Claim | None:
        """The human and the lead come first; a teammate's message is read with the next task, if there is one."""
        if not self.agent.wants_work:
            return None
        if isinstance(self.agent, OutsideMind) and not self.agent.may_answer(self.plan.budget):
            mail = False  # Its messages come with the next task.
        unread = await self.board.inbox(self.name) if mail else []
        unread = await self.errands.to_answer(unread)
        pressing = bool(unread) and await self.errands.are_pressing(unread)
        if pressing and (claim := await self.errands.claim(unread, self._claim)) is not None:
            return claim
        claim = self.agent.claimed.pop(0) if self.agent.claimed else await self._claim()
        return await self.errands.claim(unread, self._claim) if claim is None and unread else claim

    async def _claim(self, task: int | None = None) -> Claim | None:
        """Claim with the same key until there is an answer, so that a lost answer does not lead to a second claim."""
        if task is None and isinstance(self.agent, OutsideMind):
            return await self.agent.claim_payable(self._claim_for)
        return await self._claim_for(task)

    async def _claim_for(self, task: int | None) -> Claim | None:
        self._claim_key = self._claim_key or self.board.sources.new_id()
        claim = await self.board.claim(self.name, self.host, task=task, key=self._claim_key)
        self._claim_key = None
        return claim

    # The steps of an attempt.

    async def _unless_dropped(self, claim: Claim, attempt: Coroutine[Any, Any, Outcome]) -> Outcome:
        """The outcome, also if the host dropped the work. Work that does not end in time is left behind, fenced off."""
        self._why_dropped = ""
        dropped = asyncio.ensure_future(self._until_dropped(claim))
        work = asyncio.ensure_future(attempt)
        try:
            await asyncio.wait({work, dropped}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not self._why_dropped:
                return work.result()
            work.cancel()
            await asyncio.wait({work}, timeout=self.plan.limits.cancel_seconds)
            return Released(self._why_dropped, resume=True)
        finally:
            dropped.cancel()
            if not work.done():
                work.cancel()
                self.left_behind.append(work)
                if (left := self._workspace) is not None:  # The work may still go on there.
                    self._workspace = None
                    gives_up = Released(self._why_dropped, resume=True)
                    work.add_done_callback(
                        lambda _: self._closing.append(asyncio.ensure_future(left.close(gives_up, settled=False)))
                    )
            elif not work.cancelled():
                work.exception()  # Retrieve the exception so asyncio does not warn about it.

    async def _until_dropped(self, claim: Claim) -> None:
        """Wait until the host drops the work, or until the board shows that another has the task."""
        with self.board.watch([f"task:{claim.task.id}"]) as watch:
            self._work_watch = watch
            while not self._why_dropped:
                await watch.wait(3_600.0)
                try:
                    if not self._why_dropped and (await self.board.find(claim.task.id)).epoch != claim.epoch:
                        self.drop("it was taken away")
                except BoardTrouble:
                    continue  # The host's heartbeat will tell.

    async def _open(self, claim: Claim, attempts: Sequence[Attempt]) -> Workspace:
        if self.plan.workspaces is None:
            return Workspace(runs_check=self.plan.check)
        return await self._patiently(self.plan.workspaces, claim, attempts)

    def _told_at_first(self, claim: Claim, delivery: Delivery, follows: Told) -> Told:
        """Equip the mind for the workspace. Returns what it is told before it begins."""
        workspace = delivery.workspace
        has_tools = not isinstance(self.agent, ExternalAgent | OutsideMind)
        told = joined((workspace.told, workspace.offers if has_tools else NOTHING), " ")
        told_of_it = NOTHING if workspace.anew else told
        if claim.continues is None:
            told_of_it = joined((told_of_it, delivery.told_at_first(claim.task, follows)), "\n")
        tools = (*workspace.tools, review_finish) if claim.task.kind == "review" else workspace.tools
        self.agent.equip(tools, tree=workspace.tree, told=told_of_it, readable=workspace.readable, follows=follows)
        return told if workspace.anew else NOTHING

    async def _close(self, outcome: Outcome, *, settled: bool) -> None:
        workspace, self._workspace = self._workspace, None
        if workspace is not None:
            await workspace.close(outcome, settled=settled)

    async def _think(self, claim: Claim, told: Told) -> Outcome:
        """Let the mind work. What a board in trouble interrupted continues from its last recorded step."""
        interrupted = False
        while True:
            try:
                if interrupted:  # Otherwise it might wait for ever for what it has reserved itself.
                    await self.board.forfeit(claim)
                beginning, self._beginning = self._beginning, None  # More is recorded as the mind works.
                outcome = await self.agent.work(claim, told=told, beginning=beginning)
                self.trouble = ""
                return outcome
            except BoardTrouble as trouble:
                await self._pause(trouble)
            except StaleClaim:
                if self.agent.may_act():
                    raise  # The board says so.
                while not self.agent.may_act():  # noqa: ASYNC110  The machine slept. The next beat renews or drops it.
                    await asyncio.sleep(_PAUSE_SECONDS)
            told, interrupted = NOTHING, True

    async def _answer_human(self, claim: Claim, end: Outcome) -> None:
        if claim.task.kind == "human_message" and isinstance(end, Done) and end.result.strip():
            key = f"errand-{claim.task.id}"
            await self._patiently(self.board.tell, self.name, HUMAN, whole_result(end), claim=claim, key=key)

    async def _settle(self, claim: Claim, outcome: Outcome) -> bool:
        """False: another teammate has the task."""
        while True:
            try:
                state = await self._patiently(self.board.settle, claim, outcome)  # Twice is as once.
                _LOG.info("settled as=%s", state)
                return True
            except (StaleClaim, HostLost):
                return False
            except DugnadError as refusal:  # For example a wait for a teammate that was just stopped.
                outcome = Released(f"{refusal}", delay_seconds=30.0)

    async def _note_bug(self, bug: Exception) -> str:
        """Log it, and keep the traceback with the task. Returns the reason for the task's outcome."""
        _LOG.error("bug", exc_info=bug)
        if self.claim is not None:
            with suppress(DugnadError):  # Another teammate holds the task, or a bug is kept already.
                await self._patiently(self.board.keep_traceback, self.claim, traceback_text(bug))
        return f"{self.name} failed: {shorten(without_secrets(f'{type(bug).__name__}: {bug}'), 2_000)}"

    async def _fail(self, ending: Exception) -> None:
        kind = "" if isinstance(ending, DugnadError) else f"{type(ending).__name__}: "
        self.failed = without_secrets(f"{kind}{ending}")
        reason, seat = shorten(self.failed, 2_000), self.agent.teammate.seat
        with suppress(DugnadError):  # It was stopped or taken over meanwhile.
            await self._patiently(self.board.fail_teammate, self.name, by=self.name, reason=reason, seat=seat)

    # What the host calls.

    def leave(self, why: str) -> None:
        """Put the task down when the running step is recorded, and take no other."""
        self.agent.stop.say(why)
        self.wake()

    def drop(self, why: str) -> None:
        """Stop the work now. Then the task is given back, unless another has it by then."""
        if self.claim is not None and not self.settling:
            self._why_dropped = why
            if self._work_watch is not None:
                self._work_watch.wake("host")
