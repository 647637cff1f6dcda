"""The line to the small process that starts commands: requests go there, answers and open files come back.

Requests and answers are lines of JSON. Open files, such as the ends of pipes, go over a socket beside it, in the order
of the requests they belong to.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ....errors import ToolError

_ANSWER_BYTES_MAX = 1 << 30
_CLOSE_SECONDS = 10.0

Listener = Callable[[bytes], None]


class StarterProcess:
    """Started when it is first needed, and again when it is gone."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._channel: socket.socket | None = None
        self._listening: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listeners: dict[int, Listener] = {}
        self._sockets: dict[int, Callable[[socket.socket], None]] = {}  # Who waits for one that was made inside.
        self._number = 0
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        async with self._starting:
            if self._process is not None and self._process.returncode is None:
                return
            self._close_channel()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            # Its environment is all but empty, so there is nothing to be read from it; -P and the folder keep files of
            # the project from being imported. In a session of its own, it does not hear the terminal's Ctrl-C.
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", "dugnad.workspace.sandbox.helper.server", str(theirs.fileno()),
                    env={"PYTHONPATH": str(Path(__file__).parents[4])}, cwd="/", start_new_session=True,
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                    limit=_ANSWER_BYTES_MAX, pass_fds=(theirs.fileno(),),
                )  # fmt: skip
            asyncio.get_running_loop().add_reader(ours, self._take_socket, ours)
            self._process, self._channel = process, ours
            self._answers, self._listeners = {}, {}  # Those of an earlier one are told of its end by themselves.
            self._listening = asyncio.create_task(_listen(process, self._answers, self._listeners))

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
            name, files, _, _ = socket.recv_fds(channel, 64, 1, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        if not name:
            asyncio.get_running_loop().remove_reader(channel)
        for file in files:
            listener = socket.socket(fileno=file)
            if serve := self._sockets.pop(int(name), None):
                serve(listener)
            else:
                listener.close()  # The command has ended meanwhile.

    async def ask(
        self,
        request: dict[str, Any],
        *,
        files: Sequence[int] = (),
        on_output: Listener | None = None,
        on_socket: Callable[[socket.socket], None] | None = None,
        enough: asyncio.Event | None = None,
        grace_seconds: float = 0.0,
    ) -> dict[str, Any]:
        """Start a command, and wait for its end. Whoever cancels this waits until nothing is left of it. Once there is
        `enough` it is asked to end, and killed after the grace."""
        number, answer = await self.begin(request, files=files, on_output=on_output, on_socket=on_socket)
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
        self,
        request: dict[str, Any],
        *,
        files: Sequence[int] = (),
        on_output: Listener | None = None,
        on_socket: Callable[[socket.socket], None] | None = None,
    ) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """Start a command: its number, and its end when it comes. The files given are closed here.

        `on_socket` is handed the one that listens inside, if the request asks for it.
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
            raise ToolError("The helper that starts commands is gone; try again.") from None
        finally:
            for file in files:
                os.close(file)
        answers, listeners = self._answers, self._listeners
        answer = answers[number] = asyncio.get_running_loop().create_future()
        forget = (answers, listeners, self._sockets)
        answer.add_done_callback(lambda _: [each.pop(number, None) for each in forget])
        if on_socket is not None:
            self._sockets[number] = on_socket
        if on_output is not None:
            listeners[number] = on_output
        try:
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            answer.cancel()
            raise ToolError("The helper that starts commands is gone; try again.") from None
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

    async def _ended(self, number: int, answer: asyncio.Future[dict[str, Any]]) -> None:
        """Whoever cancels it may take the tree away next: not before nothing is left that works in it."""
        self.end(number)
        await asyncio.wait([answer])


async def _listen(
    process: asyncio.subprocess.Process,
    answers: dict[int, asyncio.Future[dict[str, Any]]],
    listeners: dict[int, Listener],
) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        told = json.loads(line)
        answer, listener = answers.get(told["id"]), listeners.get(told["id"])
        if "said" in told:
            if listener is not None:
                listener(base64.b64decode(told["said"]))
        elif answer is not None and not answer.done():
            answer.set_result(told)
    await process.wait()
    for answer in list(answers.values()):
        if not answer.done():
            answer.set_result({"trouble": "the helper that starts commands ended, and the command with it"})


def _line(request: dict[str, Any]) -> bytes:
    return json.dumps(request).encode() + b"\n"
