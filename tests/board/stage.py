"""One clock, two boards and a model, taken through the same verbs and compared after each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from dugnad.board import Board, open_board
from dugnad.clock import Sources
from dugnad.errors import DugnadError
from dugnad.settings import Limits
from dugnad.types import ENDED, Claim, Need, NewTask, Outcome, Waiting
from tests.board.model import Model
from tests.board.model_team import REPLIES
from tests.board.sides import NOWHERE, Side, expected

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., None])

LIMITS = Limits(
    depth_max=2, children_max=2, tasks_per_root_max=4, repeats_max=1, attempts_max=2, claims_max=3, chain_max=3,
    lease_seconds=30, lease_seconds_max=120, backoff_seconds=2, backoff_seconds_max=300, cooldown_seconds=2,
    cooldown_seconds_max=5, cooldown_forget_seconds=10,
)  # fmt: skip
START = 1_700_000_000_000
STOPPED_CLOCK = """
CREATE TABLE clock (now bigint NOT NULL);
INSERT INTO clock VALUES (0);
CREATE OR REPLACE FUNCTION now_ms() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT now FROM clock';
"""
EMPTY = """
TRUNCATE tasks, needs, attempts, turns, budgets, reservations, cooldowns, hosts, messages, notes, calls, events,
  snapshot RESTART IDENTITY;
DELETE FROM teammates WHERE state <> 'human';
UPDATE head SET seq = 0, snapshot_seq = 0;
"""


class Stage:
    """What outlives a single run: the loop, and the PostgreSQL board, which is emptied for each."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.now = START
        self.postgres: Board | None = None  # Without it, SQLite and the model are compared alone.

    async def open(self, url: str, keeper: Any, schema: str) -> None:
        """Give the schema's `now_ms()` a clock that stands still; `keeper` is a connection past the board."""
        self.keeper, self.schema = keeper, schema
        self.postgres = await open_board(url, limits=LIMITS, sources=self.sources())
        await keeper.execute(f"SET search_path = {schema}; {STOPPED_CLOCK}")

    async def close(self) -> None:
        if self.postgres is None:
            return
        await self.postgres.close()
        await self.keeper.execute(f"DROP SCHEMA {self.schema} CASCADE")
        await self.keeper.close()

    def sources(self) -> Sources:
        return Sources(now_ms=lambda: self.now, chance=lambda: 1.0)

    async def set_clock(self, now: int) -> None:
        self.now = now
        if self.postgres is not None:
            await self.keeper.execute("UPDATE clock SET now = $1", now)

    async def begin(self) -> list[Side]:
        if self.postgres is not None:
            await self.keeper.execute(EMPTY)
        await self.set_clock(START)
        sqlite = await open_board("sqlite://:memory:", limits=LIMITS, sources=self.sources(), threads=False)
        return [Side("sqlite", sqlite), *([Side("postgres", self.postgres)] if self.postgres else [])]


class Nothing(Exception):
    """There is nothing yet that the move could be about."""


MOVES: list[str] = []  # Each as often as it weighs.
_DRAWN: dict[str, dict[str, st.SearchStrategy[Any]]] = {}


def move(weight: int, **drawn: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """A method of the machine that may be drawn. One rule draws them all: Hypothesis leaves out whole rules at random,
    and without claims and ends nothing much happens on a board."""

    def mark(method: F) -> F:
        MOVES.extend([method.__name__] * weight)
        _DRAWN[method.__name__] = drawn
        return method

    return mark


def drawn_for(name: str) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.just(name), st.fixed_dictionaries(_DRAWN[name]))


def said(answer: Any) -> Any:
    """A refusal by its class and what it lets a program decide; anything else as it is."""
    if not isinstance(answer, DugnadError):
        return answer
    return (
        type(answer).__name__,
        *(getattr(answer, name, None) for name in ("kind", "guard", "may_free_up", "seconds")),
    )


