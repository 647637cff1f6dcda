"""What the tests of the chat share: a screen as a person sees it, and a lead that is played by the test."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pexpect
import pyte
import pytest
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import RenderableType

from dugnad.board import Board
from dugnad.chat.chat import chat
from dugnad.chat.commands import respond
from dugnad.chat.screen import layout
from dugnad.chat.session import ChatLimits, Session
from dugnad.types import HUMAN, Claim, Done, Message, NewTurn, Waiting

DRIVER = Path(__file__).parent / "chat_driver.py"
SECONDS = 120  # The longest any step may take; none of the tests measures it.
COLUMNS, ROWS = 100, 30


def environment(folder: Path, term: str = "xterm-256color") -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "TERM": term}


class Terminal:
    """A terminal of its own for one chat; it answers what a real one answers, and shows what a person sees."""

    def __init__(self, url: str, folder: Path, term: str = "xterm-256color") -> None:
        self._screen = pyte.HistoryScreen(COLUMNS, ROWS, history=1_000)
        self._stream = pyte.ByteStream(self._screen)
        self._screen.write_process_input = self._answer
        self._news = asyncio.Event()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Of forking beside threads; it executes at once.
            self.child = pexpect.spawn(
                sys.executable, [str(DRIVER), url], env=environment(folder, term), dimensions=(ROWS, COLUMNS)
            )
        self.ended = False
        asyncio.get_running_loop().add_reader(self.child.child_fd, self._read)

    def _answer(self, data: str) -> None:
        self.child.send(data.encode())

    def _read(self) -> None:
        try:
            data = os.read(self.child.child_fd, 65_536)
        except OSError:
            data = b""
        if not data:
            self.ended = True
            asyncio.get_running_loop().remove_reader(self.child.child_fd)
        self._stream.feed(data)
        self._news.set()

    def close(self) -> None:
        if not self.ended:
            asyncio.get_running_loop().remove_reader(self.child.child_fd)
        self.child.close(force=True)

    def type(self, keys: str) -> None:
        self.child.send(keys.encode())

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    @property
    def bar(self) -> str:
        return self.text.splitlines()[-1] if self.text else ""

    @property
    def typed(self) -> str:
        """The prompt and what stands behind it."""
        prompts = [line for line in self.text.splitlines() if line.startswith("you>")]
        return prompts[-1] if prompts else ""

    async def until(self, true: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                while not true():
                    assert not self.ended, f"the chat ended:\n{self.text}"
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"the screen never came to show it:\n{self.text}") from None

    async def shows(self, *words: str) -> None:
        await self.until(lambda: all(word in self.text for word in words))

    async def has_typed(self, text: str) -> None:
        await self.until(lambda: self.typed == f"you> {text}".rstrip())

    async def leaves(self) -> None:
        async with asyncio.timeout(SECONDS):
            while not self.ended:
                self._news.clear()
                await self._news.wait()
        self.child.close()
        assert self.child.exitstatus == 0, self.text
        assert self.text.splitlines()[-1] == "left", self.text


@asynccontextmanager
async def terminal(url: str, folder: Path, term: str = "xterm-256color") -> AsyncIterator[Terminal]:
    opened = Terminal(url, folder, term)
    try:
        yield opened
    finally:
        opened.close()


class Paper:
    """A screen that keeps what is printed on it."""

    def __init__(self) -> None:
        self.text = ""
        self._news = asyncio.Event()

    async def show(self, what: RenderableType) -> None:
        self.text += layout(what, 120, colours=False)
        self._news.set()

    async def until(self, *words: str) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                while not all(word in self.text for word in words):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"never printed {words}, but:\n{self.text}") from None


class Talk:
    """A chat without its prompt: lines go in, and what they print comes out."""

    def __init__(self, board: Board, **limits: float) -> None:
        self.paper = Paper()
        settings = replace(ChatLimits(), **limits)  # type: ignore[arg-type]
        self.session = Session(board=board, lead="lead", screen=self.paper, limits=settings)

    async def says(self, text: str) -> str:
        """What is printed in answer to a line."""
        before = len(self.paper.text)
        await respond(self.session, text)
        return self.paper.text[before:]


class Written(DummyOutput):
    """An output that remembers what was drawn."""

    def __init__(self) -> None:
        self.text = ""
        self._news = asyncio.Event()

    def write(self, data: str) -> None:
        self.text += data.replace("\r", "")
        self._news.set()

    async def until(self, *words: str) -> None:
        async with asyncio.timeout(SECONDS):
            while not all(word in self.text for word in words):
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def chatting(board: Board, folder: Path) -> AsyncIterator[tuple[PipeInput, Written]]:
    """A whole chat of this process, with keys and an output of its own. It has to be left within the block."""
    output = Written()
    limits = ChatLimits(refresh_seconds=0.01, trouble_seconds=0.05)
    with create_pipe_input() as keys, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        talk = asyncio.create_task(
            chat(board, lead="lead", team_name="garden", input=keys, output=output, limits=limits), name="chat"
        )
        await output.until("What you type goes to lead")
        yield keys, output
        async with asyncio.timeout(SECONDS):
            await talk


async def until(board: Board, topic: str, true: Callable[[], Awaitable[object]]) -> None:
    """Until it is so, asked anew with each change of the topic."""
    async with asyncio.timeout(SECONDS):
        while True:
            with board.watch([topic]) as watch:
                if await true():
                    return
                await watch.wait(5)


async def until_read(board: Board) -> None:
    """Until the human's inbox is empty."""

    async def read() -> bool:
        return not await board.has_unread(HUMAN)

    await until(board, "log", read)


