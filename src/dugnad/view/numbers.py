"""Numbers as people read them: times, durations and money."""

from __future__ import annotations

from datetime import datetime

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def clock(at: int, *, dated: bool = False) -> str:
    """A moment in this machine's time zone."""
    moment = datetime.fromtimestamp(at / 1000)
    return moment.strftime("%Y-%m-%d %H:%M:%S" if dated else "%H:%M:%S")


def day(at: int) -> str:
    return datetime.fromtimestamp(at / 1000).strftime("%Y-%m-%d")


def span(milliseconds: float) -> str:
    """A rounded duration: 40s, 12m, 3h, 2d."""
    seconds = max(0, int(milliseconds / 1000))
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return "0s"


def money(microdollars: int) -> str:
    """Dollars and cents; four decimals for less than a cent."""
    if 0 < microdollars < 10_000:
        return f"${microdollars / 1_000_000:.4f}"
    return f"${microdollars / 1_000_000:,.2f}"
