"""Where an attempt works, as the worker sees it: tools, a check, and what must happen before the task counts as done.

`Workspace` itself has no tools and nothing to deliver. `TreeWorkspace` has a folder: the one that all attempts share, a
folder for each task (`folders.py`), or a git tree for each attempt, which is merged at the end (`worktrees.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shlex
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...agent.resume import continued
from ...board import Board
from ...board.roots import root_name
from ...errors import BudgetSpent, DugnadError, ToolError
from ...logs import logger
from ...logs.steps import step
from ...prompts import tell
from ...safe_open import held
from ...text import NOTHING, Told, joined, one_line
from ...tools.context import Context
from ...tools.file_tools import file_tools
from ...tools.shell.bash import OUTPUT_BYTES_MAX, ShellTools, ran_text
from ...tools.shell.runner import MARGIN_SECONDS, echo_of, time_of
from ...tools.tool import Tool
from ...types import Amount, Attempt, Claim, Done, Outcome, Released, Task, Waiting
from ...workspace.files.files import Files
from ...workspace.git.obstacles import remove_all
from ...workspace.sandbox.sandbox import Sandbox

_LOG = logger(__name__)
Check = Callable[[Task], Awaitable[str | None]]  # None: green. Else what the command printed.
# How our notes begin, in letters alone. A letter that is not ASCII may look like any other.
_OPENINGS = ("mergedinto", "itsfilesarein", "itchangeswhatotherprogramsrun", "approvedby")
# Written as one set of characters with a range to the last one, it would take a quarter of the start of a run.
_LIKE = ("".join(f"(?:{letter}|[^\\x00-\\x7f])" for letter in each) for each in _OPENINGS)
_NOTES = re.compile(f"(?=({'|'.join(_LIKE)}))")
CHECK_SECONDS_MAX = 1_800.0  # For all checks of an attempt together.


@dataclass(frozen=True, slots=True)
class RedCheck:
    """A command that did not succeed, and what it printed."""

    command: str
    output: str
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """The task is not done yet: what the mind is told, and how the attempt ends if this was the last round."""

    told: Told
    in_the_end: Outcome | None  # None: it is nobody's fault, so it uses up no round.


@dataclass(kw_only=True)
class Workspace:
    """Where one attempt works."""

    tools: Sequence[Tool] = ()
    tree: Path | None = None
    readable: tuple[Path, ...] = ()  # What commands there may read besides.
    told: Told = NOTHING  # What the mind must know about it,
    offers: Told = NOTHING  # and what it can do there with the tools, if it has them.
    anew: bool = False  # Earlier work is not there: the mind must look again, even if it had finished.
    sees_changes: bool = False  # Whether `commit` knows if anything was changed, and names no two changes alike.
    runs_check: Check | None = None  # The caller's own way to run a task's check.

    def checks(self, task: Task) -> Sequence[str]:
        """What must succeed before the task is done."""
        return (task.check,) if task.check else ()

    @property
    def cannot_check(self) -> str:
        """Why no check can be run here; empty: it can."""
        return "" if self.runs_check is not None else "this team has no way to run it"

    async def check(self, task: Task) -> RedCheck | None:
        """Run what must succeed. None: it did, or there is nothing to run."""
        if not task.check or self.runs_check is None or (said := await self.runs_check(task)) is None:
            return None
        return RedCheck(task.check, said)

    async def commit(self, task: Task, done: Done) -> str | None:
        """Fix what was done and name it, so that a reviewer sees exactly that. None: nothing was changed."""
        return hashlib.sha256(done.result.encode()).hexdigest()[:12]

    async def changed(self, tip: str) -> Mapping[str, int] | None:
        """The changed lines of each file of the work, by its path in the project; None: that cannot be seen."""
        return None

    async def triggers(self, tip: str) -> Mapping[str, str]:
        """The paths in the work that make other programs run something; empty if that cannot be seen."""
        return {}

    async def fits(self, task: Task, done: Done, tip: str, *, left: int) -> Told | Again:
        """Try whether the work can go in, and return what to tell a reviewer. Again: it cannot go in."""
        checks = commands_told(self.checks(task))
        return tell("delivery.checked", commands=checks) if checks else NOTHING

    async def deliver(self, task: Task, done: Done, tip: str | None, *, left: int) -> Done | Again:
        """Bring what `commit` named where it counts. Again: it does not fit there any more. `left`: how often the mind
        may finish again."""
        return delivered(done)

    async def close(self, outcome: Outcome, *, settled: bool) -> None:
        """The attempt ended with this outcome. Called before it is settled or, if it is done, after that."""


def commands_told(checks: Sequence[str]) -> Told:
    return joined([tell("delivery.command", command=each) for each in checks], " and ")


def delivered(done: Done, **where: str | None) -> Done:
    """The outcome with where the work went, which is shown in brackets behind the mind's words. A bracket in those
    words that opens like such a note becomes "> (" anywhere: a log shows a result on one line."""
    words = done.result
    seen = [(at, each) for at, shown in enumerate(words) for each in _letters(shown)]
    letters = "".join(each for _, each in seen)
    opening = set[int]()
    for found in _NOTES.finditer(letters):
        gap = range(seen[found.start() - 1][0] + 1 if found.start() else 0, seen[found.start()][0])
        if sum(map(str.isascii, found[1])) >= len(found[1]) // 3:  # Otherwise it is another language.
            opening.update(at for at in gap if words[at] not in "({" and unicodedata.category(words[at]) == "Ps")
    own = "".join("> (" if at in opening else each for at, each in enumerate(words))
    return replace(done, result=own, **where)


def _letters(shown: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", shown).casefold()))


def continues(outcome: Outcome) -> bool:
    """Whether another attempt goes on with the same conversation, and so with the same workspace."""
    return isinstance(outcome, Waiting) or (isinstance(outcome, Released) and outcome.resume)


def mark_of(task: Task) -> str:
    """A name for the task that no other board of the same project gives to one of its own."""
    return f"{task.id}-{hashlib.sha256(f'{task.put_at}:{task.key}'.encode()).hexdigest()[:8]}"


def line_of(claim: Claim, attempts: Sequence[Attempt]) -> tuple[int, bool]:
    """The epoch in which the claim's line of attempts began; and whether the attempt before it was not lost."""
    chain = continued(claim, attempts)
    return (chain[0].epoch, chain[-1].ended_as != "lost") if chain else (claim.epoch, True)


