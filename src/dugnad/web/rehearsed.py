"""The last rehearsal of a board, kept in the user's state folder, so that the page can draw it behind the real run.

It is about one user's view of a board, so it is not on the board: rehearsing changes nothing there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ..config.servers import replace_file
from ..errors import BadInput
from ..rehearsal.findings import Findings
from ..rehearsal.plan import RehearsalPlan
from ..safe_open import held, read_named, user_state
from ..text import one_line

_BARS_MAX = 5_000  # More than a screen can show.
_TITLE_MAX = 120
_BYTES_MAX = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBar:
    """One attempt. Times are milliseconds from the beginning of the rehearsal."""

    task: int
    title: str
    row: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRehearsal:
    """The median run of the team that is enough. `seq`: the last event of the board when it was rehearsed."""

    seq: int
    agents: int
    milliseconds: int
    bars: tuple[KeptBar, ...]


def keep(environment: Mapping[str, str], plan: RehearsalPlan, findings: Findings) -> None:
    """Keep the rehearsal of a board. If the folder cannot be written, the findings are shown all the same."""
    size = findings.shown
    bars = tuple(
        KeptBar(
            task=plan.tasks[bar.task].id, title=one_line(plan.tasks[bar.task].name, _TITLE_MAX), row=bar.mate,
            start=bar.start, end=bar.end,
        )
        for bar in size.bars[:_BARS_MAX]
    )  # fmt: skip
    kept = KeptRehearsal(seq=plan.seq, agents=size.agents, milliseconds=int(size.makespan.middle), bars=bars)
    path = _path(environment, plan.board)
    with suppress(OSError):
        with held(path.parent, make=True):
            pass
        replace_file(path, json.dumps(asdict(kept)))


def last_rehearsal(environment: Mapping[str, str], board: str) -> KeptRehearsal | None:
    """The last rehearsal of the board with this identity. None: there is none, or its file is damaged."""
    path = _path(environment, board)
    if not os.path.lexists(path):
        return None
    try:
        found = json.loads(read_named(path, "The rehearsal", _BYTES_MAX)[0])
        return KeptRehearsal(**{**found, "bars": tuple(KeptBar(**each) for each in found["bars"])})
    except (BadInput, ValueError, KeyError, TypeError):
        return None


def _path(environment: Mapping[str, str], board: str) -> Path:
    return user_state(environment, "rehearsals") / f"{board}.json"
