"""What can go wrong in a simulated world: each kind is on or off by itself, and drawn by chance in the storm."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

# At a commit, with how often of a thousand.
AT_COMMIT = {
    "stopped before a commit": 3,
    "stopped after a commit": 4,
    "frozen before a commit": 3,
    "frozen after a commit": 6,
    "database locked": 8,
    "disk full": 4,
    "connection lost before a commit": 6,
    "commit done, answer lost": 8,
    "commit done, asked again": 8,
    "the same call twice": 25,
    "frozen after a turn": 200,  # Between a recorded reply and what it asks for: there a late holder does most harm.
    "busy at a result": 60,  # A tool has done its work, and nobody could write that down.
}
# When a model is asked.
AT_MODEL = {
    "rate limited": 60,
    "provider down": 60,
    "time out after billing": 40,
    "malformed call": 40,
    "refusal": 20,
    "context overflow": 20,
    "empty reply": 20,
}
# When work is delivered.
AT_CHECK = {"red check": 400, "merge conflict": 300}
# Everything else has an arrangement of its own in the world.
OTHERS = (
    "stopped at an await", "freeze", "clocks that differ", "clock that jumps", "pushes lost", "no sandbox",
    "endless follow-ups", "a person who is late", "a person who never answers",
)  # fmt: skip
KINDS = (*AT_COMMIT, *AT_MODEL, *AT_CHECK, *OTHERS)


@dataclass
class Storm:
    """Draws faults of the kinds that are on, as long as it lasts."""

    kinds: frozenset[str]
    random: random.Random
    lasts: bool = True
    seen: Counter[str] = field(default_factory=Counter)

    def draws(self, kind: str, per_mille: int) -> bool:
        if not self.lasts or kind not in self.kinds or self.random.random() * 1000 >= per_mille:
            return False
        self.seen[kind] += 1
        return True

    def draw(self, rates: dict[str, int], among: Iterable[str] | None = None) -> str | None:
        """One of them, or none."""
        if not self.lasts:
            return None
        for kind in rates if among is None else among:
            if self.draws(kind, rates[kind]):
                return kind
        return None

    def has(self, kind: str) -> bool:
        """Whether this kind of a fault is on at all; who asks makes it happen."""
        return kind in self.kinds

    def happened(self, kind: str) -> None:
        self.seen[kind] += 1