OpenWorkspace = Callable[[Claim, Sequence[Attempt]], Awaitable[Workspace]]  # With all attempts at the task so far.


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """What commands run with in any tree: the sandbox, if there is one, and what they see of the machine."""

    board: Board
    sandbox: Sandbox | None
    outputs: Path  # The folder that keeps their whole output.
    why_not: str = ""  # Why there is no sandbox.
    environment: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()  # That commands can reach in tasks that ask for the network.
    project_checks: tuple[str, ...] = ()  # For everything that changes the project.
    prefix: Path = Path()  # Where the project is in a tree.
    paid_seconds_min: float = 1.0  # From here on the goal pays for the time of git.

    def equipped(
        self, claim: Claim, tree: Path, scratch: Path, *, readable: tuple[Path, ...] = (), told: Told = NOTHING
    ) -> dict[str, Any]:
        """The fields of a `TreeWorkspace` for an attempt in this tree. `scratch` is the /tmp of its own commands. A
        check has an empty one: what lies in /tmp is not part of the work."""
        files = file_tools(Files(tree))
        fields = {"shop": self, "claim": claim, "tree": tree, "readable": readable, "told": told}
        if self.sandbox is None:
            return {**fields, "tools": files}
        with held(scratch, make=True) as folder:
            os.fchmod(folder, 0o700)
        sandbox = self.sandbox.sharing(scratch)
        if claim.continues is None and not sandbox.bare:
            kept = sandbox.keeps_tmp(tree, readable)
            fields["told"] = joined((told, tell("delivery.tmp_kept") if kept else tell("delivery.tmp_empty")), " ")
        commands = ShellTools(
            sandbox, tree, claim=claim, board=self.board, environment=self.environment, outputs=self.outputs,
            readable=readable, hosts=self.hosts if claim.task.network else (),
        )  # fmt: skip
        return {**fields, "tools": (*files, *commands.tools), "commands": commands}

    async def check(
        self, commands: Sequence[str], tree: Path, claim: Claim, *, readable: tuple[Path, ...] = ()
    ) -> RedCheck | None:
        """Run all of them. The goal pays for the time, as it does for models and tools. BudgetSpent: it has too little
        left."""
        if not commands:
            return None
        most = int(CHECK_SECONDS_MAX * 1000)
        if (left := (await self.board.budget(claim.task.root)).left("milliseconds")) is not None:
            most = min(most, max(1_000, left))
        reservation = await self.board.reserve(claim, Amount(milliseconds=most))
        clock = asyncio.get_running_loop().time
        began, hosts = clock(), self.hosts if claim.task.network else ()

        async def spend() -> None:
            took = int((clock() - began) * 1000)
            await self.board.spend(claim, reservation, Amount(milliseconds=max(0, min(took, most))))

        try:
            red = await self.run_checks(commands, tree, seconds=most / 1000, readable=readable, hosts=hosts)
        except asyncio.CancelledError:  # How long it ran is known, so not all of the reservation counts.
            with suppress(DugnadError):
                await spend()
            raise
        _LOG.info("checked ms=%d red=%s", (clock() - began) * 1000, red is not None)
        await spend()
        if red is not None and red.timed_out and most < CHECK_SECONDS_MAX * 1000:
            raise BudgetSpent(
                f"Root {root_name(claim.task.root)} has no time left for `{one_line(red.command)}` to come to its end.",
                kind="seconds", may_free_up=False,
            )  # fmt: skip
        return red

    async def pay(self, claim: Claim, seconds: float) -> None:
        """Have the goal pay for time that was used, as far as it has some left. A little is not worth the writing."""
        if seconds < self.paid_seconds_min:
            return
        left, used = (await self.board.budget(claim.task.root)).left("milliseconds"), int(seconds * 1000)
        amount = Amount(milliseconds=used if left is None else max(0, min(used, left)))
        if amount.milliseconds:
            await self.board.spend(claim, await self.board.reserve(claim, amount), amount)

    async def run_checks(
        self, commands: Sequence[str], tree: Path, *, seconds: float, readable: tuple[Path, ...] = (),
        hosts: tuple[str, ...] = (), on_output: Callable[[bytes], None] | None = None,
    ) -> RedCheck | None:  # fmt: skip
        """Run one after another. What the sandbox refuses is red: no work counts as done without its checks."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        with step("check", "check", red=True) as facts:
            for command in commands:
                inside = command if self.prefix == Path() else f"cd {shlex.quote(str(self.prefix))} && {command}"
                try:
                    if self.sandbox is None:
                        raise ToolError(self.why_not)
                    ran = await self.sandbox.run(
                        inside, tree=tree, seconds=max(0.1, until - clock()), output_bytes_max=OUTPUT_BYTES_MAX,
                        environment=self.environment, readable=readable, hosts=hosts, on_output=on_output,
                    )  # fmt: skip
                except ToolError as refused:
                    return RedCheck(command, str(refused))
                if ran.code != 0 or ran.timed_out:
                    return RedCheck(command, ran_text(ran), ran.timed_out)
            facts["red"] = False
        return None


@dataclass(kw_only=True)
class TreeWorkspace(Workspace):
    """A folder, with tools and commands."""

    tree: Path
    shop: Workshop
    claim: Claim
    commands: ShellTools | None = None  # What is behind the tools that run commands.
    reviews: bool = False  # The task is a review, so no check is run.

    def __post_init__(self) -> None:
        if self.commands is not None and not self.reviews:
            seconds = CHECK_SECONDS_MAX + MARGIN_SECONDS
            run_check = Tool(self.run_check, prompt="run_check", keyed=True, seconds=lambda _: seconds)
            self.tools = (*self.tools, run_check)

    @property
    def cannot_check(self) -> str:
        return self.shop.why_not if self.shop.sandbox is None else ""

    def checks(self, task: Task) -> Sequence[str]:
        return () if self.reviews else (*super().checks(task), *self.shop.project_checks)

    async def check(self, task: Task) -> RedCheck | None:
        """After its jobs have ended, so that nothing changes the tree meanwhile."""
        if self.commands is not None:
            await self.commands.end_jobs()
        return await self.run_checks(task)

    async def run_checks(self, task: Task) -> RedCheck | None:
        async with self.checking():
            return await self.shop.check(self.checks(task), self.tree, self.claim, readable=self.readable)

    @asynccontextmanager
    async def checking(self) -> AsyncIterator[None]:
        """Around a check. ToolError: the tree cannot be checked as it is."""
        yield

    async def run_check(self, context: Context) -> str:
        """What `finish` runs, in the same way. The time is that of the call."""
        if not (commands := self.checks(self.claim.task)):
            return tell("delivery.no_check")
        self.must_be_quiet()
        named = tell("delivery.command", command=" && ".join(commands))
        echo = echo_of(context, " && ".join(commands))
        try:
            async with self.checking():
                red = await self.shop.run_checks(
                    commands, self.tree, seconds=time_of(context, CHECK_SECONDS_MAX), readable=self.readable,
                    hosts=self.shop.hosts if self.claim.task.network else (), on_output=echo.hear,
                )  # fmt: skip
        finally:
            echo.close()
        return tell("delivery.green", commands=named) if red is None else f"Red: `{red.command}`\n{red.output}"

    def must_be_quiet(self) -> None:
        """ToolError: jobs run, and would change the tree meanwhile."""
        if self.commands is not None and (jobs := self.commands.running):
            raise ToolError(tell("delivery.jobs_run", jobs=", ".join(jobs)))

    async def close(self, outcome: Outcome, *, settled: bool) -> None:
        if self.commands is not None:
            await self.commands.close()


@dataclass(kw_only=True)
class SharedFolder(TreeWorkspace):
    scratch: Path

    async def close(self, outcome: Outcome, *, settled: bool) -> None:
        await super().close(outcome, settled=settled)
        await remove_all(self.scratch, outside=self.tree)


def shared(shop: Workshop, tree: Path) -> OpenWorkspace:
    """One folder for all attempts, because a person said so."""

    async def open_workspace(claim: Claim, attempts: Sequence[Attempt]) -> Workspace:
        scratch = shop.outputs.parent / "tmp" / f"{mark_of(claim.task)}.{claim.epoch}"
        return SharedFolder(scratch=scratch, **shop.equipped(claim, tree, scratch))

    return open_workspace
