"""The client of Anthropic's SDK, whose one method that asks a model sends the request directly (see `clients.py`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anthropic
from anthropic.types.beta import BetaMessage

from .clients import ask, body_of
from .encoding import ProviderWire
from .streaming import fold_messages


class DirectAnthropic(anthropic.AsyncAnthropic):
    def __init__(self, wire: ProviderWire, **given: Any) -> None:
        super().__init__(max_retries=0, **given)
        self.wire = wire
        self.headers = dict(self.default_headers)  # Put together once; the SDK does so for every request.
        self.error = anthropic.APIStatusError

    @property
    def beta(self) -> Any:
        return SimpleNamespace(messages=SimpleNamespace(create=self._create))

    async def _create(self, *, betas: Any = None, extra_headers: Any = None, **fields: Any) -> Any:
        headers = dict(extra_headers or {})
        if isinstance(betas, list) and betas:
            headers["anthropic-beta"] = ",".join(betas)
        return await ask(self, "v1/messages", headers, body_of(fields), fold_messages, BetaMessage)
