"""Random verbs on SQLite, on PostgreSQL and on a model of the rules, compared after every step.

All three live by one clock that only the machine moves. DUGNAD_EXAMPLES=20 makes the run twenty times as long.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Iterator
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from dugnad.types import Budget, Need, NewTask, Outcome
from tests.board.crew import claim_many
from tests.board.draws import CREW, HOSTS, beating, caps, drafts, ends, hosts, names, outcomes, places, words
from tests.board.errands import Errands, quietly
from tests.board.sides import Side
from tests.board.stage import MOVES, Nothing, Stage, drawn_for, move

TIMES = int(os.environ.get("DUGNAD_EXAMPLES", "1"))
STEPS = 50


async def gathered(*calls: Awaitable[Any]) -> list[Any]:
    return await asyncio.gather(*calls)


class BoardMachine(Errands):
    # Tasks.

    @initialize(first=st.lists(st.tuples(drafts, caps), min_size=2, max_size=5))
    def begin(self, first: list[tuple[dict[str, Any], Budget]]) -> None:
        for host in HOSTS:
            self.start_host(host)
        for name, roles in CREW.items():
            self.spawn(name, roles)
            self.seat(HOSTS[name == "lena"], name)
        for draft, budget in first:
            self.put(draft, budget, None)

    @move(3, draft=drafts, budget=st.none() | caps, below=st.none() | places)
    def put(self, draft: dict[str, Any], budget: Budget | None, below: int | None) -> None:
        parent = None if below is None or not self.model.jobs else self.task(below)
        new = self.entry(draft, 1, parent=parent, budget=budget if parent is None else None)
        self.step(lambda: self.model.put([new]), lambda side: side.board.put_many([side.entry(new)]), Side.learn)

    @move(2, one=drafts, other=drafts, below=st.booleans(), budget=st.none() | caps, times=st.integers(1, 2))
    def put_two(
        self, one: dict[str, Any], other: dict[str, Any], below: bool, budget: Budget | None, times: int
    ) -> None:
        new = [self.entry(one, 2, budget=budget), self.entry(other, 2, parent=-1 if below else None)]
        for _ in range(times):
            self.step(
                lambda: self.model.put(new), lambda side: side.board.put_many([*map(side.entry, new)]), Side.learn
            )

    @move(3, place=places, draft=drafts, times=st.sampled_from([1, 1, 2, 3]))
    def follow_up(self, place: int, draft: dict[str, Any], times: int) -> None:
        hold = self.hold(place)
        new = self.entry(draft, 1, parent=self.model.holds[hold].task)
        for _ in range(times):
            self.step(
                lambda: self.model.put([new], hold),
                lambda side: side.board.follow_ups(side.claims[hold], [side.entry(new)]),
                Side.learn,
            )

    @move(2, place=places, one=drafts, other=drafts)
    def follow_up_with_two(self, place: int, one: dict[str, Any], other: dict[str, Any]) -> None:
        """The second under the first."""
        hold = self.hold(place)
        new = [self.entry(one, 2, parent=self.model.holds[hold].task), self.entry(other, 2, parent=-1)]
        self.step(
            lambda: self.model.put(new, hold),
            lambda side: side.board.follow_ups(side.claims[hold], [*map(side.entry, new)]),
            Side.learn,
        )

    @move(3, place=places, needed=places, word=words)
    def add_need(self, place: int, needed: int, word: str | None) -> None:
        task = self.task(place, "blocked", "ready", "scheduled")
        need, key = Need(self.task(needed), word), self.new_key()
        self.step(
            lambda: self.model.add_need(task, need),
            lambda side: side.board.add_need(side.id(task), Need(side.id(need.task), word), key=key),
            keyed=True,
        )

    @move(2, place=places, dependents=st.booleans())
    def cancel(self, place: int, dependents: bool) -> None:
        task, key = self.task(place), self.new_key()
        self.step(
            lambda: self.model.cancel(task, dependents),
            lambda side: side.board.cancel(side.id(task), dependents=dependents, key=key),
            Side.same_tasks,
            keyed=True,
        )

    @move(2, place=places, delay=st.sampled_from([0.0, 3.0]))
    def release(self, place: int, delay: float) -> None:
        task, key = self.task(place, "claimed", "waiting"), self.new_key()
        self.step(
            lambda: self.model.release(task, round(delay * 1000)),
            lambda side: side.board.release(side.id(task), delay_seconds=delay, key=key),
            keyed=True,
        )

    @move(3, place=places)
    def retry(self, place: int) -> None:
        task, key = self.task(place, "failed", "cancelled", "skipped"), self.new_key()
        self.may_reopen = True
        self.step(
            lambda: self.model.retry(task),
            lambda side: side.board.retry(side.id(task), key=key),
            Side.same_tasks,
            keyed=True,
        )

    @move(1, place=places)
    def say_again(self, place: int) -> None:
        """A call that was answered, once more with its key: nothing happens."""
        ask = self.one_of(self.keyed, place)
        self.step(lambda: None, ask, lambda side, got, wanted: True)

    # Claims.

    @move(3, name=names, host=hosts, place=st.none() | places)
    def claim(self, name: str, host: str, place: int | None) -> None:
        seated = self.model.members.get(name)
        task = None if place is None else self.task(place, "ready")
        self._claim(name, seated.host or host if seated else host, task)

    @move(5, name=names)
    def claim_next(self, name: str) -> None:
        """At a host that lives, and with something to be had, so that something happens."""
        if (member := self.model.members.get(name)) and member.state == "stopped":
            self.spawn(name, None)
        if member and not self.model.alive(member.host or HOSTS[0]):
            self.beat(member.host or HOSTS[0])
        if member and self.model.members[name].state != "seated":
            self.seat(HOSTS[0], name)
        if not any(self.model.claimable(job, name) for job in self.model.jobs.values()):
            self.bring_about()
        self.claim(name, HOSTS[0], None)

    def bring_about(self) -> None:
        """Something that is ready: what is due soon, or something new."""
        new = NewTask(title="more", budget=Budget(tasks=2, tokens=3))
        if any(job.state == "scheduled" for job in self.model.jobs.values()):
            self.pass_time(3, HOSTS, False)
        else:
            self.step(lambda: self.model.put([new]), lambda side: side.board.put_many([new]), Side.learn)

    @move(10, name=names, outcome=outcomes)
    def work_off(self, name: str, outcome: Outcome) -> None:
        """Take the next, and be done with it."""
        self.claim_next(name)
        self.settle(0, outcome)

    @move(1, name=names, host=hosts)
    def claim_from(self, name: str, host: str) -> None:
        self._claim(name, host, None)

    def _claim(self, name: str, host: str, task: int | None) -> None:
        key = self.new_key()
        self.model.come_due()
        self.step(
            lambda: self.model.claim(name, host, task, key),
            lambda side: side.board.claim(name, host, task=None if task is None else side.id(task), key=key),
            self.same_claim,
        )

    @move(2)
    def claim_for_all(self) -> None:
        """One transaction for all who sit at a host."""
        crew = [name for name, each in self.model.members.items() if each.host == HOSTS[0]]
        if not crew or not self.model.alive(HOSTS[0]):
            return
        self.model.come_due()
        self.step(
            lambda: [self.model.claim(name, HOSTS[0], None, f"unkept {self.new_key()}") for name in crew],
            lambda side: claim_many(side.board, crew, HOSTS[0]),
            self.same_claims,
        )

    @move(1, place=places)
    def claim_again(self, place: int) -> None:
        """The answer was lost: the same key gives the same claim, whatever became of it."""
        key = self.one_of([key for key in self.model.claim_keys if key.startswith("key")], place)
        own = self.model.holds[self.model.claim_keys[key]]
        self.model.come_due()
        self.step(
            lambda: self.model.claim(own.teammate, own.host, None, key),
            lambda side: side.board.claim(own.teammate, own.host, key=key),
            self.same_claim,
        )

    @move(6, place=places, outcome=outcomes)
    def settle(self, place: int, outcome: Outcome) -> None:
        hold, outcome = self.hold(place), self.aimed(outcome)
        self.step(
            lambda: self.model.settle(hold, outcome),
            lambda side: side.board.settle(side.claims[hold], side.outcome(outcome)),
        )

    @move(3, one=ends, other=ends, joined=st.booleans())
    def settle_two(self, one: Outcome, other: Outcome, joined: bool) -> None:
        """At the same moment, in one transaction; perhaps with somebody who waits for both."""
        live = [hold for hold in range(len(self.model.holds)) if self.model.live(hold)]
        first, second = self.one_of(live[:-1], 0), live[-1]
        if joined:
            both = NewTask(title="both", needs=tuple(Need(self.model.holds[hold].task) for hold in (first, second)))
            self.step(lambda: self.model.put([both]), lambda side: side.board.put_many([side.entry(both)]), Side.learn)
        self.step(
            lambda: self.model.settle_all((first, one), (second, other)),
            lambda side: gathered(
                side.board.settle(side.claims[first], one), side.board.settle(side.claims[second], other)
            ),
        )

    @move(2, place=places)
    def settle_again(self, place: int) -> None:
        """The answer was lost."""
        hold = self.one_of([number for number, hold in enumerate(self.model.holds) if hold.answer], place)
        outcome = self.model.holds[hold].said
        assert outcome is not None
        self.step(
            lambda: self.model.settle(hold, outcome),
            lambda side: side.board.settle(side.claims[hold], side.outcome(outcome)),
        )

    @move(1, place=places, into=st.sampled_from(["main", "other", ""]))
    def merge_into(self, place: int, into: str) -> None:
        hold = self.hold(place)
        self.step(
            lambda: self.model.fenced(hold) and None,
            lambda side: side.board.merge_into(side.claims[hold], into),
        )

    @move(1, place=places, note=st.booleans())
    def leave_word(self, place: int, note: bool) -> None:
        hold = self.hold(place)
        author = self.model.holds[hold].teammate
        self.step(
            lambda: self.model.fenced(hold) and None,
            lambda side: quietly(
                side.board.write_note(author, "a note", "found", claim=side.claims[hold])
                if note
                else side.board.hand_over(side.claims[hold], "{}")
            ),
        )

    @move(4, seconds=st.sampled_from([1, 3, 31, 31]), beats=beating, sweep=st.booleans(), name=names)
    def pass_time(self, seconds: int, beats: tuple[str, ...], sweep: bool, name: str = "") -> None:
        self.model.now += seconds * 1000
        self.wait(self.stage.set_clock(self.model.now))
        for host in beats:
            self.beat(host)
        if sweep:
            self.take_back()
        if name:
            self.claim(name, HOSTS[0], None)

    def beat(self, host: str) -> None:
        self.step(
            lambda: self.model.heartbeat(host),
            lambda side: side.board.heartbeat(host),
            lambda side, got, wanted: side.same_tasks([task for task, _ in got], wanted),
        )

    @move(2)
    def take_back(self) -> None:
        self.step(self.model.take_back, lambda side: side.board.take_back(), Side.same_tasks)

    @rule(choice=st.sampled_from(MOVES).flatmap(drawn_for))
    def act(self, choice: tuple[str, dict[str, Any]]) -> None:
        """The move that was drawn; where it has nothing to work on yet, somebody takes up work instead."""
        name, drawn = choice
        try:
            getattr(self, name)(**drawn)
        except Nothing:
            self.claim_next("bob")


@pytest.fixture
def stage(postgres: str) -> Iterator[Stage]:
    """A schema whose clock stands still until the machine moves it."""
    schema = f"machine_{os.getpid()}"

    async def open_stage() -> Stage:
        made = Stage(runner.get_loop())
        await made.open(f"{postgres}?board={schema}", await asyncpg.connect(postgres), schema)
        return made

    with asyncio.Runner() as runner:
        made = runner.run(open_stage())
        yield made
        runner.run(made.close())


def walk(stage: Stage, examples: int) -> None:
    run_state_machine_as_test(
        lambda: BoardMachine(stage),
        settings=settings(
            max_examples=examples * TIMES,
            stateful_step_count=STEPS,
            derandomize="DUGNAD_EXAMPLES" not in os.environ,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("examples", [10, pytest.param(60, marks=pytest.mark.proof)])
@pytest.mark.timeout(1_800)  # Long walks, and longer with DUGNAD_EXAMPLES.
def test_both_boards_do_what_the_rules_say(stage: Stage, examples: int) -> None:
    walk(stage, examples)


@pytest.mark.parametrize("examples", [15, pytest.param(130, marks=pytest.mark.proof)])
@pytest.mark.timeout(1_800)
def test_sqlite_does_what_the_rules_say(examples: int) -> None:
    """The rules are the same code on both databases, and here a step costs a quarter: so many more of them."""
    with asyncio.Runner() as runner:
        walk(Stage(runner.get_loop()), examples)
