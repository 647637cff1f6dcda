"""Shows what the lead writes while it is written, if the lead runs in this process.

Only whole words are shown, without secrets and without characters that a terminal would obey. The message on the board
is what counts: nothing here is kept, and a message that was shown whole is not printed again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.text import Text

from ..logs.secrets import without_secrets
from ..text import one_line, plain
from ..types import Claim, Message
from ..view.tables import Indented
from .screen import Screen

_ROW_CHARS = 72
_WORD_CHARS_MAX = 2_000  # A longer word is cut.
_REPLY_CHARS_MAX = 1_000_000  # More of one reply is not shown as it comes.


@dataclass(slots=True)
class Spoken:
    """What one teammate is writing to the person."""

    name: str = ""  # Whose words are shown; nobody's before the chat has begun.
    screen: Screen | None = None
    _reply: str = ""  # All of the reply so far.
    _rest: str = ""  # Of it, what is not shown yet.
    _rows: list[RenderableType] = field(default_factory=list)  # To be shown.
    _begun: bool = False  # The name stands above the words.
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    def hear(self, claim: Claim, piece: str) -> None:
        """A piece of the reply, or "" when a reply begins."""
        if claim.teammate != self.name or self.screen is None:
            return
        if not piece:
            self._break(whole=True)
            self._reply, self._begun = "", False
        elif len(self._reply) < _REPLY_CHARS_MAX:
            self._reply += piece
            self._rest += piece
            self._break()
        self._news.set()

    def _break(self, *, whole: bool = False) -> None:
        """Make rows of what has come. The last word may go on, so it waits, unless the reply is whole."""
        while row := _row(self._rest, whole=whole):
            self._rest = self._rest[len(row) :]
            if row.strip() or self._begun:
                if not self._begun:
                    self._rows.append(Text(f"{one_line(self.name, 40)}:", style="bold cyan"))
                    self._begun = True
                self._rows.append(Indented(without_secrets(row.rstrip())))

    async def follow(self) -> None:
        """Show rows as they come, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._show()

    async def _show(self) -> None:
        async with self._one_at_a_time:
            if self._rows and self.screen is not None:
                rows, self._rows = self._rows, []
                await self.screen.show(Group(*rows))

    async def has_shown(self, message: Message) -> bool:
        """Whether all of this message was shown as it came; its last row is shown now."""
        words = plain(message.text).strip()
        if message.sender != self.name or not words or words != plain(self._reply).strip():
            return False
        self._break(whole=True)
        await self._show()
        self._reply = ""
        return True


def _row(text: str, *, whole: bool) -> str:
    """The first row of a text, or "" if it may still grow."""
    line, end, _ = text.partition("\n")
    if len(line) <= _ROW_CHARS:
        return line + end if end or whole else ""
    at = line.rfind(" ", 0, _ROW_CHARS) + 1 or line.find(" ") + 1  # A long word stays whole, or a secret might show.
    if at:
        return line[:at]
    if len(line) > _WORD_CHARS_MAX:
        return line[:_WORD_CHARS_MAX]
    return line + end if end or whole else ""
