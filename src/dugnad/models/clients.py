"""The clients of the official SDKs, whose one method that asks a model sends the request directly.

The SDK still provides addresses, credentials, versions, and the types of errors and answers. Its own way to send a
request is not used: it copies the body or walks it by its types (30 ms more for a hundred messages), builds the answer
from typed pieces, and sends it through httpx. pydantic-ai sees no difference.
"""

from __future__ import annotations

from collections.abc import Mapping
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
        self._wire = wire
        self._headers = dict(self.default_headers)  # Put together once; the SDK does so for every request.

    @property
    def beta(self) -> Any:
        return _Resource(messages=_Resource(create=self._create))

    async def _create(self, *, betas: Any = None, extra_headers: Any = None, **fields: Any) -> BetaMessage:
        headers = dict(extra_headers or {})
        if isinstance(betas, list) and betas:
            headers["anthropic-beta"] = ",".join(betas)
        url = f"{str(self.base_url).rstrip('/')}/v1/messages"
        body = {**_given(fields), "stream": True}
        status, answer = await _post(self._wire, url, self._headers | headers, body, "messages", fold_messages)
        if status >= 300:
            raise anthropic.APIStatusError(_message(answer), response=_response(status, url, answer), body=answer)
        return _typed(BetaMessage, answer)


class DirectOpenAI(openai.AsyncOpenAI):
    def __init__(self, wire: ProviderWire, *, theirs: bool = False, **given: Any) -> None:
        super().__init__(max_retries=0, **given)
        if theirs:  # The environment may name an organisation of OpenAI; other servers must not get it.
            self.organization = self.project = None
        self._wire = wire
        self._headers = dict(self.default_headers)  # Put together once; the SDK does so for every request.

    @property
    def chat(self) -> Any:
        return _Resource(completions=_Resource(create=self._chat))

    @property
    def responses(self) -> Any:
        return _Resource(create=self._responses)

    async def _chat(self, *, extra_headers: Any = None, **fields: Any) -> ChatCompletion:
        body = {**_given(fields), "stream": True, "stream_options": {"include_usage": True}}
        return await self._ask("chat/completions", extra_headers, body, "messages", fold_chat, ChatCompletion)

    async def _responses(self, *, extra_headers: Any = None, **fields: Any) -> Response:
        return await self._ask(
            "responses", extra_headers, {**_given(fields), "stream": True}, "input", fold_responses, Response
        )

    async def _ask(self, path: str, extra: Any, body: dict[str, Any], messages: str, fold: Fold, kind: type[T]) -> T:
        url = f"{str(self.base_url).rstrip('/')}/{path}"
        headers = self._headers | {"Authorization": f"Bearer {self.api_key}"} | (extra or {})
        status, answer = await _post(self._wire, url, headers, body, messages, fold)
        if status >= 300:
            error = answer.get("error", answer)
            raise openai.APIStatusError(_message(answer), response=_response(status, url, answer), body=error)
        return _typed(kind, answer)


class _Resource:
    """Replaces the tree of resources of the SDK."""

    def __init__(self, **children: Any) -> None:
        self.__dict__.update(children)


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """The given arguments, as they go into the body. The caller handles timeouts."""
    extra = fields.pop("extra_body", None)
    fields.pop("timeout", None)
    body = {name: value for name, value in fields.items() if not isinstance(value, _LEFT_OUT)}
    return {**body, **(extra if isinstance(extra, dict) else {})}


async def _post(
    wire: ProviderWire, url: str, headers: Mapping[str, Any], body: dict[str, Any], messages: str, fold: Fold
) -> tuple[int, Json]:
    given = {name: value for name, value in headers.items() if isinstance(value, str)}
    return await wire.post(url, given, encode(body, messages), fold)


def _typed(kind: type[T], answer: Json) -> T:
    try:
        return kind.model_validate(answer)
    except ValidationError:  # The answer is newer than the SDK: read it in the SDK's lenient way.
        return kind.construct(**answer)


def _message(answer: Json) -> str:
    error = answer.get("error", answer)
    said = error.get("message") if isinstance(error, dict) else error
    return str(said or answer.get("text") or "no explanation was given")[:2_000]


def _response(status: int, url: str, answer: Json) -> httpx2.Response:
    """The response for the SDK's error: its status, and its headers with Retry-After."""
    dropped = ("content-length", "content-encoding", "transfer-encoding", "content-type")
    headers = {key: value for key, value in exchange.get().headers.items() if key not in dropped}
    return httpx2.Response(status, headers=headers, json=answer, request=httpx2.Request("POST", url))
