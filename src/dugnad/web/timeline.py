"""Who worked on what, and when: a row for each teammate and a bar for each attempt; the rehearsal behind them. Pure."""

from __future__ import annotations

from ..text import counted, length
from ..view.json import Shape
from .history import BoardView
from .presence import team_in_order
from .rehearsed import KeptRehearsal
from .summaries import title_of

_BARS_MOST = 20_000


def timeline_shape(
    view: BoardView, now: int, *, since: int | None = None, rehearsal: KeptRehearsal | None = None
) -> Shape:
    """The attempts that ran at or after `since`, in order of their claims; of very many, the newest."""
    bars = [
        {
            "task": int(task), "title": title_of(view, task), "teammate": facts["teammate"], "epoch": int(epoch),
            "number": facts["number"], "start": facts["claimed_at"], "end": facts["ended_at"],
            "ended_as": facts["ended_as"], "root": view.tasks[task]["root"],
        }
        for (task, _, epoch), facts in ((each.partition("."), facts) for each, facts in view.attempts.items())
        # Of an attempt in the pruned part of the log, it is not known when it ran.
        if facts["claimed_at"] is not None and (since is None or (facts["ended_at"] or now) >= since)
    ]  # fmt: skip
    worked = {bar["teammate"] for bar in bars}
    known = [name for name in team_in_order(view) if name in worked or view.teammates[name]["state"] == "seated"]
    return {
        "rows": [*known, *sorted(worked - set(known))],
        "bars": bars[-_BARS_MOST:],
        "more": len(bars) > _BARS_MOST,
        "rehearsal": None if rehearsal is None else _rehearsed(view, now, rehearsal),
    }


def _rehearsed(view: BoardView, now: int, rehearsal: KeptRehearsal) -> Shape:
    """It begins where the first attempt after it began."""
    claimed = (facts["claimed_at"] for facts in view.attempts.values() if facts["claimed_at"] is not None)
    until = view.history.time_of(rehearsal.seq)
    begin = min((at for at in claimed if at >= until), default=now) if rehearsal.seq <= view.seq else now
    return {
        "label": f"rehearsed: {counted(rehearsal.agents, 'teammate')}, {length(rehearsal.milliseconds)}",
        "bars": [
            {"task": bar.task, "title": bar.title, "row": bar.row, "start": begin + bar.start, "end": begin + bar.end}
            for bar in rehearsal.bars
        ],
    }
