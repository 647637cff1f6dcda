"""How long each attempt takes in one future, and how it ends: drawn from what is expected, by a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from .plan import WITHIN, PlannedTask

DONE, RETRY, FAILED = range(3)
_DURATION_MAX_MS = 10**12


class Draws:
    """One future. Every team plays the same futures."""

    def __init__(self, tasks: Sequence[PlannedTask], seed: int) -> None:
        self._tasks, self._seed = tasks, seed
        chance = Random(seed)
        self._first = [_attempt(task, chance) for task in tasks]

    def attempt(self, place: int, number: int) -> tuple[int, int, str | None]:
        """Milliseconds, how it ends, and as what."""
        if number == 1:
            return self._first[place]
        return _attempt(self._tasks[place], Random(f"{self._seed} {place} {number}"))


def _attempt(task: PlannedTask, chance: Random) -> tuple[int, int, str | None]:
    expected = task.estimate
    if expected.spread is None:
        factor = 1 - WITHIN + 2 * WITHIN * chance.random()
    else:
        factor = math.exp(expected.spread * chance.gauss(0, 1))
    milliseconds = max(1, min(_DURATION_MAX_MS, int(expected.seconds * 1000 * factor)))
    luck = chance.random()
    if luck < expected.failed + expected.retried:
        return milliseconds, FAILED if luck < expected.failed else RETRY, None
    words, shares = zip(*task.outcomes, strict=True)
    return milliseconds, DONE, words[0] if len(words) == 1 else chance.choices(words, shares)[0]
