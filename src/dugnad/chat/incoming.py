"""What arrives for the human: messages as they come, requests until they are answered."""

from __future__ import annotations

import asyncio

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from ..board import Board
from ..team import requests
from ..text import one_line, plain
from ..types import HUMAN, Message
from ..view.tables import Indented
from .follow import follow
from .screen import said, sentence
from .session import Session

_OPENS = {
    "question": "asks",
    "plan": "shows a plan",
    "answer": "answers",
    "shutdown_reply": "",
    "plan_reply": "",
}
_HOW = {
    "question": "-> answer with: /answer m{id} TEXT",
    "plan": "-> decide with: /approve m{id}   or   /reject m{id} WHY",
    "shutdown": "-> decide with: /approve m{id}   or   /reject m{id} WHY",
}
_MORE = {"tasks": 10, "tokens": 100_000, "dollars": 1, "seconds": 600}  # What one might add to a cap.
_WAIT_SECONDS = 60.0  # For a push; the board's own sweep is sooner behind a lost one.


def announcement(message: Message, *, lead: str, waits: bool = True) -> RenderableType:
    """A message as the person reads it. Under a request that waits stands how to answer it.

    What begins a line is ours. Words stand behind a name, or indented; so none can look like a hint of ours.
    """
    head = Text()
    head.append(one_line(message.sender, 40), style="bold cyan" if message.sender != HUMAN else "bold")
    if message.recipient != HUMAN:
        head.append(f" to {one_line(message.recipient, 40)}")
    if verb := _verb(message):
        head.append(f" {verb}")
    if message.task is not None and (verb or message.sender != lead):  # The lead's answers are about what was asked.
        head.append(f" about #{message.task}" if verb else f" (#{message.task})")
    if message.kind in _HOW:
        head.append(f" (m{message.id})")
    words = plain(message.text).strip("\n")
    head.append(":" if words else ".")
    hint = Text(_HOW[message.kind].format(id=message.id), style="yellow") if waits and message.kind in _HOW else None
    return Group(_MessageText(head, words), hint) if hint is not None else _MessageText(head, words)


class _MessageText:
    """Words behind a name where they fit on its line, else below it."""

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
        self._announced: set[int] = set()  # What was printed here; a request stays open until it is answered.
        self._one_at_a_time = asyncio.Lock()
        self._held: str | None = None  # What the chat's account has none left of, as it was told last.
        self._told = ""  # The trouble that was told last, while it lasts.

    async def arrive(self) -> None:
        """Print what there is. Marked as shown afterwards: a crash in between prints twice rather than never."""
        async with self._one_at_a_time:
            await self._arrive(self._session.board)

    async def _arrive(self, board: Board) -> None:
        waiting = {request.id: request for request in await requests.waiting_requests(board)}
        await self._tell_of_cap(board)
        while page := await board.inbox(HUMAN):
            for message in page:
                if message.id in waiting or message.kind not in _HOW:  # What was answered elsewhere is no news.
                    await self._announce(message, waits=message.id in waiting)
            await board.show(HUMAN, [message.id for message in page])
        for request in waiting.values():  # Another face may have shown it, and it still waits.
            if request.id not in self._announced:
                await self._announce(request, waits=True)

    async def _tell_of_cap(self, board: Board) -> None:
        """What is said from now on waits, so a person has to know, once."""
        account = self._session.account
        held = None if account is None else (await board.budget(account)).held
        if held is not None and held != self._held:
            text = f"The cap of this chat is reached: no {held} are left. What you say waits until you raise it:"
            await self._session.screen.show(said(f"{text} /budget {held}=+{_MORE[held]}"))
        self._held = held

    async def _announce(self, message: Message, *, waits: bool) -> None:
        self._announced.add(message.id)
        await self._session.screen.show(announcement(message, lead=self._session.lead, waits=waits))

    async def listen(self) -> None:
        """Print what arrives, until the person has left."""
        account = self._session.account
        topics = (f"inbox:{HUMAN}", "team", *([] if account is None else [f"budget:{account}"]))
        await follow(self._session, topics, self.look, seconds=_WAIT_SECONDS)

    async def look(self) -> float:
        """Print what there is. Returns the seconds to rest: a board in trouble, told of once, is asked again later."""
        try:
            await self.arrive()
        except Exception as trouble:  # Also a bug of ours: who listens no more would miss every message.
            if str(trouble) != self._told:
                self._told = str(trouble)
                await self._session.screen.show(sentence(trouble))
            return self._session.limits.trouble_seconds
        self._told = ""
        return 0.0
