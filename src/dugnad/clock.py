"""The one place that asks the machine for the time and for chance. All other code gets them from its caller."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """Unique, and growing with time: keys that are made together stand together in an index, on few pages."""
    return f"{wall_ms():011x}{secrets.token_hex(7)}"


def new_secret() -> str:
    """32 random bytes, as text that may stand in a link."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a board takes time, ids and chance from. Simulation hands in its own."""

    now_ms: Callable[[], int] = wall_ms  # Only SQLite asks; PostgreSQL's server has its own clock.
    # These clocks cannot be set. While the machine sleeps, the first goes on (for leases) and the second stands still.
    uptime: Callable[[], float] = lambda: time.clock_gettime(_UPTIME)
    working_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    new_id: Callable[[], str] = new_id
    chance: Callable[[], float] = random.SystemRandom().random
