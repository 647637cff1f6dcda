"""The chat without a prompt: lines from a pipe, a file or a dumb terminal, and plain lines back."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import AsyncIterator
from typing import TextIO

from ..errors import BadInput, DugnadError
from ..tools.message_tools import GONE
from ..types import HUMAN, MESSAGES
from .commands import respond
from .incoming import Incoming
from .screen import said as note
from .screen import sentence
from .session import Session

_BYTES = 65_536  # Read at once.
_LINE_CHARS_MAX = 1_000_000  # No message may be as long.
_LOOK_SECONDS = 5.0  # Between two looks, if no push comes.


async def converse(session: Session, incoming: Incoming, stream: TextIO) -> None:
    """Until the input ends and every message in it is answered. A person at a terminal leaves without waiting."""
    async for text in whole_lines(stream):
        await respond(session, text)
        if session.leaving:
            return
    if stream.isatty():
        return
    try:
        await _answers(session)
        await incoming.arrive()
    except DugnadError as trouble:
        await session.screen.show(sentence(trouble))


async def whole_lines(stream: TextIO) -> AsyncIterator[str]:
    """Lines without their ends; one that ends in a backslash goes on in the next."""
    begun = ""
    async for text in _lines(stream):
        if text.endswith("\\"):
            begun += text[:-1] + "\n"
            if len(begun) > _LINE_CHARS_MAX:
                raise BadInput(f"The message has more than {_LINE_CHARS_MAX:,} characters; shorten it.")
            continue
        yield begun + text
        begun = ""
    if begun.strip():
        yield begun.rstrip("\n")


async def _lines(stream: TextIO) -> AsyncIterator[str]:
    try:
        descriptor = stream.fileno()
    except OSError:  # A stream in memory: all of it is there.
        for text in stream:
            yield text.removesuffix("\n")
        return
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    rest = ""
    while True:
        await _readable(descriptor)
        data = os.read(descriptor, _BYTES)
        *lines, rest = (rest + decoder.decode(data, final=not data)).split("\n")
        for text in lines:
            yield text.removesuffix("\r")
        if len(rest) > _LINE_CHARS_MAX:
            raise BadInput(f"A line of standard input has more than {_LINE_CHARS_MAX:,} characters; shorten it.")
        if not data:
            break
    if rest:
        yield rest


async def _readable(descriptor: int) -> None:
    """Wait without a thread: a thread that waits in a read cannot be stopped, and would keep the process alive."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:  # A file; it can always be read.
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


async def _answers(session: Session) -> None:
    """Wait until every teammate that got a message has answered, or no answer can come."""
    loop, limits = asyncio.get_running_loop(), session.limits
    end = loop.time() + limits.answer_seconds
    give_up = loop.time() + limits.pickup_seconds
    while True:
        with session.board.watch(["log"]) as watch:
            states = {name: await _state(session, name, said) for name, said in sorted(session.spoken_to.items())}
            if not any(states.values()):
                return
            if "works" in states.values():
                give_up = loop.time() + limits.pickup_seconds
            left = min(give_up, end) - loop.time()
            if left <= 0:
                break
            await watch.wait(min(_LOOK_SECONDS, left))
    for name, state in states.items():
        if state:
            what = "has not read your message" if state == "unread" else "still works on it"
            await session.screen.show(note(f"{name} {what}; `dugnad inbox` shows later answers."))


async def _state(session: Session, name: str, said: int) -> str:
    """Why an answer may still come: "unread" or "works". Empty: it came, or none will come.

    The inbox is read first, since a message leaves it only when its reader holds a task and works.
    """
    board = session.board
    unread = any(message.sender == HUMAN for message in await board.inbox(name))
    member = await board.teammate(name)
    if member.status != "working":
        return "unread" if unread and member.status not in GONE else ""
    held = await board.list_tasks(states=("claimed",), teammate=name)
    answered = any(message.sender == name for message in await board.inbox(HUMAN, queued=False, after=said))
    return "works" if unread or not answered or any(task.kind in MESSAGES for task in held) else ""
