"""One teammate's life at a host: rest, wake, work, end.

It is woken by its inbox and by work it may take, in this order: shutdown, human, lead, peers, then the board. A message
that finds it without a task becomes an errand: a small task of its own, so that answering is durable, fenced and paid
for like all other work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ..agent import Mind
from ..board import Board
from ..board.store.watch import Watch
from ..errors import (
    BoardTrouble,
    BudgetSpent,
    DugnadError,
    HostLost,
    LimitReached,
    ModelMisconfigured,
    NotReady,
    StaleClaim,
    StoppedTeammate,
    ToolError,
    UnknownTask,
)
from ..settings import TeamLimits
from ..text import NOTHING, Told, joined, shorten, tell
from ..types import ERRAND, HUMAN, Budget, Claim, Done, Failed, Message, Outcome, Released, Task, Teammate
from .delivery import Delivery, checks_told
from .workspaces.workspace import OpenWorkspace, Workspace, nowhere

RESTED = "rested: there was nothing to do"
MADE_ROOM = "made room for "
AUTO_CLAIMED = tell(
    "<auto-claimed>\nYou had nothing to do, and took this task from the board yourself.\n</auto-claimed>"
)
_ERRAND = (
    "You were written to while you had no task. Do what the messages ask of you: answer, put tasks on the board, "
    "approve or refuse; or just take note. Then end with plain text"
)
_PAUSE_SECONDS = 1.0


def may_come_back(member: Teammate) -> bool:
    """Whether it left by itself, and not because somebody wanted it to."""
    reason = member.reason or ""
    return member.status == "stopped" and (reason == RESTED or reason.startswith(MADE_ROOM))


@dataclass(kw_only=True)
class Worker:
    """A teammate with a seat at this host."""

    board: Board
    host: str
    agent: Mind
    limits: TeamLimits
    places: OpenWorkspace = field(default_factory=lambda: nowhere(None))  # Where it works.
    reviewer: str | None = None
    budget: Budget = field(default_factory=Budget)  # For what a person asks for in passing.
    scope: tuple[int, ...] | None = None  # The roots of the host's work; None: all.
    payer: int | None = None  # The root that pays for errands about no task; None: each is a root of its own.
    red_base: bool = False
    on_move: Callable[[], None] = lambda: None  # Is told whenever a task went from or to this teammate.
    claim: Claim | None = None  # What it works on now.
    settling: bool = False  # The claim is being given up at this moment; not having it is no loss.
    asked_to_stop: bool = False
    trouble: str = ""  # Why the board cannot be reached at the moment.
    failed: str = ""  # Why it was shown as failed.
    model_is_wrong: bool = False  # So is everybody with the same model.
    left_behind: list[asyncio.Future[Outcome]] = field(default_factory=list)  # Work that did not let go in time.
    _watch: Watch | None = None
    _work_watch: Watch | None = None
    _claim_key: str | None = None
    _why_dropped: str = ""
    _place: Workspace | None = None
    _closing: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.agent.teammate.name

    # Rest and wake.

    async def live(self) -> None:
        """Until it is shut down, moves to another host, or has had nothing to do for long enough."""
        await self._live()
        for claim in self.agent.claimed:  # Taken by name, and not come to any more.
            await self._settle(claim, Released(self.agent.leaving or f"{self.name} left", resume=True))

    async def _live(self) -> None:
        clock = asyncio.get_running_loop().time
        quiet_since = clock()
        lost = False
        member = self.agent.teammate
        while not self.agent.leaving:
            with self.board.watch_for(self.name, member.roles, lead=member.lead) as watch:
                self._watch = watch
                try:
                    if lost and (await self.board.teammate(self.name)).host != self.host:
                        return  # Another host has it now.
                    lost = False
                    if not self.agent.may_act():  # The lease is being renewed, or is lost; either shows soon.
                        raise HostLost
                    mail = await self.board.has_unread(self.name)
                    if (mail or self.asked_to_stop) and await self._asked_to_leave():
                        return
                    claim = await self._next_claim(mail)
                    if claim is not None:
                        if not await self._work(claim):
                            return
                        quiet_since = clock()
                        continue
                    left = self.limits.idle_seconds - (clock() - quiet_since)
                    if left <= 0:
                        if await self._rest():
                            return
                        left = self.limits.sweep_seconds  # Mail that cannot be answered yet, or has come just now.
                except StoppedTeammate:
                    return
                except HostLost:
                    left, lost = _PAUSE_SECONDS, True
                except BoardTrouble as trouble:
                    await self._pause(trouble)
                    continue
                self.trouble = ""
                await watch.wait(max(0.0, min(left, 3_600.0)))

    async def _pause(self, trouble: BoardTrouble) -> None:
        """Before a board in trouble is asked again."""
        self.trouble = str(trouble)
        await asyncio.sleep(_PAUSE_SECONDS)

    def wake(self) -> None:
        if self._watch is not None:
            self._watch.wake("host")

    async def _rest(self) -> bool:
        """Shut down by itself; not with a message in the inbox that came just now."""
        try:
            await self.board.stop_teammate(
                self.name, by=self.name, reason=RESTED, seat=self.agent.teammate.seat, if_quiet=True
            )
        except NotReady:
            return False
        return True

    async def _asked_to_leave(self) -> bool:
        """Between tasks nothing speaks against it, so the runtime accepts; no model has to be asked."""
        asked = [each for each in await self.board.requests(self.name) if each.kind == "shutdown"]
        accepted = [
            each
            for each in await self.board.shutdown_requests(self.host)
            if each.teammate == self.name and each.accepted
        ]
        for each in asked:
            assert each.request is not None
            await self.board.reply(each.request, self.name, "Nothing holds me.", accepted=True)
        self.asked_to_stop = False
        if not asked and not accepted:
            return False
        by = asked[0].sender if asked else accepted[0].sender
        await self.board.stop_teammate(self.name, by=by, reason="shut down as asked", seat=self.agent.teammate.seat)
        return True

    async def _next_claim(self, mail: bool) -> Claim | None:
        """People and the lead first; a peer's word is read with the next task, if there is one."""
        unread = await self.board.inbox(self.name) if mail else []
        # The end of something it started in the background: what that was for is over, and nobody has to answer it.
        if over := [each.id for each in unread if each.kind == "notice" and each.sender == self.name]:
            await self.board.show(self.name, over)
            unread = [each for each in unread if each.id not in over]
        if unread and await self._is_pressing(unread) and (claim := await self._errand(unread)):
            return claim
        if self.agent.claimed:
            return self.agent.claimed.pop(0)
        claim = await self._claim()
        if claim is None and unread:
            claim = await self._errand(unread)
        return claim

    async def _claim(self, task: int | None = None) -> Claim | None:
        """Under the same key until there is an answer: a claim whose answer was lost is found again, not made twice."""
        self._claim_key = self._claim_key or self.board.sources.new_id()
        claim = await self.board.claim(self.name, self.host, task=task, key=self._claim_key)
        self._claim_key = None
        return claim

    async def _is_pressing(self, unread: list[Message]) -> bool:
        if any(message.sender == HUMAN or message.kind in ("question", "plan") for message in unread):
            return True
        leads = {member.name for member in await self.board.team() if member.lead}
        return any(message.sender in leads for message in unread)

    async def _errand(self, unread: list[Message]) -> Claim | None:
        """Make a task of answering. None: it cannot be one, so the messages count as read; the next packet has them."""
        from_human = any(message.sender == HUMAN for message in unread)
        told_in = next((message.task for message in unread if message.task is not None), None)
        parent = None if from_human else told_in  # What a person says is not a goal's to pay for.
        errand: Task | None = None
        try:
            if parent is None or (self.scope is not None and (await self.board.find(parent)).root not in self.scope):
                parent = self.payer
            errand = await self.board.put(
                f"Answer {', '.join(sorted({message.sender for message in unread}))}"[:200],
                body=f"{_ERRAND}{', which is sent to the human' if from_human else ''}.",
                assignee=self.name,
                priority=1,
                parent=parent,
                budget=self._errand_budget() if parent is None else None,
                key=f"{ERRAND}{'human' if from_human else 'team'}:{self.name}:{unread[0].id}",
                by=self.name,
            )
            if not errand.ended:
                return await self._claim(errand.id)
            if len(unread) > 1:  # The first one's errand came to an end; the others have nothing to do with that.
                await self.board.show(self.name, [unread[0].id])
                return await self._errand(unread[1:])
        except NotReady:
            if errand is not None and errand.state in ("ready", "claimed", "scheduled", "waiting"):
                return None  # It is on the board already, and comes back from a lost host or after a pause.
        except (LimitReached, BudgetSpent, UnknownTask):
            pass
        await self.board.show(self.name, [message.id for message in unread])
        return None

    def _errand_budget(self) -> Budget:
        """What a person asks for in passing may become a goal like any other; so it has a cap like any other."""
        if self.budget != Budget():
            return self.budget
        return Budget(tasks=self.limits.errand_tasks_max, tokens=self.limits.errand_tokens_max)

    # Work.

    async def _work(self, claim: Claim) -> bool:
        """Work a task to its end. False: so is this life."""
        self.claim, self.settling = claim, False
        self.on_move()
        ending: DugnadError | Exception | None = None
        try:
            outcome = await self._until_done_or_dropped(claim)
        except (StaleClaim, HostLost) as lost:
            outcome = Released(str(lost), resume=True)  # Refused if it is in other hands; if it is not, nobody has it.
        except ModelMisconfigured as trouble:
            outcome, ending = Released(str(trouble), resume=True), trouble
        except Exception as bug:
            what = f"{type(bug).__name__}: {bug}"
            outcome, ending = Failed(f"{self.name} failed: {shorten(what, 2_000)}", retry=True), bug
        self.settling = True
        if not isinstance(outcome, Done):  # Whoever goes on with it must find the place free; done work stays there.
            await self._leave(outcome, settled=False)
        settled = await self._settle(claim, outcome)
        await self._leave(outcome, settled=settled)
        self.claim = None
        if isinstance(outcome, Released):
            self.asked_to_stop = True  # It may have been given back because it was asked to leave: look first.
        self.on_move()
        if ending is not None:
            await self._fail(ending)
        return ending is None

    async def _until_done_or_dropped(self, claim: Claim) -> Outcome:
        """The outcome, also if the host had it dropped. Work that does not let go is left behind, fenced off."""
        told = AUTO_CLAIMED if claim.continues is None and not claim.task.key.startswith(ERRAND) else NOTHING
        self._why_dropped = ""
        dropped = asyncio.ensure_future(self._until_dropped(claim))
        work = asyncio.ensure_future(self._mind(claim, told))
        try:
            await asyncio.wait({work, dropped}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not self._why_dropped:
                return work.result()
            work.cancel()
            await asyncio.wait({work}, timeout=self.limits.cancel_seconds)
            return Released(self._why_dropped, resume=True)
        finally:
            dropped.cancel()
            if not work.done():
                work.cancel()
                self.left_behind.append(work)
                if (place := self._take_place()) is not None:  # It may still be at work there.
                    gives_up = Released(self._why_dropped, resume=True)
                    work.add_done_callback(
                        lambda _: self._closing.append(asyncio.ensure_future(place.close(gives_up, settled=False)))
                    )
            elif not work.cancelled():
                work.exception()  # Looked at, so that nobody complains that nobody did.

    async def _until_dropped(self, claim: Claim) -> None:
        """Until the host says so, or the board that somebody took the task away: work for nothing ends at once."""
        with self.board.watch([f"task:{claim.task.id}"]) as watch:
            self._work_watch = watch
            while not self._why_dropped:
                await watch.wait(3_600.0)
                try:
                    if not self._why_dropped and (await self.board.find(claim.task.id)).epoch != claim.epoch:
                        self.drop("it was taken away")
                except BoardTrouble:
                    continue  # The beat will tell.

    async def _mind(self, claim: Claim, told: Told) -> Outcome:
        """Where the task is worked, until it is done there."""
        while True:
            try:
                self._place = place = await self.places(claim)
                break
            except BoardTrouble as trouble:
                await self._pause(trouble)
            except (ToolError, OSError) as trouble:
                delay = self.limits.no_place_seconds
                return Released(f"there is no place to work it: {trouble}", delay_seconds=delay, resume=True)
        told_of_place = NOTHING if place.anew else place.told
        if claim.continues is None and (checks := place.checks(claim.task)):
            rounds = self.limits.check_rounds_max
            told_of_place = joined((told_of_place, checks_told(checks, rounds, red_base=self.red_base)), "\n")
        self.agent.equip(place.tools, tree=place.tree, told=told_of_place, readable=place.readable)
        finishing = Delivery(
            board=self.board, limits=self.limits, place=place, think=self._think, pause=self._pause,
            reviewer=self.reviewer,
        )  # fmt: skip
        outcome = await finishing.work(claim, told)
        if isinstance(outcome, Done):
            await self._answer_human(claim, outcome)
        return outcome

    async def _leave(self, outcome: Outcome, *, settled: bool) -> None:
        if (place := self._take_place()) is not None:
            await place.close(outcome, settled=settled)

    def _take_place(self) -> Workspace | None:
        place, self._place = self._place, None
        return place

    async def _think(self, claim: Claim, told: Told) -> Outcome:
        """The agent's work; what a board in trouble interrupted goes on from its last recorded step."""
        interrupted = False
        while True:
            try:
                if interrupted:  # Else it might wait for ever for what it has reserved itself.
                    await self.board.forfeit(claim)
                outcome = await self.agent.work(claim, told=told)
                self.trouble = ""
                return outcome
            except BoardTrouble as trouble:
                await self._pause(trouble)
            except StaleClaim:
                if self.agent.may_act():
                    raise  # The board says so.
                while not self.agent.may_act():  # noqa: ASYNC110  The machine slept. The next beat renews, or drops us.
                    await asyncio.sleep(_PAUSE_SECONDS)
            told, interrupted = NOTHING, True

    async def _answer_human(self, claim: Claim, outcome: Done) -> None:
        while claim.task.key.startswith(f"{ERRAND}human:") and outcome.result.strip():
            try:
                await self.board.tell(self.name, HUMAN, outcome.result, claim=claim, key=f"errand-{claim.task.id}")
                return
            except BoardTrouble as trouble:
                await self._pause(trouble)

    async def _settle(self, claim: Claim, outcome: Outcome) -> bool:
        """False: it is in other hands."""
        while True:
            try:
                await self.board.settle(claim, outcome)
                return True
            except BoardTrouble as trouble:  # The same call again is the same call.
                await self._pause(trouble)
            except (StaleClaim, HostLost):
                return False
            except DugnadError as refusal:  # A wait that cannot begin, for someone who was just stopped, say.
                outcome = Released(f"{refusal}", delay_seconds=30.0)

    async def _fail(self, ending: Exception) -> None:
        self.model_is_wrong = isinstance(ending, ModelMisconfigured)
        self.failed = str(ending) if isinstance(ending, DugnadError) else f"{type(ending).__name__}: {ending}"
        while True:
            try:
                await self.board.fail_teammate(
                    self.name, by=self.name, reason=shorten(self.failed, 2_000), seat=self.agent.teammate.seat
                )
                return
            except BoardTrouble as trouble:
                await self._pause(trouble)
            except DugnadError:
                return  # Stopped or taken over meanwhile.

    # What the host does to it.

    def drop(self, why: str) -> None:
        """Stop the work under way, now; then it is given back, unless it is in other hands by then."""
        if self.claim is not None and not self.settling:
            self._why_dropped = why
            if self._work_watch is not None:
                self._work_watch.wake("host")
