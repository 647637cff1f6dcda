"""The one place that asks the machine for time and chance. Everything else has them handed in."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def new_id() -> str:
    return secrets.token_hex(12)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a board takes time, ids and chance from. Simulation hands in its own."""

    now_ms: Callable[[], int] = wall_ms  # Only SQLite asks; PostgreSQL's server has its own clock.
    new_id: Callable[[], str] = new_id
    chance: Callable[[], float] = field(default_factory=lambda: random.SystemRandom().random)
