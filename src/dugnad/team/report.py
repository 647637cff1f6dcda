"""The report of a run: what was done, by whom, for how much, what failed and why, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ..board import Board
from ..board.records import Moment, PastAttempt
from ..board.roots import budget_id, root_name
from ..text import counted, length, one_line, pasted
from ..tools.task_tools import budget_line, whole_result
from ..types import OPEN, Amount, Budget, Message, Spending, Task
from ..workspace.git.triggers import named_triggers
from .growth import one_chain
from .requests import waiting_requests

_TRIED_MAX = 20  # Tasks whose tracebacks are looked for.
_SET_MS = 2_000  # By how much two clocks must differ for one of them to have been set.
Standing = Literal["working", "ended", "budget", "waiting", "stuck"]
LineKind = Literal["task", "detail", "note", "trouble", "careful", "next"]  # Of a line in the report.
_MORE = {"tasks": "--tasks 10", "tokens": "--tokens 100000", "dollars": "--dollars 1", "seconds": "--minutes 10"}


def standing(now: Moment, roots: Sequence[int], *, deserted: bool) -> Standing:
    """How the work under all these roots stands: working while one of them is. `deserted`: there is no teammate, and
    none will join by itself. Pure, from one moment: a task that moves between two looks may be seen in neither."""
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
    if counts.get("scheduled") or not deserted:
        return "working"
    return "stuck" if counts.get("ready") else "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """Where finished work went, and which work is kept on branches of its own."""

    target: str  # A branch.
    commits: int  # On the target, and not on the person's own branch.
    kept: Mapping[int, Sequence[str]]  # By task, the branches of its attempts.
    runs: Mapping[str, str] = field(default_factory=dict)  # Paths that make other programs run something, and which.


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of the tasks under some roots. `str()` of it is for people."""

    tasks: Sequence[Task] = ()
    accounts: Mapping[int, Spending] = field(default_factory=dict)
    cost: Mapping[str, Amount] = field(default_factory=dict)  # By teammate.
    requests: Sequence[Message] = ()  # Those that wait for a person.
    interrupted: bool = False
    trouble: Mapping[str, str] = field(default_factory=dict)  # Teammates that failed, and why.
    deliveries: Deliveries | None = None
    stopped: int = 0  # The exit code of a run that ended before it began.
    preflight: Mapping[str, object] | None = None  # What the project's check said before anything began.
    tracebacks: Sequence[int] = ()  # Tasks with an attempt that a bug ended.
    others: int = 0  # Open tasks on the board that the run left alone.
    says: str = ""  # The first sentence, if it is not the usual one.
    teammates: int = 0  # How many worked in this run,
    took: Amount | None = None  # and what it took. Its milliseconds are those from the start to the last end.
    model: str = ""  # The team's own,
    saved: Mapping[str, int] = field(default_factory=dict)  # and what others saved against it, in micro-dollars.
    alone: Amount | None = None  # What one teammate alone would have taken; None: one did it alone.

    def in_state(self, *states: str) -> list[Task]:
        return [task for task in self.tasks if task.state in states]

    @property
    def left(self) -> list[Task]:
        return self.in_state(*OPEN)

    @property
    def out_of_budget(self) -> list[Spending]:  # Of goals with work left.
        roots = {task.root for task in self.left}
        return [account for account in self.accounts.values() if account.held is not None and account.root in roots]

    @property
    def capped(self) -> dict[int, Spending]:
        """The accounts with a cap, or the only account."""
        only = len(self.accounts) == 1
        return {root: account for root, account in self.accounts.items() if only or account.caps != Budget()}

    @property
    def exit_code(self) -> int:
        """0 all done, 1 something failed or waits, 3 the budget ran out with work left, 130 interrupted."""
        if self.stopped or self.interrupted:
            return self.stopped or 130
        if self.out_of_budget:
            return 3
        return 1 if self.left or self.in_state("failed") else 0  # A skipped task is no failure.

    @property
    def spent(self) -> Amount:
        return _sum(account.spent for account in self.accounts.values())

    def next_steps(self) -> list[str]:
        """The commands that a person can run next, each with what it is for behind four spaces."""
        merges = self._merges()
        steps = [
            f"dugnad budget {budget_id(account.root)} --add {_MORE[account.held or 'tasks']}"
            "    raises the cap; then `dugnad run`"
            for account in self.out_of_budget
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
        shut_out = next((each for each in self.in_state("ready") if each.not_for), None)
        if shut_out is not None and not self.interrupted and not steps:
            role = f" --role {shlex.quote(shut_out.role)}" if shut_out.role else ""
            why = f"#{shut_out.id} is for anybody but {(shut_out.not_for or '').replace(',', ', ')}"
            steps.append(f"dugnad spawn NAME{role}    then `dugnad run`; {why}")
        if self.left and not steps:
            steps.append("dugnad run    continues with what is left")
        steps += [f"dugnad show {task} --trouble    shows the traceback of a bug" for task in self.tracebacks[:5]]
        return merges + steps

    def _merges(self) -> list[str]:
        if self.deliveries is None or not self.deliveries.commits:
            return []
        commits = f"{self.deliveries.commits} commit{'s'[: self.deliveries.commits > 1]}"
        return [f"git merge {pasted(self.deliveries.target)}    brings the finished work into your branch: {commits}"]

    def kept(self, task: Task) -> Sequence[str]:
        """The branches with the work of attempts that did not end as done."""
        return () if self.deliveries is None else self.deliveries.kept.get(task.id, ())

    @property
    def runs(self) -> str:
        """What a person should look at before a merge, because it makes other programs run something."""
        found = {} if self.deliveries is None else self.deliveries.runs
        return f"look before you merge: other programs run what is in {named_triggers(found)}" if found else ""

    def lines(self) -> Iterator[tuple[LineKind, str, str]]:
        """The report line by line, harmless to a terminal: what the line is, its label and its text."""
        for task in self.tasks:
            shows_who = task.teammate and task.state in ("done", "failed", "claimed", "waiting")
            who = f" by {one_line(task.teammate, 20)}" if shows_who else ""
            yield "task", task.state, f"#{task.id} {one_line(task.title, 70)}{who}"
            if text := whole_result(task) if task.state == "done" else task.reason:
                yield "detail", "", one_line(text, 100)
            for branch in self.kept(task):
                yield "detail", "", f"kept on branch {one_line(branch, 100)}"
        for root, account in self.capped.items():
            yield "note", "budget", f"{root_name(root)}: {budget_line(account)}"
        for name, used in self.cost.items():
            price = f", {_price(used)}" if used.microdollars else ""
            yield "detail", one_line(name, 20), f"{used.tokens:,} tokens{price}"
        if self.took is not None:
            alone = f"; one alone: about {_figures(self.alone)}" if self.alone is not None else ""
            yield "note", "took", f"{counted(self.teammates, 'teammate')}: {_figures(self.took)}{alone}"
        for name, less in self.saved.items():
            price = _price(Amount(microdollars=abs(less)))
            words = one_line(f"{price} with {name} instead of {self.model}", 200)
            yield "note", "saved" if less >= 0 else "extra", words
        for name, why in self.trouble.items():
            yield "trouble", "failed", f"{one_line(name, 20)}: {one_line(why, 160)}"
        if self.runs:
            yield "careful", "careful", one_line(self.runs, 3_000)
        if chain := one_chain(self.tasks):
            yield "note", "note", f"The {chain} tasks left are one chain: one teammate is as fast as more (--agents 1)."
        if self.others:
            yield "note", "note", others_line(self.others)
        for step in self.next_steps():
            command, _, why = step.partition("    ")
            yield "next", "next", f"{one_line(command, 400)}    {one_line(why, 100)}".rstrip()

    def __str__(self) -> str:
        return "\n".join(f"{label:>9}  {text}" for _, label, text in self.lines())


def others_line(count: int) -> str:
    """The tasks that a run with a goal does not touch, and how to work on them."""
    tasks = "1 other task waits" if count == 1 else f"{count} other tasks wait"
    return f"{tasks} on this board; --all or `dugnad work` works on them too."


def _price(used: Amount) -> str:
    dollars = used.microdollars / 1e6
    return f"${dollars:,.{4 if dollars < 0.01 else 2}f}"


def _figures(used: Amount) -> str:
    return f"{length(used.milliseconds)}, {_price(used) if used.microdollars else f'{used.tokens:,} tokens'}"


def compared(past: Sequence[PastAttempt], began_ms: int) -> tuple[int, Amount | None, Amount | None]:
    """How many worked, what these attempts took from the beginning on, and what one alone would have taken.

    One alone does the same work, task by task in one conversation. Left out for it are the reviews, attempts without a
    reply, and what handing over took: of each further task the time for the check and the merge after its last turn,
    and its first reply with the time before it. The only reply of a task is its work, and stays.
    """
    if not past:
        return 0, None, None
    whole = _sum(each.used for each in past)
    ended = max(each.claimed_at + each.used.milliseconds for each in past)
    took = replace(whole, milliseconds=max(0, ended - began_ms))
    if (count := len({each.teammate for each in past})) == 1:
        return count, took, None
    work = sorted((each for each in past if each.kind != "review" and each.replies), key=lambda each: each.claimed_at)
    done, handed = _sum(each.used for each in work), [each for each in work[1:] if each.fresh]
    begun = _sum(each.first for each in handed if each.replies > 1)
    over = replace(begun, milliseconds=begun.milliseconds + sum(each.after_ms for each in handed))
    return count, took, Amount(**{name: max(0, getattr(done, name) - getattr(over, name)) for name in Amount.__slots__})


def _sum(amounts: Iterable[Amount]) -> Amount:
    every = list(amounts)
    return Amount(**{name: sum(getattr(each, name) for each in every) for name in Amount.__slots__})


async def report(
    board: Board, roots: Sequence[int], *, interrupted: bool = False, trouble: Mapping[str, str] | None = None,
    began_ms: int | None = None, ran_ms: int = 0,
) -> Report:  # fmt: skip
    """What the board says about these roots. `trouble`: the teammates that failed, and why. `began_ms`: when the run
    began, by the board's clock. `ran_ms`: how long ago that is, by a clock that nobody can set."""
    found, accounts = await board.whole(roots) if roots else ([], {})
    tasks = [task for task in found if task.kind != "budget"]
    cost: dict[str, Amount] = {}
    for root in roots:
        for name, used in (await board.cost_by_teammate(root)).items():
            cost[name] = _sum((cost.get(name, Amount()), used))
    ours = {task.id for task in tasks}
    tried = [task.id for task in tasks if task.tries]
    past = [] if began_ms is None else await board.past_attempts(roots=roots, since=began_ms, errands=True)
    teammates, took, alone = compared(past, began_ms or 0)
    if took and abs(await board.now_ms() - (began_ms or 0) - ran_ms) > _SET_MS:  # The board's clock was set meanwhile.
        took = replace(took, milliseconds=ran_ms)
    return Report(
        tasks=tasks, accounts=accounts, cost=cost, interrupted=interrupted, trouble=trouble or {},
        teammates=teammates, took=took, alone=alone,
        requests=[asked for asked in await waiting_requests(board) if asked.task is None or asked.task in ours],
        tracebacks=[task for task in tried[-_TRIED_MAX:] if await board.tracebacks(task)],
    )  # fmt: skip
