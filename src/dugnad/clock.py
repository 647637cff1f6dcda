"""The one place that asks the machine what time it is, and for chance. Everything else has them handed in."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def uptime() -> float:
    """Seconds of a clock that nobody sets, and that runs on while the machine sleeps."""
    return time.clock_gettime(_UPTIME)


def working_ms() -> int:
    """Milliseconds of a clock that nobody sets, and that stands still while the machine sleeps."""
    return time.monotonic_ns() // 1_000_000


def new_id() -> str:
    """Unique, and growing with time: keys made together stand together in an index, on few pages."""
    return f"{wall_ms():011x}{secrets.token_hex(7)}"


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a board takes time, ids and chance from. Simulation hands in its own."""

    now_ms: Callable[[], int] = wall_ms  # Only SQLite asks; PostgreSQL's server has its own clock.
    uptime: Callable[[], float] = uptime  # For leases.
    working_ms: Callable[[], int] = working_ms  # For what something took: sleep is no work.
    new_id: Callable[[], str] = new_id
    chance: Callable[[], float] = field(default_factory=lambda: random.SystemRandom().random)
