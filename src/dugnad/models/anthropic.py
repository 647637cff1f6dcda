"""Anthropic Messages: requests with breakpoints for its cache, and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from .native import Part, parts_of
from .port import Message, Reply, Request, Said, Stop, ToolSpec, Usage
from .protocol import Heard, WireProtocol, count, text
from .streaming import Json, fold_messages

_VERSION = "2026-10-21"
_STOPS: dict[str, Stop] = {
    "tool_use": "tools", "max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refused",
}  # fmt: skip
_LOOK_BACK_BLOCKS = 20  # From a breakpoint, Anthropic looks this far back for what an earlier request wrote.
_MARK = {"cache_control": {"type": "ephemeral", "ttl": "5m"}}
_MARK_BYTES = b"," + orjson.dumps(_MARK)[1:-1]
_USER, _BLOCK = b'{"role":"user","content":[', b'{"type":"'
_FIRST_TEXT = _USER + b'{"type":"text"'
_REDACTED = ("redacted_thinking", "redacted_content")


class AnthropicMessages(WireProtocol):
    provider, path, messages = "anthropic", "/v1/messages", "messages"
    fold = staticmethod(fold_messages)

    def __init__(self, model: str, url: str, key: str) -> None:
        self.url = url
        self.headers = {
            "authorization": f"Bearer {key}", "anthropic-version": _VERSION, "content-type": "application/json",
        }  # fmt: skip
        self._model = model

    def head(self, request: Request) -> Json:
        system = [{"type": "text", "text": request.system, **_MARK}] if request.system else []
        limits = {"model": self._model, "max_tokens": request.output_tokens_max, "stream": True}
        return {**limits, **_MARK, "system": system}

    def tools(self, tools: Sequence[ToolSpec]) -> Json:
        made = [{"name": each.name, "description": each.description, "input_schema": each.schema} for each in tools]
        if not made:
            return {}
        return {"tools": [*made[:-1], {**made[-1], **_MARK}], "tool_choice": {"type": "auto"}}

    def encode(self, messages: Sequence[Message], kept: str, *, thoughts: bool) -> tuple[list[Json], str]:
        made: list[Json] = []
        told: list[Json] = []  # By us, since the last reply.
        for message in messages:
            if isinstance(message, Reply):
                if content := _blocks(message, thoughts):
                    made += [{"role": "user", "content": told}] if told else []
                    made.append({"role": "assistant", "content": content})
                    told = []
            elif isinstance(message, Said):
                told += [{"type": "text", "text": message.text}] if message.text else []
            else:
                result = {"type": "tool_result", "tool_use_id": message.call}
                told.append({**result, "content": message.text} if message.text else result)
        return [*made, {"role": "user", "content": told}] if told else made, ""

    def marked(self, sent: list[bytes]) -> list[bytes]:
        """With a fourth breakpoint. Three are on the tools, on the system text, and on the last block, from where the
        end of the request before is found. If that is too far back, it is marked itself. Otherwise the first message
        is, which is still cached after everything behind it was compacted."""
        if len(sent) > 2 and sum(each.count(_BLOCK) for each in sent[-2:]) >= _LOOK_BACK_BLOCKS:
            end = sent[-3]
            return [*sent[:-3], end[:-3] + _MARK_BYTES + end[-3:], *sent[-2:]] if end.startswith(_USER) else sent
        if not sent or not sent[0].startswith(_FIRST_TEXT):
            return sent
        return [_FIRST_TEXT + _MARK_BYTES + sent[0][len(_FIRST_TEXT) :], *sent[1:]]

    def read(self, answer: Json, turn: int) -> Heard:
        used = answer.get("usage") or {}
        read, written = count(used.get("cache_read_input_tokens")), count(used.get("cache_creation_input_tokens"))
        return Heard(
            parts=[_part(block) for block in answer["content"]],
            usage=Usage(
                input_tokens=count(used.get("input_tokens")) + read + written,
                output_tokens=count(used.get("output_tokens")), cache_read_tokens=read, cache_write_tokens=written,
            ),
            stop=_STOPS.get(answer.get("stop_reason") or ""),
            refusal=text((answer.get("stop_details") or {}).get("explanation")),
            model=text(answer.get("model")),
        )  # fmt: skip


def _blocks(reply: Reply, thoughts: bool) -> list[Json]:
    made: list[Json] = []
    for part in parts_of(reply):
        if part.kind == "tool-call":
            made.append({"type": "tool_use", "id": part.call, "name": part.name, "input": _object(part.text)})
        elif part.kind == "text" and part.text.strip():  # Anthropic refuses a text of nothing but spaces.
            made.append({"type": "text", "text": part.text})
        elif part.kind == "thinking" and thoughts and part.signature and part.provider == "anthropic":
            if part.id in _REDACTED:
                made.append({"type": "redacted_thinking", "data": part.signature})
            else:
                made.append({"type": "thinking", "thinking": part.text, "signature": part.signature})
    return made


def _object(arguments: str) -> Any:
    try:
        found = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        found = None
    return found if isinstance(found, dict) else {"INVALID_JSON": arguments}


def _part(block: Json) -> Part:
    kind = block["type"]
    if kind == "text":
        return Part(kind="text", text=text(block["text"]))
    if kind == "thinking":
        return Part(kind="thinking", text=text(block["thinking"]), signature=text(block.get("signature")))
    if kind == "redacted_thinking":
        return Part(kind="thinking", id=_REDACTED[0], signature=text(block["data"]))
    if kind != "tool_use":
        raise ValueError(f"a block is of the type {kind!r}")
    given = block["input"]
    if isinstance(given, dict) and list(given) == ["INVALID_JSON"]:
        given = given["INVALID_JSON"]
    written = given if isinstance(given, str) else orjson.dumps(given).decode()
    return Part(kind="tool-call", text=written, call=text(block["id"]), name=text(block["name"]))
