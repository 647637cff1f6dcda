"""Folds a streamed answer into the answer that the provider would give without streaming.

The SDKs make a typed object for every event, about 0.2 ms of CPU each, and a reply of two thousand tokens comes in
hundreds of events. Here an event is a dictionary; tests compare the result with that of the SDKs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson

Json = dict[str, Any]
Folded = tuple[int, Json]  # An HTTP status and a body.

# Fields that do not grow: later pieces repeat them or leave them out.
_WHOLE = frozenset({"id", "type", "role", "index", "format", "name", "signature"})
_ANTHROPIC_STATUS = {
    "invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
    "not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504,
    "overloaded_error": 529,
}  # fmt: skip


class EndedEarly(Exception):
    """The stream ended before the answer was complete."""


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Json]:
    """The JSON of each server-sent event. Chunks may end anywhere, also inside a character."""
    rest = b""
    async for chunk in chunks:
        text = rest + chunk if rest else chunk
        *whole, rest = (text.replace(b"\r\n", b"\n") if b"\r" in text else text).split(b"\n\n")
        for event in whole:
            body = _data_of(event)
            if body == b"[DONE]":
                yield {"type": "[DONE]"}
            elif body:
                yield orjson.loads(body)


def _data_of(event: bytes) -> bytes:
    """The data of an event: mostly its last line, but it may be spread over several ones."""
    before, found, last = event.rpartition(b"data:")
    if found and b"\n" not in last and b"data:" not in before and (not before or before.endswith(b"\n")):
        return last.removeprefix(b" ")
    lines = (line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:"))
    return b"\n".join(lines)


async def heard(stream: AsyncIterator[Json], hears: Callable[[str], None]) -> AsyncIterator[Json]:
    """The same events; `hears` is told the text in them."""
    async for event in stream:
        if text := text_of(event):
            hears(text)
        yield event


def text_of(event: Json) -> str:
    """The piece of the reply's text that an event of one of the three protocols brings, without thoughts and calls."""
    found: Any = None
    if event.get("type") == "content_block_delta":
        delta = event.get("delta")
        found = delta.get("text") if isinstance(delta, dict) and delta.get("type") == "text_delta" else None
    elif event.get("type") == "response.output_text.delta":
        found = event.get("delta")
    elif isinstance(choices := event.get("choices"), list) and choices and isinstance(choices[0], dict):
        delta = choices[0].get("delta")
        found = delta.get("content") if isinstance(delta, dict) else None
    return found if isinstance(found, str) else ""


async def fold_messages(stream: AsyncIterator[Json]) -> Folded:
    """Anthropic Messages."""
    message: Json = {}
    grown: dict[tuple[int, str], list[str]] = {}
    whole = False
    async for event in stream:  # Read to the end, so that the connection can be used again.
        kind = event.get("type")
        if kind == "message_start":
            message = {"usage": {"input_tokens": 0, "output_tokens": 0}, **event["message"]}
        elif kind == "content_block_start":
            message["content"].append(event["content_block"])
        elif kind == "content_block_delta":
            _grow(message["content"][event["index"]], event["index"], event["delta"], grown)
        elif kind == "message_delta":
            message.update({key: value for key, value in event["delta"].items() if value is not None})
            message.update({key: event[key] for key in ("context_management",) if event.get(key) is not None})
            # Counts are totals, so the last one counts.
            used = event.get("usage") or {}
            message["usage"].update({key: value for key, value in used.items() if value is not None})
        elif kind == "message_stop":
            whole = True
        elif kind == "error":
            return _ANTHROPIC_STATUS.get(event["error"].get("type", ""), 500), event
    if not whole:
        raise EndedEarly
    _finish_blocks(message["content"], grown)
    return 200, message


def _grow(block: Json, index: int, delta: Json, grown: dict[tuple[int, str], list[str]]) -> None:
    kind = delta["type"]
    if kind == "citations_delta":
        block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
    elif kind == "input_json_delta":
        grown.setdefault((index, "input"), []).append(delta["partial_json"])
    elif kind in ("text_delta", "thinking_delta"):
        field = kind.removesuffix("_delta")
        grown.setdefault((index, field), [block.get(field) or ""]).append(delta[field])
    elif kind in ("signature_delta", "compaction_delta"):  # These come in one piece.
        block.update({key: value for key, value in delta.items() if key != "type"})


def _finish_blocks(blocks: list[Json], grown: dict[tuple[int, str], list[str]]) -> None:
    for (index, field), pieces in grown.items():
        text = "".join(pieces)
        if field != "input":
            blocks[index][field] = text
        elif text:
            try:
                found = orjson.loads(text)
            except orjson.JSONDecodeError:
                found = None
            # The library's mark for arguments that are not a JSON object; the model is told what it wrote.
            blocks[index]["input"] = found if isinstance(found, dict) else {"INVALID_JSON": text}


async def fold_chat(stream: AsyncIterator[Json]) -> Folded:
    """OpenAI chat completions, also of other servers."""
    whole: Json = {}
    choices: dict[int, Json] = {}
    done = False
    async for event in stream:
        if event.get("error"):
            return failed(event["error"])
        if event.get("type") == "[DONE]":
            done = True
            continue
        whole.update({key: value for key, value in event.items() if key != "choices" and value is not None})
        for piece in event.get("choices") or ():
            index = piece.get("index") or 0
            choice = choices.setdefault(
                index, {"index": index, "message": {"role": "assistant", "content": None}, "finish_reason": None}
            )
            _merge(choice["message"], piece.get("delta") or {})
            choice["finish_reason"] = piece.get("finish_reason") or choice["finish_reason"]
    if not choices or not (done or all(choice["finish_reason"] for choice in choices.values())):
        raise EndedEarly
    for choice in choices.values():
        choice["finish_reason"] = choice["finish_reason"] or "stop"
    return 200, {**whole, "object": "chat.completion", "choices": [choices[index] for index in sorted(choices)]}


def failed(error: Any) -> Folded:
    """An error inside a stream, with the HTTP status that it would have had."""
    told = error if isinstance(error, dict) else {"message": str(error)}
    code = told.get("code")
    if str(code).isdigit() and 400 <= int(str(code)) < 600:
        return int(str(code)), {"error": told}
    limited = any(str(told.get(key) or "").startswith("rate_limit") for key in ("code", "type"))
    return 429 if limited else 500, {"error": told}


def _merge(into: Json, piece: Json) -> None:
    """Merge a piece into the answer: text grows, and lists of numbered parts are merged part by part."""
    for key, value in piece.items():
        if isinstance(value, str) and key not in _WHOLE:
            into[key] = (into.get(key) or "") + value
        elif isinstance(value, list):
            parts = into.setdefault(key, []) if into.get(key) is None else into[key]
            for part in value:
                same = _numbered(parts, part)
                if same is None:
                    parts.append(part)
                else:
                    _merge(same, part)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif value is not None and (key not in _WHOLE or value != ""):
            into[key] = value


def _numbered(parts: list[Any], part: Any) -> Json | None:
    if not isinstance(part, dict) or "index" not in part:
        return None
    return next((each for each in parts if isinstance(each, dict) and each.get("index") == part["index"]), None)


async def fold_responses(stream: AsyncIterator[Json]) -> Folded:
    """OpenAI Responses: the last event has the whole answer."""
    whole: Json | None = None
    async for event in stream:
        kind = event.get("type")
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            whole = event["response"]
        if kind == "error":
            return failed(event.get("error") or {key: event.get(key) for key in ("message", "code", "param")})
    if whole is None:
        raise EndedEarly
    return 200, whole


Fold = Callable[[AsyncIterator[Json]], Any]
