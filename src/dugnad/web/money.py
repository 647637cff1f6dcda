"""What was spent, by whom, for what and with which model. Pure.

The log says through which provider key a call went, and not which model answered. So spending is told by the model that
a teammate was spawned with, and without one by the provider key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..view.json import Shape
from .history import BoardView, Payment
from .summaries import budget_shapes, cooldowns_shape, title_of

_TASKS_MOST = 50
_POINTS_MOST = 300
_BUDGETS_MOST = 500
_HOUR_MS = 3_600_000
_SHORTEST_MS = 60_000  # A rate of less time than this would say nothing.


def money_shape(view: BoardView, now: int) -> Shape:
    paid = view.payments()
    by_task = _grouped(paid, "task", lambda each: each.task)[:_TASKS_MOST]
    return {
        "budgets": budget_shapes(view, list(view.budgets)[::-1][:_BUDGETS_MOST]),
        "by_teammate": _grouped(paid, "teammate", lambda each: each.teammate),
        "by_model": _grouped(paid, "model", lambda each: each.model or None),
        "by_task": [{**each, "title": title_of(view, each["task"])} for each in by_task],
        "series": _series(paid),
        "rate": _rate(paid),
        "before": _before(view, paid),
        "cooldowns": cooldowns_shape(view, now),
    }


def _amount(tokens: int, microdollars: int) -> Shape:
    return {"tokens": tokens, "dollars": microdollars / 1_000_000}


def _grouped(paid: Sequence[Payment], name: str, key: Callable[[Payment], object]) -> list[Shape]:
    """The sums by a key, the dearest first."""
    sums: dict[object, list[int]] = {}
    for each in paid:
        into = sums.setdefault(key(each), [0, 0, 0])
        into[0] += each.tokens
        into[1] += each.microdollars
        into[2] += each.turns
    dearest = sorted(sums.items(), key=lambda item: (-item[1][1], -item[1][0], str(item[0])))
    return [{name: found, **_amount(tokens, paid), "turns": turns} for found, (tokens, paid, turns) in dearest]


def _series(paid: Sequence[Payment]) -> list[Shape]:
    """The sums over time, with at most so many points, the first and the last among them."""
    points: list[Shape] = []
    spent = [each for each in paid if each.tokens or each.microdollars]
    tokens = microdollars = 0
    step = max(1.0, (len(spent) - 1) / (_POINTS_MOST - 1))
    for place, each in enumerate(spent):
        tokens, microdollars = tokens + each.tokens, microdollars + each.microdollars
        if place >= len(points) * step or place == len(spent) - 1:
            points.append({"at": each.at, **_amount(tokens, microdollars)})
    return points


def _rate(paid: Sequence[Payment]) -> Shape:
    """The spending of the last hour in which something was spent, up to the last payment."""
    if not paid:
        return {"dollars_per_hour": 0.0, "tokens_per_hour": 0, "until": None}
    last = paid[-1].at
    recent = [each for each in paid if each.at > last - _HOUR_MS]
    hours = max(_SHORTEST_MS, last - recent[0].at) / _HOUR_MS
    return {
        "dollars_per_hour": round(sum(each.microdollars for each in recent) / 1_000_000 / hours, 6),
        "tokens_per_hour": round(sum(each.tokens for each in recent) / hours), "until": last,
    }  # fmt: skip


def _before(view: BoardView, paid: Sequence[Payment]) -> Shape:
    """What was spent in the pruned part of the log, of which only the sums are left."""
    tokens = sum(each["tokens"] for each in view.budgets.values()) - sum(each.tokens for each in paid)
    dollars = sum(each["microdollars"] for each in view.budgets.values()) - sum(each.microdollars for each in paid)
    return _amount(tokens, dollars)
