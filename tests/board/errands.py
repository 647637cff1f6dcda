"""The state machine's moves that are about budgets, turns, messages and the team."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from dugnad.types import Amount, Budget, Cooldown, NewTurn, Pace
from tests.board.draws import CREW, SLOW, amounts, caps, hosts, names, paces, people, places, readers
from tests.board.sides import Side
from tests.board.stage import Comparison, move


async def quietly(call: Awaitable[Any]) -> None:
    """For verbs whose answer is seen in the tables."""
    await call


class Errands(Comparison):
    # Budgets and turns.

    @move(4, place=places, wanted=st.lists(st.tuples(amounts, paces), min_size=1, max_size=3))
    def reserve(self, place: int, wanted: list[tuple[Amount, Pace | None]]) -> None:
        hold = self.hold(place)
        for amount, pace in wanted:
            self._reserve(hold, amount, self.new_key(), pace)

    @move(1, place=places, which=places, amount=amounts)
    def reserve_again(self, place: int, which: int, amount: Amount) -> None:
        """The answer was lost."""
        key = self.reservation(which)
        label = self.model.reservations[key].pace
        self._reserve(self.hold(place), amount, key, Pace(key=label) if label else None)

    @move(1, place=places, used=st.lists(amounts, min_size=2, max_size=4), pace=paces)
    def use(self, place: int, used: list[Amount], pace: Pace | None) -> None:
        """Calls one after another: more is set aside for each than it takes."""
        hold = self.hold(place)
        for amount in used:
            key = self.new_key()
            self._reserve(hold, replace(amount, tokens=amount.tokens + 1), key, pace)
            self._spend(hold, key, amount)

    def _reserve(self, hold: int, amount: Amount, key: str, pace: Pace | None) -> None:
        self.step(
            lambda: self.model.reserve(hold, amount, key, pace),
            lambda side: side.board.reserve(side.claims[hold], amount, key=key, pace=pace),
        )

    @move(2, pauses=st.lists(st.tuples(st.sampled_from([None, None, 0.0, 1.0, 4.0]), st.integers(0, 13)), max_size=3))
    def cool_down(self, pauses: list[tuple[float | None, int]]) -> None:
        """Now and then one after another, with some time between."""
        for seconds, later in pauses:
            self._cool_down(seconds)
            self.model.now += later * 1000
            self.wait(self.stage.set_clock(self.model.now))

    def _cool_down(self, seconds: float | None) -> None:
        key = self.new_key()

        def agree(_: Side, got: Cooldown, wanted: tuple[int, int, int]) -> bool:
            return (got.until, got.seconds * 1000, got.strikes) == wanted

        self.step(
            lambda: self.model.cool_down(SLOW, seconds),
            lambda side: side.board.cool_down(SLOW, seconds=seconds, reason="429", by="alice", key=key),
            agree,
            keyed=True,
        )

    @move(2, place=places, which=places, all_of_it=st.booleans())
    def spend(self, place: int, which: int, all_of_it: bool) -> None:
        key = self.reservation(which)
        hold = self.holder_of(key, place)
        self._spend(hold, key, self.model.reservations[key].amount if all_of_it else Amount())

    def _spend(self, hold: int, key: str, used: Amount) -> None:
        self.step(
            lambda: self.model.spend(hold, key, used), lambda side: side.board.spend(side.claims[hold], key, used)
        )

    @move(2, place=places, which=st.none() | places, body=st.sampled_from(["{}", "[]"]), number=st.integers(1, 3))
    def record(self, place: int, which: int | None, body: str, number: int) -> None:
        key = self.reservation(which) if which is not None and self.model.reservations else None
        hold = self.hold(place) if key is None else self.holder_of(key, place)
        used = Amount() if key is None else self.model.reservations[key].amount
        shown = [self.letter(place)] if self.model.letters else []
        self.step(
            lambda: self.model.record(hold, number, body, key, used, shown),
            lambda side: side.board.record(
                side.claims[hold],
                NewTurn(
                    number=number, kind="reply", body=body, used=used, reservation=key,
                    shown=tuple(side.numbers[letter] for letter in shown),
                ),
            ),
        )  # fmt: skip

    @move(3, place=places, budget=caps, add=st.booleans())
    def set_budget(self, place: int, budget: Budget, add: bool) -> None:
        root, key = self.root(place), self.new_key()
        self.step(
            lambda: self.model.set_budget(root, budget, add),
            lambda side: quietly(
                (side.board.raise_budget if add else side.board.set_budget)(side.id(root), budget, key=key)
            ),
            keyed=True,
        )

    # Messages.

    @move(4, sender=people, to=readers, kind=st.sampled_from(["text", "question", "plan", "shutdown"]), key=places)
    def tell(self, sender: str, to: str, kind: Any, key: int) -> None:
        self.step(
            lambda: self.model.tell(sender, to, f"text {key}", kind, f"told {key}"),
            lambda side: side.board.tell(sender, to, f"text {key}", kind=kind, key=f"told {key}"),
            lambda side, got, wanted: got.text == self.model.letters[wanted].text,
        )

    @move(1, place=places, to=people)
    def tell_from_work(self, place: int, to: str) -> None:
        hold, key = self.hold(place), self.new_key()
        task, sender = self.model.holds[hold].task, self.model.holds[hold].teammate
        self.step(
            lambda: self.model.fenced(hold) and self.model.tell(sender, to, "look", "text", key, task),
            lambda side: side.board.tell(sender, to, "look", claim=side.claims[hold], key=key),
            lambda side, got, wanted: got.text == "look",
        )

    @move(
        3,
        place=places,
        name=people,
        key=st.sampled_from(["take 1", "take 2"]),
        count=st.integers(1, 3),
        shown=st.booleans(),
    )
    def take(self, place: int, name: str, key: str, count: int, shown: bool) -> None:
        name = self.reader(place, name)
        taken = self.step(
            lambda: self.model.take(name, key, count),
            lambda side: side.board.take(name, key, count=count),
            Side.same_letters,
        )
        if shown and isinstance(taken, list):
            self.step(
                lambda: self.model.show(name, taken[:1]),
                lambda side: side.board.show(name, [side.numbers[letter] for letter in taken[:1]]),
            )

    @move(3, place=places, sender=people, text=st.sampled_from(["yes", "no"]), accepted=st.none() | st.booleans())
    def reply(self, place: int, sender: str, text: str, accepted: bool | None) -> None:
        letter = self.request(place)
        self.step(
            lambda: self.model.reply(letter, sender, text, accepted),
            lambda side: quietly(side.board.reply(side.request(letter), sender, text, accepted=accepted)),
        )

    # The team.

    def start_host(self, host: str) -> None:
        self.step(lambda: self.model.start_host(host), lambda side: quietly(side.board.start_host(host, host=host)))

    @move(1, name=st.sampled_from([*CREW]), roles=st.sampled_from([None, None, ("tester",)]))
    def spawn(self, name: str, roles: tuple[str, ...] | None) -> None:
        roles = CREW[name] if roles is None else roles
        self.step(
            lambda: self.model.spawn(name, roles, name == "lena"),
            lambda side: quietly(side.board.spawn(name, roles=roles, lead=name == "lena")),
        )

    @move(1, host=hosts, name=names)
    def seat(self, host: str, name: str) -> None:
        self.step(lambda: self.model.seat(host, name), lambda side: quietly(side.board.seat(host, name=name)))

    @move(1, name=names, really=st.booleans())
    def stop(self, name: str, really: bool) -> None:
        if really:
            self.step(lambda: self.model.stop(name), lambda side: side.board.stop_teammate(name))
