"""Shows the human what arrives: each message once, each request until it is answered."""

from __future__ import annotations

import asyncio

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from ..board import Board
from ..team import requests
from ..text import one_line, plain
from ..types import HUMAN, Message
from ..view.tables import Indented
from .screen import said, sentence
from .session import Session, follow

_OPENS = {"question": "asks", "plan": "shows a plan", "answer": "answers"}
_DECIDE = "-> to decide: /approve m{id}   or   /reject m{id} WHY"
_HOW = {"question": "-> to answer: /answer m{id} TEXT", "plan": _DECIDE, "shutdown": _DECIDE}
_MORE = {"tasks": 10, "tokens": 100_000, "dollars": 1, "seconds": 600}  # Suggested to add to a cap.
_WAIT_SECONDS = 60.0  # For a push. The board's own sweep finds a lost push sooner.


def announcement(message: Message, *, lead: str, waits: bool = True) -> RenderableType:
    """A message as the person reads it. Below an open request is how to answer it.

    Only our own text begins a line. Texts of others follow a name or are indented, so that none can imitate a hint.
    """
    head = Text()
    head.append(one_line(message.sender, 40), style="bold cyan" if message.sender != HUMAN else "bold")
    if message.recipient != HUMAN:
        head.append(f" to {one_line(message.recipient, 40)}")
    if verb := _verb(message):
        head.append(f" {verb}")
    if message.task is not None and (verb or message.sender != lead):  # The lead's answers are about the question.
        head.append(f" about #{message.task}" if verb else f" (#{message.task})")
    if message.kind in _HOW:
        head.append(f" (m{message.id})")
    words = plain(message.text).strip("\n")
    head.append(":" if words else ".")
    if not waits or message.kind not in _HOW:
        return _MessageText(head, words)
    return Group(_MessageText(head, words), Text(_HOW[message.kind].format(id=message.id), style="yellow"))


class _MessageText:
    """A text after a name if it fits on the same line, or else below it."""

    def __init__(self, head: Text, words: str) -> None:
        self._head, self._words = head, words

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = self._head.copy().append(f" {self._words}" if self._words else "")
        if "\n" not in self._words and whole.cell_len <= options.max_width:
            yield whole
        else:
            yield from (self._head, Indented(self._words))


def _verb(message: Message) -> str:
    if message.accepted is None:
        return _OPENS.get(message.kind, "")
    if message.kind == "shutdown_reply":
        return "agrees to shut down" if message.accepted else "refuses to shut down"
    return "approves" if message.accepted else "does not approve"


class Incoming:
    """Prints what is new in the human's inbox, each message once, and marks it as shown."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._announced: set[int] = set()  # What was printed here already.
        self._one_at_a_time = asyncio.Lock()
        self._held: str | None = None  # The cap that was reached when the person was last told.
        self._told = ""  # The error that was shown last, while it lasts.

    async def arrive(self) -> None:
        """Print what is new, then mark it as shown: after a crash in between it is printed twice rather than never."""
        board = self._session.board
        async with self._one_at_a_time:
            waiting = {request.id: request for request in await requests.waiting_requests(board)}
            await self._tell_of_cap(board)
            while page := await board.inbox(HUMAN):
                for message in page:
                    if message.id in waiting or message.kind not in _HOW:  # Not what was answered elsewhere.
                        await self._announce(message, waits=message.id in waiting)
                await board.show(HUMAN, [message.id for message in page])
            for request in waiting.values():  # Another program may have shown it, but it still waits.
                if request.id not in self._announced:
                    await self._announce(request, waits=True)

    async def _tell_of_cap(self, board: Board) -> None:
        """Tell the person once that the cap is reached, since further messages wait."""
        account = self._session.account
        held = None if account is None else (await board.budget(account)).held
        if held is not None and held != self._held:
            text = f"This chat has reached its cap on {held}. Your messages wait until you raise it:"
            await self._session.screen.show(said(f"{text} /budget {held}=+{_MORE[held]}"))
        self._held = held

    async def _announce(self, message: Message, *, waits: bool) -> None:
        self._announced.add(message.id)
        if await self._session.spoken.has_shown(message):
            return
        async with self._session.turns:
            await self._session.screen.show(announcement(message, lead=self._session.lead, waits=waits))

    async def listen(self) -> None:
        """Print what arrives, until the person has left."""
        account = self._session.account
        topics = (f"inbox:{HUMAN}", "team", *([] if account is None else [f"budget:{account}"]))
        await follow(self._session, topics, self.look, seconds=_WAIT_SECONDS)

    async def look(self) -> float:
        """Print what is new. Returns the seconds to wait before the next look; an error is shown once."""
        try:
            await self.arrive()
        except Exception as trouble:  # Also a bug of ours: if this loop ended, the person would miss every message.
            if str(trouble) != self._told:
                self._told = str(trouble)
                await self._session.screen.show(sentence(trouble))
            return self._session.limits.trouble_seconds
        self._told = ""
        return 0.0
