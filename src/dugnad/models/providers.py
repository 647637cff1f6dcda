"""Real models, through pydantic-ai's model layer: its message types and their serialisation, not its agents.

Only this folder knows a provider. This module and the SDKs are imported when a model is opened.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

import httpx2
import orjson
from httpx_aiohttp.httpx2 import AiohttpTransport
from pydantic_ai import exceptions as trouble
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model as Native
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from ..clock import wall_ms
from ..errors import (
    AnswerLost,
    ContextOverflow,
    ModelMisconfigured,
    ModelTrouble,
    ModelUnavailable,
    QuotaSpent,
    RateLimited,
    RequestRejected,
)
from ..logs import without_secrets
from ..text import length
from .encoding import Exchange, ProviderWire, certificates, exchange
from .port import Facts, Memory, Message, Reply, Request, Said, Stop, ToolCall, ToolSpec, Usage

_DIRECT = ("anthropic", "openai", "openai-chat", "openai-responses")
_TOOL_SETS_MAX = 64
_RESET = "anthropic-ratelimit-unified-reset"  # When a subscription has more again, in seconds since 1970.
_TOO_LONG = "exceed_context_size_error"  # The name that llama.cpp uses; the library does not know it.
_THOUGHT = '"part_kind":"thinking"'
_STOPS: dict[str | None, Stop] = {"length": "length", "content_filter": "refused", "tool_call": "tools"}


class ProviderClients:
    """Connections to a provider: direct ones, and httpx over the same kind of pool for other providers."""

    def __init__(self) -> None:
        self.wire = ProviderWire()
        # The number of open connections is not limited.
        transport = AiohttpTransport(verify=certificates(), limits=httpx2.Limits(max_connections=0))
        self.client = httpx2.AsyncClient(transport=transport, timeout=httpx2.Timeout(600, connect=15))

    async def close(self) -> None:
        await self.wire.close()
        await self.client.aclose()


class ProviderModel:
    """A model of a provider. All teammates that use it share it; close it after them."""

    def __init__(self, name: str, native: Native, lines: ProviderClients, *, key: str, facts: Facts) -> None:
        self.name = name
        self.key = key
        self.facts = facts
        self._native = native
        self._lines = lines
        self._chat = type(native).__name__ == "OpenAIChatModel"
        self._direct = name.partition(":")[0] in _DIRECT
        self._tools: dict[tuple[ToolSpec, ...], dict[str, bytes]] = {}  # Encoded tools; few sets serve many requests.

    async def close(self) -> None:
        await self._lines.close()

    async def ask(self, request: Request) -> Reply:
        known = _known(request.memory, request.messages) if request.memory.model is self else 0
        if known and self._chat and _thinks_at_times(request.messages):
            known = 0
        tools = self._tools.get(request.tools)
        now = Exchange(before=request.memory.encoded[:] if known else [], tools=tools, hears=request.hears)
        if request.hears is not None:
            request.hears("")
        try:
            async with asyncio.timeout(request.seconds_max):
                token = exchange.set(now)
                try:
                    response = await self._answer(
                        _messages(request.messages[known:], request.memory),
                        {"max_tokens": request.output_tokens_max, "timeout": request.seconds_max, "cache": True},
                        _parameters(request.system, request.tools if tools is None else ()),
                    )
                finally:
                    exchange.reset(token)
                reply = _reply(response, self.name)
        except TimeoutError:
            raise AnswerLost(f"{self.name} did not answer within {request.seconds_max:g} seconds.") from None
        except trouble.ModelAPIError as error:
            raise _trouble(self.name, error) from error
        except ModelTrouble as error:  # The error of the connection, with the model's name in front.
            raise type(error)(f"{self.name}: {error}") from error
        except Exception as error:
            if not now.begun:
                raise
            # An answer came and may have been billed, but it breaks the protocol.
            why = without_secrets(repr(error))
            raise AnswerLost(f"{self.name} answered something that cannot be read: {why}.") from error
        if now.sent is not None:
            request.memory.model, request.memory.covered = self, list(request.messages)
            request.memory.encoded = [*now.before, *now.sent]
            if now.sent_tools is not None:
                if len(self._tools) >= _TOOL_SETS_MAX:
                    self._tools.clear()
                self._tools[request.tools] = now.sent_tools
        request.memory.latest = (reply, response)
        return reply

    async def _answer(
        self, messages: list[ModelMessage], settings: ModelSettings, parameters: ModelRequestParameters
    ) -> ModelResponse:
        """Always stream: a proxy may cut a connection that is silent for long."""
        if self._direct:
            return await self._native.request(messages, settings, parameters)
        async with self._native.request_stream(messages, settings, parameters) as stream:
            async for event in stream:
                if (hears := exchange.get().hears) is not None and (text := _text_of(event)):
                    hears(text)
            response = stream.get()
        if response.finish_reason is None and type(self._native).__name__ == "GoogleModel":
            raise AnswerLost("the stream ended before the answer was whole.")  # The library would take it for complete.
        return response


def _text_of(event: object) -> str:
    """The piece of the reply's text that an event of the library brings."""
    if isinstance(event, PartStartEvent):
        return event.part.content if isinstance(event.part, TextPart) else ""
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


