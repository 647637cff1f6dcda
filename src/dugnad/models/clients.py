"""The clients of the official SDKs, whose one method that asks a model sends the request directly.

The SDK still provides addresses, credentials, versions, and the types of errors and answers. Its own way to send a
request is not used: it copies the body or walks it by its types (30 ms more for a hundred messages), builds the answer
from typed pieces, and sends it through httpx. pydantic-ai sees no difference.
"""

from __future__ import annotations

from typing import Any

import httpx2
from pydantic import BaseModel, ValidationError

from .encoding import encode, exchange
from .streaming import Fold, Json


async def ask(client: Any, path: str, extra: dict[str, Any], body: Json, fold: Fold, kind: type[BaseModel]) -> Any:
    url = f"{str(client.base_url).rstrip('/')}/{path}"
    headers = {name: value for name, value in (client.headers | extra).items() if isinstance(value, str)}
    status, answer = await client.wire.post(url, headers, encode(body), fold)
    if status >= 300:
        told = answer if path == "v1/messages" else answer.get("error", answer)  # What the SDK shows of it.
        raise client.error(_message(answer), response=_response(status, url, answer), body=told)
    try:
        return kind.model_validate(answer)
    except ValidationError:  # The answer is newer than the SDK: read it in the SDK's lenient way.
        return kind.construct(**answer)


def body_of(fields: Json) -> Json:
    """The given arguments, for a streamed answer. The caller handles timeouts."""
    extra, _ = fields.pop("extra_body", None), fields.pop("timeout", None)
    body = {name: value for name, value in fields.items() if type(value).__name__ not in ("Omit", "NotGiven")}
    return {**body, **(extra if isinstance(extra, dict) else {}), "stream": True}


def _message(answer: Json) -> str:
    said = error.get("message") if isinstance(error := answer.get("error", answer), dict) else error
    return str(said or answer.get("text") or "no explanation was given")[:2_000]


def _response(status: int, url: str, answer: Json) -> httpx2.Response:
    """The response for the SDK's error: its status, and its headers with Retry-After."""
    dropped = ("content-length", "content-encoding", "transfer-encoding", "content-type")
    headers = {key: value for key, value in exchange.get().headers.items() if key not in dropped}
    return httpx2.Response(status, headers=headers, json=answer, request=httpx2.Request("POST", url))
