"""Everything that one entity of a board ever was, by event number.

A version holds the facts that changed. Now and then one holds all of them, so that no version is far from such a one.
Facts are never changed in place: what a caller got stays as it was.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Any, NamedTuple

from ..board.replay import COLUMNS, Entity

_WHOLE_EACH = 32  # Versions from one that holds all facts to the next.
AMOUNTS = tuple(f"{column}{suffix}" for suffix in ("", "_reserved") for column in COLUMNS)  # Of an account.
Edge = tuple[str | None, str]  # Of a need: the outcome that is asked for, and how it was judged.


class Spent(NamedTuple):
    """What was spent on a task or an attempt so far."""

    tokens: int = 0
    microdollars: int = 0
    milliseconds: int = 0
    turns: int = 0  # Replies of the model.
    context: int = 0  # Tokens of the last reply, with all that was sent for it.
    last: int = 0  # The number of the last turn.


class _Whole(dict[str, Any]):
    """All facts of a version; a plain dictionary has those that changed."""

    __slots__ = ()


class NumberRows:
    """Rows of whole numbers, each with the event that wrote it. They take a tenth of the room of dictionaries."""

    __slots__ = ("_rows", "_width")

    def __init__(self, width: int) -> None:
        self._rows = array("q")
        self._width = width + 1

    def add(self, seq: int, numbers: tuple[int, ...]) -> None:
        self._rows.extend((seq, *numbers))

    def at(self, seq: int) -> tuple[int, ...] | None:
        """The last row up to this event."""
        rows, width = self._rows, self._width
        found = bisect_right(range(len(rows) // width), seq, key=lambda row: rows[row * width])
        return tuple(rows[found * width - width + 1 : found * width]) if found else None


class Track:
    """One entity with all its versions."""

    __slots__ = ("_seqs", "_steps", "last", "now")

    def __init__(self) -> None:
        self.now: Entity | None = None  # None: it was forgotten.
        self.last = -1  # The event of the last change.
        self._seqs: list[int] = []
        self._steps: list[Entity | None] = []

    def begin(self, seq: int, facts: Entity) -> None:
        self._step(seq, _Whole(facts), facts)

    def change(self, seq: int, changed: Entity, without: frozenset[str] = frozenset()) -> None:
        """Facts that changed, and the names of those that are gone."""
        assert self.now is not None
        now = {**self.now, **changed}
        for name in without:
            del now[name]
        whole = without or len(self._steps) % _WHOLE_EACH == 0
        self._step(seq, _Whole(now) if whole else changed, now)

    def end(self, seq: int) -> None:
        self._step(seq, None, None)

    def _step(self, seq: int, step: Entity | None, now: Entity | None) -> None:
        self._seqs.append(seq)
        self._steps.append(step)
        self.now, self.last = now, seq

    def at(self, seq: int) -> Entity | None:
        """The facts up to this event; None: there was no such entity."""
        return self.now if seq >= self.last else self._then(seq)

    def _then(self, seq: int) -> Entity | None:
        until = bisect_right(self._seqs, seq)
        facts: Entity | None = None
        for step in self._steps[max(0, until - 1) // _WHOLE_EACH * _WHOLE_EACH : until]:
            if step is None or type(step) is _Whole:
                facts = step
            elif type(facts) is dict:  # A copy of our own.
                facts.update(step)
            elif facts is not None:
                facts = {**facts, **step}
        return facts


class SpendingTrack(Track):
    """A task or an attempt, with `spent`."""

    __slots__ = ("_sums",)

    def __init__(self) -> None:
        super().__init__()
        self._sums: NumberRows | None = None

    def spend(self, seq: int, more: Spent) -> None:
        assert self.now is not None
        before: Spent = self.now["spent"]
        sums = Spent(
            before.tokens + more.tokens, before.microdollars + more.microdollars,
            before.milliseconds + more.milliseconds, before.turns + more.turns,
            more.context or before.context, more.last or before.last,
        )  # fmt: skip
        if self._sums is None:
            self._sums = NumberRows(len(sums))
        self._sums.add(seq, sums)
        self.now, self.last = {**self.now, "spent": sums}, seq

    def _then(self, seq: int) -> Entity | None:
        facts = super()._then(seq)
        row = self._sums.at(seq) if facts is not None and self._sums is not None else None
        return facts if facts is None or row is None else {**facts, "spent": Spent(*row)}


class TaskTrack(SpendingTrack):
    """A task, with `needs`: each change of a need is kept by itself, since a task may have a thousand of them."""

    __slots__ = ("_edges", "_first")

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[str, Edge] = {}
        self._edges: list[tuple[int, str, Edge]] = []  # What changed since the first version.

    def begin(self, seq: int, facts: Entity) -> None:
        self._first = {need: (edge[0], edge[1]) for need, edge in facts["needs"].items()}
        super().begin(seq, {**facts, "needs": self._first})

    def judge(self, seq: int, needs: dict[str, list[Any]]) -> bool:
        """Whether a need is new or was judged."""
        assert self.now is not None
        before: dict[str, Edge] = self.now["needs"]
        changed = {need: (edge[0], edge[1]) for need, edge in needs.items() if before.get(need) != (edge[0], edge[1])}
        if changed:
            self._edges += [(seq, need, edge) for need, edge in changed.items()]
            self.now, self.last = {**self.now, "needs": {**before, **changed}}, seq
        return bool(changed)

    def _then(self, seq: int) -> Entity | None:
        facts = super()._then(seq)
        if facts is None or not self._edges or self._edges[0][0] > seq:
            return facts
        changed = {need: edge for at, need, edge in self._edges if at <= seq}
        return {**facts, "needs": {**self._first, **changed}}


class AccountTrack(Track):
    """A budget. What is spent and reserved changes with nearly every event."""

    __slots__ = ("_amounts",)

    def __init__(self) -> None:
        super().__init__()
        self._amounts = NumberRows(len(AMOUNTS))

    def begin(self, seq: int, facts: Entity) -> None:
        super().begin(seq, facts)
        self._amounts.add(seq, tuple(facts[name] for name in AMOUNTS))

    def move(self, seq: int, amounts: Entity) -> None:
        assert self.now is not None
        self.now, self.last = {**self.now, **amounts}, seq
        self._amounts.add(seq, tuple(self.now[name] for name in AMOUNTS))

    def _then(self, seq: int) -> Entity | None:
        facts, row = super()._then(seq), self._amounts.at(seq)
        return facts if facts is None or row is None else {**facts, **dict(zip(AMOUNTS, row, strict=True))}
