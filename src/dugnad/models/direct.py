"""A model over our own wire: the protocols of Anthropic and of OpenAI.

A conversation only grows at its end, so the bytes of earlier messages are kept in the request's `Memory` and put in
front of the new ones: a turn costs the same at its hundredth message as at its first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import orjson

from ..errors import AnswerLost, ModelTrouble
from ..logs import without_secrets
from .native import native_of
from .port import Facts, Memory, Message, Reply, Request, ToolCall, ToolSpec
from .protocol import Heard, WireProtocol
from .streaming import Json, failed
from .troubles import told_in, trouble_of
from .wire import ProviderWire, WireAnswer

_TOOL_SETS_MAX = 64
# Anthropic's newer models refuse a thought if something in front of it changed, as after a compaction.
_STALE_THOUGHT = "The block is bound to a different conversation"


class DirectModel:
    """A model of a provider. All teammates that use it share it; close it after them."""

    def __init__(self, name: str, protocol: WireProtocol, *, key: str, facts: Facts) -> None:
        self.name = name
        self.key = key
        self.facts = facts
        self._protocol = protocol
        self._url = protocol.url + protocol.path
        self._wire = ProviderWire()
        self._tools: dict[tuple[ToolSpec, ...], bytes] = {}  # Encoded tools; few sets serve many requests.

    async def close(self) -> None:
        await self._wire.close()

    async def ask(self, request: Request) -> Reply:
        memory = request.memory
        known = _known(memory, request.messages) if memory.model is self else 0
        sent, kept = self._encoded(request, known)
        body = self._body(request, sent)  # Before anything is sent: an error here is a bug of ours.
        if request.hears is not None:
            request.hears("")
        try:
            async with asyncio.timeout(request.seconds_max):
                answer = await self._post(request, body)
                if answer.status == 400 and _STALE_THOUGHT in str(told_in(answer.body).get("message")):
                    sent, kept = self._encoded(request, 0, thoughts=False)
                    answer = await self._post(request, self._body(request, sent))
                if answer.status >= 300:
                    raise trouble_of(self.name, answer.status, answer.body, answer.headers)
                reply = self._reply(self._protocol.read(answer.body, request.turn))
        except TimeoutError:
            raise AnswerLost(f"{self.name} did not answer within {request.seconds_max:g} seconds.") from None
        except ModelTrouble as error:
            if str(error).startswith(self.name):
                raise
            raise type(error)(f"{self.name}: {error}") from error  # The error of the connection.
        except Exception as error:  # An answer came and may have been billed, but it breaks the protocol.
            why = without_secrets(repr(error))
            raise AnswerLost(f"{self.name} answered something that cannot be read: {why}.") from error
        memory.model, memory.covered, memory.encoded, memory.kept = self, request.messages, sent, kept
        return reply

    async def _post(self, request: Request, body: list[bytes]) -> WireAnswer:
        protocol = self._protocol
        answer = await self._wire.post(self._url, protocol.headers, body, protocol.fold, request.hears)
        if answer.status < 300 and (error := answer.body.get("error")):  # A failure that came as an answer.
            status, told = failed(error)
            return WireAnswer(status, told, answer.headers)
        return answer

    def _encoded(self, request: Request, known: int, *, thoughts: bool = True) -> tuple[list[bytes], str]:
        memory = request.memory
        kept = memory.kept if known else ""
        new, kept = self._protocol.encode(request.messages[known:], kept, thoughts=thoughts)
        return [*(memory.encoded if known else ()), *map(_dumped, new)], kept

    def _body(self, request: Request, sent: list[bytes]) -> list[bytes]:
        """The request in pieces, most of which are shared or kept."""
        protocol = self._protocol
        tools = self._tools.get(request.tools)
        if tools is None:
            if len(self._tools) >= _TOOL_SETS_MAX:
                self._tools.clear()
            tools = self._tools[request.tools] = orjson.dumps(protocol.tools(request.tools))[1:-1]
        head = b'"%b":[' % protocol.messages.encode()
        pieces = [orjson.dumps(protocol.head(request))[:-1], b",", *((tools, b",") if tools else ()), head]
        for message in (*map(orjson.dumps, protocol.lead(request)), *protocol.marked(sent)):
            pieces += (message, b",")
        pieces[-1] = b"]}"
        return pieces

    def _reply(self, heard: Heard) -> Reply:
        calls = tuple(
            ToolCall(part.call, part.name, part.text) for part in heard.parts if part.kind == "tool-call"
        )  # fmt: skip
        return Reply(
            text="".join(part.text for part in heard.parts if part.kind == "text") or heard.refusal,
            calls=calls,
            usage=heard.usage,
            stop=heard.stop or ("tools" if calls else "end"),
            model=heard.model or self.name,
            native=native_of(heard.parts, self._protocol.provider, self._protocol.url),
        )


def _dumped(message: Json) -> bytes:
    """A copy, because orjson's bytes take up to four times the room that they need."""
    return bytes(memoryview(orjson.dumps(message)))


def _known(memory: Memory, messages: Sequence[Message]) -> int:
    """How many messages were sent before, unchanged. The rest begins with a reply of the model."""
    count = len(memory.covered)
    # Messages are equal only if they are the same object, so this comparison is fast.
    if not 0 < count < len(messages) or messages[:count] != memory.covered:
        return 0
    first = messages[count]
    return count if isinstance(first, Reply) and (first.text.strip() or first.calls) else 0
