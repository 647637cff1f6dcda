"""The connection to the small process that starts commands: requests go there, answers and open files come back.

Requests and answers are lines of JSON. Open files, such as the ends of pipes, go over a socket of their own, in the
order of the requests they belong to.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....errors import ToolError

_ANSWER_BYTES_MAX = 1 << 30
_CLOSE_SECONDS = 10.0
_SOCKETS_MAX = 64  # Of one command.
_GONE = "The helper that starts commands is gone; try again."

Answer = asyncio.Future[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A command under way, as this side sees it."""

    answer: Answer
    on_output: Callable[[bytes], None] | None
    on_socket: Callable[[socket.socket], None] | None


class StarterProcess:
    """Started when it is first needed, and again when it is gone."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._channel: socket.socket | None = None
        self._listening: asyncio.Task[None] | None = None
        self._asked: dict[int, _Asked] = {}
        self._number = 0
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        async with self._starting:
            if self._process is not None and self._process.returncode is None:
                return
            self._close_channel()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            # Its environment is almost empty, so nothing can be read from it. -P and the folder keep files of the
            # project from being imported. In a session of its own, it does not get the terminal's Ctrl-C.
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", "dugnad.workspace.sandbox.helper.server", str(theirs.fileno()),
                    env={"PYTHONPATH": str(Path(__file__).parents[4])}, cwd="/", start_new_session=True,
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                    limit=_ANSWER_BYTES_MAX, pass_fds=(theirs.fileno(),),
                )  # fmt: skip
            asyncio.get_running_loop().add_reader(ours, self._take_socket, ours)
            self._process, self._channel = process, ours
            self._asked = {}  # Those who asked an earlier process hear of its end from its own `_listen`.
            self._listening = asyncio.create_task(_listen(process, self._asked))

    async def close(self) -> None:
        """End what still runs, and the process itself."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _CLOSE_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._listening is not None:
            await self._listening
        self._close_channel()

    def _close_channel(self) -> None:
        if self._channel is not None:
            asyncio.get_running_loop().remove_reader(self._channel)
            self._channel.close()
            self._channel = None

    def _take_socket(self, channel: socket.socket) -> None:
        try:
            name, files, _, _ = socket.recv_fds(channel, 64, _SOCKETS_MAX, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        if not name:
            asyncio.get_running_loop().remove_reader(channel)
        for file in files:
            listener = socket.socket(fileno=file)
            asked = self._asked.get(int(name))
            if asked is not None and asked.on_socket is not None:
                asked.on_socket(listener)
            else:
                listener.close()  # The command has ended meanwhile.

    async def ask(
        self, request: dict[str, Any], *, enough: asyncio.Event | None = None, grace_seconds: float = 0.0, **given: Any
    ) -> dict[str, Any]:
        """Start a command, and wait for its end. A caller who cancels this waits until nothing of it is left. Once
        there is `enough`, the command is asked to end, and killed after the grace. What is `given` is as in `begin`."""
        number, answer = await self.begin(request, **given)
        try:
            if enough is not None:
                said: asyncio.Future[Any] = asyncio.ensure_future(enough.wait())
                try:
                    await asyncio.wait([said, answer], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    said.cancel()
                if not answer.done():
                    self._tell({"ask": number})
                    await asyncio.wait({answer}, timeout=grace_seconds)
                if not answer.done():
                    self.end(number)
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            await self._ended(number, answer)
            raise

    async def begin(
        self, request: dict[str, Any], *, files: Sequence[int] = (), on_output: Callable[[bytes], None] | None = None,
        on_socket: Callable[[socket.socket], None] | None = None,
    ) -> tuple[int, Answer]:  # fmt: skip
        """Start a command. Returns its number, and its end when it comes. The files given are closed here.

        `on_socket` gets each socket that listens inside, if the request asks for some.
        """
        try:
            await self.start()
            assert self._process is not None
            assert self._process.stdin is not None
            assert self._channel is not None
            self._number += 1
            number = self._number
            # Without a pause between the two: the files of a request come in the order of the requests.
            if files:
                socket.send_fds(self._channel, [b"%d" % number], files)
            self._process.stdin.write(_line({**request, "id": number, "given": len(files)}))
        except OSError:
            raise ToolError(_GONE) from None
        finally:
            for file in files:
                os.close(file)
        asked, answer = self._asked, asyncio.get_running_loop().create_future()
        asked[number] = _Asked(answer, on_output, on_socket)
        answer.add_done_callback(lambda _: asked.pop(number, None))
        try:
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            answer.cancel()
            raise ToolError(_GONE) from None
        except asyncio.CancelledError:
            await self._ended(number, answer)
            raise
        return number, answer

    def end(self, number: int) -> None:
        """Kill a command. Its answer still comes."""
        self._tell({"end": number})

    def _tell(self, what: dict[str, int]) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(_line(what))

    async def _ended(self, number: int, answer: Answer) -> None:
        """A caller who cancels may remove the tree next, so wait until nothing is left that works in it."""
        self.end(number)
        await asyncio.wait([answer])


async def _listen(process: asyncio.subprocess.Process, asked: Mapping[int, _Asked]) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        told = json.loads(line)
        if (call := asked.get(told["id"])) is None:
            continue
        if "said" not in told:
            _answer(call, told)
        elif call.on_output is not None:
            call.on_output(base64.b64decode(told["said"]))
    await process.wait()
    for call in list(asked.values()):
        _answer(call, {"trouble": "the helper that starts commands ended, and the command with it"})


def _answer(call: _Asked, told: dict[str, Any]) -> None:
    if not call.answer.done():
        call.answer.set_result(told)


def _line(request: dict[str, Any]) -> bytes:
    return json.dumps(request).encode() + b"\n"
