"""From "I am done" to done: checked, looked at by another where that is asked for, and brought where it counts.

What is red, or not approved, is returned as `Again`, with what the mind has to hear; the worker asks the mind. It can
all be done again after a crash: a check is run again, a commit found unchanged, a review asked for under the same key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..board import Board
from ..errors import BudgetSpent, LimitReached, ToolError
from ..logs import logger
from ..prompts import tell
from ..settings import TeamLimits
from ..text import Told, joined, one_line, quote, shorten
from ..types import MESSAGES, Amount, Attempt, Claim, Done, Failed, Outcome, Task, Waiting
from .workspaces.workspace import Workspace, delivered, line_of

_LOG = logger(__name__)
APPROVED, CHANGES = "approved", "changes-requested"


@dataclass(frozen=True, slots=True)
class Again:
    """It is not done yet: what the mind is told, and why the attempt fails if this was the last round."""

    told: Told
    in_the_end: str


@dataclass(kw_only=True)
class Delivery:
    """Brings one attempt to its end."""

    board: Board
    limits: TeamLimits
    place: Workspace
    attempts: Sequence[Attempt]  # At the task, this one included.
    reviewer: str | None = None  # The role that looks at whatever changes the project, also where no task asks for it.
    _answered: set[int] = field(default_factory=set)  # Reviews the mind was told of, and has gone on from.

    async def needs_no_work(self, claim: Claim) -> Outcome | None:
        """How the attempt ends before anybody works: no check can be run here, or nobody waits for the review."""
        place = self.place
        if (checks := place.checks(claim.task)) and place.cannot_check:
            return Waiting(
                on="human",
                question=f"#{claim.task.id} counts as done only when `{one_line(checks[0])}` succeeds, and "
                f"{place.cannot_check.rstrip('.')}. Mend that and answer; or put it on the board again without a "
                "check, or cancel it.",
            )
        over = await self._is_over(claim.task) if claim.task.kind == "review" else ""
        return Done(over, CHANGES) if over else None

    async def _is_over(self, review: Task) -> str:
        """Why nobody waits for this review any more; empty: somebody does."""
        number = review.reviews or 0
        found = (await self.board.find_all({number})).get(number)
        return f"#{number} has ended as {found.state}; there is nothing to look at." if found and found.ended else ""

    async def deliver(self, claim: Claim, done: Done) -> Outcome | Again:
        """Check it, have it reviewed, bring it in. The order matters: nobody is asked to look at what is red."""
        task = claim.task
        if task.kind == "review":
            return _is_verdict(done)
        try:
            if (red := await self.place.check(task)) is not None:
                command, output = one_line(red.command), red.output
                return Again(
                    tell("delivery.red", command=command, output=shorten(output, 8_000)),
                    f"the check {command!r} stayed red:\n{shorten(output, 2_000)}",
                )
            tip = await self.place.commit(task, done)
        except BudgetSpent as spent:
            return _no_time(spent)
        except ToolError as trouble:
            return Again(tell("delivery.not_committed", trouble=trouble), str(trouble))
        role = self._role_of_reviewer(task)
        if tip is not None and role and (verdict := await self._reviewed(claim, done, tip, role)) is not None:
            return verdict
        try:
            return await self.place.deliver(task, done, tip)
        except BudgetSpent as spent:
            return _no_time(spent)
        except (ToolError, OSError) as trouble:  # Nothing whoever worked on it could mend.
            why = f"#{task.id} is done, and could not be delivered: {str(trouble).rstrip('.')}"
            return Waiting(on="human", question=f"{why}. Mend that, then answer: nobody has to do it again.")

    def _role_of_reviewer(self, task: Task) -> str | None:
        """An answer to a message needs no review; but what changes the project in answering does."""
        answers = task.kind in MESSAGES and not self.place.sees_changes
        return task.review or (None if answers else self.reviewer)

    async def _reviewed(self, claim: Claim, done: Done, tip: str, role: str) -> Outcome | Again | None:
        """What somebody else says of just this work; None: approved."""
        task = claim.task
        born, reviews = await self._reviews(claim)
        key = f"review:{task.id}:{tip}" + ("" if self.place.sees_changes else f".{born}")
        review = next((each for each in reversed(reviews) if each.reviews_commit == tip), None)
        if review is not None and review.id in self._answered and not self.place.sees_changes:
            review, key = None, f"{key}.{len(reviews)}"  # Whether it was changed since cannot be seen from here.
        if review is None:
            if len(reviews) >= self.limits.review_rounds_max:
                return Failed(f"it was not approved in {len(reviews)} rounds; the last: {reviews[-1].result}")
            try:
                body = _review_body(task, done, self.place, claim.teammate, await self.place.triggers(tip))
                review = await self.board.follow_up(
                    claim, f"Review #{task.id}: {one_line(task.title, 150)}", body=body,
                    role=role, not_for=claim.teammate, priority=task.priority + 1, key=key,
                    kind="review", reviews=task.id, reviews_commit=tip,
                )  # fmt: skip
            except LimitReached as guard:
                return Waiting(on="human", question=f"#{task.id} cannot be reviewed: {guard}")
            _LOG.info("review-asked review=%d role=%s", review.id, role)
        if not review.ended:
            return Waiting(on="tasks", tasks=(review.id,))
        if review.state != "done":
            return Failed(f"its review #{review.id} ended as {review.state}: {review.reason or 'without a reason'}")
        if review.outcome == APPROVED:
            return None
        self._answered.add(review.id)
        words = shorten(review.result or "", 8_000)
        return Again(
            tell("delivery.changes_wanted", who=review.teammate, words=words),
            f"{review.teammate} asked for changes, and nothing was changed: {shorten(words, 2_000)}",
        )

    async def _reviews(self, claim: Claim) -> tuple[int, list[Task]]:
        """The epoch in which this line of attempts began, and the reviews it has asked for, the oldest first."""
        task = claim.task
        born, _ = line_of(claim, self.attempts)
        since = next((each.claimed_at for each in self.attempts if each.epoch == born), 0)
        needed = [need.task for need, _ in await self.board.needs_of(task.id)]  # What the task has waited for.
        found = await self.board.find_all(needed)
        asked = [found[each] for each in sorted(needed)]
        return born, [each for each in asked if each.reviews == task.id and each.put_at >= since]


def checks_told(checks: Sequence[str], rounds: int, *, red_base: bool) -> Told:
    """What a mind must know of the checks before it begins: which, who runs them, and how often they may be red."""
    commands = joined([tell("delivery.command", command=each) for each in checks], " and ")
    told = tell("delivery.checks", commands=commands, rounds=rounds)
    return joined((told, tell("delivery.red_before") if red_base else None), " ")


def _no_time(spent: BudgetSpent) -> Waiting:
    """What was done stays; the check is run when there is time for it."""
    return Waiting(on="budget", question=str(spent), amount=Amount(milliseconds=1_000))


def _is_verdict(done: Done) -> Done | Again:
    if done.outcome in (APPROVED, CHANGES):
        return delivered(done)
    return Again(tell("delivery.no_verdict", approved=APPROVED, changes=CHANGES), "the review ended without a verdict")


def _review_body(task: Task, done: Done, place: Workspace, who: str, runs: Mapping[str, str]) -> Told:
    listed = "\n".join(f"{one_line(path, 300)} ({kind})" for path, kind in runs.items())
    return joined(
        (
            tell("delivery.review", id=task.id, how=place.how_to_look),
            tell("delivery.verdict", approved=APPROVED, changes=CHANGES),
            tell("delivery.triggers", runs=listed) if runs else None,
            tell("delivery.task_was", title=task.title),
            quote(shorten(task.body, 20_000)) if task.body else None,
            tell("delivery.author_says", who=who, words=shorten(done.result, 8_000)),
        )
    )
