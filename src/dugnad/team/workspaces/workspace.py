"""Where an attempt works, as a teammate's life sees it: tools, a check, and what has to happen before done is done.

`Place` itself is nowhere in particular: no tools, nothing to deliver. The others are made by `Worktrees` (a git tree
for each attempt, merged when it is finished) and `Folders` (a folder for each task), or stand for one folder that all
share because a person said so.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shlex
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...board import Board
from ...board.roots import root_name
from ...errors import BudgetSpent, DugnadError, ToolError
from ...logs import logger
from ...text import NOTHING, Told, one_line
from ...tools import Tool, file_tools
from ...tools.shell.bash import OUTPUT_BYTES_MAX, ShellTools, ran_text
from ...types import Amount, Attempt, Claim, Done, Failed, Outcome, Released, Task
from ...workspace.files.files import Files
from ...workspace.sandbox.sandbox import Sandbox

Check = Callable[[Task], Awaitable[str | None]]  # None: green. Else what the command printed.
# How our notes begin, in letters alone. What is not ASCII may look like any letter.
_LOG = logger(__name__)
_OPENINGS = ("mergedinto", "itsfilesarein", "itchangeswhatotherprogramsrun")
_LIKE = ("".join(f"[{letter}\\u0080-\\U0010ffff]" for letter in each) for each in _OPENINGS)
_NOTES = re.compile(f"(?=({'|'.join(_LIKE)}))")
CHECK_SECONDS_MAX = 1_800.0  # Of all checks of an attempt together.


@dataclass(frozen=True, slots=True)
class RedCheck:
    """A command that did not succeed, and what it printed."""

    command: str
    output: str
    timed_out: bool = False


@dataclass(kw_only=True)
class Workspace:
    """Where one attempt works."""

    tools: Sequence[Tool] = ()
    tree: Path | None = None
    readable: tuple[Path, ...] = ()  # What commands there may read besides.
    told: Told = NOTHING  # What whoever works there must know.
    anew: bool = False  # What was done before is not there: it has to be looked at again, even if it was finished.
    how_to_look: Told = NOTHING  # What a reviewer must know to see what was done here.
    sees_changes: bool = False  # Whether `commit` knows if anything was changed, and names no two changes alike.

    def checks(self, task: Task) -> Sequence[str]:
        """What must succeed before the task is done."""
        return (task.check,) if task.check else ()

    @property
    def cannot_check(self) -> str:
        """Why no check can be run here; empty: it can."""
        return "whoever runs this team has nothing to run it with"

    async def check(self, task: Task) -> RedCheck | None:
        """Run what must succeed. None: it did, or there is nothing to run."""
        return None

    async def commit(self, task: Task, done: Done) -> str | None:
        """Fix what was done, and name it, so that another can look at just that. None: nothing was changed."""
        return hashlib.sha256(done.result.encode()).hexdigest()[:12]

    async def triggers(self, tip: str) -> Mapping[str, str]:
        """What of the work makes other programs run something, by path; nothing where that cannot be seen."""
        return {}

    async def deliver(self, task: Task, done: Done, tip: str | None) -> Done | Failed | Released:
        """Bring what `commit` named where it counts. Failed or released: it does not fit there any more, and has to be
        done anew."""
        return delivered(done)

    async def close(self, outcome: Outcome, *, settled: bool) -> None:
        """The attempt has ended so. Before it is settled, unless it is done; then after that."""


@dataclass(kw_only=True)
class NoWorkspace(Workspace):
    """No place of its own, but perhaps somebody's way to check."""

    by: Check | None = None

    @property
    def cannot_check(self) -> str:
        return "" if self.by is not None else super().cannot_check

    async def check(self, task: Task) -> RedCheck | None:
        if not task.check or self.by is None or (said := await self.by(task)) is None:
            return None
        return RedCheck(task.check, said)


def delivered(done: Done, **where: str | None) -> Done:
    """With where the work went, which is shown behind the mind's words in brackets. A bracket in those words that opens
    like such a note is made "> (", wherever it stands: a log shows a result on one line."""
    words = done.result
    seen = [(at, each) for at, shown in enumerate(words) for each in _letters(shown)]
    letters = "".join(each for _, each in seen)
    opening = set[int]()
    for found in _NOTES.finditer(letters):
        gap = range(seen[found.start() - 1][0] + 1 if found.start() else 0, seen[found.start()][0])
        if sum(map(str.isascii, found[1])) >= len(found[1]) // 3:  # Else it is another language.
            opening.update(at for at in gap if words[at] not in "({" and unicodedata.category(words[at]) == "Ps")
    own = "".join("> (" if at in opening else each for at, each in enumerate(words))
    return replace(done, result=own, **where)


