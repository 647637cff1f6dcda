"""The part of the model that is about tasks: putting them, what they need, and how their ends spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dugnad.errors import BadInput, Cycle, LimitReached, NotReady, StaleClaim, UnknownTask
from dugnad.settings import Limits
from dugnad.types import ENDED, Amount, Budget, Need, NewTask, Outcome
from tests.board.model_team import Team

KINDS = {"tokens": "tokens", "microdollars": "dollars", "milliseconds": "seconds"}


@dataclass(slots=True)
class Job:
    """A task."""

    id: int
    root: int
    parent: int | None
    depth: int
    key: str
    lane: str  # Who may take it now,
    home: str  # and who if nobody waits to go on with it.
    not_for: str | None
    priority: int
    put_delay: int
    needs: dict[int, list[str | None]] = field(default_factory=dict)  # id: [outcome, open | met | broken].
    state: str = "blocked"
    due: int | None = None
    chain: int = 0
    claims: int = 0
    goes_on: bool = False  # The next claim goes on with what was begun, and charged, before.
    tries: int = 0
    children: int = 0
    repeats: int = 0
    teammate: str | None = None
    waiting_for: str | None = None
    letter: int | None = None  # The question it waits for.
    outcome: str | None = None
    put_by: str | None = None  # The teammate that added it while it had the parent.
    writer: int | None = None  # The hold that may write: who has it, or a lost holder nobody came after.

    def verdicts(self) -> list[str | None]:
        return [verdict for _, verdict in self.needs.values()]


@dataclass(slots=True)
class Hold:
    """A claim."""

    task: int
    teammate: str
    host: str
    lost: bool = False  # Taken back; that counted as a try.
    said: Outcome | None = None
    answer: str | None = None


@dataclass(slots=True)
class Account:
    """A root's budget."""

    caps: dict[str, int | None]
    runs: int = 0
    tasks: int = 0
    held: str | None = None
    spent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    reserved: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    parked: bool = False  # Some task waits for reservations of others to come back.
    lowered: bool = False  # A person set a cap below what was used; only then may more be used than the cap.


@dataclass(slots=True)
class Reservation:
    task: int
    amount: Amount
    hold: int
    pace: str | None
    at: int
    tokens: int  # As the provider counts them: used, or as long as that is not known, reserved.
    open: bool = True


def caps_of(budget: Budget | None) -> dict[str, int | None]:
    given = budget or Budget()
    scaled = {"microdollars": (given.dollars, 1_000_000), "milliseconds": (given.seconds, 1_000)}
    caps = {name: None if value is None else round(value * scale) for name, (value, scale) in scaled.items()}
    return {"tasks": given.tasks, "tokens": given.tokens, **caps}


def judge(wanted: str | None, state: str, outcome: str | None) -> str:
    """Whether a task in this state is what a need wanted."""
    if state not in ENDED:
        return "open"
    if wanted in ("failed", "cancelled", "skipped"):
        return "met" if state == wanted else "broken"
    return "met" if wanted == "ended" or (state == "done" and wanted in (None, outcome)) else "broken"


