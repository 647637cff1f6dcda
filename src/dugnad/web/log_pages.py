"""Pages of the log in both directions, with or without the quiet kinds. Each answer reads a bounded part of it."""

from __future__ import annotations

from dataclasses import dataclass

from ..board import Board
from ..types import Event
from ..view.events import QUIET

_READS_MAX = 20  # Reads of the board for one page.
_WINDOW = 400  # Events that are read first to find the last ones that are shown; then more and more.
_WINDOW_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPages:
    """The log of a board, or the events of one task."""

    board: Board
    first: int  # No event up to this one is left.
    task: int | None
    everything: bool

    async def forward(self, after: int, until: int, page: int) -> tuple[list[Event], bool]:
        """The first events after one and before another; and whether there are more."""
        found: list[Event] = []
        for _ in range(_READS_MAX):
            read = await self.board.events(after, task=self.task)
            found += [event for event in read if self._shows(event) and event.seq < until]
            if not read or read[-1].seq >= until or len(found) > page:
                return found[:page], len(found) > page
            after = read[-1].seq
        return found[:page], True

    async def backward(self, until: int, page: int) -> tuple[list[Event], bool]:
        """The last events before one; and whether there are more."""
        if self.task is not None:  # The log can be read forwards only, and a task has few events.
            found, more = await self.forward(self.first, until, 10**6)
            return found[-page:], more or len(found) > page
        found, window = list[Event](), _WINDOW
        for _ in range(_READS_MAX):
            start = max(self.first, until - 1 - window)
            found = [*await self._between(start, until), *found]
            if len(found) > page or start == self.first:
                return found[-page:], len(found) > page
            until, window = start + 1, min(_WINDOW_MAX, window * 4)
        return found[-page:], True

    async def _between(self, after: int, until: int) -> list[Event]:
        found: list[Event] = []
        while after < until - 1 and (read := await self.board.events(after)):
            found += [event for event in read if self._shows(event) and event.seq < until]
            after = read[-1].seq
        return found

    def _shows(self, event: Event) -> bool:
        return self.everything or event.kind not in QUIET
