"""What a run came to: what was done, by whom, for how much, what failed and why, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..board import Board
from ..board.records import Moment
from ..board.roots import budget_id, root_name
from ..text import one_line, pasted
from ..tools.task_tools import budget_line, whole_result
from ..types import OPEN, Amount, Message, Spending, Task
from ..workspace.git.triggers import named_triggers
from .requests import waiting_requests

_TRIED_MAX = 20  # Tasks that are looked through for tracebacks.
Standing = Literal["working", "ended", "budget", "waiting", "stuck"]
_MORE = {"tasks": "--tasks 10", "tokens": "--tokens 100000", "dollars": "--dollars 1", "seconds": "--minutes 10"}


def standing(now: Moment, roots: Sequence[int], *, deserted: bool) -> Standing:
    """How the work under all these roots stands: working while one of them is. `deserted`: nobody is there, and nobody
    will come by themselves. Pure, from one moment: what is seen in two may be seen in neither of its places."""
    held = {root for root in roots if (why := now.accounts[root].held) and not (why == "tasks" and root in now.begun)}
    found = [_of_root(now.counts[root], root in held, deserted) for root in roots]
    order: tuple[Standing, ...] = ("working", "budget", "waiting", "stuck")
    return next((each for each in order if each in found), "ended")


def _of_root(counts: Mapping[str, int], held: bool, deserted: bool) -> Standing:
    if not any(counts.get(state) for state in OPEN):
        return "ended"
    if counts.get("claimed"):
        return "working"
    if held:
        return "budget"
    if counts.get("scheduled"):
        return "working"
    if not deserted:
        return "working"
    return "stuck" if counts.get("ready") else "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """Where finished work went, and what is kept of work that did not get there."""

    target: str  # A branch.
    commits: int  # That the person's own branch has not.
    kept: Mapping[int, Sequence[str]]  # By task, the branches of its attempts.
    runs: Mapping[str, str] = field(default_factory=dict)  # Paths that make other programs run something, and which.


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Of the tasks under some roots. `str()` of it is for people."""

    tasks: Sequence[Task] = ()
    accounts: Mapping[int, Spending] = field(default_factory=dict)
    cost: Mapping[str, Amount] = field(default_factory=dict)  # By teammate.
    requests: Sequence[Message] = ()  # What waits for a person.
    interrupted: bool = False
    trouble: Mapping[str, str] = field(default_factory=dict)  # Teammates that failed, and why.
    deliveries: Deliveries | None = None
    stopped: int = 0  # The exit code of a run that ended before it began.
    preflight: Mapping[str, object] | None = None  # What the project's check said before anything began.
    tracebacks: Sequence[int] = ()  # Tasks of which an attempt ended with a teammate's bug.
    others: int = 0  # Open tasks on the board that the run left alone.
    says: str = ""  # What else there is to say of it.

    def in_state(self, *states: str) -> list[Task]:
        return [task for task in self.tasks if task.state in states]

    @property
    def left(self) -> list[Task]:
        return self.in_state(*OPEN)

    @property
    def out_of_budget(self) -> list[Spending]:
        return [account for account in self.accounts.values() if account.held is not None]

    @property
    def capped(self) -> dict[int, Spending]:
        """The accounts of which there is something to tell: those with a cap, or the only one."""
        caps = ("tasks_max", "tokens_max", "microdollars_max", "milliseconds_max")
        return {
            root: account
            for root, account in self.accounts.items()
            if len(self.accounts) == 1 or any(getattr(account, cap) is not None for cap in caps)
        }

    @property
    def exit_code(self) -> int:
        """0 all done, 1 something failed or waits, 3 the budget ran out with work left, 130 interrupted."""
        if self.stopped or self.interrupted:
            return self.stopped or 130
        if self.left and self.out_of_budget:
            return 3
        return 1 if self.left or self.in_state("failed") else 0  # A way not taken is no failure.

    @property
    def spent(self) -> Amount:
        every = [account.spent for account in self.accounts.values()]
        return Amount(
            tokens=sum(each.tokens for each in every),
            microdollars=sum(each.microdollars for each in every),
            milliseconds=sum(each.milliseconds for each in every),
        )

    def next_steps(self) -> list[str]:
        """What a person can do about what is left."""
        steps = self._merges()
        steps += [
            f"dugnad budget {budget_id(account.root)} --add {_MORE[account.held or 'tasks']}"
            "    raises the cap; then `dugnad run`"
            for account in self.out_of_budget
            if self.left
        ]
        for asked in self.requests[:5]:
            verb = f'answer m{asked.id} "..."' if asked.kind == "question" else f"approve m{asked.id}"
            steps.append(f"dugnad {verb}    {asked.sender} waits for you: {one_line(asked.text, 60)}")
        steps += [
            f"dugnad retry {task.id}    {one_line(task.reason or '', 60)}" for task in self.in_state("failed")[:5]
        ]
        if self.left and self.trouble:
            why = next(iter(self.trouble.values()))
            steps.append(f"dugnad doctor    then `dugnad run`; {', '.join(self.trouble)} failed: {one_line(why, 60)}")
        if (
            not self.interrupted
            and len(steps) == len(self._merges())
            and (shut_out := [each for each in self.in_state("ready") if each.not_for])
        ):
            first = shut_out[0]
            role = f" --role {shlex.quote(first.role)}" if first.role else ""
            steps.append(
                f"dugnad spawn NAME{role}    then `dugnad run`; #{first.id} is for anybody but {first.not_for}"
            )
        if self.left and len(steps) == len(self._merges()):
            steps.append("dugnad run    goes on with what is left")
        steps += [f"dugnad show {task} --trouble    shows the traceback of a bug" for task in self.tracebacks[:5]]
        return steps

    def _merges(self) -> list[str]:
        if self.deliveries is None or not self.deliveries.commits:
            return []
        commits = f"{self.deliveries.commits} commit{'s'[: self.deliveries.commits > 1]}"
        return [f"git merge {pasted(self.deliveries.target)}    takes over what was merged there: {commits}"]

    def kept(self, task: Task) -> Sequence[str]:
        """The branches with what attempts at a task came to that did not end done."""
        return () if self.deliveries is None else self.deliveries.kept.get(task.id, ())

    @property
    def runs(self) -> str:
        """What to look at before it is merged, since it makes other programs run something."""
        found = {} if self.deliveries is None else self.deliveries.runs
        return f"look before you merge, other programs run what is in {named_triggers(found)}" if found else ""

    def __str__(self) -> str:
        lines = []
        for task in self.tasks:
            who = f" by {task.teammate}" if task.teammate and task.state in ("done", "failed", "claimed") else ""
            lines.append(f"{task.state:>9}  #{task.id} {one_line(task.title, 70)}{who}")
            if text := whole_result(task) if task.state == "done" else task.reason:
                lines.append(f"{'':>11}{one_line(text, 100)}")
            lines += [f"{'':>11}kept on branch {branch}" for branch in self.kept(task)]
        lines += [f"{'budget':>9}  {root_name(root)}: {budget_line(account)}" for root, account in self.capped.items()]
        for name, used in self.cost.items():
            price = f", ${used.microdollars / 1e6:.4f}" if used.microdollars else ""
            lines.append(f"{name:>9}  {used.tokens:,} tokens{price}")
        lines += [f"{'failed':>9}  {name}: {one_line(why, 100)}" for name, why in self.trouble.items()]
        lines += [f"{'careful':>9}  {self.runs}"] if self.runs else []
        return "\n".join([*lines, *(f"{'next':>9}  {step}" for step in self.next_steps())])


async def report(
    board: Board, roots: Sequence[int], *, interrupted: bool = False, trouble: Mapping[str, str] | None = None
) -> Report:
    """What stands on the board about these roots. `trouble`: who failed, and why."""
    found, accounts = await board.whole(roots) if roots else ([], {})
    tasks = [task for task in found if task.kind != "budget"]
    cost: dict[str, Amount] = {}
    for root in roots:
        for name, used in (await board.cost_by_teammate(root)).items():
            before = cost.get(name, Amount())
            cost[name] = Amount(**{each: getattr(before, each) + getattr(used, each) for each in Amount.__slots__})
    ours = {task.id for task in tasks}
    tried = [task.id for task in tasks if task.tries]
    return Report(
        tasks=tasks, accounts=accounts, cost=cost, interrupted=interrupted, trouble=trouble or {},
        requests=[asked for asked in await waiting_requests(board) if asked.task is None or asked.task in ours],
        tracebacks=[task for task in tried[-_TRIED_MAX:] if await board.tracebacks(task)],
    )  # fmt: skip
