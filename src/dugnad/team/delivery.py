"""From "I am done" to done: check the work, have it reviewed if that is asked for, and deliver it.

If a check is red or a review wants changes, the result is `Again`, with what the mind must be told; the worker asks the
mind. After a crash all of it can be done again: the check runs again, the commit is found unchanged, and the review has
the same key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..agent.resume import continued
from ..board import Board
from ..errors import BudgetSpent, LimitReached, ToolError
from ..logs import logger
from ..prompts import tell
from ..text import NOTHING, Told, counted, joined, one_line, quote, shorten
from ..tools.finish_tools import APPROVED, CHANGES
from ..types import ENDINGS, HUMAN, MESSAGES, Amount, Attempt, Claim, Done, Failed, Outcome, Task, Waiting
from .plan import RunPlan
from .workspaces.workspace import Again, RedCheck, Workspace, commands_told, delivered, line_of

_LOG = logger(__name__)
_OTHERS_MAX = 100
_APPROVED_AGAIN_MAX = 3  # Times `review_rounds_max` that a task may be reviewed at all.


@dataclass(kw_only=True)
class Delivery:
    """Brings one attempt to its end."""

    board: Board
    plan: RunPlan
    workspace: Workspace
    attempts: Sequence[Attempt]  # At the task, this one included.
    outside: bool = False  # Its mind is an external agent, which has no tools of ours.
    came_to: Told = NOTHING  # What the work came to, when it is done.
    _answered: set[int] = field(default_factory=set)  # Reviews that the mind was told of, and worked on.

    async def needs_no_work(self, claim: Claim) -> Outcome | None:
        """The outcome without any work: no check can be run here, or nobody waits for the review."""
        workspace = self.workspace
        if (checks := workspace.checks(claim.task)) and workspace.cannot_check:
            return Waiting(
                on="human",
                question=f"#{claim.task.id} counts as done only when `{one_line(checks[0])}` succeeds, and "
                f"{workspace.cannot_check.rstrip('.')}. Fix that and answer; or put it on the board again without a "
                "check, or cancel it.",
            )
        if claim.task.kind != "review":
            return None
        number = claim.task.reviews or 0
        found = (await self.board.find_all({number})).get(number)
        if found is None or not found.ended:
            return None
        return Done(f"#{number} has ended as {found.state}; there is nothing to look at.", CHANGES)

    def follows(self, task: Task, waiting: Iterable[tuple[int, str | None]]) -> Told:
        """What the runtime does after `finish`, and what depends on it; empty: nothing more is expected of the end.
        `waiting`: the tasks that wait for this one, each with the outcome it asks for, if any."""
        if task.kind in MESSAGES:
            return NOTHING
        if task.kind == "review":
            return tell("delivery.follows_review", id=task.reviews, approved=APPROVED, changes=CHANGES)
        checks = self.workspace.checks(task)
        parts = [tell("delivery.follows_check", commands=commands_told(checks))] if checks else []
        if role := self._role_of_reviewer(task):
            when = self.plan.review.when if self.plan.review and not task.review else ""
            follows = tell("delivery.follows_reviewer", role=role)
            parts.append(joined((follows, tell("delivery.follows_if", when=when) if when else None), " "))
        parts += [
            tell("delivery.follows_outcome", id=each, outcome=outcome)
            for each, outcome in waiting
            if outcome not in (None, *ENDINGS)
        ]
        return joined(parts, "; ")

    def told_at_first(self, task: Task, follows: Told) -> Told:
        """What a mind must know about the end before it begins. A review's own text says it."""
        if not follows or task.kind == "review":
            return NOTHING
        checks = self.workspace.checks(task)
        most = counted(self.plan.limits.check_rounds_max, "time")
        rounds = tell("delivery.rounds", rounds=most) if checks else None
        of_project = tell("delivery.read_from") if len(checks) > bool(task.check) else None
        red = tell("delivery.red_before") if checks and self.plan.red_base else None
        after = tell("external.after_end", follows=follows) if self.outside else None
        return joined((after or tell("delivery.after_finish", follows=follows), rounds, of_project, red), " ")

    async def deliver(self, claim: Claim, done: Done, left: int = 0) -> Outcome | Again:
        """Check, review, deliver. The order matters: nobody reviews work whose check is red. `left` is how often the
        mind may finish again."""
        task = claim.task
        if task.kind == "review":
            self.came_to = tell("delivery.done_review", id=task.reviews, outcome=done.outcome)
            return _is_verdict(done, self.outside)
        try:
            if (red := await self.workspace.check(task)) is not None:
                return self._red(red, left)
            tip = await self.workspace.commit(task, done)
        except BudgetSpent as spent:
            return _no_time(spent)
        except ToolError as trouble:
            return Again(tell("delivery.not_committed", trouble=trouble), Failed(str(trouble), retry=True))
        role = self._role_of_reviewer(task)
        try:
            verdict = await self._reviewed(claim, done, tip, role, left) if tip is not None and role else None
            if verdict is not None and not isinstance(verdict, Task):
                return verdict
            end = await self.workspace.deliver(task, done, tip, left=left)
            if isinstance(end, Done):
                self.came_to = self._done(task, end, verdict, tip)
            return _with_remarks(end, verdict) if verdict is not None and isinstance(end, Done) else end
        except BudgetSpent as spent:
            return _no_time(spent)
        except (ToolError, OSError) as trouble:  # The mind cannot mend this.
            why = f"#{task.id} is done, and could not be delivered: {str(trouble).rstrip('.')}"
            return Waiting(on="human", question=f"{why}. Fix that, then answer: the work need not be done again.")

    def _done(self, task: Task, end: Done, review: Task | None, tip: str | None) -> Told:
        """What the work came to; empty: nothing more was expected of its end, and nothing was changed."""
        checks, into, folder = self.workspace.checks(task), end.merged_into, end.files_in
        ran = commands_told(checks) if task.check or tip is not None else NOTHING
        where = tell("delivery.done_in_folder", folder=folder) if folder else None
        if into:
            commit = end.merged_as and end.merged_as[:12]
            before = tell("delivery.done_before", target=into)
            where = tell("delivery.done_merged", target=into, commit=commit) if commit else before
        approved = tell("delivery.done_approved", who=review.teammate, id=review.id) if review else None
        if parts := joined((tell("delivery.done_checked", commands=ran) if ran else None, approved, where), "; "):
            return tell("delivery.done", parts=parts)
        expected = task.kind not in MESSAGES and (checks or self._role_of_reviewer(task))
        return tell("delivery.done_unchanged") if expected else NOTHING

    def _red(self, red: RedCheck, left: int) -> Again:
        command = one_line(red.command)
        printed = tell("delivery.red", command=command, output=shorten(red.output, 6_000))
        before = tell("delivery.red_before") if self.plan.red_base else None
        times = counted(left, "more time")
        tries = tell("external.tries_left", left=times) if self.outside else tell("delivery.tries_left", left=times)
        told = (printed, before, tries)
        why = f"the check {command!r} stayed red:\n{shorten(red.output, 2_000)}"
        return Again(joined(told, "\n"), Failed(why, retry=True))

    def _role_of_reviewer(self, task: Task) -> str | None:
        """An answer to a message needs no review, unless it changes the project."""
        answers = task.kind in MESSAGES and not self.workspace.sees_changes
        return task.review or (None if answers else self.plan.reviewer)

    async def _is_worth_review(self, task: Task, tip: str) -> bool:
        """By the project's rule. What makes other programs run something always is."""
        rule = self.plan.review
        if task.review or rule is None or not rule.when:
            return True
        changed = await self.workspace.changed(tip)
        return changed is None or rule.asks(changed) or bool(await self.workspace.triggers(tip))

    async def _reviewed(
        self, claim: Claim, done: Done, tip: str, role: str, left: int
    ) -> Outcome | Again | Task | None:  # fmt: skip
        """What the review of exactly this work came to; if it was approved, the review; None: it is too small for one.
        Work that was reviewed before is reviewed again."""
        task = claim.task
        born, reviews = await self._reviews(claim)
        if not reviews and not await self._is_worth_review(task, tip):
            return None
        key = f"review:{task.id}:{tip}" + ("" if self.workspace.sees_changes else f".{born}")
        review = next((each for each in reversed(reviews) if each.reviews_commit == tip), None)
        if review is not None and review.id in self._answered and not self.workspace.sees_changes:
            review, key = None, f"{key}.{len(reviews)}"  # It may have changed since; this workspace cannot tell.
        if review is None:
            # Work that was approved and then had to be merged with the work of others is reviewed again.
            refused = [each for each in reviews if each.outcome != APPROVED]
            most = self.plan.limits.review_rounds_max
            if len(refused) >= most:
                return Failed(f"{len(refused)} reviews did not approve it; the last said: {refused[-1].result}")
            if len(reviews) >= most * _APPROVED_AGAIN_MAX:
                return Failed(f"{len(reviews)} times it was reviewed, and others changed the same each time")
            if isinstance(fits := await self.workspace.fits(task, done, tip, left=left), Again):
                return fits
            authors = {claim.teammate, *(each.teammate for each in continued(claim, self.attempts))}
            try:
                told = (fits, *await self._told_of_review(task, reviews))
                body = _review_body(task, done, claim.teammate, told, await self.workspace.triggers(tip))
                review = await self.board.follow_up(
                    claim, f"Review #{task.id}: {one_line(task.title, 150)}", body=body,
                    role=role, not_for=",".join(sorted(authors)), priority=task.priority + 1, key=key,
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
            await self._pass_on(review, claim)
            return review
        self._answered.add(review.id)
        words = shorten(review.result or "", 8_000)
        why = f"{review.teammate} asked for changes, and nothing was changed: {shorten(words, 2_000)}"
        place, most = sum(each.outcome != APPROVED for each in reviews), self.plan.limits.review_rounds_max
        wanted = tell("delivery.changes_wanted", who=review.teammate, id=review.id, round=place, most=most, words=words)
        tries = tell("delivery.finishes_left", left=counted(left, "more time"))
        return Again(joined((wanted, tries), " "), Failed(why, retry=True))

    async def _told_of_review(self, task: Task, reviews: Sequence[Task]) -> list[Told]:
        """What a reviewer must know besides the work: what an earlier review asked for, and what is not part of it."""
        told = []
        if reviews and (last := reviews[-1]).result:
            since = last.reviews_commit if self.workspace.sees_changes else None
            told.append(tell("delivery.reviewed_before", id=last.id, who=last.teammate, outcome=last.outcome))
            told += [tell("delivery.changed_since", commit=since[:12])] if since else []
            told = [joined(told, " "), quote(shorten(last.result or "", 4_000))]
        found = await self.board.list_tasks(root=task.root, page=_OTHERS_MAX)
        others = [each for each in found if each.id != task.id and each.kind == "work" and not each.ended]
        if others:
            names = joined((tell("packet.waits", id=each.id, title=each.title) for each in others), "; ")
            told.append(tell("delivery.not_part", tasks=names))
        return told

    async def _pass_on(self, review: Task, claim: Claim) -> None:
        """The author reads the words of an approval too, with its next turn or task. Nobody has to answer them."""
        if review.result and review.teammate not in (None, claim.teammate):
            words = f"Approved #{claim.task.id}: {shorten(review.result, 8_000)}"
            key = f"approval:{review.id}"
            await self.board.tell(review.teammate, claim.teammate, words, kind="notice", task=claim.task.id, key=key)

    async def _reviews(self, claim: Claim) -> tuple[int, list[Task]]:
        """The epoch in which this line of attempts began, and the reviews that it asked for, the oldest first."""
        task = claim.task
        born, _ = line_of(claim, self.attempts)
        since = next((each.claimed_at for each in self.attempts if each.epoch == born), 0)
        needed = [need.task for need, _ in await self.board.needs_of(task.id)]  # What the task has waited for.
        found = await self.board.find_all(needed)
        asked = [found[each] for each in sorted(needed)]
        return born, [each for each in asked if each.reviews == task.id and each.put_at >= since]


def _no_time(spent: BudgetSpent) -> Waiting:
    """The work stays; the check runs when there is time for it."""
    return Waiting(on="budget", question=str(spent), amount=Amount(milliseconds=1_000))


def _is_verdict(done: Done, outside: bool) -> Done | Again:
    if done.outcome in (APPROVED, CHANGES):
        return delivered(done)
    told = tell("external.no_verdict", approved=APPROVED, changes=CHANGES) if outside else NOTHING
    told = told or tell("delivery.no_verdict", approved=APPROVED, changes=CHANGES)
    return Again(told, Failed("the review ended without a verdict", retry=True))


def _with_remarks(done: Done, review: Task) -> Done:
    """What stands in the result of approved work."""
    if not review.result:
        return done
    remarks = f"[Approved by {review.teammate} in #{review.id}: {one_line(review.result, 1_000)}]"
    return replace(done, result=f"{done.result}\n{remarks}")


def _review_body(task: Task, done: Done, who: str, told: Sequence[Told], runs: Mapping[str, str]) -> Told:
    listed = "\n".join(f"{one_line(path, 300)} ({kind})" for path, kind in runs.items())
    by = "the human" if task.put_by == HUMAN else task.put_by
    parts = (
        joined((tell("delivery.review", id=task.id, who=who), told[0]), " "), *told[1:],
        tell("delivery.verdict", approved=APPROVED, changes=CHANGES),
        tell("delivery.triggers", runs=listed) if runs else None,
        tell("delivery.task_was", by=by, body=shorten(task.body, 20_000)) if task.body else None,
        tell("delivery.author_says", who=who, words=shorten(done.result, 8_000)),
    )  # fmt: skip
    return joined(parts)
