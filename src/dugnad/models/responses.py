"""OpenAI Responses: requests and answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .native import Part, parts_of
from .port import Message, Reply, Request, Said, Stop, ToolSpec, Usage
from .protocol import Heard, WireProtocol, count, strict, text
from .streaming import Json, fold_responses

_STOPS: dict[str, Stop] = {"max_output_tokens": "length", "content_filter": "refused"}
_DO_NOT_REASON = ("gpt-3", "gpt-4", "gpt-5-chat", "chatgpt")
_PHASES = ("commentary", "final_answer")


class Responses(WireProtocol):
    provider, path, messages = "openai", "/responses", "input"
    fold = staticmethod(fold_responses)

    def __init__(self, model: str, url: str, headers: dict[str, str]) -> None:
        self.url = url
        self.headers = headers
        self._model = model
        self._reasons = not model.startswith(_DO_NOT_REASON)

    def head(self, request: Request) -> Json:
        head = {"model": self._model, "max_output_tokens": request.output_tokens_max, "stream": True}
        told = {"instructions": request.system} if request.system else {}
        return {**head, **told, **({"include": ["reasoning.encrypted_content"]} if self._reasons else {})}

    def tools(self, tools: Sequence[ToolSpec]) -> Json:
        made = []
        for each in tools:
            held = strict(each.schema)
            own = {"type": "function", "name": each.name, "description": each.description}
            made.append({**own, "parameters": held or each.schema, "strict": held is not None})
        return {"tools": made, "tool_choice": "auto"} if made else {}

    def encode(self, messages: Sequence[Message], kept: str, *, thoughts: bool) -> tuple[list[Json], str]:
        made: list[Json] = []
        for message in messages:
            if isinstance(message, Said):
                made.append({"role": "user", "content": message.text})
            elif isinstance(message, Reply):
                made += self._items(message)
            else:
                made.append({"type": "function_call_output", "call_id": message.call, "output": message.text})
        return made, ""

    def _items(self, reply: Reply) -> list[Json]:
        made: list[Json] = []
        for part in parts_of(reply):
            is_theirs = self._reasons and (part.provider, part.url) == ("openai", self.url)
            named = {"id": part.id} if part.id and is_theirs else {}  # An id names something that this server keeps.
            if part.kind == "tool-call":
                space = {key: part.details[key] for key in ("namespace",) if key in part.details}
                call = {"type": "function_call", "call_id": part.call, "name": part.name, "arguments": part.text}
                made.append({**call, **named, **space})
            elif part.kind == "text" and named:
                phase = {"phase": part.details["phase"]} if part.details.get("phase") in _PHASES else {}
                content = [{"type": "output_text", "text": part.text, "annotations": []}]
                own = {"type": "message", "role": "assistant", "status": "completed", "content": content}
                made.append({**own, **named, **phase})
            elif part.kind == "text":
                made.append({"role": "assistant", "content": part.text})
            elif named and part.id.startswith("rs"):
                _add_thought(made, part)
        while made and made[-1].get("type") == "reasoning":
            made.pop()  # OpenAI refuses a thought with nothing behind it.
        return made

    def read(self, answer: Json, turn: int) -> Heard:
        parts: list[Part] = []
        refusal = ""
        for item in answer["output"]:
            kind = item["type"]
            if kind == "reasoning":
                parts += _thought(item)
            elif kind == "message":
                refusal = refusal or "".join(text(each.get("refusal")) for each in item["content"])
                parts += _texts(item)
            elif kind == "function_call":
                more = {key: item[key] for key in ("namespace",) if item.get(key)}
                parts.append(Part(
                    kind="tool-call", text=text(item["arguments"]), call=text(item["call_id"]),
                    name=text(item["name"]), id=text(item.get("id")), details=more,
                ))  # fmt: skip
        why = (answer.get("incomplete_details") or {}).get("reason") or ""
        return Heard(
            parts=[] if refusal else parts, usage=_usage(answer.get("usage") or {}), refusal=refusal,
            stop="refused" if refusal else _STOPS.get(why), model=text(answer.get("model")),
        )  # fmt: skip


def _add_thought(made: list[Json], part: Part) -> None:
    """A thought may have several parts, of which the first has the seal."""
    if not made or made[-1].get("id") != part.id:
        made.append({
            "type": "reasoning", "id": part.id, "summary": [], "encrypted_content": part.signature or None,
        })  # fmt: skip
    item = made[-1]
    item["summary"] += [{"type": "summary_text", "text": part.text}] if part.text else []
    if raw := part.details.get("raw_content"):
        item["content"] = [{"type": "reasoning_text", "text": each} for each in raw]


def _thought(item: Json) -> Iterator[Part]:
    seal, name = text(item.get("encrypted_content")), text(item.get("id"))
    raw = [text(each.get("text")) for each in item.get("content") or ()]
    details: dict[str, Any] = {"raw_content": raw} if raw else {}
    for summary in item.get("summary") or ([{}] if seal or raw else []):
        yield Part(kind="thinking", text=text(summary.get("text")), id=name, signature=seal, details=details)
        seal, details = "", {}


def _texts(item: Json) -> Iterator[Part]:
    details = {"phase": item["phase"]} if item.get("phase") else {}
    for each in item["content"]:
        if each.get("type") == "output_text" and (said := text(each.get("text"))):
            yield Part(kind="text", text=said, id=text(item.get("id")), details=details)


def _usage(used: Json) -> Usage:
    more = used.get("input_tokens_details") or {}
    return Usage(
        input_tokens=count(used.get("input_tokens")), output_tokens=count(used.get("output_tokens")),
        cache_read_tokens=count(more.get("cached_tokens")), cache_write_tokens=count(more.get("cache_write_tokens")),
    )  # fmt: skip
