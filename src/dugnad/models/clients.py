"""The clients of the official SDKs, whose one method that asks a model sends the request directly.

The SDK still provides addresses, credentials, versions, and the types of errors and answers. Its own way to send a
request is not used: it copies the body or walks it by its types (30 ms more for a hundred messages), builds the answer
from typed pieces, and sends it through httpx. pydantic-ai sees no difference.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TypeVar

import anthropic
import httpx2
import openai
from anthropic.types.beta import BetaMessage
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic import BaseModel, ValidationError

from .encoding import ProviderWire, encode, exchange
from .streaming import Fold, Json, fold_chat, fold_messages, fold_responses

T = TypeVar("T", bound=BaseModel)
_LEFT_OUT = (anthropic.Omit, anthropic.NotGiven, openai.Omit, openai.NotGiven)


class DirectAnthropic(anthropic.AsyncAnthropic):
    def __init__(self, wire: ProviderWire, **given: Any) -> None:
        super().__init__(max_retries=0, **given)
        self.wire = wire
        self.headers = dict(self.default_headers)  # Put together once; the SDK does so for every request.
        self.error = anthropic.APIStatusError

    @property
    def beta(self) -> Any:
        return SimpleNamespace(messages=SimpleNamespace(create=self._create))

    async def _create(self, *, betas: Any = None, extra_headers: Any = None, **fields: Any) -> BetaMessage:
        headers = dict(extra_headers or {})
        if isinstance(betas, list) and betas:
            headers["anthropic-beta"] = ",".join(betas)
        return await _ask(self, "v1/messages", headers, _body(fields), fold_messages, BetaMessage)


class DirectOpenAI(openai.AsyncOpenAI):
    def __init__(self, wire: ProviderWire, *, theirs: bool = False, **given: Any) -> None:
        super().__init__(max_retries=0, **given)
        if theirs:  # The environment may name an organisation of OpenAI; other servers must not get it.
            self.organization = self.project = None
        self.wire = wire
        self.headers = {**self.default_headers, "Authorization": f"Bearer {self.api_key}"}
        self.error = openai.APIStatusError

    @property
    def chat(self) -> Any:
        return SimpleNamespace(completions=SimpleNamespace(create=self._chat))

    @property
    def responses(self) -> Any:
        return SimpleNamespace(create=self._responses)

    async def _chat(self, *, extra_headers: Any = None, **fields: Any) -> ChatCompletion:
        body = _body(fields) | {"stream_options": {"include_usage": True}}
        return await _ask(self, "chat/completions", extra_headers or {}, body, fold_chat, ChatCompletion)

    async def _responses(self, *, extra_headers: Any = None, **fields: Any) -> Response:
        return await _ask(self, "responses", extra_headers or {}, _body(fields), fold_responses, Response)


async def _ask(
    client: DirectAnthropic | DirectOpenAI, path: str, extra: dict[str, Any], body: Json, fold: Fold, kind: type[T]
) -> T:
    url = f"{str(client.base_url).rstrip('/')}/{path}"
    headers = {name: value for name, value in (client.headers | extra).items() if isinstance(value, str)}
    status, answer = await client.wire.post(url, headers, encode(body), fold)
    if status >= 300:
        told = answer.get("error", answer) if isinstance(client, DirectOpenAI) else answer
        raise client.error(_message(answer), response=_response(status, url, answer), body=told)
    try:
        return kind.model_validate(answer)
    except ValidationError:  # The answer is newer than the SDK: read it in the SDK's lenient way.
        return kind.construct(**answer)


def _body(fields: Json) -> Json:
    """The given arguments, for a streamed answer. The caller handles timeouts."""
    extra = fields.pop("extra_body", None)
    fields.pop("timeout", None)
    body = {name: value for name, value in fields.items() if not isinstance(value, _LEFT_OUT)}
    return {**body, **(extra if isinstance(extra, dict) else {}), "stream": True}


def _message(answer: Json) -> str:
    error = answer.get("error", answer)
    said = error.get("message") if isinstance(error, dict) else error
    return str(said or answer.get("text") or "no explanation was given")[:2_000]


def _response(status: int, url: str, answer: Json) -> httpx2.Response:
    """The response for the SDK's error: its status, and its headers with Retry-After."""
    dropped = ("content-length", "content-encoding", "transfer-encoding", "content-type")
    headers = {key: value for key, value in exchange.get().headers.items() if key not in dropped}
    return httpx2.Response(status, headers=headers, json=answer, request=httpx2.Request("POST", url))
