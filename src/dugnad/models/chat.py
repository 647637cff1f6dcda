"""OpenAI chat completions, also of other servers: requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from .native import Part, parts_of
from .port import Message, Reply, Request, Said, Stop, ToolSpec, Usage
from .protocol import Heard, WireProtocol, count, strict, text
from .streaming import Json, fold_chat

_STOPS: dict[str, Stop] = {
    "tool_calls": "tools", "function_call": "tools", "length": "length", "content_filter": "refused",
}  # fmt: skip
_THOUGHTS = ("reasoning", "reasoning_content")  # The fields in which servers send what a model thinks.
_OPEN, _CLOSE = "<think>", "</think>"  # What other models write around it, in the text.
_IN_TEXT = "content"


class Chat(WireProtocol):
    provider, path, messages = "openai", "/chat/completions", "messages"
    fold = staticmethod(fold_chat)

    def __init__(self, model: str, url: str, headers: dict[str, str], *, theirs: bool) -> None:
        self.url = url
        self.headers = headers
        self._model = model
        # Servers of others know the older name of the output limit.
        self._limit = "max_tokens" if theirs else "max_completion_tokens"

    def head(self, request: Request) -> Json:
        return {
            "model": self._model, self._limit: request.output_tokens_max, "stream": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip

    def lead(self, request: Request) -> list[Json]:
        return [{"role": "system", "content": request.system}] if request.system else []

    def tools(self, tools: Sequence[ToolSpec]) -> Json:
        made = []
        for each in tools:
            held = strict(each.schema)
            function = {"name": each.name, "description": each.description, "parameters": held or each.schema}
            made.append({"type": "function", "function": {**function, "strict": True} if held else function})
        return {"tools": made, "tool_choice": "auto"} if made else {}

    def encode(self, messages: Sequence[Message], kept: str, *, thoughts: bool) -> tuple[list[Json], str]:
        """`kept` is the field in which the model has thought. From then on every reply with calls has it: some servers
        refuse one without."""
        made: list[Json] = []
        for message in messages:
            if isinstance(message, Said):
                made.append({"role": "user", "content": message.text})
            elif isinstance(message, Reply):
                reply, kept = _message(message, kept)
                made += [reply] if reply else []
            else:
                made.append({"role": "tool", "tool_call_id": message.call, "content": message.text})
        return made, kept

    def read(self, answer: Json, turn: int) -> Heard:
        choice = answer["choices"][0]
        message = choice["message"]
        refusal = text(message.get("refusal"))
        return Heard(
            parts=[] if refusal else [*_thoughts(message), *_said(message), *_calls(message, turn)],
            usage=_usage(answer.get("usage") or {}),
            stop="refused" if refusal else _STOPS.get(choice.get("finish_reason") or ""),
            refusal=refusal,
            model=text(answer.get("model")),
        )


def _message(reply: Reply, field: str) -> tuple[Json | None, str]:
    said, calls, thoughts = [], [], []
    for part in parts_of(reply):
        if part.kind == "text":
            said.append(part.text)
        elif part.kind == "tool-call":
            own = {"id": part.call, "type": "function", "function": {"name": part.name, "arguments": part.text}}
            calls.append({**own, **part.details})
        elif part.id in _THOUGHTS and part.provider == "openai":
            thoughts.append(part.text)
            field = part.id
        elif part.id == _IN_TEXT:
            said.append(f"{_OPEN}\n{part.text}\n{_CLOSE}")
    if not said and not calls:
        return None, field
    made: Json = {"role": "assistant"}
    if thoughts or (field and calls):
        made[field] = "\n\n".join(thoughts)
    made["content"] = "\n\n".join(said) if said else None
    return ({**made, "tool_calls": calls} if calls else made), field


def _thoughts(message: Json) -> list[Part]:
    found = ((name, message.get(name)) for name in _THOUGHTS)
    return [Part(kind="thinking", text=said, id=name) for name, said in found if said and isinstance(said, str)][:1]


def _said(message: Json) -> list[Part]:
    """The text, without what the model thought in it."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(text(each.get("text")) for each in content)
    rest, made = text(content), []
    while _OPEN in rest:
        before, _, rest = rest.partition(_OPEN)
        thought, closed, behind = rest.partition(_CLOSE)
        made.append(Part(kind="text", text=before))
        if not closed:
            break
        made.append(Part(kind="thinking", text=thought, id=_IN_TEXT))
        rest = behind
    return [part for part in (*made, Part(kind="text", text=rest)) if part.text]


def _calls(message: Json, turn: int) -> list[Part]:
    made = []
    for place, each in enumerate(message.get("tool_calls") or ()):
        function = each["function"]
        given = function.get("arguments")
        more: dict[str, Any] = {
            key: each[key] for key in ("extra_content",) if each.get(key)
        }  # Signatures of Gemini's.
        made.append(Part(
            kind="tool-call", name=text(function["name"]), call=text(each.get("id")) or f"call_{turn}_{place}",
            text=given if isinstance(given, str) else orjson.dumps({} if given is None else given).decode(),
            details=more,
        ))  # fmt: skip
    return made


def _usage(used: Json) -> Usage:
    more = used.get("prompt_tokens_details") or {}
    return Usage(
        input_tokens=count(used.get("prompt_tokens")), output_tokens=count(used.get("completion_tokens")),
        cache_read_tokens=count(more.get("cached_tokens", used.get("prompt_cache_hit_tokens"))),
        cache_write_tokens=count(more.get("cache_write_tokens")),
    )  # fmt: skip
