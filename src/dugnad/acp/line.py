"""JSON-RPC in lines, over the pipes of a command in the sandbox. What the command sends is bounded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Protocol

from ..errors import ToolError
from ..text import one_line
from ..workspace.sandbox.pipes import read_lines

LINE_BYTES_MAX = 16 * 1024 * 1024
SESSION_BYTES_MAX = 1024 * 1024 * 1024
GARBAGE_MAX = 200  # Lines that are no messages: some programs print a few where they should not.
NO_METHOD, WRONG_PARAMETERS = -32601, -32602


class TalkingCommand(Protocol):
    """A running command in the sandbox."""

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader

    def errors(self) -> str: ...


class LineTrouble(Exception):
    """The command ended, or sent what cannot be taken. The text says what happened."""


class RpcRefusal(Exception):
    """One side refuses a request of the other."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class RpcLine:
    """Both directions of one conversation. `asked` answers the other side's requests, and `told` gets the rest."""

    def __init__(
        self, piped: TalkingCommand, *, asked: Callable[[str, Any], Any], told: Callable[[str, Any], None]
    ) -> None:  # fmt: skip
        self._piped, self._asked, self._told = piped, asked, told
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._broken = ""
        self.heard_at = asyncio.get_running_loop().time()

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The answer. LineTrouble: there is none; RpcRefusal: it is a refusal."""
        if self._broken:
            raise LineTrouble(self._broken)
        self._number += 1
        answer = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        number = self._number
        try:
            await self._send({"id": number, "method": method, "params": params})
            found = await answer
        finally:
            self._waiting.pop(number, None)
        if not isinstance(found, dict):
            raise LineTrouble(f"its answer to {method} is not an object")
        return found

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """At once: before the answer to a request that is being answered."""
        self._write({"method": method, "params": params})

    def _write(self, message: dict[str, Any]) -> None:
        self._piped.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            self._write(message)
            await self._piped.stdin.drain()
        except OSError:
            pass  # It ended; `listen` says so.

    async def listen(self) -> None:
        """Take what comes until the line ends. Then everybody who waits for an answer hears why."""
        try:
            await self._take_all()
            self._broken = f"it ended{self._last_words()}"
        except ToolError as trouble:
            self._broken = str(trouble)
        except OSError:
            self._broken = f"it broke off{self._last_words()}"
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(LineTrouble(self._broken))

    async def _take_all(self) -> None:
        size = garbage = 0
        async for line in read_lines(self._piped.stdout, LINE_BYTES_MAX):
            size += len(line)
            if size > SESSION_BYTES_MAX:
                raise ToolError(f"it sent more than {SESSION_BYTES_MAX // 1024 // 1024:,} MiB in one session")
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                garbage += 1
                if garbage > GARBAGE_MAX:
                    raise ToolError("it sends lines that are not messages")
                continue
            self.heard_at = asyncio.get_running_loop().time()
            await self._take(message)

    async def _take(self, message: dict[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str) and "id" in message:
            await self._send({"id": number, **self._answer(method, message.get("params"))})
        elif isinstance(method, str):
            self._told(method, message.get("params"))
        elif isinstance(number, int) and (answer := self._waiting.get(number)) is not None and not answer.done():
            if "error" in message:
                answer.set_exception(_refusal(message["error"]))
            else:
                answer.set_result(message.get("result"))

    def _answer(self, method: str, params: Any) -> dict[str, Any]:
        try:
            return {"result": self._asked(method, params)}
        except RpcRefusal as refusal:
            return {"error": {"code": refusal.code, "message": str(refusal)}}

    def _last_words(self) -> str:
        said = self._piped.errors().strip().splitlines()
        return f", saying: {one_line(said[-1], 300)}" if said else ""


def _refusal(error: Any) -> RpcRefusal:
    fields = error if isinstance(error, dict) else {}
    code, message, data = fields.get("code"), fields.get("message"), fields.get("data")
    words = message if isinstance(message, str) and message else "it gives no reason"
    if isinstance(data, dict) and isinstance(more := data.get("details") or data.get("message"), str):
        words = f"{words}: {more}"
    return RpcRefusal(code if isinstance(code, int) else 0, one_line(words, 500), data)
