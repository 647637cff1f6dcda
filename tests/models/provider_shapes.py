"""What the providers say, byte for byte: one Answer in the shapes of four protocols, plain and streamed.

Knows the bodies of Anthropic Messages, OpenAI chat completions, OpenAI Responses and Google Gemini. Knows nothing of
connections, of what was asked, or of the order of answers; that is `provider_server`.
What goes wrong is in `provider_errors`.

A plain body and a stream carry the same content. Every identifier holds SERIAL, which the server replaces with a number
of the same width, so that a body can be made once and still give each reply identifiers of its own.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Protocol = Literal["anthropic", "chat", "responses", "gemini"]
# Its name, its arguments as JSON text, its id (None: one is made). Responses knows two more kinds of tools: SPACE.NAME
# is in a namespace, and NAME! takes plain text.
Call = tuple[str, str, str | None]
Object = dict[str, Any]

SERIAL = "~serial~"
SIGNATURE = "c2lnbmVkIGJ5IHRoZSBkb3VibGU="  # Base64, as Gemini demands; opaque to everyone else.
SEALED = "c2VhbGVkIHJlYXNvbmluZw=="
CREATED = 1_760_000_000
DELTAS_MAX = 12

STOPS: Mapping[str, Mapping[str, str]] = {
    "anthropic": {"stop": "end_turn", "tools": "tool_use", "length": "max_tokens", "refusal": "refusal"},
    "chat": {"stop": "stop", "tools": "tool_calls", "length": "length", "refusal": "stop"},
    "gemini": {"stop": "STOP", "tools": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"},
}


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of one answer. `input` is the whole prompt; what was read from and written to the cache is part of it."""

    input: int = 100
    output: int = 20
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the model says. The same Answer gives the same content in every protocol, as far as the protocol can."""

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage | None = Usage()  # None: the provider sends none.
    stop: Literal["stop", "tools", "length", "refusal"] | None = None  # None: "tools" with calls, else "stop".
    delay_seconds: float = 0.0  # Before the first byte.
    gap_seconds: float = 0.0  # Between the flushes of a stream.
    raw_arguments: str | None = None  # Sent in place of every call's arguments; need not be JSON.
    empty: bool = False  # No content at all.

    def stop_in(self, protocol: Protocol) -> str:
        return STOPS[protocol][self.stop or ("tools" if self.calls else "stop")]

    def arguments(self) -> Iterator[tuple[int, str, str, str | None]]:
        for index, (name, arguments, given) in enumerate(self.calls):
            yield index, name, arguments if self.raw_arguments is None else self.raw_arguments, given


class Wanted(NamedTuple):
    """How the caller wants its answer."""

    protocol: Protocol
    model: str
    stream: bool
    with_usage: bool  # Chat only: a last chunk with the usage.


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def pieces(text: str) -> list[str]:
    """The text in a few deltas, cut without regard for words, escapes or what belongs together."""
    size = max(5, -(-len(text) // DELTAS_MAX))
    return [text[at : at + size] for at in range(0, len(text), size)]


def parsed(arguments: str) -> Any:
    """Arguments for a protocol that sends a value, not text. What is no JSON goes out as the text it is."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


@functools.lru_cache(maxsize=256)
def render(answer: Answer, wanted: Wanted) -> bytes:
    """The whole body: JSON, or the events of a stream."""
    plain, stream = SHAPES[wanted.protocol]
    if not wanted.stream:
        return dump(plain(answer, wanted.model)).encode()
    return "".join(stream(answer, wanted)).encode()


def named(event: Object) -> str:
    return f"event: {event['type']}\ndata: {dump(event)}\n\n"


def unnamed(event: Object) -> str:
    return f"data: {dump(event)}\n\n"


# Anthropic Messages.


def anthropic_usage(usage: Usage) -> Object:
    return {
        "input_tokens": usage.input - usage.cache_read - usage.cache_write,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }


def anthropic_blocks(answer: Answer) -> list[Object]:
    blocks: list[Object] = []
    if answer.empty:
        return blocks
    if answer.thinking:
        blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": SIGNATURE})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text, "citations": None})
    for index, name, arguments, given in answer.arguments():
        made = given or f"toolu_{SERIAL}{index}"
        blocks.append({"type": "tool_use", "id": made, "name": name, "input": parsed(arguments)})
    return blocks


def anthropic_plain(answer: Answer, model: str) -> Object:
    message: Object = {"id": f"msg_{SERIAL}", "type": "message", "role": "assistant", "model": model}
    message["content"] = anthropic_blocks(answer)
    message |= {"stop_reason": answer.stop_in("anthropic"), "stop_sequence": None}
    if answer.stop == "refusal":
        message["stop_details"] = {"type": "refusal", "category": None, "explanation": None}
    if answer.usage:
        message["usage"] = anthropic_usage(answer.usage)
    return message


