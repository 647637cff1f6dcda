"""The board's rules once more, as plain objects in memory: what test_state_machine expects of both databases.

Written from the design and the docstrings, without a look at speed. It has no epochs: a task knows the one hold that
may still write, and nothing else about the past. A verb that is refused changes nothing (`Model.attempt`).
Tasks and their needs stand in model_tasks, teammates and messages in model_team.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from dugnad.errors import (
    BadInput,
    BudgetSpent,
    CoolingDown,
    Cycle,
    DugnadError,
    NotReady,
    StaleClaim,
    UnknownReservation,
    UnknownTask,
)
from dugnad.settings import Limits
from dugnad.types import ENDED, HUMAN, Amount, Budget, Done, Failed, Outcome, Pace, Released, Waiting
from tests.board.model_tasks import KINDS, Account, Hold, Job, Reservation, Tasks, caps_of


class Model(Tasks):
    def __init__(self, limits: Limits, now: int) -> None:
        super().__init__(limits, now)
        self.turns: dict[tuple[int, int], str] = {}
        self.claim_keys: dict[str, int] = {}
        self.pauses: dict[str, tuple[int, int, int]] = {}  # Of a provider key: until, how long, strikes.

    def attempt(self, verb: Callable[[], Any]) -> Any:
        """The verb's answer, or its refusal, after which everything is as before."""
        before = pickle.dumps(self.__dict__)
        try:
            return verb()
        except DugnadError as refusal:
            self.__dict__.update(pickle.loads(before))
            return refusal

    # Claims.

    def come_due(self) -> None:
        """What the clock has let go on; every claim looks, also one that is refused."""
        for job in self.jobs.values():
            if job.state == "scheduled" and job.due is not None and job.due <= self.now:
                job.state, job.due = "ready", None

    def claim(self, who: str, host: str, task: int | None, key: str) -> int | None:
        if key in self.claim_keys:
            return self.claim_keys[key]
        lanes = self.lanes_of(who, host)
        if task is not None:
            job = self._job(task)
            if job.state != "ready" or job.lane not in lanes or job.not_for == who:
                raise NotReady
            if self._no_run_left(job):
                raise BudgetSpent("", kind=self.accounts[job.root].held or "tasks", may_free_up=False)
            return self._take(job, who, host, key)
        ready = [job for job in self.jobs.values() if job.state == "ready" and job.lane in lanes and job.not_for != who]
        for job in sorted(ready, key=lambda each: (-each.priority, -each.chain, each.id)):
            if not self._no_run_left(job):
                return self._take(job, who, host, key)
            self.accounts[job.root].held = self.accounts[job.root].held or "tasks"
        return None

    def claimable(self, job: Job, who: str) -> bool:
        lanes = {f"@{who}", *(self.members[who].roles if who in self.members else ()), ""}
        return job.state == "ready" and job.lane in lanes and job.not_for != who and not self._no_run_left(job)

    def _no_run_left(self, job: Job) -> bool:
        account = self.accounts[job.root]
        cap = account.caps["tasks"]
        if account.held not in (None, "tasks"):
            return True
        return not job.goes_on and (account.held is not None or (cap is not None and account.runs >= cap))

    def _take(self, job: Job, who: str, host: str, key: str) -> int:
        self.holds.append(Hold(job.id, who, host))
        number = len(self.holds) - 1
        job.state, job.teammate, job.writer, job.claims = "claimed", who, number, job.claims + 1
        self.accounts[job.root].runs += not job.goes_on
        self.claim_keys[key] = number
        return number

    # Settling.

    def settle(self, hold: int, outcome: Outcome) -> str:
        return self.settle_all((hold, outcome))[0]

    def settle_all(self, *calls: tuple[int, Outcome]) -> list[str]:
        """At the same moment, so that nobody is told who let go of its task just then."""
        answers = [self._settled(hold, outcome) for hold, outcome in calls]
        self.tell_who_added(*(self.holds[hold].task for hold, _ in calls))
        return answers

    def _settled(self, hold: int, outcome: Outcome) -> str:
        own = self.holds[hold]
        if not self.live(hold):
            if own.said == outcome and own.answer is not None:
                return own.answer
            raise StaleClaim
        own.said, own.answer = outcome, self._settle(self.jobs[own.task], own, outcome)
        return own.answer

    def _settle(self, job: Job, own: Hold, outcome: Outcome) -> str:
        worn_out = job.claims >= self.limits.claims_max
        if isinstance(outcome, Done):
            self._end(job, "done", outcome.outcome)
            return "done"
        if isinstance(outcome, Failed):
            job.tries += not own.lost  # A claim that was lost has been counted.
            if outcome.retry and job.tries < self.limits.attempts_max and not worn_out:
                self._forfeit(job.id)
                self._let_go(job, self._backoff(job.tries - 1))
                job.goes_on = False
                return "retry"
            self._end(job, "failed")
            if outcome.retry:
                self.post("board", HUMAN, "notice", job.id)
            return "failed"
        if worn_out and isinstance(outcome, Released) and outcome.resume and outcome.delay_seconds:
            outcome = Waiting(on="human", question="Mend that")  # Nothing is wrong with the work.
        if isinstance(outcome, Released):
            free = outcome.resume and not outcome.delay_seconds
        else:
            free = outcome.on == "budget" or (outcome.on in ("human", "plan") and outcome.ask == HUMAN)
        if worn_out and not free:
            self._end(job, "failed")
            self.post("board", HUMAN, "notice", job.id)
            return "failed"
        if isinstance(outcome, Released):
            self._let_go(job, round(outcome.delay_seconds * 1000))
            job.goes_on = outcome.resume
        else:
            self._wait(job, own, outcome)
            job.goes_on = True
        job.claims -= free and not own.lost
        self._forfeit(job.id)
        return "released" if isinstance(outcome, Released) else "waiting"

    def _backoff(self, tries: int) -> int:
        """Without jitter: the machine hands in a chance that is always the same."""
        return int(min(self.limits.backoff_seconds * 2**tries, self.limits.backoff_seconds_max) * 1000)

    def _wait(self, job: Job, own: Hold, outcome: Waiting) -> None:
        for each in outcome.tasks if outcome.on == "tasks" else ():
            if self._job(each).id == job.id or self._waits_for(each, job.id):
                raise Cycle
        self._let_go(job, 0)
        if outcome.on == "tasks":
            still_open = {each for each in outcome.tasks if self.jobs[each].state not in ENDED}
            for each in still_open:
                job.needs[each] = ["ended", "open"]
                self._lift(each, job.chain + 1)
            if still_open:
                job.state, job.waiting_for = "waiting", "tasks"
            if any(self.jobs[each].not_for == own.teammate for each in outcome.tasks):
                job.lane = f"@{own.teammate}"
        elif outcome.on == "budget":
            reached = self._too_much(self.accounts[job.root], outcome.amount)
            if reached:
                job.state, job.waiting_for = "waiting", "budget"
            if reached and reached[1]:  # Others may yet give back what they reserved.
                self.accounts[job.root].parked = True
            elif reached:
                self.accounts[job.root].held = self.accounts[job.root].held or reached[0]
        else:
            self.reachable(outcome.ask)
            kind = "plan" if outcome.on == "plan" else "question"
            job.letter = self.post(own.teammate, outcome.ask, kind, job.id, text=outcome.question)
            job.state, job.waiting_for = "waiting", outcome.on

    def reply(self, letter: int, sender: str, text: str, accepted: bool | None) -> None:
        answered = self.answer(letter, sender, text, accepted)
        for job in self.jobs.values():
            if answered and job.letter == letter and job.state == "waiting":
                job.state, job.waiting_for = "ready", None
                self.letters[-1].shown = True  # The task itself goes on with it.

    def heartbeat(self, host: str) -> list[int]:
        """Also brings back a host that was lost. What it still has."""
        self.start_host(host)
        return [
            job.id
            for job in self.jobs.values()
            if job.state == "claimed" and job.writer is not None and self.holds[job.writer].host == host
        ]

    def take_back(self) -> list[int]:
        for host in self.hosts.values():
            host.lost = host.lost or host.until <= self.now
        taken = []
        for job in list(self.jobs.values()):
            if job.state != "claimed" or job.writer is None or self.alive(self.holds[job.writer].host):
                continue
            taken.append(job.id)
            self.holds[job.writer].lost = True
            self._forfeit(job.id)
            job.goes_on = True
            job.tries += 1
            if job.tries >= self.limits.attempts_max or job.claims >= self.limits.claims_max:
                self._end(job, "failed")
                self.post("board", HUMAN, "notice", job.id)
            elif job.tries == 1:  # Its holder may still write, until somebody else has it.
                job.state, job.due = "ready", None
            else:
                job.state, job.due = "scheduled", self.now + self._backoff(job.tries - 2)
        self.tell_who_added(*taken)
        return taken

    # Budgets and turns.

    def _too_much(self, account: Account, amount: Amount) -> tuple[str, bool] | None:
        for kind, word in KINDS.items():
            cap, more = account.caps[kind], account.spent[kind] + getattr(amount, kind)
            if cap is not None and more + account.reserved[kind] > cap:
                return word, more <= cap
        return None

    def reserve(self, hold: int, amount: Amount, key: str, pace: Pace | None) -> str:
        label = pace.key if pace else None
        if there := self.reservations.get(key):
            if (there.hold, there.amount, there.pace) != (hold, amount, label):
                raise BadInput
            return key
        job = self.fenced(hold)
        account = self.accounts[job.root]
        if reached := self._too_much(account, amount):
            raise BudgetSpent("", kind=reached[0], may_free_up=reached[1])
        if pace and (seconds := self._too_fast(pace, amount.tokens)):
            raise CoolingDown("", key=pace.key, seconds=seconds)
        self.reservations[key] = Reservation(job.id, amount, hold, label, self.now, amount.tokens)
        for kind in KINDS:
            account.reserved[kind] += getattr(amount, kind)
        return key

    def _too_fast(self, pace: Pace, tokens: int) -> float:
        """How long to wait, with all the jitter there can be; 0: not at all."""
        until, length, _ = self.pauses.get(pace.key, (0, 0, 0))
        if until > self.now:
            return (until - self.now) / 1000 + max(1.0, length / 2000)
        own = [each for each in self.reservations.values() if each.pace == pace.key and each.at > self.now - 60_000]
        requests_max, tokens_max = pace.requests_per_minute or 10**9, pace.tokens_per_minute or 10**9
        for wait in sorted({0, *(each.at + 60_000 - self.now for each in own)}):
            left = [each.tokens for each in own if each.at + 60_000 - self.now > wait]
            if len(left) < requests_max and (sum(left) == 0 or sum(left) + tokens <= tokens_max):
                return wait / 1000 + 1.0 if wait else 0.0
        raise AssertionError("a minute later there is room")

    def cool_down(self, key: str, seconds: float | None) -> tuple[int, int, int]:
        until, length, strikes = self.pauses.get(key, (0, 0, 0))
        named = round((seconds or 0) * 1000)
        if until > self.now:
            if self.now + named > until:
                self.pauses[key] = (self.now + named, named, strikes)
            return self.pauses[key]
        strikes = strikes + 1 if self.now - until <= self.limits.cooldown_forget_seconds * 1000 else 1
        doubled = min(self.limits.cooldown_seconds * 2 ** (strikes - 1), self.limits.cooldown_seconds_max)
        length = named or round(doubled * 1000)
        self.pauses[key] = (self.now + length, length, strikes)
        return self.pauses[key]

    def spend(self, hold: int, key: str, used: Amount) -> None:
        self._close(self._own_reservation(hold, key), used)

    def _own_reservation(self, hold: int, key: str) -> Reservation:
        job = self.fenced(hold)
        if key not in self.reservations or self.reservations[key].task != job.id:
            raise UnknownReservation
        return self.reservations[key]

    def record(self, hold: int, number: int, body: str, key: str | None, used: Amount, shown: list[int]) -> int:
        self.fenced(hold)
        own = None if key is None else self._own_reservation(hold, key)
        if (there := self.turns.get((hold, number))) is not None:
            if there != body:
                raise BadInput
            return number
        self.turns[hold, number] = body
        if own:
            self._close(own, used)
        self.show(self.holds[hold].teammate, shown)
        return number

    def set_budget(self, root: int, budget: Budget, add: bool) -> None:
        if root not in self.accounts:
            raise UnknownTask
        account, caps = self.accounts[root], caps_of(budget)
        if add:
            caps = {
                kind: cap if cap is None or caps[kind] is None else cap + (caps[kind] or 0)
                for kind, cap in account.caps.items()
            }
        account.caps, account.held = caps, None
        used = {kind: account.spent[kind] + account.reserved[kind] for kind in KINDS} | {"tasks": account.runs}
        account.lowered = any(cap is not None and used[kind] > cap for kind, cap in caps.items())
        self._unpark(root)
