"""What the tests of models share: every protocol at the double's address, and requests to ask with."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dugnad.models import Model, Reply, Request, open_model
from dugnad.models.port import Memory, Message, Said, ToolResult, ToolSpec
from tests.models.provider_server import Answer, Fault, ProviderServer, Script

ANTHROPIC, CHAT, RESPONSES = "anthropic:claude-sonnet-5-5", "openai-chat:gpt-4o", "openai-responses:gpt-5"
LOCAL, GOOGLE = "openai:some-local-model", "google:gemini-2.5-pro"
DIRECT = (ANTHROPIC, CHAT, RESPONSES, LOCAL)  # Those that go over our own wire.
ALL = (*DIRECT, GOOGLE)
KEY = "key-of-the-test"

NOTE = ToolSpec(
    name="note",
    description="Write something down.",
    schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)
LOOK = ToolSpec(name="look", description="Look around.", schema={"type": "object", "properties": {}})
TOOLS = (NOTE, LOOK)


def address(name: str, server: ProviderServer) -> str:
    return f"{server.url}/v1" if name.startswith("openai") else server.url


def import_google() -> None:
    """Its source warns when it is compiled, which happens once, on a machine where that was not done before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("google.genai")


def opened(name: str, server: ProviderServer, *, api_key: str | None = KEY, **given: Any) -> Model:
    if name == GOOGLE:
        import_google()
    model = open_model(name, api_key=api_key, base_url=address(name, server), **given)
    return model


@asynccontextmanager
async def provider(name: str, script: Script) -> AsyncIterator[tuple[Model, ProviderServer]]:
    """A model, and the server that plays its provider."""
    async with ProviderServer(script) as server:
        model = opened(name, server)
        try:
            yield model, server
        finally:
            await model.close()


def asking(*messages: Message, memory: Memory | None = None, **given: Any) -> Request:
    said: dict[str, Any] = {"system": "You help: søte små.", "tools": TOOLS, "seconds_max": 30.0}
    return Request(messages=messages or (Said("Hello."),), memory=memory or Memory(), **(said | given))


async def answer_of(name: str, said: Answer | Fault, **given: Any) -> Reply:
    """One request, and what the model makes of the one thing its provider says."""
    async with provider(name, [said]) as (model, _):
        return await model.ask(asking(**given))


def results(reply: Reply) -> list[ToolResult]:
    return [ToolResult(call.id, call.name, f"{call.name} → gjort ✓") for call in reply.calls]


async def talk(model: Model, says: Sequence[Sequence[str]], memory: Memory) -> list[Message]:
    """A conversation: before each turn the runtime says something, and every call gets its result."""
    messages: list[Message] = []
    for texts in says:
        messages += map(Said, texts)
        reply = await model.ask(asking(*messages, memory=memory))
        messages += [reply, *results(reply)]
    return messages
