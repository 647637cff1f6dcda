"""What it costs to hand a task to another mind: learned from the attempts of a board, or assumed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..board.records import PastAttempt

_FEWEST = 3  # Tasks from which something is learned.


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """What one costs on average. `tasks`: how many it was learned from; 0: it is assumed."""

    tokens: int = 20_000
    seconds: float = 60.0
    tasks: int = 0


def handoff(past: Sequence[PastAttempt]) -> Handoff:
    """The first reply of a task, which reads its packet in a fresh context; the check and the merge; and the review."""
    begun = [each for each in past if each.kind in ("goal", "work") and each.fresh and each.replies]
    if len(begun) < _FEWEST:
        return Handoff()
    reviews = [each for each in past if each.kind == "review"]
    tokens = sum(each.first.tokens for each in begun) + sum(each.used.tokens for each in reviews)
    taken = sum(each.first.milliseconds + each.after_ms for each in begun)
    taken += sum(each.used.milliseconds for each in reviews)
    return Handoff(tokens=tokens // len(begun), seconds=taken / 1000 / len(begun), tasks=len(begun))