class Tasks(Team):
    def __init__(self, limits: Limits, now: int) -> None:
        super().__init__(now, int(limits.lease_seconds * 1000))
        self.limits = limits
        self.jobs: dict[int, Job] = {}
        self.holds: list[Hold] = []
        self.accounts: dict[int, Account] = {}
        self.reservations: dict[str, Reservation] = {}
        self.just_ended: list[int] = []

    # Putting.

    def put(self, entries: Sequence[NewTask], hold: int | None = None) -> list[int]:
        if any(entry.not_for is not None and entry.not_for == entry.assignee for entry in entries):
            raise BadInput
        holder = None if hold is None else self.fenced(hold)
        for entry in entries:
            if entry.parent is not None and entry.parent > 0:
                self._job(entry.parent)
        ids: list[int] = []
        new: dict[int, NewTask] = {}
        again: set[int] = set()
        for entry in entries:
            parent = entry.parent if entry.parent is None or entry.parent > 0 else ids[-entry.parent - 1]
            job = self._placed(entry, parent, hold is not None)
            there = self._same(job)
            if there is not None:
                ids.append(there.id)
                again |= {there.id} - new.keys()
                continue
            if job.depth > self.limits.depth_max:
                raise LimitReached("", guard="depth")
            ids.append(job.id)
            new[job.id] = entry
            job.put_by = None if hold is None else self.holds[hold].teammate
            self.jobs[job.id] = job
            if parent is None:
                self.accounts[job.id] = Account(caps_of(entry.budget))
        if holder is not None:
            self._count_follow_ups(holder, again, len(new))
        for each in new:
            self.accounts[self.jobs[each].root].tasks += 1
            if self.accounts[self.jobs[each].root].tasks > self.limits.tasks_per_root_max:
                raise LimitReached("", guard="tasks")
        self._join(new, ids)
        self.tell_who_added()
        return ids

    def _placed(self, entry: NewTask, parent: int | None, followed: bool) -> Job:
        own, above = len(self.jobs) + 1, self.jobs.get(parent or 0)
        content = (entry.title, entry.body, entry.role, entry.assignee, entry.not_for)
        return Job(
            id=own,
            root=above.root if above else own,
            parent=parent,
            depth=above.depth + 1 if above else 0,
            key=entry.key or (f"same {content}" if followed else f"own {own}"),
            lane=(home := f"@{entry.assignee}" if entry.assignee else entry.role or ""),
            home=home,
            not_for=entry.not_for,
            priority=entry.priority,
            put_delay=round(entry.delay_seconds * 1000),
        )

    def _same(self, job: Job) -> Job | None:
        """The task that has this key already: among the roots, or under its root."""
        scope = None if job.parent is None else job.root
        for other in self.jobs.values():
            if other.key == job.key and (None if other.parent is None else other.root) == scope:
                return other
        return None

    def _count_follow_ups(self, holder: Job, again: set[int], new: int) -> None:
        for each in again:
            self.jobs[each].repeats += 1
            if self.jobs[each].repeats > self.limits.repeats_max:
                raise LimitReached("", guard="repeats")
        holder.children += new
        if new and holder.children > self.limits.children_max:
            raise LimitReached("", guard="children")

    def _join(self, new: dict[int, NewTask], ids: list[int]) -> None:
        """The edges of new tasks: none twice, no circle, and to tasks that exist."""
        for each, entry in new.items():
            for given in entry.needs:
                need = given if isinstance(given, Need) else Need(given)
                needed = need.task if need.task > 0 else ids[-need.task - 1]
                if needed in self.jobs[each].needs:
                    raise BadInput
                self.jobs[each].needs[needed] = [need.outcome, "open"]
        if any(self._waits_for(each, each) for each in new):
            raise Cycle
        for each in new:
            for needed, edge in self.jobs[each].needs.items():
                edge[1] = judge(edge[0], self._job(needed).state, self.jobs[needed].outcome)
                self._lift(needed, self.jobs[each].chain + 1)
        for each in new:
            job = self.jobs[each]
            job.due = self.now + job.put_delay if job.put_delay else None
            self._free(job)
        for each in new:
            if "broken" in self.jobs[each].verdicts():
                self._skip(self.jobs[each])

    def _lift(self, task: int, chain: int) -> None:
        job, chain = self.jobs[task], min(chain, self.limits.chain_max)
        if job.chain < chain:
            job.chain = chain
            for needed in job.needs:
                self._lift(needed, chain + 1)

    def _waits_for(self, task: int, other: int) -> bool:
        """Whether a way of open needs leads from the one to the other."""
        seen: set[int] = set()
        ahead = [task]
        while ahead:
            for needed, (_, verdict) in self.jobs[ahead.pop()].needs.items():
                if needed == other and verdict == "open":
                    return True
                if verdict == "open" and needed not in seen and needed in self.jobs:
                    seen.add(needed)
                    ahead.append(needed)
        return False

    def add_need(self, task: int, need: Need) -> None:
        job, needed = self._job(task), self._job(need.task)
        if job.state not in ("blocked", "ready", "scheduled"):
            raise NotReady
        there = job.needs.get(need.task)
        if there and there[1] == "open":
            if there[0] != need.outcome:
                raise NotReady
            return
        if task == need.task or self._waits_for(need.task, task):
            raise Cycle
        verdict = judge(need.outcome, needed.state, needed.outcome)
        job.needs[need.task] = [need.outcome, verdict]
        if verdict == "met":
            return
        self._lift(need.task, job.chain + 1)
        job.state = "blocked"
        job.writer = None  # A lost holder cannot end what now has to wait.
        if verdict == "broken":
            self._skip(job)
            self.tell_who_added(job.id)

    # Ends, and what they mean to others.

    def tell_who_added(self, *last: int) -> None:
        """Of what was skipped, and then of what ended first, those are told that added it and still have its parent;
        not those that wait for it."""
        for each in (*sorted(set(self.just_ended) - set(last)), *sorted(set(self.just_ended) & set(last))):
            job = self.jobs[each]
            parent = self.jobs.get(job.parent or 0)
            if parent is None or job.put_by is None or parent.teammate != job.put_by or each in parent.needs:
                continue
            if parent.state in ("claimed", "waiting") and self.members[job.put_by].state != "stopped":
                self.post("board", job.put_by, "notice", parent.id)
        self.just_ended = []

    def _free(self, job: Job) -> None:
        """Let it go on if nothing is left to wait for."""
        if job.state in ("blocked", "waiting") and all(verdict == "met" for verdict in job.verdicts()):
            later = job.due is not None and job.due > self.now
            job.state, job.waiting_for = "scheduled" if later else "ready", None
            job.due = job.due if later else None

    def _end(self, job: Job, state: str, outcome: str | None = None) -> None:
        job.state, job.outcome, job.due, job.writer, job.waiting_for = state, outcome, None, None, None
        job.letter = None
        self.just_ended.append(job.id)
        self._forfeit(job.id)
        for other in list(self.jobs.values()):
            edge = other.needs.get(job.id)
            if edge and edge[1] == "open":
                edge[1] = judge(edge[0], state, outcome)
                if edge[1] == "met" and (other.state == "blocked" or other.waiting_for == "tasks"):
                    self._free(other)
        for other in list(self.jobs.values()):
            if other.needs.get(job.id, [None, None])[1] == "broken":
                self._skip(other)

    def _skip(self, job: Job) -> None:
        if job.state == "blocked":
            self._end(job, "skipped")

    def cancel(self, task: int, dependents: bool) -> list[int]:
        job = self._job(task)
        if job.state == "cancelled":
            return []
        if job.state in ENDED:
            raise NotReady
        ended = [task]
        for each in ended if dependents else ():
            ended += [
                other.id
                for other in self.jobs.values()
                if other.needs.get(each, [None, None])[1] == "open" and other.id not in ended
            ]
        ended = sorted(each for each in ended if self.jobs[each].state not in ENDED)
        for each in ended:  # All at once: none of them is skipped because of another.
            self.jobs[each].state = "cancelled"
        for each in ended:
            self._end(self.jobs[each], "cancelled")
        self.tell_who_added(*ended)
        return ended

    def release(self, task: int, delay_ms: int) -> None:
        job = self._job(task)
        if job.state not in ("claimed", "waiting") or "open" in job.verdicts():
            raise NotReady
        self._forfeit(task)
        job.goes_on = job.goes_on and job.state == "waiting"
        self._let_go(job, delay_ms)

    def _let_go(self, job: Job, delay_ms: int) -> None:
        job.state, job.due = ("scheduled", self.now + delay_ms) if delay_ms else ("ready", None)
        job.writer, job.waiting_for, job.letter, job.lane = None, None, None, job.home

    def retry(self, task: int) -> list[int]:
        job = self._job(task)
        if job.state not in ("failed", "cancelled") or "broken" in job.verdicts():
            raise NotReady
        opened = [job]
        for each in opened:
            each.state, each.outcome, each.due, each.claims, each.tries = "blocked", None, None, 0, 0
            each.goes_on = False
            each.lane = each.home
            self._free(each)
            for other in self.jobs.values():
                edge = other.needs.get(each.id)
                if edge and edge[1] == "broken":
                    edge[1] = "open"
                    if other.state == "skipped" and "broken" not in other.verdicts():
                        opened.append(other)
        return sorted(each.id for each in opened)

    def live(self, hold: int) -> bool:
        return self.jobs[self.holds[hold].task].writer == hold

    def fenced(self, hold: int) -> Job:
        if not self.live(hold):
            raise StaleClaim
        return self.jobs[self.holds[hold].task]

    def _job(self, task: int) -> Job:
        if task not in self.jobs:
            raise UnknownTask
        return self.jobs[task]

    def _forfeit(self, task: int) -> None:
        """What is still reserved for it is of unknown fate, so it counts as spent."""
        for reservation in self.reservations.values():
            if reservation.task == task:
                self._close(reservation, reservation.amount)

    def _close(self, reservation: Reservation, used: Amount) -> None:
        account = self.accounts[self.jobs[reservation.task].root]
        for kind in KINDS if reservation.open else ():
            account.reserved[kind] -= getattr(reservation.amount, kind)
            account.spent[kind] += getattr(used, kind)
        if reservation.open and account.parked and account.held in (None, "tasks"):
            self._unpark(self.jobs[reservation.task].root)
        reservation.tokens = used.tokens if reservation.open else reservation.tokens
        reservation.open = False

    def _unpark(self, root: int) -> None:
        self.accounts[root].parked = False
        for job in self.jobs.values():
            if job.root == root and job.waiting_for == "budget":
                job.state, job.waiting_for = "ready", None
