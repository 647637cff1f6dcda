"""Models of other providers (Google's among them), through pydantic-ai and the provider's own package.

They are an extra, `dugnad[google]`. This module is imported when such a model is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

import httpx2
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

from ..errors import AnswerLost, ModelMisconfigured, ModelTrouble, ModelUnavailable
from ..logs import without_secrets
from .native import Part, parts_of
from .port import Facts, Message, Reply, Request, Said, Stop, ToolCall, ToolSpec, Usage
from .troubles import sentence, trouble_of

_STOPS: dict[str | None, Stop] = {"length": "length", "content_filter": "refused", "tool_call": "tools"}
# The status by which each of the library's kinds of errors is known; the more special ones first.
_STATUS = {
    trouble.ModelQuotaExceededError: 402, trouble.ModelRateLimitError: 429, trouble.ModelOverloadedError: 529,
    trouble.ModelContextWindowExceededError: 413, trouble.ModelAuthenticationError: 401,
    trouble.ModelNotFoundError: 404, trouble.ModelRequestRejectedError: 400, trouble.ModelServerError: 500,
    trouble.ModelUnavailableError: 503,
}  # fmt: skip


class LibraryModel:
    """A model of a provider. All teammates that use it share it; close it after them."""

    def __init__(self, name: str, native: Native, client: httpx2.AsyncClient, *, key: str, facts: Facts) -> None:
        self.name = name
        self.key = key
        self.facts = facts
        self._native = native
        self._client = client

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(self, request: Request) -> Reply:
        messages, parameters = _messages(request.messages), _parameters(request.system, request.tools)
        settings: ModelSettings = {
            "max_tokens": request.output_tokens_max, "timeout": request.seconds_max, "cache": True,
        }  # fmt: skip
        if request.hears is not None:
            request.hears("")
        try:
            async with asyncio.timeout(request.seconds_max):
                response = await self._answer(messages, settings, parameters, request.hears)
                return _reply(response, self.name)
        except TimeoutError:
            raise AnswerLost(f"{self.name} did not answer within {request.seconds_max:g} seconds.") from None
        except trouble.ModelAPIError as error:
            raise _trouble(self.name, error) from error
        except ModelTrouble as error:
            raise type(error)(f"{self.name}: {error}") from error
        except Exception as error:  # An answer came and may have been billed, but it breaks the protocol.
            why = without_secrets(repr(error))
            raise AnswerLost(f"{self.name} answered something that cannot be read: {why}.") from error

    async def _answer(
        self, messages: list[ModelMessage], settings: ModelSettings, parameters: ModelRequestParameters,
        hears: Callable[[str], None] | None,
    ) -> ModelResponse:  # fmt: skip
        """Always stream: a proxy may cut a connection that is silent for long."""
        async with self._native.request_stream(messages, settings, parameters) as stream:
            async for event in stream:
                if hears is not None and (text := _text_of(event)):
                    hears(text)
            response = stream.get()
        if response.finish_reason is None and type(self._native).__name__ == "GoogleModel":
            raise AnswerLost("the stream ended before the answer was whole.")  # The library would take it for complete.
        return response


def open_library_model(
    provider: str, model: str, *, api_key: str | None, base_url: str | None, key: str, facts: Facts
) -> LibraryModel:
    # The number of open connections is not limited.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    client = httpx2.AsyncClient(limits=limits, timeout=httpx2.Timeout(600, connect=15))

    def make(name: str) -> Provider[Any]:
        return _provider(infer_provider_class(name), client, api_key, base_url)

    try:
        native = infer_model(f"{provider}:{model}", make)
    except (trouble.UserError, ValueError) as error:
        said = str(error).split(" To try Pydantic AI")[0]  # The library's advice is for its own users.
        if said.startswith("Unknown provider"):
            said = "there is no such provider; write anthropic:MODEL, openai:MODEL, google:MODEL or scripted:FILE"
        raise ModelMisconfigured(f"{provider}:{model} cannot be opened: {said.rstrip('.')}.") from None
    # The SDKs must not retry: each try needs a reservation, and a rate limit concerns the whole team.
    inner: Any = getattr(native, "client", None)
    if hasattr(inner, "max_retries"):
        inner.max_retries = 0
    return LibraryModel(f"{provider}:{model}", native, client, key=key, facts=facts)


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


def _text_of(event: object) -> str:
    """The piece of the reply's text that an event of the library brings."""
    if isinstance(event, PartStartEvent):
        return event.part.content if isinstance(event.part, TextPart) else ""
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


def _parameters(system: str, tools: Sequence[ToolSpec]) -> ModelRequestParameters:
    functions = [
        ToolDefinition(name=each.name, description=each.description, parameters_json_schema=dict(each.schema))
        for each in tools
    ]
    return ModelRequestParameters(function_tools=functions, instruction_parts=[InstructionPart(content=system)])


def _messages(messages: Sequence[Message]) -> list[ModelMessage]:
    """The messages in the library's form: texts of the runtime and tool results, between the model's replies."""
    made: list[ModelMessage] = []
    parts: list[Any] = []
    for message in messages:
        if isinstance(message, Reply):
            made += [ModelRequest(parts=parts)] if parts else []
            parts = []
            made.append(_response(message))
        elif isinstance(message, Said):
            parts.append(UserPromptPart(content=message.text))
        else:
            parts.append(ToolReturnPart(tool_name=message.name, content=message.text, tool_call_id=message.call))
    return [*made, ModelRequest(parts=parts)] if parts else made


def _response(reply: Reply) -> ModelResponse:
    if reply.native is not None:
        found = ModelMessagesTypeAdapter.validate_json(reply.native)[0]
        assert isinstance(found, ModelResponse)
        return found
    return ModelResponse(parts=[_part(part) for part in parts_of(reply)])


def _part(part: Part) -> TextPart | ToolCallPart:
    if part.kind == "text":
        return TextPart(content=part.text)
    return ToolCallPart(tool_name=part.name, args=part.text, tool_call_id=part.call)


def _reply(response: ModelResponse, name: str) -> Reply:
    counts = {each.name: getattr(response.usage, each.name) for each in fields(Usage)}
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    native = ModelMessagesTypeAdapter.dump_json([response]).decode()
    read = parts_of(Reply(native=native))
    calls = tuple(ToolCall(part.call, part.name, part.text) for part in read if part.kind == "tool-call")
    return Reply(
        text=text or str((response.provider_details or {}).get("refusal") or ""),
        calls=calls,
        usage=Usage(**counts),
        stop=_STOPS.get(response.finish_reason, "tools" if calls else "end"),
        model=response.model_name or name,
        native=native,
    )


def _trouble(name: str, error: trouble.ModelAPIError) -> ModelTrouble:
    kind = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), None)
    told = getattr(error, "status_code", None)
    if (status := (told or kind) if kind == 400 else (kind or told)) is not None:
        headers = {str(key).lower(): str(value) for key, value in (getattr(error, "headers", None) or {}).items()}
        return trouble_of(name, status, error.body or {"message": error.message}, headers)
    # There was no complete answer. Unless the connection failed, the provider may have served the request.
    said = f"{name}: {sentence(error.message)}"
    unreached = getattr(error, "phase", None) in ("connect", "pool") and "disconnected" not in said
    return ModelUnavailable(said) if unreached else AnswerLost(said)
