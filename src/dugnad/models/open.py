"""Opens a model by its name. Nothing heavy is imported before a real model is opened."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ModelMisconfigured
from ..logs import hide
from .port import Model, Price
from .scripted import ScriptedModel

# The first provider whose key is set is the default.
_KEYS = (
    ("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-5-5"),
    ("OPENAI_API_KEY", "openai:gpt-5.5"),
    ("GOOGLE_API_KEY", "google:gemini-2.5-pro"),
)


def open_model(
    name: str | None = None, *, api_key: str | None = None, base_url: str | None = None, price: Price | None = None,
    window_tokens: int | None = None,
) -> Model:  # fmt: skip
    """Open a model by name: `anthropic:…`, `openai:…`, `google:…`, or any other provider that pydantic-ai knows.

    `openai:NAME` with a base URL is any OpenAI-compatible server (Ollama, vLLM, llama.cpp, OpenRouter).
    `scripted:PATH` plays a script. Without a name, the first provider whose key is set.
    """
    hide({"api_key": api_key})
    name = name or default_model()
    provider, _, model = name.partition(":")
    if provider == "scripted":
        return ScriptedModel.load(Path(model)) if model else ScriptedModel({})
    if not model:
        raise ModelMisconfigured(f"{name!r} names no model; write provider:model, for example {_KEYS[0][1]}.")
    from .prices import facts_of
    from .providers import open_provider

    facts = facts_of(provider, model, price=price, window_tokens=window_tokens)
    return open_provider(provider, model, api_key=api_key, base_url=base_url, facts=facts)


def default_model() -> str:
    if name := next((name for variable, name in _KEYS if os.environ.get(variable)), None):
        return name
    raise ModelMisconfigured(
        "No model is set. Set a key (ANTHROPIC_API_KEY, OPENAI_API_KEY or GOOGLE_API_KEY), or name a local "
        "OpenAI-compatible server (openai:MODEL with its base URL), or try it offline with `dugnad demo`."
    )
