"""The numbers of a board and of this host, as gauges and counters.

The numbers of the board are the same on every host. A reader of another thread takes those of the last look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from ..board.records import Health
from .health import ready_seconds

Numbers = Callable[[Health], Iterable[tuple[float, dict[str, str]]]]

# The name, its unit, what it says, and how it is taken from the health of a board.
GAUGES: tuple[tuple[str, str, str, Numbers], ...] = (
    ("dugnad.tasks", "{task}", "Open tasks by state.", lambda now: _by("state", now.tasks)),
    ("dugnad.tasks.ready", "{task}", "Ready tasks by lane, up to 1,000 each.", lambda now: _by("lane", now.ready)),
    ("dugnad.tasks.ready.age", "s", "For how long the oldest ready task has been ready.",
     lambda now: [(ready_seconds(now), {})]),
    ("dugnad.requests", "{request}", "Requests that wait for a person.", lambda now: [(now.requests, {})]),
    ("dugnad.hosts", "{host}", "Hosts by state.", lambda now: _by("state", now.hosts)),
    ("dugnad.teammates", "{teammate}", "Teammates by status.", lambda now: _by("status", now.team)),
    ("dugnad.budgets.held", "{goal}", "Goals with open tasks that are held at a cap.",
     lambda now: [(len(now.held), {})]),
    ("dugnad.tokens.reserved", "{token}", "Tokens that are reserved now.", lambda now: [(now.reserved.tokens, {})]),
    ("dugnad.tokens.spent", "{token}", "Tokens that all goals have spent.", lambda now: [(now.spent.tokens, {})]),
    ("dugnad.dollars.reserved", "USD", "Dollars that are reserved now.",
     lambda now: [(now.reserved.microdollars / 1e6, {})]),
    ("dugnad.dollars.spent", "USD", "Dollars that all goals have spent.",
     lambda now: [(now.spent.microdollars / 1e6, {})]),
    ("dugnad.cooldowns", "s", "For how long each provider key still cools down.",
     lambda now: [(max(0, each.until - now.now) / 1000, {"key": each.key}) for each in now.cooldowns]),
    ("dugnad.merges.queued", "{merge}", "Attempts of all hosts that merge over a remote, or wait for it, by target.",
     lambda now: _by("target", now.merging)),
)  # fmt: skip


def _by(attribute: str, counts: object) -> list[tuple[float, dict[str, str]]]:
    assert isinstance(counts, dict)
    return [(number, {attribute: name}) for name, number in counts.items()]


class Metrics:
    """Gauges over the last look at the board, and what this host counts itself."""

    def __init__(self, meter: Meter) -> None:
        self.health: Health | None = None  # None: the board does not answer.
        self.merging = 0  # Attempts of this host that merge, or wait for their turn.
        self._refused = meter.create_counter(
            "dugnad.stale_writes", "{write}", "Writes of this host that the board refused because of an old epoch."
        )
        self._refused.add(0)
        for name, unit, says, numbers in GAUGES:
            meter.create_observable_gauge(name, [self._observed(numbers)], unit, says)
        up = "1 if the board answers this host, else 0."
        meter.create_observable_gauge("dugnad.board.up", [lambda _: [Observation(int(bool(self.health)))]], "1", up)
        says = "Attempts of this host that merge, or wait for their turn to merge."
        meter.create_observable_gauge("dugnad.merges", [lambda _: [Observation(self.merging)]], "{merge}", says)

    def _observed(self, numbers: Numbers) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            now = self.health
            return [] if now is None else [Observation(number, told) for number, told in numbers(now)]

        return observe

    def count(self, what: str) -> None:
        if what == "stale-write":
            self._refused.add(1)
