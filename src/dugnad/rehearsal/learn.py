"""From a board to a plan: its open tasks, and how long earlier attempts at such work took.

The board is only read. What it does not know is assumed. The plan says what was learned and what is assumed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from ..board import Board
from ..board.records import PastAttempt
from ..board.roots import budget_id
from ..errors import BadInput
from ..tools.message_tools import GONE
from ..types import ENDINGS, MESSAGES, OPEN, Budget, Need, Spending, Task
from .plan import WITHIN, Estimate, PlannedTask, RehearsalPlan, account, account_of

FEWEST = 3  # Attempts from which something is learned.
_SPREAD = (0.05, 1.5)  # The least and the largest spread that is believed.
_GOES_ON = frozenset({"waiting", "released", "lost", "cancelled"})  # Such an attempt is only a part of one.
TASKS_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What holds where nothing is known."""

    turn_seconds: float = 20.0
    turns: float = 8.0
    turn_tokens: float = 8_500.0
    turn_dollars: float | None = None

    def estimate(self, *, turns: float | None = None, seconds: float | None = None) -> Estimate:
        """Of an attempt with this number of turns, or with this duration."""
        if turns is None:
            turns = self.turns if seconds is None else max(1.0, seconds / self.turn_seconds)
        return Estimate(
            seconds=turns * self.turn_seconds if seconds is None else seconds,
            turns=turns,
            tokens=turns * self.turn_tokens,
            dollars=None if self.turn_dollars is None else turns * self.turn_dollars,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What was learned from earlier attempts, by role and in all, and how their tasks ended."""

    roles: Mapping[str | None, Estimate]
    all: Estimate | None = None
    outcomes: Mapping[str | None, Counter[str | None]]

    def estimate(self, role: str | None, assumed: Assumed) -> Estimate:
        """What was learned of the role, or else of the whole board, or else what is assumed."""
        found = self.roles.get(role) or self.all
        if found is None:
            return assumed.estimate()
        if found.dollars is None and assumed.turn_dollars is not None:
            return replace(found, dollars=found.turns * assumed.turn_dollars)
        return found

    def basis(self, roles: Iterable[str | None], assumed: Assumed) -> list[str]:
        """Where the figures come from, in a sentence for each role."""
        said, unknown = [], []
        for role in sorted(set(roles), key=lambda each: each or ""):
            label = role or "work for anyone"
            if (found := self.roles.get(role)) is not None:
                said.append(f"{label}: {_words(found)}, learned from {found.attempts} earlier attempts.")
            elif self.all is not None:
                said.append(f"{label}: {_words(self.all)}, learned from the {self.all.attempts} attempts of all roles.")
            else:
                unknown.append(label)
        if unknown:
            guess = assumed.estimate()
            said.append(f"{', '.join(unknown)}: {_words(guess)}. This is assumed: nothing is known of such work yet.")
        return said


NOTHING = Experience(roles={}, outcomes={})


def _words(found: Estimate) -> str:
    turns = f"{found.turns:.0f} turns" if found.turns >= 1.5 else "1 turn"
    cost = f"{found.tokens:,.0f} tokens" if found.dollars is None else f"${found.dollars:.2f}"
    factor = "" if found.spread is None else f"mostly within a factor of {math.exp(found.spread):.1f}"
    fails = f", {found.retried + found.failed:.0%} of attempts fail" if found.retried + found.failed else ""
    return f"{found.seconds:,.0f} s, {turns}, {cost} an attempt, {factor or f'within {WITHIN:.0%}'}{fails}"


def learn(past: Sequence[PastAttempt]) -> Experience:
    """From attempts in order of task and epoch. Attempts that go on from one another count as one."""
    whole: list[PastAttempt] = []
    part: PastAttempt | None = None
    for each in past:
        if part is not None and part.task == each.task:
            more, used = part.used, each.used
            both = replace(used, tokens=used.tokens + more.tokens, microdollars=used.microdollars + more.microdollars)
            seconds, replies = each.seconds + part.seconds, each.replies + part.replies
            each = replace(each, seconds=seconds, replies=replies, used=both)  # noqa: PLW2901
        part = each if each.ended_as in _GOES_ON else None
        if part is None:
            whole.append(each)
    by_role: dict[str | None, list[PastAttempt]] = {}
    for each in whole:
        by_role.setdefault(each.role, []).append(each)
    return Experience(
        roles={role: _fit(found) for role, found in by_role.items() if len(found) >= FEWEST},
        all=_fit(whole) if len(whole) >= FEWEST else None,
        outcomes={
            role: Counter(each.outcome for each in found if each.ended_as == "done") for role, found in by_role.items()
        },
    )


def _fit(attempts: Sequence[PastAttempt]) -> Estimate:
    count = len(attempts)
    logs = [math.log(max(0.001, each.seconds)) for each in attempts]
    middle = sum(logs) / count
    spread = math.sqrt(sum((each - middle) ** 2 for each in logs) / (count - 1))
    seconds = math.exp(middle)
    share = seconds * count / max(0.001, sum(each.seconds for each in attempts))  # The median as a share of the mean.
    dollars = sum(each.used.microdollars for each in attempts) / 1_000_000 / count * share
    ends = Counter(each.ended_as for each in attempts)
    return Estimate(
        seconds=seconds,
        spread=min(_SPREAD[1], max(_SPREAD[0], spread)),
        turns=max(1.0, sum(each.replies for each in attempts) / count),
        tokens=sum(each.used.tokens for each in attempts) / count * share,
        dollars=dollars or None,
        retried=ends["retry"] / count,
        failed=ends["failed"] / count,
        attempts=count,
    )


# The board.


async def experience_of(board: Board) -> Experience:
    return learn(await board.past_attempts())


async def plan_of(
    board: Board, name: str, *, assumed: Assumed, members: Iterable[str] = (), reviewer: str | None = None
) -> RehearsalPlan:
    """The board's open tasks. `members` are teammates of the project that the board may not know yet, and `reviewer`
    is the role that reviews all work, if the project has one."""
    tasks: list[Task] = []
    seq = await board.last_event()
    while page := await board.list_tasks(states=sorted(OPEN), after=tasks[-1].id if tasks else 0, page=1_000):  # type: ignore[arg-type]
        tasks += page
        if len(tasks) > TASKS_MAX:
            raise BadInput(f"More than {TASKS_MAX:,} tasks are open; rehearse a plan.toml with a part of them.")
    if not tasks:
        raise BadInput(f"Nothing is open on {name}; put tasks there with `dugnad add`, or rehearse a plan.toml.")
    made = await plan_for(
        board, tasks, name=name, experience=await experience_of(board), assumed=assumed, members=members,
        reviewer=reviewer,
    )  # fmt: skip
    accounts = [await board.budget(root) for root in sorted({task.root for task in tasks})]
    return replace(
        made,
        accounts={each.root: account_of(each) for each in accounts},
        warnings=tuple(_cautions(tasks, accounts, (len(made.tasks) - len(tasks)) // 2)),
        board=await board.identity(),
        seq=seq,
    )


async def plan_for(
    board: Board, tasks: Sequence[Task], *, name: str, experience: Experience, assumed: Assumed,
    members: Iterable[str] = (), reviewer: str | None = None,
) -> RehearsalPlan:  # fmt: skip
    """These open tasks and the reviews behind them, without their budgets. Each review adds two tasks."""
    edges: dict[int, list[Need]] = {}
    there = {task.id: task for task in tasks}
    for waiting, need, state in await board.all_needs(there):
        if state == "open" and need.task in there:  # Other tasks have ended in the meantime.
            edges.setdefault(waiting, []).append(need)
    now = await board.now_ms()
    team = {member.name for member in await board.team() if member.status not in GONE}
    asked = asked_for(need for each in edges.values() for need in each)
    reviewed = {
        each.id for each in tasks if any(there[need.task].reviews == each.id for need in edges.get(each.id, ()))
    }
    reviews = {task.id: role for task in tasks if task.id not in reviewed and (role := _reviewer(task, reviewer))}

    def expected(task: Task) -> Estimate:
        whole = experience.estimate(task.role, assumed)
        return finishing(whole) if task.id in reviewed else whole

    same = [each.name for each in fields(PlannedTask) if each.name in Task.__slots__]
    planned = tuple(
        PlannedTask(
            **{name: getattr(task, name) for name in same},
            name=f"#{task.id} {task.title}",
            needs=tuple(edges.get(task.id, ())),
            due_ms=max(0, (task.due_at or 0) - now),
            estimate=expected(task),
            outcomes=shares(asked.get(task.id, ()), experience.outcomes.get(task.role)),
        )
        for task in tasks
    )
    return RehearsalPlan(
        name=name,
        tasks=with_reviews(planned, reviews, lambda role: experience.estimate(role, assumed)),
        accounts={root: account(root, Budget()) for root in {task.root for task in tasks}},
        names=tuple(sorted({task.assignee for task in tasks if task.assignee} & (team | set(members)))),
        limits=board.limits,
        basis=tuple(experience.basis((*(task.role for task in tasks), *reviews.values()), assumed)),
    )


def _reviewer(task: Task, reviewer: str | None) -> str | None:
    """The role that will review it. Reviews and answers to messages are not reviewed."""
    if task.kind == "review":
        return None
    return task.review or (None if task.kind in MESSAGES else reviewer)


def asked_for(needs: Iterable[Need]) -> dict[int, list[str]]:
    """The outcomes that others ask for, of each task."""
    asked: dict[int, list[str]] = {}
    for need in needs:
        if need.outcome is not None and need.outcome not in ENDINGS:
            asked.setdefault(need.task, []).append(need.outcome)
    return asked


def shares(asked: Iterable[str], seen: Counter[str | None] | None) -> tuple[tuple[str | None, float], ...]:
    """How likely each outcome is: as often as before, or else each of those that are asked for alike."""
    words = sorted(set(asked))
    if not words:
        return ((None, 1.0),)
    if seen and seen.total() >= FEWEST and any(word in seen for word in words):
        return tuple((outcome, count / seen.total()) for outcome, count in sorted(seen.items(), key=str))
    return tuple((word, 1 / len(words)) for word in words)


def _cautions(tasks: Sequence[Task], accounts: Sequence[Spending], reviews: int) -> list[str]:
    """Where the rehearsal of this board is more optimistic than the real run."""
    said = []
    if waiting := [task for task in tasks if task.state == "waiting" and task.waiting_for in ("human", "plan")]:
        wait = "1 task waits" if len(waiting) == 1 else f"{len(waiting)} tasks wait"
        said.append(f"{wait} for you, #{waiting[0].id} first; the rehearsal takes them as answered now.")
    if claimed := sum(task.state == "claimed" for task in tasks):
        said.append(f"{claimed} of the tasks are under way; they are rehearsed from their beginning.")
    if plans := sum(task.plan for task in tasks):
        said.append(f"{plans} of the tasks need an approved plan; the rehearsal takes it as approved at once.")
    if reviews:
        said.append(
            f"{reviews} of the tasks need a review before they are done; each review is rehearsed as a task of its own "
            "that approves the work the first time."
        )
    if held := [each for each in accounts if each.held is not None]:
        said.append(
            f"The budget of #{held[0].root} is used up ({held[0].held}), so its tasks are not begun: "
            f"`dugnad budget {budget_id(held[0].root)} --add` lets them go on."
        )
    if followed := sum(task.parent is not None for task in tasks):
        said.append(f"{followed} of the tasks were put by others at work; more may follow, and none are made up here.")
    return said


# Reviews that the board will ask for: work that is done waits for its review, and then ends.


def finishing(whole: Estimate) -> Estimate:
    """Of an attempt whose work was approved: it asks no model, and ends."""
    return Estimate(seconds=0.001, spread=0.0, dollars=None if whole.dollars is None else 0.0)


def with_reviews(
    tasks: Sequence[PlannedTask], roles: Mapping[int, str], estimate: Callable[[str], Estimate]
) -> tuple[PlannedTask, ...]:
    """The tasks, and behind each task in `roles` a review by that role, and the end of the task after its review.

    A task that needs such a task also needs that end. All get new numbers. Of equal tasks the oldest comes first, so a
    task that goes on keeps its place, and a review comes behind all others.
    """
    if not roles:
        return tuple(tasks)
    youngest = 2 * max(task.id for task in tasks) + 2
    found: list[PlannedTask] = []
    for task in tasks:
        needs = [Need(2 * need.task, need.outcome) for need in task.needs]
        needs += [
            Need(2 * need.task + 1, "ended" if need.outcome in ENDINGS else None)
            for need in task.needs
            if need.task in roles
        ]
        found.append(replace(task, id=2 * task.id, needs=tuple(needs)))
        if (role := roles.get(task.id)) is None:
            continue
        review = PlannedTask(
            id=youngest, name=f"Review {task.name}", role=role, priority=task.priority + 1, chain=task.chain + 1,
            root=task.root, needs=(Need(2 * task.id),), estimate=estimate(role),
        )  # fmt: skip
        youngest += 1
        end = replace(
            task, id=2 * task.id + 1, name=f"{task.name}, after its review", needs=(Need(review.id),), due_ms=0,
            estimate=finishing(task.estimate), outcomes=((None, 1.0),),
        )  # fmt: skip
        found += [review, end]
    return tuple(found)