def _known(memory: Memory, messages: Sequence[Message]) -> int:
    """How many messages were sent before, unchanged. The rest begins with a reply of the model."""
    count = len(memory.covered)
    # Messages are equal only if they are the same object, so this comparison is fast.
    if not 0 < count < len(messages) or list(messages[:count]) != memory.covered:
        return 0
    first = messages[count]
    return count if isinstance(first, Reply) and (first.text or first.calls) else 0


def _thinks_at_times(messages: Sequence[Message]) -> bool:
    """Whether to encode everything again: in a chat the library adds an empty thought to every reply if one has any."""
    thoughts = {_THOUGHT in (each.native or "") for each in messages if isinstance(each, Reply)}
    return len(thoughts) > 1


def _parameters(system: str, tools: Sequence[ToolSpec]) -> ModelRequestParameters:
    functions = [
        ToolDefinition(name=each.name, description=each.description, parameters_json_schema=dict(each.schema))
        for each in tools
    ]
    return ModelRequestParameters(function_tools=functions, instruction_parts=[InstructionPart(content=system)])


def _messages(messages: Sequence[Message], memory: Memory) -> list[ModelMessage]:
    """The messages in the library's form: texts of the runtime and tool results, between the model's replies."""
    made: list[ModelMessage] = []
    parts: list[Any] = []
    for message in messages:
        if isinstance(message, Reply):
            if parts:
                made.append(ModelRequest(parts=parts))
                parts = []
            known = memory.latest is not None and memory.latest[0] is message
            made.append(memory.latest[1] if known and memory.latest else _response(message))
        elif isinstance(message, Said):
            parts.append(UserPromptPart(content=message.text))
        else:
            parts.append(ToolReturnPart(tool_name=message.name, content=message.text, tool_call_id=message.call))
    if parts:
        made.append(ModelRequest(parts=parts))
    return made


def _response(reply: Reply) -> ModelResponse:
    if reply.native is not None:
        found = ModelMessagesTypeAdapter.validate_json(reply.native)[0]
        assert isinstance(found, ModelResponse)
        return found
    parts: list[Any] = [TextPart(content=reply.text)] if reply.text else []
    parts += [ToolCallPart(tool_name=call.name, args=call.arguments, tool_call_id=call.id) for call in reply.calls]
    return ModelResponse(parts=parts)