def anthropic_stream(answer: Answer, wanted: Wanted) -> Iterator[str]:
    message = anthropic_plain(answer, wanted.model)
    start = message | {"content": [], "stop_reason": None}
    start.pop("stop_details", None)
    if answer.usage:
        start["usage"] = message["usage"] | {"output_tokens": 1}
    yield named({"type": "message_start", "message": start})
    yield named({"type": "ping"})
    texts = iter([arguments for _, _, arguments, _ in answer.arguments()])
    for index, block in enumerate(message["content"]):
        if block["type"] == "thinking":
            empty: Object = {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": SIGNATURE})
        elif block["type"] == "text":
            empty = {"text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        else:
            empty = {"input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces(next(texts))]]
        yield named({"type": "content_block_start", "index": index, "content_block": block | empty})
        yield ": a comment, to be ignored\n\n"
        for delta in deltas:
            yield named({"type": "content_block_delta", "index": index, "delta": delta})
        yield named({"type": "content_block_stop", "index": index})
    end = {key: message[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in message}
    usage = {"usage": message["usage"]} if answer.usage else {}
    yield named({"type": "message_delta", "delta": end, **usage})
    yield named({"type": "message_stop"})


# OpenAI chat completions.


def chat_usage(usage: Usage) -> Object:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
    }


def chat_message(answer: Answer) -> Object:
    message: Object = {"role": "assistant", "content": None, "refusal": None}
    if answer.empty:
        return message
    if answer.thinking:
        message["reasoning_content"] = answer.thinking
    if answer.text:
        message["refusal" if answer.stop == "refusal" else "content"] = answer.text
    for index, name, arguments, given in answer.arguments():
        call: Object = {"id": given or f"call_{SERIAL}{index}", "type": "function"}
        call["function"] = {"name": name, "arguments": arguments}
        message.setdefault("tool_calls", []).append(call)
    return message


def chat_head(model: str, kind: str) -> Object:
    return {"id": f"chatcmpl-{SERIAL}", "object": kind, "created": CREATED, "model": model}


def chat_plain(answer: Answer, model: str) -> Object:
    choice = {"index": 0, "message": chat_message(answer), "logprobs": None, "finish_reason": answer.stop_in("chat")}
    usage = {"usage": chat_usage(answer.usage)} if answer.usage else {}
    return chat_head(model, "chat.completion") | {"choices": [choice], **usage}


def chat_stream(answer: Answer, wanted: Wanted) -> Iterator[str]:
    head = chat_head(wanted.model, "chat.completion.chunk")

    def chunk(delta: Object, finish: str | None = None) -> str:
        return unnamed(head | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]})

    message = chat_message(answer)
    yield chunk({"role": "assistant", "content": "" if message["content"] else None})
    for key in ("reasoning_content", "content", "refusal"):
        for piece in pieces(message.get(key) or ""):
            yield chunk({key: piece})
    for index, call in enumerate(message.get("tool_calls", [])):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, **call, "function": function}]})
        for piece in pieces(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, answer.stop_in("chat"))
    if wanted.with_usage and answer.usage:
        yield unnamed(head | {"choices": [], "usage": chat_usage(answer.usage)})
    yield "data: [DONE]\n\n"


# OpenAI Responses.


def responses_items(answer: Answer) -> list[Object]:
    items: list[Object] = []
    if answer.empty:
        return items
    status = "incomplete" if answer.stop == "length" else "completed"
    if answer.thinking:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        made = {"id": f"rs_{SERIAL}", "type": "reasoning", "summary": summary, "encrypted_content": SEALED}
        items.append(made)
    if answer.text:
        part: Object = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        if answer.stop == "refusal":
            part = {"type": "refusal", "refusal": answer.text}
        made = {"id": f"msg_{SERIAL}", "type": "message", "role": "assistant", "status": status, "content": [part]}
        items.append(made)
    for index, name, arguments, given in answer.arguments():
        space, _, own = name.rstrip("!").rpartition(".")
        made = {"id": f"fc_{SERIAL}{index}", "call_id": given or f"call_{SERIAL}{index}", "name": own, "status": status}
        made |= {"namespace": space} if space else {}
        plain = {"type": "custom_tool_call", "input": arguments}
        items.append(made | (plain if name.endswith("!") else {"type": "function_call", "arguments": arguments}))
    return items