class Lead:
    """The lead, played by the test: it reads, works and answers through a board of its own."""

    def __init__(self, board: Board, host: str) -> None:
        self.board = board
        self.host = host

    async def is_told(self, name: str = "lead", count: int = 1) -> list[Message]:
        """What waits in an inbox, as soon as it is so much."""

        async def told() -> bool:
            return len(await self.board.inbox(name)) >= count

        await until(self.board, f"inbox:{name}", told)
        return await self.board.inbox(name)

    async def hears(self) -> list[Message]:
        """What was said to the lead, as soon as something is; it counts as read then."""
        found = await self.is_told()
        await self.board.show("lead", [message.id for message in found])
        return found

    async def says(self, text: str) -> Message:
        return await self.board.tell("lead", HUMAN, text)

    async def errand(self, text: str) -> None:
        """Answer as a real one does: in a task of its own, which shows what was said."""
        put = await self.board.put("Answer human", by="lead", assignee="lead", kind="human_message")
        claim = await self.claim("lead", put.id)
        found = await self.board.take("lead", f"errand-{put.id}")
        shown = tuple(message.id for message in found)
        await self.board.record(claim, NewTurn(number=1, kind="reply", body="{}", shown=shown))
        await self.board.tell("lead", HUMAN, text, claim=claim)
        await self.board.settle(claim, Done("answered"))

    async def claim(self, name: str, task: int | None = None) -> Claim:
        claim = await self.board.claim(name, self.host, task=task)
        assert claim is not None
        return claim

    async def asks(self, name: str, title: str, question: str, *, plan: bool = False) -> Claim:
        """Somebody claims a new task and puts it down with a question, or a plan, for the human."""
        put = await self.board.put(title, assignee=name)
        claim = await self.claim(name, put.id)
        await self.board.settle(claim, Waiting(on="plan" if plan else "human", question=question))
        return claim


async def play_lead(board: Board, *others: str) -> Lead:
    """Seat the lead and others at a host that this test is."""
    host = await board.start_host("test")
    await board.spawn("lead", lead=True)
    await board.seat(host, name="lead")
    for name in others:
        await board.spawn(name, roles=["coder"])
        await board.seat(host, name=name)
    return Lead(board, host)
