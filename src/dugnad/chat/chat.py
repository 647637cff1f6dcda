"""Talking with the lead while the team works.

Everything goes through the board, so the team may run in this process or in another. A line always means the same: text
goes to the lead, and a slash begins a command. A question that arrives never changes what Enter does with a line that
is already typed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import Input
from prompt_toolkit.output import Output
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.utils import is_dumb_terminal

from ..board import Board
from ..safe_open import user_state
from . import plain
from .commands import respond
from .incoming import Incoming
from .prompt import make_prompt, open_history
from .screen import LineScreen, PromptScreen, said
from .session import ChatLimits, Session, alongside, follow
from .spoken import Spoken
from .status import look

_WAIT_SECONDS = 15.0  # For a push. Then look anyway, for what changes without one, such as a lost host.


async def chat(
    board: Board, *, lead: str, team_name: str, input: Input | None = None, output: Output | None = None,
    limits: ChatLimits | None = None, account: int | None = None, spoken: Spoken | None = None,
) -> None:  # fmt: skip
    """Run the chat until the person leaves: with a prompt on a terminal, or else line by line."""
    settings = limits or ChatLimits()
    greeting = f"Team {team_name}. What you type goes to {lead}; /help lists the commands, /quit or Ctrl-D leaves."
    at_a_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not is_dumb_terminal()
    if input is None and not at_a_terminal:
        session = Session(board=board, lead=lead, screen=LineScreen(sys.stdout), limits=settings, account=account)
        if sys.stdin.isatty():
            await session.screen.show(said(greeting))
        incoming = Incoming(session)
        async with alongside(session, incoming.listen()):
            await plain.converse(session, incoming, sys.stdin)
        return
    # Other output of this process is also shown above the prompt.
    with create_app_session(input=input, output=output), patch_stdout():
        spoken = spoken or Spoken()
        session = Session(
            board=board, lead=lead, screen=PromptScreen(), limits=settings, account=account, spoken=spoken
        )
        spoken.name, spoken.screen = lead, session.screen
        history = open_history(user_state(os.environ, "chat_history"), settings.history_bytes_max)
        prompt = make_prompt(session, history)
        await session.screen.show(said(greeting))
        showing = Incoming(session).listen(), _keep_standing(session, prompt), _keep_showing(session)
        async with alongside(session, *showing):
            await _converse(session, prompt)


async def _converse(session: Session, prompt: PromptSession[str]) -> None:
    """Read a line, do what it asks, until the person leaves."""
    running: set[asyncio.Task[None]] = set()
    interrupted = False

    async def turn(text: str) -> None:
        await respond(session, text)
        if session.leaving and prompt.app.is_running:
            prompt.app.exit(exception=EOFError)

    while not session.leaving:
        try:
            text = await prompt.prompt_async(set_exception_handler=False)
        except EOFError:
            break
        except KeyboardInterrupt:
            if interrupted:
                break
            interrupted = True
            await session.screen.show(said("Press Ctrl-C again, or Ctrl-D, to leave."))
            continue
        interrupted = False
        task = asyncio.create_task(turn(text))
        running.add(task)
        task.add_done_callback(running.discard)
        await asyncio.wait({task}, timeout=session.limits.prompt_seconds)
    if running:
        await asyncio.wait(running, timeout=session.limits.leave_seconds)
    for task in tuple(running):
        task.cancel()


async def _keep_showing(session: Session) -> None:
    """Show what the lead writes, until the person has left."""
    showing = asyncio.ensure_future(session.spoken.follow())
    await session.left.wait()
    showing.cancel()


async def _keep_standing(session: Session, prompt: PromptSession[str]) -> None:
    """Keep the status bar up to date, but no faster than anyone can read."""

    async def look_again() -> float:
        try:
            session.standing = await look(session.board, session.account)
        except Exception as trouble:  # Shown in the status bar, and tried again.
            session.standing = replace(session.standing, trouble=str(trouble))
        prompt.app.invalidate()
        return session.limits.refresh_seconds

    await follow(session, ("log",), look_again, seconds=_WAIT_SECONDS)