class Comparison(RuleBasedStateMachine):
    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.model = Model(LIMITS, START)
        self.sides: list[Side] = self.wait(stage.begin())
        self.may_reopen = False  # Set for a retry: only that takes back an end.
        self.sound = True
        self.keyed: list[Callable[[Side], Awaitable[Any]]] = []  # Calls that were answered, each with its key.
        self.key = 0

    def wait(self, work: Any) -> Any:
        return self.stage.loop.run_until_complete(work)

    def teardown(self) -> None:
        for side in self.sides if self.sound else ():
            replayed, observed = self.wait(side.board.replayed_state()), self.wait(side.board.observed_state())
            for part in observed:
                assert replayed[part] == observed[part], (
                    f"{side.name}, {part}: {_apart(observed[part], replayed[part])}"
                )
        self.wait(self.sides[0].board.close())

    # What every rule does.

    def step(
        self,
        verb: Callable[[], Any],
        ask: Callable[[Side], Awaitable[Any]],
        agree: Callable[[Side, Any, Any], bool] = lambda side, got, wanted: got == wanted,
        keyed: bool = False,
    ) -> Any:
        """The verb on the model and on both boards; then all that can be seen of the three."""
        self.sound = False
        wanted = self.model.attempt(verb)
        for side in self.sides:
            got = self.wait(self._ask(ask(side)))
            if isinstance(wanted, DugnadError) or isinstance(got, DugnadError):
                assert said(got) == said(wanted), f"{side.name} says {got!r}, the model {wanted!r}"
            else:
                assert agree(side, got, wanted), f"{side.name} says {got}, the model {wanted}"
        if keyed and not isinstance(wanted, DugnadError):
            self.keyed.append(ask)
        self.compare()
        return wanted

    @staticmethod
    async def _ask(call: Awaitable[Any]) -> Any:
        try:
            return await call
        except DugnadError as refusal:
            return refusal

    def compare(self) -> None:
        wanted = expected(self.model)
        epochs: list[dict[int, int]] = []
        for side in self.sides:
            states, epochs_before = side.states, side.epochs
            seen = self.wait(side.look())
            for part, facts in wanted.items():
                assert seen[part] == facts, f"{side.name}, {part}: {_apart(seen[part], facts)}"
            self.check_promises(side, seen, states, epochs_before)
            epochs.append(seen["epochs"])
        assert epochs[0] == epochs[-1]
        self.may_reopen = False
        self.sound = True

    def check_promises(self, side: Side, seen: dict[str, Any], states: dict[int, str], epochs: dict[int, int]) -> None:
        """What must hold whatever the model says."""
        running = [
            each.partition(".")[0] for each, attempt in seen["raw"]["attempt"].items() if not attempt["ended_as"]
        ]
        assert sorted(running) == sorted(
            each for each, task in seen["raw"]["task"].items() if task["state"] == "claimed"
        ), "one holder for what is claimed, none for the rest"  # fmt: skip
        for each, task in seen["tasks"].items():
            if states.get(each) in ENDED and not self.may_reopen:
                assert task["state"] == states[each], "what ended stays so"
            if task["state"] in ("claimed", "done"):
                assert {verdict for _, verdict in task["needs"].values()} <= {"met"}, "needs come first"
            assert seen["epochs"][each] >= epochs.get(each, 0)
            assert task["tries"] <= task["claims"]
        side.epochs = seen["epochs"]
        for root, budget in seen["budgets"].items():
            used = {kind: spent + budget["reserved"][kind] for kind, spent in budget["spent"].items()}
            for kind, amount in {**used, "tasks": budget["runs"]}.items():
                cap = budget["caps"][kind]
                assert cap is None or amount <= cap or self.model.accounts[root].lowered, "the cap holds"

    # Which one a rule is about.

    def new_key(self) -> str:
        self.key += 1
        return f"key-{self.key}"

    def task(self, place: int, *states: str) -> int:
        """Mostly one in these states; else any."""
        fitting = [job.id for job in self.model.jobs.values() if job.state in states and place < 6]
        return self.one_of(fitting or list(self.model.jobs) or [NOWHERE], place)

    def root(self, place: int) -> int:
        """Mostly one that is held, or at least a root; else any task."""
        held = [root for root, account in self.model.accounts.items() if account.held]
        return (
            self.one_of((held if place < 4 else []) or list(self.model.accounts), place)
            if place < 7
            else self.task(place)
        )

    def reader(self, place: int, name: str) -> str:
        """Mostly whoever has the most to read."""
        queued = [letter.recipient for letter in self.model.letters if not letter.shown]
        return max(sorted(set(queued)), key=queued.count) if queued and place < 5 else name

    def one_of(self, several: Sequence[T], place: int) -> T:
        """Counted from the newest."""
        if not several:
            raise Nothing
        return several[-1 - place % len(several)]

    def hold(self, place: int) -> int:
        """Mostly one that may write; else any."""
        every = list(range(len(self.model.holds)))
        live = [hold for hold in every if self.model.live(hold)]
        return self.one_of(live if place < 6 else every, place)

    def aimed(self, outcome: Outcome) -> Outcome:
        """A wait for tasks names places; here it is with the tasks that stand there."""
        return replace(outcome, tasks=tuple(map(self.task, outcome.tasks))) if isinstance(outcome, Waiting) else outcome

    def reservation(self, place: int) -> str:
        return self.one_of(list(self.model.reservations), place)

    def holder_of(self, key: str, place: int) -> int:
        """Mostly the hold that may use the reservation."""
        writer = self.model.jobs[self.model.reservations[key].task].writer
        return self.hold(place) if writer is None or place > 5 else writer

    def letter(self, place: int) -> int:
        return place % len(self.model.letters) if self.model.letters else 0

    def request(self, place: int) -> int:
        """Mostly a letter that wants a reply. A reply stands for the letter it answers: both carry the request."""
        wanting = [number for number, letter in enumerate(self.model.letters) if letter.kind in REPLIES and place < 6]
        letter = self.one_of(wanting, place) if wanting else self.letter(place)
        answers = self.model.letters[letter].answers if self.model.letters else None
        return letter if answers is None else answers

    def entry(self, draft: dict[str, Any], size: int, **fields: Any) -> NewTask:
        """A draft's needs name places: below zero an entry of the batch, else a task on the board."""
        needs = {}
        for place, word in draft["needs"]:
            if place >= 0 and self.model.jobs:
                needs[self.task(place)] = word
            elif -size <= place < 0:
                needs[place] = word
        return NewTask(**{**draft, **fields, "needs": tuple(Need(*each) for each in needs.items())})

    # Whether a board's answer is the model's.

    def same_claim(self, side: Side, got: Claim | None, wanted: int | None) -> bool:
        if got is None or wanted is None:
            return got is None and wanted is None
        job, known = self.model.jobs[self.model.holds[wanted].task], side.claims.setdefault(wanted, got)
        return (side.own(got.task.id), got.task.chain, got.epoch) == (job.id, job.chain, known.epoch)

    def same_claims(self, side: Side, got: list[Claim], wanted: list[int | None]) -> bool:
        made = [each for each in wanted if each is not None]
        return len(got) == len(made) and all(map(self.same_claim, [side] * len(made), got, made))


def _apart(seen: Any, wanted: Any) -> str:
    """Where two tellings differ, entry by entry."""
    if not isinstance(seen, dict):
        return f"board {seen}, model {wanted}"
    differ = {key for key in seen.keys() | wanted.keys() if seen.get(key) != wanted.get(key)}
    return "; ".join(f"{key}: board {seen.get(key)}, model {wanted.get(key)}" for key in sorted(differ, key=str))
