"""A long-running command with pipes as its standard input and output: a server to talk to, until it is closed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...errors import ToolError
from .helper.client import Answer

_ERRORS_BYTES_MAX = 64 * 1024
_LINE_BYTES_MAX = 16 * 1024 * 1024  # Of standard output, while nobody reads on: one message of a server, with room.
_READ_BYTES = 256 * 1024
_LAST_WORDS_SECONDS = 2.0
_KILLED = 137
_BEGUN = b"\0"


class _Errors(asyncio.Protocol):
    """Keeps the last bytes of standard error. The first byte tells whether the command began."""

    def __init__(self) -> None:
        self.begun: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.kept = bytearray()
        self.over = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        if not self.begun.done():
            self.begun.set_result(data.startswith(_BEGUN))
            data = data.removeprefix(_BEGUN)
        self.kept += data
        del self.kept[:-_ERRORS_BYTES_MAX]

    def connection_lost(self, trouble: Exception | None) -> None:
        if not self.begun.done():
            self.begun.set_result(False)
        self.over.set()


@dataclass(slots=True)
class Pipes:
    """Our ends of the pipes of standard input, output and errors."""

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    errors: _Errors
    transports: Sequence[asyncio.BaseTransport]

    def close(self) -> None:
        for transport in self.transports:
            if transport.is_closing():
                continue
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()  # What the command did not read, nobody will.
            else:
                transport.close()


async def open_pipes() -> tuple[Pipes, tuple[int, int, int]]:
    loop = asyncio.get_running_loop()
    (their_in, our_in), (our_out, their_out), (our_errors, their_errors) = os.pipe(), os.pipe(), os.pipe()
    stdout = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    speaking, hearing = (asyncio.StreamReaderProtocol(each) for each in (asyncio.StreamReader(), stdout))
    writing, _ = await loop.connect_write_pipe(lambda: speaking, os.fdopen(our_in, "wb", buffering=0))
    reading, _ = await loop.connect_read_pipe(lambda: hearing, os.fdopen(our_out, "rb", buffering=0))
    failing, errors = await loop.connect_read_pipe(_Errors, os.fdopen(our_errors, "rb", buffering=0))
    stdin = asyncio.StreamWriter(writing, speaking, None, loop)
    return Pipes(stdin, stdout, errors, (writing, reading, failing)), (their_in, their_out, their_errors)


class PipedCommand:
    """A command under way. It ends by itself, when it is closed, or with the sandbox that started it."""

    def __init__(self, pipes: Pipes, answer: Answer, end: Callable[[], None], refused: Sequence[str] = ()) -> None:
        self.stdin = pipes.stdin
        self.stdout = pipes.stdout
        self.refused = refused  # Of the network, so far: sentences that say what and why.
        self._pipes, self._answer, self._end = pipes, answer, end

    @property
    def code(self) -> int | None:
        """Its exit code; None while anything of it runs."""
        if not self._answer.done():
            return None
        code = self._answer.result().get("code")
        return _KILLED if code is None else int(code)

    def errors(self) -> str:
        """The last it wrote to standard error."""
        return self._pipes.errors.kept.decode(errors="replace")

    async def wait(self) -> int:
        """Until it ended by itself, and nothing is left of it: its exit code."""
        await asyncio.wait([self._answer])
        with suppress(TimeoutError):  # Where there is no sandbox, something may have been left that holds it open.
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self._pipes.errors.over.wait()
        assert self.code is not None
        return self.code

    async def close(self) -> None:
        """End it with everything it started, and wait until nothing is left. The second time does nothing."""
        if not self._answer.done():
            self._end()
            await asyncio.wait([self._answer])
        self._pipes.close()


async def read_lines(stdout: asyncio.StreamReader, bytes_max: int) -> AsyncIterator[bytes]:
    """The lines that say something, without their ends. ToolError: one of them is too long."""
    kept = bytearray()
    while chunk := await stdout.read(_READ_BYTES):
        first, *lines = chunk.split(b"\n")
        kept += first
        for line in lines:
            if kept.strip():
                yield bytes(kept)
            kept = bytearray(line)
        if len(kept) > bytes_max:
            raise ToolError(f"it sent a line of more than {bytes_max // 1024 // 1024} MiB")
        await asyncio.sleep(0)  # A flood does not keep others from their turn: reading what is there does not wait.
