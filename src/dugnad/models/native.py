"""A reply in its provider's own form, as it is recorded, so that thoughts and signatures go back word for word.

The form is a JSON list with one response and its parts, the one in which pydantic-ai writes its messages: boards of
earlier versions hold it with many more fields, and the providers that are reached through that library still write it.
A reply that is only text and calls needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from .port import Reply

Kind = Literal["text", "thinking", "tool-call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    kind: Kind
    text: str = ""  # What was said or thought, or the arguments of a call.
    call: str = ""  # The id of a call, and its tool.
    name: str = ""
    id: str = ""  # The provider's name for this part.
    signature: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)  # What else has to go back.
    provider: str = ""  # Who said it, and at which address. Others refuse its signature.
    url: str = ""


def parts_of(reply: Reply) -> list[Part]:
    if reply.native is not None:
        (found,) = orjson.loads(reply.native)
        url = str(found.get("provider_url") or "").rstrip("/")
        return [
            _read(part, url) for part in found["parts"] if part.get("part_kind") in ("text", "thinking", "tool-call")
        ]
    said = [Part(kind="text", text=reply.text)] if reply.text else []
    return said + [Part(kind="tool-call", text=each.arguments, call=each.id, name=each.name) for each in reply.calls]


def _read(part: Mapping[str, Any], url: str) -> Part:
    said = part.get("args") if part["part_kind"] == "tool-call" else part.get("content")
    if isinstance(said, dict) and list(said) == ["INVALID_JSON"]:
        said = str(said["INVALID_JSON"])
    return Part(
        kind=part["part_kind"],
        text=said if isinstance(said, str) else orjson.dumps({} if said is None else said).decode(),
        call=part.get("tool_call_id") or "",
        name=part.get("tool_name") or "",
        id=part.get("id") or "",
        signature=part.get("signature") or "",
        details=part.get("provider_details") or {},
        provider=part.get("provider_name") or "",
        url=url,
    )


def native_of(parts: Iterable[Part], provider: str, url: str) -> str | None:
    """None if there is nothing in it beside text and calls."""
    made = list(parts)
    if not any(part.kind == "thinking" or part.id or part.details for part in made):
        return None
    whole = {"parts": [_written(part, provider) for part in made], "provider_name": provider, "provider_url": url}
    return orjson.dumps([{**whole, "kind": "response"}]).decode()


def _written(part: Part, provider: str) -> dict[str, Any]:
    own: dict[str, Any] = {"part_kind": part.kind}
    if part.kind == "tool-call":
        own |= {"tool_name": part.name, "args": part.text, "tool_call_id": part.call}
    else:
        own["content"] = part.text
    if part.id or part.details or part.kind == "thinking":
        own |= {"id": part.id or None, "provider_name": provider, "provider_details": part.details or None}
    return own | ({"signature": part.signature} if part.signature else {})