def _letters(shown: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", shown).casefold()))


def mark_of(task: Task) -> str:
    """A name for the task that another board over the same project does not give to one of its own."""
    return f"{task.id}-{hashlib.sha256(f'{task.put_at}:{task.key}'.encode()).hexdigest()[:8]}"


def line_of(claim: Claim, attempts: Sequence[Attempt]) -> tuple[int, bool]:
    """The epoch in which the claim's line of attempts began; and whether the last before it was put down in order."""
    before = {attempt.epoch: attempt for attempt in attempts}
    born, epoch = claim.epoch, claim.continues
    while epoch is not None and epoch in before:
        born, epoch = epoch, before[epoch].continues
    last = before.get(claim.continues or 0)
    return born, last is None or last.ended_as != "lost"


OpenWorkspace = Callable[[Claim, Sequence[Attempt]], Awaitable[Workspace]]  # With all attempts at the task so far.


def nowhere(check: Check | None) -> OpenWorkspace:
    async def place(claim: Claim, attempts: Sequence[Attempt]) -> Workspace:
        return NoWorkspace(by=check)

    return place


@dataclass(frozen=True, kw_only=True)
class Kit:
    """The tools of one attempt, and what stands behind those that run commands."""

    tools: Sequence[Tool]
    commands: ShellTools | None = None

    async def rest(self) -> None:
        """Nothing of it changes the tree any more until the next tool is used."""
        if self.commands is not None:
            await self.commands.end_jobs()

    async def close(self) -> None:
        if self.commands is not None:
            await self.commands.close()


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """What commands run with, in whatever tree: the sandbox, if there is one, and what they see of the machine."""

    board: Board
    sandbox: Sandbox | None
    outputs: Path | None = None  # Where what they print is kept as a whole.
    why_not: str = ""  # There is no sandbox.
    environment: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()  # That commands of tasks can reach which ask for the network.
    project_checks: tuple[str, ...] = ()  # For all that changes the project.
    prefix: Path = Path()  # Where in a tree the project lies.

    def kit(self, claim: Claim, tree: Path, *, readable: tuple[Path, ...] = ()) -> Kit:
        """What an attempt works with in a tree."""
        files = file_tools(Files(tree))
        if self.sandbox is None:
            return Kit(tools=files)
        commands = ShellTools(
            self.sandbox, tree, claim=claim, board=self.board, environment=self.environment, outputs=self.outputs,
            readable=readable, hosts=self.hosts if claim.task.network else (),
        )  # fmt: skip
        return Kit(tools=(*files, *commands.tools), commands=commands)

    async def check(
        self, commands: Sequence[str], tree: Path, claim: Claim, *, readable: tuple[Path, ...] = ()
    ) -> RedCheck | None:
        """All of them, on the goal's time, as that of models and tools is. BudgetSpent: it has not enough."""
        if not commands:
            return None
        spending = await self.board.budget(claim.task.root)
        most, least = int(CHECK_SECONDS_MAX * 1000), 1_000
        if spending.milliseconds_max is not None:
            left = spending.milliseconds_max - spending.spent.milliseconds - spending.reserved.milliseconds
            most = min(most, max(least, left))
        reservation = await self.board.reserve(claim, Amount(milliseconds=most))
        clock = asyncio.get_running_loop().time
        began, hosts = clock(), self.hosts if claim.task.network else ()
        try:
            red = await self.run_checks(commands, tree, seconds=most / 1000, readable=readable, hosts=hosts)
        except asyncio.CancelledError:  # How long it ran is known, so it does not count as all that was set aside.
            with suppress(DugnadError):
                await self.board.spend(claim, reservation, _took(clock() - began, most))
            raise
        _LOG.info("checked ms=%d red=%s", (clock() - began) * 1000, red is not None)
        await self.board.spend(claim, reservation, _took(clock() - began, most))
        if red is not None and red.timed_out and most < CHECK_SECONDS_MAX * 1000:
            sentence = (
                f"Root {root_name(claim.task.root)} has no time left for `{one_line(red.command)}` to come to its end."
            )
            raise BudgetSpent(sentence, kind="seconds", may_free_up=False)
        return red

    async def run_checks(
        self, commands: Sequence[str], tree: Path, *, seconds: float, readable: tuple[Path, ...] = (),
        hosts: tuple[str, ...] = (), on_output: Callable[[bytes], None] | None = None,
    ) -> RedCheck | None:  # fmt: skip
        """One after another. What the sandbox refuses is red: "done" is never believed without them."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
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
        return None


def _took(seconds: float, most: int) -> Amount:
    return Amount(milliseconds=max(0, min(int(seconds * 1000), most)))


@dataclass(kw_only=True)
class Shared(Workspace):
    """One folder for all, because a person said so."""

    shop: Workshop
    kit: Kit
    claim: Claim

    @property
    def cannot_check(self) -> str:
        return self.shop.why_not if self.shop.sandbox is None else ""

    def checks(self, task: Task) -> Sequence[str]:
        return (*super().checks(task), *self.shop.project_checks)

    async def check(self, task: Task) -> RedCheck | None:
        assert self.tree is not None
        await self.kit.rest()
        return await self.shop.check(self.checks(task), self.tree, self.claim)

    async def close(self, outcome: Outcome, *, settled: bool) -> None:
        await self.kit.close()


def shared(shop: Workshop, tree: Path) -> OpenWorkspace:
    async def place(claim: Claim, attempts: Sequence[Attempt]) -> Workspace:
        kit = shop.kit(claim, tree)
        return Shared(shop=shop, kit=kit, claim=claim, tree=tree, tools=kit.tools)

    return place