def _reply(response: ModelResponse, name: str) -> Reply:
    asked = [part for part in response.parts if isinstance(part, ToolCallPart)]
    for part in asked:  # Arguments that are JSON but not an object: the library cannot send them back.
        if not isinstance(part.args, str | dict | None):
            part.args = orjson.dumps(part.args).decode()
    calls = tuple(ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=_arguments(part)) for part in asked)
    counts = {each.name: getattr(response.usage, each.name) for each in fields(Usage)}
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    return Reply(
        text=text or str((response.provider_details or {}).get("refusal") or ""),
        calls=calls,
        usage=Usage(**counts),
        stop=_STOPS.get(response.finish_reason, "tools" if calls else "end"),
        model=response.model_name or name,
        native=ModelMessagesTypeAdapter.dump_json([response]).decode(),
    )


def _arguments(part: ToolCallPart) -> str:
    arguments: Any = part.args
    if isinstance(arguments, dict) and list(arguments) == ["INVALID_JSON"]:
        return str(arguments["INVALID_JSON"])
    return arguments if isinstance(arguments, str) else orjson.dumps({} if arguments is None else arguments).decode()


def _trouble(name: str, error: trouble.ModelAPIError) -> ModelTrouble:
    said = f"{name}: {_said(error)}"
    status = getattr(error, "status_code", None)
    if isinstance(error, trouble.ModelQuotaExceededError) or status == 402:
        return _spent(said, error)
    if isinstance(error, trouble.ModelRateLimitError | trouble.ModelOverloadedError) or status in (429, 529):
        return RateLimited(said, seconds=error.retry_after)
    too_long = status == 413 or _told(error).get("type") == _TOO_LONG
    if isinstance(error, trouble.ModelContextWindowExceededError) or too_long:
        return ContextOverflow(said)
    if isinstance(error, trouble.ModelAuthenticationError):
        return ModelMisconfigured(f"{said} The provider does not accept the key; set the right one.")
    if isinstance(error, trouble.ModelNotFoundError) or (status is not None and 300 <= status < 400):
        return ModelMisconfigured(f"{said} Check the model's name and the server's address.")
    if isinstance(error, trouble.ModelRequestRejectedError):
        return RequestRejected(said)
    if status is not None or isinstance(error, trouble.ModelServerError | trouble.ModelUnavailableError):
        return ModelUnavailable(said)
    # There was no complete answer. Unless the connection failed, the provider may have served the request.
    unreached = getattr(error, "phase", None) in ("connect", "pool") and "disconnected" not in said
    return ModelUnavailable(said) if unreached else AnswerLost(said)


def _spent(said: str, error: trouble.ModelAPIError) -> QuotaSpent:
    """With the time until the quota is reset, if the provider tells it: as a delay, or for a subscription as a time."""
    seconds, headers = error.retry_after, getattr(error, "headers", None) or {}
    if seconds is None and (reset := str(headers.get(_RESET, ""))).isdecimal():
        seconds = max(0.0, int(reset[:12]) - wall_ms() / 1000)
    if seconds is None:
        return QuotaSpent(f"{said} The account has no credit left; add some, then start again.")
    more = f"There is more again in {length(seconds * 1000)}"
    return QuotaSpent(f"{said} {more}; start again then, or let --wait-for-quota wait.", seconds=seconds)


def _told(error: trouble.ModelAPIError) -> dict[str, Any]:
    body: Any = error.body
    inner = body.get("error", body) if isinstance(body, dict) else {"text": body}
    return inner if isinstance(inner, dict) else {"message": inner}


def _said(error: trouble.ModelAPIError) -> str:
    """The provider's message, as one sentence."""
    told, status = _told(error), getattr(error, "status_code", None)
    text = str(told.get("message") or (f"it answered {status}: {told.get('text') or ''}" if status else error.message))
    flat = " ".join(without_secrets(text).split())[:500].rstrip(": ")
    return flat if flat.endswith((".", "!", "?")) else f"{flat}."


