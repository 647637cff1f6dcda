"""The client of OpenAI's SDK, whose one method that asks a model sends the request directly (see `clients.py`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import openai
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from .clients import ask, body_of
from .encoding import ProviderWire
from .streaming import fold_chat, fold_responses


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

    async def _chat(self, *, extra_headers: Any = None, **fields: Any) -> Any:
        body = body_of(fields) | {"stream_options": {"include_usage": True}}
        return await ask(self, "chat/completions", extra_headers or {}, body, fold_chat, ChatCompletion)

    async def _responses(self, *, extra_headers: Any = None, **fields: Any) -> Any:
        return await ask(self, "responses", extra_headers or {}, body_of(fields), fold_responses, Response)
