"""`notify` in the user's config.toml: a command that is started for each new thing that waits for the person.

It runs beside `run`, `work` and `web`, and follows the log. If several of them run, the one that makes a small file in
the user's state folder first starts the command, and the others do not.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..board import Board
from ..board.roots import root_name
from ..clock import wall_ms
from ..errors import BoardClosed, BoardTrouble
from ..logs import logger
from ..safe_open import held, user_state
from ..team.requests import waiting_requests
from ..text import one_line
from ..tools import policy
from ..types import Event, Message
from ..view.json import Shape, as_line, message_shape
from ..workspace.programs import find_program

_LOG = logger(__name__)
SECONDS_MAX = 30.0
_TEXT_MOST = 200
_AGAIN_SECONDS = 5.0
_KEPT_MS = 30 * 86_400_000  # Older files are removed: nobody asks about what waited then.
_ASKS = ("question", "plan", "shutdown")
_VERBS = {"question": "asks", "plan": "shows a plan", "shutdown": "asks you to shut down"}


@asynccontextmanager
async def notifying(
    board: Board, command: Sequence[str], *, where: str, outside: Path, environment: Mapping[str, str] = os.environ
) -> AsyncIterator[None]:
    """Start the command for each new thing that waits, as long as the block lasts. `outside`: no program that lies in
    this project is started."""
    if not command:
        yield
        return
    notifier = _Notifier(board, tuple(command), where, outside, environment, await board.identity())
    notifier.after = await board.last_event()  # From here on nothing is missed, whenever the task begins.
    running = asyncio.create_task(notifier.run(), name="notify")
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@dataclass
class _Notifier:
    board: Board
    command: tuple[str, ...]
    where: str
    outside: Path
    environment: Mapping[str, str]
    identity: str
    after: int = 0  # The last event that was looked at.
    _told: set[str] = field(default_factory=set)  # By this process.

    @property
    def folder(self) -> Path:
        return user_state(self.environment, "notified")

    async def run(self) -> None:
        await asyncio.to_thread(self._forget_old)
        while True:
            with suppress(BoardTrouble):
                try:
                    await self._follow()
                except BoardClosed:
                    return
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _follow(self) -> None:
        await self._look()
        async for event in self.board.follow(self.after):
            if event.kind == "budget_reached":
                await self._tell_held(event)
            elif _may_wait(event):
                await self._look()
            self.after = event.seq

    async def _look(self) -> None:
        for asked in await waiting_requests(self.board):
            if self._is_first(f"m{asked.id}"):
                await self._start(_words(asked), message_shape(asked))

    async def _tell_held(self, event: Event) -> None:
        root, cap = event.root or 0, str(event.data.get("held"))
        if self._is_first(f"held-{event.seq}"):
            found = (await self.board.find_all({root})).get(root)
            title = found.title if found is not None else ""
            words = f"{root_name(root)} is held, its cap on {cap} is reached: {title}"
            await self._start(words, {"kind": "budget", "root": root, "held": cap, "title": title})

    def _is_first(self, name: str) -> bool:
        """Whether no process of this user has told of this yet."""
        if name in self._told:
            return False
        self._told.add(name)
        try:
            with held(self.folder, make=True) as inside:
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(f"{self.identity}-{name}", flags, 0o600, dir_fd=inside))
        except FileExistsError:
            return False
        except OSError as trouble:  # Better told twice than not at all.
            _LOG.warning("notify-not-kept folder=%s why=%s", self.folder, trouble.strerror)
        return True

    def _forget_old(self) -> None:
        with suppress(OSError), held(self.folder) as inside:
            for name in os.listdir(inside):
                if os.stat(name, dir_fd=inside, follow_symlinks=False).st_mtime * 1_000 < wall_ms() - _KEPT_MS:
                    os.unlink(name, dir_fd=inside)

    async def _start(self, words: str, shape: Shape) -> None:
        """Run the command to its end, or for some time. Whatever goes wrong is logged, and changes nothing."""
        first, *rest = self.command
        path = self.environment.get("PATH", os.defpath)
        program = find_program(first, path, outside=self.outside)
        if program is None:
            _LOG.warning("notify-not-found program=%s", first)
            return
        text = one_line(f"dugnad: {words}", _TEXT_MOST)
        try:
            process = await asyncio.create_subprocess_exec(
                program, *rest, text, cwd="/", env=dict(self.environment), start_new_session=True,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, ValueError) as trouble:
            _LOG.warning("notify-not-started program=%s why=%s", program, trouble)
            return
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await process.communicate((as_line({**shape, "board": self.where}) + "\n").encode())
        except TimeoutError:
            _LOG.warning("notify-too-long program=%s seconds=%s", program, SECONDS_MAX)
        except OSError as trouble:
            _LOG.warning("notify-failed program=%s why=%s", program, trouble.strerror)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            _LOG.warning("notify-failed program=%s code=%d", program, process.returncode)


def _may_wait(event: Event) -> bool:
    """Whether something may wait for the person since this event; also a request to a teammate that is gone."""
    asks = event.kind == "told" and event.data.get("message_kind") in _ASKS
    return asks or event.kind in ("stopped_teammate", "failed_teammate")


def _words(asked: Message) -> str:
    is_call = asked.kind == "question" and policy.is_question(asked.text)
    verb = "wants to use a tool" if is_call else _VERBS.get(asked.kind, "asks")
    about = f" for #{asked.task}" if asked.task is not None else ""
    return f"{asked.sender} {verb}{about}: {asked.text}"
