"""Opens a provider's model: over our own wire, or through a library if we do not speak the provider's protocol."""

from __future__ import annotations

import hashlib
import os

from ..errors import ModelMisconfigured
from .anthropic import AnthropicMessages
from .chat import Chat
from .direct import DirectModel
from .port import Facts, Model
from .protocol import WireProtocol
from .responses import Responses

_ANTHROPIC, _OPENAI = "https://api.anthropic.com", "https://api.openai.com/v1"
_ACCOUNT = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}


def open_provider(
    provider: str, model: str, *, api_key: str | None = None, base_url: str | None = None, facts: Facts | None = None
) -> Model:
    """Open provider:model. With a base URL, any server that speaks the provider's protocol."""
    key, known = _label(provider, api_key, base_url), facts or Facts()
    if provider == "anthropic":
        secret = _key("ANTHROPIC_API_KEY", api_key)
        url = base_url or os.environ.get("ANTHROPIC_BASE_URL") or _ANTHROPIC
        messages = AnthropicMessages(model, url.rstrip("/"), secret)
        return DirectModel(f"{provider}:{model}", messages, key=key, facts=known)
    if provider in ("openai", "openai-chat", "openai-responses"):
        return DirectModel(f"{provider}:{model}", _openai(provider, model, api_key, base_url), key=key, facts=known)
    try:
        from .library import open_library_model

        return open_library_model(provider, model, api_key=api_key, base_url=base_url, key=key, facts=known)
    except ImportError as error:
        raise ModelMisconfigured(
            f"{provider}:{model} needs a package that is not installed ({error}). For Google's models, install "
            '"dugnad[google]". A server that speaks the protocol of OpenAI needs none: openai:MODEL with its base URL.'
        ) from None


def _openai(provider: str, model: str, api_key: str | None, base_url: str | None) -> WireProtocol:
    """One of OpenAI's two protocols, or another server that speaks the older one."""
    headers = {"content-type": "application/json"}
    theirs = provider == "openai" and bool(base_url)
    if theirs:
        # A key in the environment is for OpenAI, not for another server, nor are the names of its accounts. A server
        # without a key still gets a word: some insist on one.
        headers["authorization"] = f"Bearer {api_key or 'none'}"
    else:
        headers["authorization"] = f"Bearer {_key('OPENAI_API_KEY', api_key)}"
        headers |= {name: os.environ[variable] for name, variable in _ACCOUNT.items() if os.environ.get(variable)}
    url = (base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI).rstrip("/")
    if theirs or provider == "openai-chat":
        return Chat(model, url, headers, theirs=theirs)
    return Responses(model, url, headers)


def _key(variable: str, api_key: str | None) -> str:
    if secret := api_key or os.environ.get(variable):
        return secret
    raise ModelMisconfigured(
        f"There is no key for this model: set {variable}, or name a local OpenAI-compatible server (openai:MODEL "
        "with its base URL), or use the scripted model."
    )


def _label(provider: str, api_key: str | None, base_url: str | None) -> str:
    """A label for the rate limit: of a provider's key, or of a server without one. The key cannot be read from it."""
    family = "openai" if provider.startswith("openai-") else provider
    secret = api_key or ("" if base_url else os.environ.get(f"{family.upper().replace('-', '_')}_API_KEY", ""))
    whose = hashlib.sha256((secret or base_url or "").encode()).hexdigest()
    return f"{family}:{whose[:8]}"
