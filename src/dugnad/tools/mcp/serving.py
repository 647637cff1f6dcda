"""The server half of MCP: what is served, and the answer to each message. Pure but for the tools that it calls.

Two eras of clients are answered. One begins with `initialize` and is remembered by its link; the other, of
specification 2026-07-28, has no session: every request says its version and what the client can do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import BadInput, DugnadError
from ...logs import logger
from ...models.port import ToolSpec
from ...text import clean, one_line

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
HEADER_MISMATCH, UNSUPPORTED_VERSION, NOT_FOUND, BUSY = -32020, -32022, -32002, -32000
_KEY = "io.modelcontextprotocol/"
VERSION_KEY, CAPABILITIES_KEY, CLIENT_KEY = (
    f"{_KEY}protocolVersion", f"{_KEY}clientCapabilities", f"{_KEY}clientInfo",
)  # fmt: skip
_LOG = logger(__name__)
_ASKED = "answer"  # The name of the one input that a call may need.
Json = dict[str, Any]


class ProtocolError(Exception):
    """A message that cannot be answered with a result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class NeedsInput(Exception):
    """The client is asked to ask its person, and to call again with the answer."""

    def __init__(self, question: str) -> None:
        super().__init__(question)
        self.question = question


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool says. A refusal is a result, too: the model reads it and goes on."""

    text: str
    refused: bool = False


@dataclass(slots=True, kw_only=True)
class Link:
    """One client, as far as it is known: a connection, or a single request of a client without a session."""

    name: str = ""  # What the client calls itself.
    version: str = ""  # Of the protocol; empty: it has not said.
    modern: bool = False
    can_ask: bool = False  # It can ask its person something in the middle of a call.
    # Asks the client something over a connection that it holds open; None: there is none.
    request: Callable[[str, Json], Awaitable[Json]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a tool."""

    arguments: Json
    link: Link
    given: Json | None = None  # What the client's person answered, if this call comes again with an answer.

    async def ask(self, question: str) -> str | None:
        """What the client's person answers; None: they cannot be asked here, or did not answer."""
        if not self.link.can_ask:
            return None
        if self.link.modern:
            if self.given is None:
                raise NeedsInput(question)
            return _words(self.given)
        return _words(await self.link.request("elicitation/create", _form(question))) if self.link.request else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTool:
    spec: ToolSpec
    call: Callable[[Call], Awaitable[Answer]]
    reads: bool = False  # It changes nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPrompt:
    name: str
    description: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A kind of address that can be read."""

    uri: str
    name: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """What a client is offered."""

    version: str
    tools: Sequence[ServedTool]
    name: str = "dugnad"
    instructions: str = ""
    prompts: Sequence[ServedPrompt] = ()
    templates: Sequence[Template] = ()
    read: Callable[[str], Awaitable[str]] | None = None  # The text at an address. BadInput: there is none.
    met: Callable[[Link], Awaitable[None]] | None = None  # Is told who the client is. DugnadError: it is refused.
    _by_name: dict[str, ServedTool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name.update({each.spec.name: each for each in self.tools})

    async def answer(self, message: Any, link: Link) -> Json | None:
        """The response to one message; None: it needs none."""
        number = message.get("id") if isinstance(message, dict) else None
        try:
            if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
                raise ProtocolError(INVALID_REQUEST, "A message must be one JSON-RPC 2.0 object.")
            if not isinstance(number, str | int | None) or isinstance(number, bool):
                number = None
                raise ProtocolError(INVALID_REQUEST, "The id of a request must be a text or a number.")
            if "method" not in message or not isinstance(method := message["method"], str):
                raise ProtocolError(INVALID_REQUEST, "The message has no method.")
            if "id" not in message:
                return None  # A notification: nothing depends on any of them.
            params = message.get("params", {})
            if not isinstance(params, dict):
                raise ProtocolError(INVALID_PARAMS, "params must be an object.")
            result = await self._result(method, params, link)
        except ProtocolError as wrong:
            return error(number, wrong.code, str(wrong), wrong.data)
        except DugnadError as refused:
            return error(number, BUSY, str(refused))
        except NeedsInput as needed:
            asked = {_ASKED: {"method": "elicitation/create", "params": _form(needed.question)}}
            result = {"resultType": "input_required", "inputRequests": asked, "requestState": _ASKED}
        except Exception:
            _LOG.exception("mcp-call-failed")
            return error(number, INTERNAL_ERROR, "This server has a bug; its log on standard error has the traceback.")
        if link.modern:
            info = {f"{_KEY}serverInfo": {"name": self.name, "version": self.version}}
            result = {"resultType": "complete", **result, "_meta": info}
        return {"jsonrpc": "2.0", "id": number, "result": result}

    async def _result(self, method: str, params: Json, link: Link) -> Json:
        if method == "initialize":
            return await self._initialize(params, link)
        if (meta := _mapping(params.get("_meta"))).get(VERSION_KEY) is not None:
            await self._envelope(meta, link)
        elif not link.version and method != "ping":
            raise ProtocolError(INVALID_REQUEST, "Send initialize first, or say the protocol's version in _meta.")
        made = {
            "ping": self._ping, "server/discover": self._discover, "tools/list": self._list_tools,
            "tools/call": self._call, "prompts/list": self._list_prompts, "prompts/get": self._get_prompt,
            "resources/list": self._list_resources, "resources/templates/list": self._list_templates,
            "resources/read": self._read,
        }.get(method)  # fmt: skip
        if made is None or (method == "server/discover" and not link.modern):
            raise ProtocolError(METHOD_NOT_FOUND, f"There is no method {one_line(method, 80)}.", method)
        result = await made(params, link)
        cached = {"ttlMs": 0, "cacheScope": "private"}
        return {**cached, **result} if link.modern and method not in ("ping", "tools/call", "prompts/get") else result

    async def _initialize(self, params: Json, link: Link) -> Json:
        asked, able = params.get("protocolVersion"), _mapping(params.get("capabilities"))
        if not isinstance(asked, str):
            raise ProtocolError(INVALID_PARAMS, "initialize must say protocolVersion.")
        if link.modern:
            data = {"supported": list(MODERN), "requested": asked}
            raise ProtocolError(UNSUPPORTED_VERSION, "This client speaks without a session already.", data)
        version = asked if asked in HANDSHAKE else HANDSHAKE[-1]
        await self._meet(link, version, params.get("clientInfo"), able)
        capabilities = self._capabilities()
        info = {"name": self.name, "version": self.version}
        about = {"instructions": self.instructions} if self.instructions else {}
        return {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info, **about}

    async def _envelope(self, meta: Json, link: Link) -> None:
        asked, able = meta[VERSION_KEY], meta.get(CAPABILITIES_KEY)
        if asked not in MODERN:
            data = {"supported": [*MODERN], "requested": asked if isinstance(asked, str) else ""}
            raise ProtocolError(UNSUPPORTED_VERSION, "This version of the protocol is not served.", data)
        if not isinstance(able, dict):
            raise ProtocolError(INVALID_PARAMS, f"_meta must say {CAPABILITIES_KEY}.")
        if link.version and not link.modern:
            raise ProtocolError(INVALID_REQUEST, "This client began with initialize, so it has a session.")
        link.modern = True
        await self._meet(link, asked, meta.get(CLIENT_KEY), able)

    async def _meet(self, link: Link, version: str, client: Any, able: Json) -> None:
        name = _mapping(client).get("name")
        link.name = link.name or (one_line(clean(name), 80) if isinstance(name, str) else "")
        link.version, link.can_ask = version, "elicitation" in able
        if self.met is not None:
            await self.met(link)

    def _capabilities(self) -> Json:
        found: Json = {"tools": {}}
        found.update({"prompts": {}} if self.prompts else {})
        found.update({"resources": {}} if self.read is not None else {})
        return found

    async def _ping(self, params: Json, link: Link) -> Json:
        return {}

    async def _discover(self, params: Json, link: Link) -> Json:
        about = {"instructions": self.instructions} if self.instructions else {}
        return {"supportedVersions": [*MODERN], "capabilities": self._capabilities(), **about}

    async def _list_tools(self, params: Json, link: Link) -> Json:
        return {"tools": [listed(each) for each in self.tools]}

    async def _call(self, params: Json, link: Link) -> Json:
        name, arguments = params.get("name"), params.get("arguments", {})
        found = self._by_name.get(name) if isinstance(name, str) else None
        if found is None:
            raise ProtocolError(INVALID_PARAMS, f"There is no tool {one_line(name, 80)}.")
        if not isinstance(arguments, dict):
            raise ProtocolError(INVALID_PARAMS, "arguments must be an object.")
        responses = params.get("inputResponses")
        given = None if responses is None else _mapping(_mapping(responses).get(_ASKED))
        said = await found.call(Call(arguments=arguments, link=link, given=given))
        return {"content": [{"type": "text", "text": clean(said.text)}], "isError": said.refused}

    async def _list_prompts(self, params: Json, link: Link) -> Json:
        return {"prompts": [{"name": each.name, "description": each.description} for each in self.prompts]}

    async def _get_prompt(self, params: Json, link: Link) -> Json:
        found = next((each for each in self.prompts if each.name == params.get("name")), None)
        if found is None:
            raise ProtocolError(INVALID_PARAMS, f"There is no prompt {one_line(params.get('name'), 80)}.")
        words = {"role": "user", "content": {"type": "text", "text": found.text}}
        return {"description": found.description, "messages": [words]}

    async def _list_resources(self, params: Json, link: Link) -> Json:
        return {"resources": []}

    async def _list_templates(self, params: Json, link: Link) -> Json:
        shown = [
            {"uriTemplate": each.uri, "name": each.name, "description": each.description, "mimeType": "text/plain"}
            for each in self.templates
        ]  # fmt: skip
        return {"resourceTemplates": shown}

    async def _read(self, params: Json, link: Link) -> Json:
        uri = params.get("uri")
        if self.read is None or not isinstance(uri, str):
            raise ProtocolError(INVALID_PARAMS, "uri must be a text.")
        try:
            text = await self.read(uri)
        except BadInput as unknown:
            raise ProtocolError(INVALID_PARAMS if link.modern else NOT_FOUND, str(unknown), {"uri": uri}) from None
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": clean(text)}]}


def listed(tool: ServedTool) -> Json:
    """A tool as a client reads it."""
    hints = {"annotations": {"readOnlyHint": True}} if tool.reads else {}
    return {
        "name": tool.spec.name, "description": tool.spec.description, "inputSchema": dict(tool.spec.schema), **hints
    }  # fmt: skip


def error(number: str | int | None, code: int, message: str, data: Any = None) -> Json:
    about = {} if data is None else {"data": data}
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": clean(message), **about}}


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _form(question: str) -> Json:
    schema = {"type": "object", "properties": {_ASKED: {"type": "string"}}, "required": [_ASKED]}
    return {"mode": "form", "message": clean(question), "requestedSchema": schema}


def _words(result: Mapping[str, Any]) -> str | None:
    """The words of a person who accepted to answer."""
    words = _mapping(result.get("content")).get(_ASKED)
    return clean(words) if result.get("action") == "accept" and isinstance(words, str) and words.strip() else None