def responses_plain(answer: Answer, model: str) -> Object:
    cut = answer.stop == "length"
    response: Object = {"id": f"resp_{SERIAL}", "object": "response", "created_at": CREATED, "model": model}
    response |= {"status": "incomplete" if cut else "completed", "error": None, "instructions": None}
    response |= {"incomplete_details": {"reason": "max_output_tokens"} if cut else None, "metadata": {}}
    response |= {"output": responses_items(answer), "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    usage = answer.usage
    response["usage"] = usage and {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input + usage.output,
    }
    return response


def responses_item_events(item: Object) -> Iterator[Object]:
    """Everything between an item's beginning and its end; places and numbers are added by the stream."""
    if item["type"] == "function_call":
        for piece in pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", "delta": piece}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **done}
        return
    if item["type"] == "custom_tool_call":
        for piece in pieces(item["input"]):
            yield {"type": "response.custom_tool_call_input.delta", "delta": piece}
        yield {"type": "response.custom_tool_call_input.done", "input": item["input"]}
        return
    if item["type"] == "reasoning":
        part, at, around, kind = item["summary"][0], "summary_index", "reasoning_summary_part", "reasoning_summary_text"
    else:
        part, at, around = item["content"][0], "content_index", "content_part"
        kind = part["type"]  # "output_text" or "refusal".
    key = "refusal" if kind == "refusal" else "text"
    extra: Object = {"logprobs": []} if kind == "output_text" else {}
    yield {"type": f"response.{around}.added", at: 0, "part": part | {key: ""}}
    for piece in pieces(part[key]):
        yield {"type": f"response.{kind}.delta", at: 0, "delta": piece, **extra}
    yield {"type": f"response.{kind}.done", at: 0, key: part[key], **extra}
    yield {"type": f"response.{around}.done", at: 0, "part": part}


def responses_events(answer: Answer, model: str) -> Iterator[Object]:
    response = responses_plain(answer, model)
    begun = response | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(response["output"]):
        hollow = {
            "summary": [],
            "content": [],
            "arguments": "",
            "input": "",
            "encrypted_content": "",
            "status": "in_progress",
        }
        started = item | {key: value for key, value in hollow.items() if key in item}
        yield {"type": "response.output_item.added", "output_index": index, "item": started}
        for event in responses_item_events(item):
            yield event | {"item_id": item["id"], "output_index": index}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{response['status']}", "response": response}


def responses_stream(answer: Answer, wanted: Wanted) -> Iterator[str]:
    for number, event in enumerate(responses_events(answer, wanted.model)):
        yield named(event | {"sequence_number": number})


# Google Gemini.


def gemini_parts(answer: Answer) -> list[Object]:
    parts: list[Object] = []
    if answer.empty:
        return parts
    if answer.thinking:
        parts.append({"text": answer.thinking, "thought": True})
    if answer.text:
        parts.append({"text": answer.text})
    for index, name, arguments, given in answer.arguments():
        call = {"name": name, "args": parsed(arguments)} | ({"id": given} if given else {})
        signature = {"thoughtSignature": SIGNATURE} if answer.thinking and index == 0 else {}
        parts.append({"functionCall": call, **signature})
    return parts


def gemini_plain(answer: Answer, model: str) -> Object:
    parts, finish = gemini_parts(answer), answer.stop_in("gemini")
    if any(not isinstance(part["functionCall"]["args"], dict) for part in parts if "functionCall" in part):
        parts, finish = [], "MALFORMED_FUNCTION_CALL"  # What Gemini says when its model wrote no object.
    candidate: Object = {"content": {"role": "model", "parts": parts}} if parts else {}
    candidate |= {"finishReason": finish, "index": 0}
    reply: Object = {"candidates": [candidate], "modelVersion": model, "responseId": f"resp_{SERIAL}"}
    if usage := answer.usage:
        reply["usageMetadata"] = {
            "promptTokenCount": usage.input,
            "cachedContentTokenCount": usage.cache_read,
            "candidatesTokenCount": usage.output,
            "totalTokenCount": usage.input + usage.output,
        }
    return reply


def gemini_stream(answer: Answer, wanted: Wanted) -> Iterator[str]:
    reply = gemini_plain(answer, wanted.model)
    candidate = reply["candidates"][0]
    head = {key: reply[key] for key in ("modelVersion", "responseId")}
    for part in candidate.pop("content", {"parts": []})["parts"]:
        for piece in [{"text": text} for text in pieces(part["text"])] if "text" in part else [{}]:
            content = {"role": "model", "parts": [part | piece]}
            yield unnamed(head | {"candidates": [{"content": content, "index": 0}]})
    yield unnamed(reply)


SHAPES: Mapping[Protocol, tuple[Any, Any]] = {
    "anthropic": (anthropic_plain, anthropic_stream),
    "chat": (chat_plain, chat_stream),
    "responses": (responses_plain, responses_stream),
    "gemini": (gemini_plain, gemini_stream),
}