def open_provider(
    provider: str, model: str, *, api_key: str | None = None, base_url: str | None = None, facts: Facts | None = None
) -> ProviderModel:
    """Open provider:model. With a base URL, any server that speaks the provider's protocol."""
    lines = ProviderClients()
    try:
        native = _native(provider, model, lines, api_key, base_url)
    except (trouble.UserError, ValueError) as error:
        said = str(error).split(" To try Pydantic AI")[0]  # The library's advice is for its own users.
        if said.startswith("Unknown provider"):
            said = "there is no such provider; write anthropic:MODEL, openai:MODEL, google:MODEL or scripted:FILE"
        raise ModelMisconfigured(f"{provider}:{model} cannot be opened: {said.rstrip('.')}.") from None
    except ImportError as error:
        raise ModelMisconfigured(f"{provider} needs a package that is not installed: {error}") from None
    key = _label(provider, api_key, base_url)
    return ProviderModel(f"{provider}:{model}", native, lines, key=key, facts=facts or Facts())


def _label(provider: str, api_key: str | None, base_url: str | None) -> str:
    """A label for the rate limit: of a provider's key, or of a server without one. The key cannot be read from it."""
    family = "openai" if provider.startswith("openai-") else provider
    secret = api_key or ("" if base_url else os.environ.get(f"{family.upper().replace('-', '_')}_API_KEY", ""))
    whose = hashlib.sha256((secret or base_url or "").encode()).hexdigest()
    return f"{family}:{whose[:8]}"


def _native(provider: str, model: str, lines: ProviderClients, api_key: str | None, base_url: str | None) -> Native:
    # The SDKs must not retry: each try needs a reservation, and a rate limit concerns the whole team.
    if provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        from .anthropic_client import DirectAnthropic

        _must_have_key("ANTHROPIC_API_KEY", api_key)
        direct = DirectAnthropic(lines.wire, api_key=api_key, base_url=base_url, http_client=lines.client)
        return AnthropicModel(model, provider=AnthropicProvider(anthropic_client=direct))
    if provider in ("openai", "openai-chat", "openai-responses"):
        return _openai(provider, model, lines, api_key, base_url)

    def make(name: str) -> Provider[Any]:
        return _provider(infer_provider_class(name), lines.client, api_key, base_url)

    native = infer_model(f"{provider}:{model}", make)
    inner: Any = getattr(native, "client", None)
    if hasattr(inner, "max_retries"):
        inner.max_retries = 0
    return native


def _must_have_key(variable: str, api_key: str | None) -> None:
    if not api_key and not os.environ.get(variable):
        raise ModelMisconfigured(
            f"There is no key for this model: set {variable}, or name a local OpenAI-compatible server (openai:MODEL "
            "with its base URL), or use the scripted model."
        )


def _openai(provider: str, model: str, lines: ProviderClients, api_key: str | None, base_url: str | None) -> Native:
    """One of OpenAI's two protocols, or another server that speaks the older one."""
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    from .openai_client import DirectOpenAI

    theirs = provider == "openai" and bool(base_url)
    if theirs:
        # A key in the environment is for OpenAI, not for another server. A server without a key still gets a word,
        # because the SDK insists on one.
        api_key = api_key or "none"
    else:
        _must_have_key("OPENAI_API_KEY", api_key)
    direct = DirectOpenAI(lines.wire, theirs=theirs, api_key=api_key, base_url=base_url, http_client=lines.client)
    if theirs:  # Servers of others know the older name of the output limit.
        older = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
        return OpenAIChatModel(model, provider=OpenAICompatibleProvider("openai", openai_client=direct), profile=older)
    kind = OpenAIChatModel if provider == "openai-chat" else OpenAIResponsesModel
    return kind(model, provider=OpenAIProvider(openai_client=direct))


def _provider(
    kind: Callable[..., Provider[Any]], client: Any, api_key: str | None, base_url: str | None
) -> Provider[Any]:
    given = {"api_key": api_key, "base_url": base_url}
    wanted = {name: value for name, value in given.items() if value is not None}
    with suppress(TypeError):  # A provider that brings its own client.
        return kind(http_client=client, **wanted)
    try:
        return kind(**wanted)
    except TypeError as error:
        raise ModelMisconfigured(f"This provider cannot be set up like that: {error}.") from None
