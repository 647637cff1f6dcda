"""An external agent as a teammate's mind: a program that runs in the workspace with the task's packet.

One run is one turn. Before anything else happens, its beginning is recorded, and then its answer with the cost. What it
asks for is done by our own tools, as if one of our teammates had called them. A run that a crash cut off does not count
as done: the next run is told about it.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...board import Board
from ...board.around import Beginning
from ...board.roots import root_name
from ...clock import Sources, new_secret
from ...errors import BoardTrouble, DugnadError, ModelMisconfigured, StaleClaim
from ...logs.steps import step
from ...models.port import Reply, Said, Usage
from ...prompts import tell
from ...settings import AgentLimits
from ...text import NOTHING, Told, clean, joined, shorten
from ...tools.message_tools import answer_since
from ...tools.policy import Decision, Policy
from ...tools.tool import Tool
from ...types import HUMAN, Claim, Done, NewTurn, Outcome, Released, Spending, Teammate, Waiting
from ...workspace.sandbox.sandbox import Sandbox
from ..conversation import GUARD, Conversation, Untold
from ..model_calls import PutDown
from ..packet import packet, standing
from ..resume import hand_over, must_be_trusted, recall, take_messages
from ..stop import Stop
from ..tool_calls import Actor, Result
from .answer import TOOLS, has_block, own_words, protocol, remove_file, tools_at_hand, with_file, without_blocks
from .asking import PermissionJudge, answers_of
from .command import AcpCommand, ExternalCommand
from .decide import decide, understood
from .live import LiveRun
from .prompt import prompt_text, remark
from .reports import AgentReport, resets_in
from .review import Part, empty_folder, part_of, shown_change
from .running import RunOrder, reserve_run, run_command

_TEXT_CHARS_MAX = 500_000  # Of its answer; a turn has a bound.
_STATUS = "git status --short 2>/dev/null | head -n 60"
_STATUS_SECONDS = 20.0
_PAUSE_SECONDS = 1.0
_CALLED_MAX = 2  # Further runs after it was done, because somebody wrote meanwhile.


@dataclass(kw_only=True)
class ExternalAgent:
    """A mind whose work is done by a command of the user's. `Agent` explains the fields that both have."""

    board: Board
    teammate: Teammate
    command: ExternalCommand
    sandbox: Sandbox | None = None
    tree: Path | None = None  # Where it works; each attempt gets its own.
    team: str = "dugnad"
    role_prompt: str = ""
    project: Path | None = None
    policy: Policy = field(default_factory=Policy)
    limits: AgentLimits = field(default_factory=AgentLimits)
    sources: Sources = field(default_factory=Sources)
    claimed: list[Claim] = field(default_factory=list)
    may_act: Callable[[], bool] = lambda: True
    stop: Stop = field(default_factory=Stop)  # Ends a run at once, because it takes as long as a whole task.
    doing: str = ""
    doing_since: int = 0
    turn: int = 0
    wants_work = True
    _untold: Untold = field(default_factory=Untold)
    _readable: tuple[Path, ...] = ()

    def equip(
        self, tools: Sequence[Tool] = (), *, tree: Path | None = None, told: Told = NOTHING,
        readable: tuple[Path, ...] = (), follows: Told = NOTHING,
    ) -> None:  # fmt: skip
        """Set the workspace of the next task. The command has tools of its own."""
        self.tree, self._untold, self._readable = tree or self.tree, Untold(workspace=told), readable

    async def work(self, claim: Claim, *, told: Told = NOTHING, beginning: Beginning | None = None) -> Outcome:
        """Work on a task until its outcome is decided; see `Agent.work`."""
        talk = Conversation(outside=True)
        try:
            sandbox, tree = self._workspace(claim)
            self._untold.news = told or self._untold.news
            await self._begin(claim, talk, beginning)
            if claim.task.kind == "review" and not talk.replies:
                talk.say(await shown_change(sandbox, tree, self._readable, said=joined(talk.to_say)))
            called, resumed = 0, talk.replies > 0
            while True:
                remove_file(tree)  # Its content is recorded, or comes from a run that was cut off.
                await self._act(claim, talk, resumed=resumed)
                outcome = decide(talk, self.command, self.limits, self.board.limits)
                if isinstance(outcome, Done) and called < _CALLED_MAX and await self._is_called(talk):
                    outcome, called = None, called + 1
                if outcome is not None:
                    break
                if self.stop:
                    raise PutDown(Released(self.stop.why, resume=True))
                await self._run(claim, talk, sandbox, tree)
                resumed = False
        except PutDown as put_down:
            outcome = put_down.outcome
        finally:
            self._note("")
        return await hand_over(self.board, claim, talk, outcome)

    def _note(self, doing: str) -> None:
        self.doing, self.doing_since = doing, self.sources.now_ms()

    def _workspace(self, claim: Claim) -> tuple[Sandbox, Path]:
        if self.sandbox is not None and self.tree is not None:
            return self.sandbox, self.tree
        question = (
            f"{self.command.name} should work on #{claim.task.id}. It needs a folder to write in and a sandbox to run "
            "in, and there is none here; `dugnad doctor` says what is missing. Start the team again, then answer."
        )
        raise PutDown(Waiting(on="human", question=question))

    # The beginning, and what is said.

    async def _begin(self, claim: Claim, talk: Conversation, beginning: Beginning | None) -> None:
        attempts = await recall(self.board, claim, talk, beginning)
        self._must_be_counted(talk.spending)
        talk.untold = self._untold
        answer = await answer_since(self.board, claim.task.id, talk.since) if not talk.open_calls else None
        await must_be_trusted(self.board, claim, self.teammate, self.command.name, answer)
        if not talk.replies:
            given = (self.board, claim, attempts, self.limits, self.project, talk)
            talk.say(await packet(*given, check_told=bool(talk.untold.workspace)))
        if answer:
            talk.say(answer)
        if talk.untold.news:
            talk.ended = None
            talk.say(talk.untold.news)
        if talk.untold.workspace and talk.ended is None:
            talk.say(talk.untold.workspace)

    def _must_be_counted(self, spending: Spending | None) -> None:
        if spending is not None and spending.microdollars_max is not None and not self.command.reports_dollars:
            raise ModelMisconfigured(
                f"{root_name(spending.root)} has a cap in dollars, but {self.command.name} does not say what it costs. "
                "Cap the tokens or the time instead."
            )

    async def _is_called(self, talk: Conversation) -> bool:
        """Whether a person or a lead wrote while it worked. They should not have to wait for the next task."""
        name = self.teammate.name
        if talk.turns >= self.command.runs_max or not await self.board.has_unread(name):
            return False
        leads = {member.name for member in await self.board.team() if member.lead}
        unread = await self.board.inbox(name)
        return any(each.kind != "shutdown" and each.sender in (HUMAN, *leads) for each in unread)

    # What it asked for.

    def _decide(self, tool: str, roles: Sequence[str] | None = None) -> Decision:
        return self.policy.decide(tool, self.teammate.roles if roles is None else roles)

    async def _act(self, claim: Claim, talk: Conversation, *, resumed: bool) -> None:
        if not talk.open_calls:
            return
        actor = self._actor(claim, talk, {**TOOLS, **tools_at_hand(look=False)})
        if not (resumed and talk.since is not None and await self._is_stopped(actor, talk)):
            await actor.act(resumed=resumed)

    def _actor(self, claim: Claim, talk: Conversation, tools: Mapping[str, Tool]) -> Actor:
        return Actor(
            board=self.board, claim=claim, teammate=self.teammate, talk=talk, tools=tools, limits=self.limits,
            now_ms=self.sources.working_ms, doing=self._note, may_act=self.may_act, decide=self._decide,
        )  # fmt: skip

    async def _is_stopped(self, actor: Actor, talk: Conversation) -> bool:
        """Whether a person has answered a guard's question: one answer counts for all calls that are still open."""
        first = min(talk.open_calls)
        if talk.open_calls[first].name == "ask_human":
            return False
        result = await actor.run(first, resumed=True, waited=True)
        if result.ends is not None or not result.text.startswith(GUARD):
            return False
        await actor.record(first, result)
        for place in list(talk.open_calls):
            await actor.record(place, Result(text=tell("results.not_done")))
        return True

    # A run.

    async def _run(self, claim: Claim, talk: Conversation, sandbox: Sandbox, tree: Path) -> None:
        """Reserve, record that it begins, run it, record what came of it."""
        await self._must_be_there(sandbox, tree)
        await take_messages(self.board, claim, talk)
        part = part_of(claim.task, talk)
        status = await self._status(sandbox, tree) if talk.begun and part != "verdict" else ""
        if text := remark(talk, status, self.board.limits, at_verdict=part == "verdict"):
            talk.say(text)
        given = (self.board, claim, self.command, self.limits)
        amount, reservation, spending = await reserve_run(*given, check=self._must_be_counted, note=self._note)
        here = standing(talk.turns + 1, self.command.runs_max, spending)
        said = Said(joined([*talk.to_say, here]))
        talk.number = await self.board.record(claim, talk.next_turn("request", {"command": self.command.name}))
        if not self.may_act():
            raise StaleClaim("The lease of the host ran out, so another teammate may hold the task.")
        self.turn = talk.turns + 1
        self._note(f"runs {self.command.name}")
        live = LiveRun(
            board=self.board, claim=claim, talk=talk, said=said, command=self.command.name, note=self._note,
            actor=self._actor(claim, talk, self._at_hand(part)),
        )  # fmt: skip
        word, how = self._protocol(part)
        prompt = f"{clean(prompt_text(self.teammate, self.team, self.role_prompt, talk, said, how))}\n"
        began = asyncio.get_running_loop().time()
        try:
            where = empty_folder(sandbox) if part == "verdict" else nullcontext(tree)
            with where as place, step("run", self.command.name) as facts:
                order = RunOrder(
                    command=self.command, sandbox=sandbox, folder=place, prompt=prompt, amount=amount,
                    spending=spending, readable=self._readable if place == self.tree else (), stop=self.stop,
                )  # fmt: skip
                report, seconds = await self._ran(order, live)
                facts["report"] = report
        except asyncio.CancelledError:  # How long it ran is known, and what it can have spent in that time.
            ran = asyncio.get_running_loop().time() - began
            with suppress(DugnadError):
                await self.board.spend(claim, reservation, self.command.at_most_in(ran, amount))
            raise
        reply = self._reply(report, word, tree, part)
        # Asked to end, it may say "well" in the middle of its work; its block is an end.
        ended = report.ended == "asked" or (report.ended == "well" and has_block(reply.text))
        if live.trouble is not None or (self.stop and not ended):
            # The run gets no reply, so the next one is told that it was interrupted.
            most = self.command.at_most_in(seconds, amount)
            await self.board.spend(claim, reservation, report.used(most, seconds))
            raise live.trouble or PutDown(Released(self.stop.why, resume=True))
        used = report.used(amount, seconds)
        body = talk.reply_turn(live.said, reply)
        turn = talk.next_turn("reply", body, used=used, reservation=reservation, shown=tuple(talk.shown))
        talk.number = await self._record(claim, turn)
        talk.apply_reply(live.said, reply)
        talk.recorded = claim.epoch
        reset = resets_in(report, self.sources.now_ms())
        if reset is not None and reset <= self.limits.quota_seconds_max:
            raise PutDown(Released(f"{self.command.name}: {clean(report.trouble)}", reset))
        if report.ended == "refused":  # That is no fault of the task.
            raise ModelMisconfigured(f"{self.command.name} was refused by its provider: {clean(report.trouble)}")

    def _protocol(self, part: Part) -> tuple[str, Told]:
        """A word that only this run knows, and how it hands back. The first run of a review hands back nothing."""
        tools = ", ".join(self._at_hand(part))
        hand = tell("external.at_hand", tools=tools) if tools else None
        if part == "look":
            return "", joined((tell("external.look"), hand))
        word = self.sources.new_id()[-14:]
        how = protocol(word, file=part == "work", denied={each for each in TOOLS if self._decide(each) == "deny"})
        return word, joined((tell("external.verdict") if part == "verdict" else None, hand, how))

    async def _ran(self, order: RunOrder, live: LiveRun) -> tuple[AgentReport, float]:
        if not isinstance(self.command, AcpCommand):
            return await run_command(order)
        from .sessions import run_session

        judge = PermissionJudge(
            teammate=self.teammate.name, command=self.command.name, task=live.claim.task, decide=self._decide,
            answers=await answers_of(self.board, live.claim.task.id), ask=live.ask,
        )  # fmt: skip
        return await run_session(order, self.command, live, judge, new_secret())

    def _at_hand(self, part: Part) -> dict[str, Tool]:
        """The tools of ours that this run can use while it works."""
        if not isinstance(self.command, AcpCommand):
            return {}
        found = tools_at_hand(look=part == "look")
        return {name: tool for name, tool in found.items() if self._decide(name) != "deny"}

    def _reply(self, report: AgentReport, word: str, tree: Path, part: Part) -> Reply:
        """Its answer as a reply, with what it asks for as calls, and with how the run ended."""
        text, ended = shorten(report.text, _TEXT_CHARS_MAX), report.ended
        if part == "look":
            text = str(tell("external.looked", said=without_blocks(text)))
            ended = "looked" if ended == "well" else ended
        else:
            text = own_words(with_file(text, tree, word) if part == "work" and ended == "well" else text, word)
        calls = understood(text, self.board.limits).calls if ended == "well" else report.calls
        return Reply(
            text=text, calls=calls, stop="tools" if calls else "end", model=self.command.name,
            run=f"{ended}: {clean(report.trouble)}", usage=report.usage or Usage(),
        )  # fmt: skip

    async def _record(self, claim: Claim, turn: NewTurn) -> int:
        """Try until the board answers: the cost of a run must not be lost while the database is away."""
        while True:
            try:
                return await self.board.record(claim, turn)
            except BoardTrouble as trouble:
                self._note(f"waits for the board: {trouble}")
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _must_be_there(self, sandbox: Sandbox, tree: Path) -> None:
        program = self.command.run[0]
        try:
            found = await sandbox.run(
                f"command -v {shlex.quote(program)}", tree=tree, seconds=_STATUS_SECONDS, output_bytes_max=1_000,
                readable=self.command.readable, environment=self.command.environment,
            )  # fmt: skip
        except DugnadError as refused:
            raise ModelMisconfigured(f"{self.command.name} cannot be run here: {refused}") from None
        if found.code != 0:
            raise ModelMisconfigured(
                f"{self.command.name}: there is no program {program!r} in the sandbox. Install it, or name its "
                f"folder as `readable` under {self.command.table} in your config.toml."
            )

    async def _status(self, sandbox: Sandbox, tree: Path) -> str:
        """What `git status` says; empty if it fails."""
        try:
            ran = await sandbox.run(
                _STATUS, tree=tree, seconds=_STATUS_SECONDS, output_bytes_max=10_000, readable=self._readable
            )
        except DugnadError:
            return ""
        return ran.output.decode(errors="replace").rstrip() if ran.code == 0 else ""
