"""Provider keys: how a key cools down for the whole team, and how fast the team may use it.

Both follow the database's clock, so that all hosts agree. The use of a key is counted from the reservations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...errors import CoolingDown
from ...settings import Limits
from ...types import Cooldown, Pace
from .. import records
from ..store.seam import Row, Tx, event, wake
from .idempotency import once

_WINDOW_MS = 60_000
_REASON_CHARS = 100  # Of the provider's message, in our sentence.


async def cool_down(tx: Tx, *, pace: str, milliseconds: int | None, reason: str, by: str, key: str) -> Cooldown:
    """`milliseconds`: what the provider asked for, if it did."""
    return records.cooldown(await _cool_down(tx, pace, milliseconds, reason, by, key=key))


@once
async def _cool_down(
    tx: Tx, pace: str, milliseconds: int | None, reason: str, by: str, *, key: str
) -> dict[str, object]:
    await tx.fetch("lock_key", key=f"cooldown {pace}")
    row = (await tx.fetch("read_cooldown", key=pace))[0]
    after = cooled(row, milliseconds, tx.limits)
    if after is None:
        return {name: row[name] for name in ("key", "until", "milliseconds", "strikes", "reason")}
    await tx.fetch("write_cooldown", key=pace, reason=reason, **after)
    event(tx, "cooled", by, pace=pace, reason=reason, **after)
    wake(tx, "cooldown")
    return {"key": pace, "reason": reason, **after}


def cooled(row: Row, asked: int | None, limits: Limits) -> dict[str, int] | None:
    """The key's new cool-down after a refusal at `row["now"]`; None: the last one stays."""
    now, until = row["now"], row["until"] if pauses(row) > 0 else None
    named = None if not asked else min(asked, int(limits.retry_after_seconds_max * 1000))
    if until is not None:
        # Calls that were already sent are refused too; this matters only if the new pause ends later.
        if named is None or now + named <= until:
            return None
        return {"until": now + named, "milliseconds": named, "strikes": row["strikes"]}
    forgotten = row["until"] is None or now - row["until"] > limits.cooldown_forget_seconds * 1000
    strikes = 1 if forgotten else row["strikes"] + 1
    doubled = min(limits.cooldown_seconds * 2 ** min(strikes - 1, 30), limits.cooldown_seconds_max)
    length = named or int(doubled * 1000)
    return {"until": now + length, "milliseconds": length, "strikes": strikes}


def pauses(row: Row) -> int:
    """The milliseconds left. If they are much more than the pause was, the clock was set back: the pause is over."""
    rest = int(row["until"] or 0) - int(row["now"])
    return rest if row["until"] and rest <= row["milliseconds"] + _WINDOW_MS else 0


@dataclass(frozen=True, slots=True)
class Used:
    """The calls of a key within a short time."""

    at: int  # The last call.
    requests: int
    tokens: int


def wait_ms(pace: Pace, tokens: int, used: Sequence[Used], now: int) -> int:
    """How long a call of so many tokens must wait to keep the pace, given what was used (oldest first)."""
    requests_left, tokens_left = sum(each.requests for each in used), sum(each.tokens for each in used)
    wait = 0
    for each in used:
        # A call larger than a whole minute's tokens may go alone; otherwise it would wait forever.
        if _fits(requests_left, 1, pace.requests_per_minute) and _fits(tokens_left, tokens, pace.tokens_per_minute):
            break
        requests_left, tokens_left = requests_left - each.requests, tokens_left - each.tokens
        wait = each.at + _WINDOW_MS - now
    return wait


def _fits(used: int, more: int, most: int | None) -> bool:
    return most is None or used == 0 or used + more <= most


class Paces:
    """The provider keys of a batch of reservations: which cool down, and how they were used in the last minute."""

    def __init__(self, rows: Iterable[Row], used: Iterable[Row], chance: Callable[[], float]) -> None:
        self._chance = chance
        self._keys = {row["label"]: row for row in rows}
        self._used: dict[str, list[Used]] = {key: [] for key in self._keys}
        for row in used:
            self._used[row["pace"]].append(Used(row["last_at"], row["requests"], row["tokens"]))

    def refused(self, pace: Pace | None, tokens: int) -> CoolingDown | None:
        """Why this call must wait; None: it may go, and counts for the calls after it."""
        if pace is None:
            return None
        row = self._keys[pace.key]
        if (rest := pauses(row)) > 0:
            # Jitter of half the pause, so that callers do not return at once.
            seconds = rest / 1000 + self._chance() * max(1.0, row["milliseconds"] / 2000)
            why = f"{pace.key} is cooling down ({row['reason'][:_REASON_CHARS]})"
        elif wait := wait_ms(pace, tokens, self._used[pace.key], row["now"]):
            seconds = wait / 1000 + self._chance()
            why = f"The team has used {pace.key} as much as it may in a minute"
        else:
            self._used[pace.key].append(Used(row["now"], 1, tokens))
            return None
        return CoolingDown(f"{why}; ask again in {seconds:.1f} seconds.", key=pace.key, seconds=seconds)


async def look(tx: Tx, paces: Iterable[Pace | None]) -> Paces:
    """Read what the reservations need to know about these keys, in at most three statements."""
    given = [pace for pace in paces if pace is not None]
    if not given:
        return Paces((), (), tx.sources.chance)
    counted = _labels(pace for pace in given if pace.requests_per_minute or pace.tokens_per_minute)
    if counted:
        await tx.fetch("lock_paces", keys=counted)
    rows = await tx.fetch("read_paces", keys=_labels(given))
    used = await tx.fetch("used_of_paces", keys=counted, since=rows[0]["now"] - _WINDOW_MS) if counted else ()
    return Paces(rows, used, tx.sources.chance)


def _labels(paces: Iterable[Pace]) -> list[dict[str, str]]:
    return [{"key": key} for key in sorted({pace.key for pace in paces})]
