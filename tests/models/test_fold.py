"""A stream put together is what the official SDKs make of the same bytes, or it is no answer at all.

The SDKs take a second to import, so only the workers that run such a test import them.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx2
import pytest

from dugnad.models.native import parts_of
from dugnad.models.streaming import Folded, events, fold_chat, fold_messages, fold_responses
from tests.models.asking import ANTHROPIC, CHAT, RESPONSES, answer_of
from tests.models.provider_server import Answer, Usage
from tests.models.provider_shapes import Protocol, Wanted, named, render, unnamed

FOLDS = {"anthropic": fold_messages, "chat": fold_chat, "responses": fold_responses}
NAMES = {"anthropic": ANTHROPIC, "chat": CHAT, "responses": RESPONSES}
MODELS = {"anthropic": "claude-some", "chat": "gpt-4o", "responses": "gpt-5"}
LONG = "Blåbær og tyttebær 🫐, 第二, and so on.\n" * 20
ANSWERS = {
    "text": Answer(text="Hei på deg 👋"),
    "all": Answer(
        text=LONG,
        thinking=LONG[::-1],
        calls=(
            ("note", '{"text":"æøå \\u00e6 🎉"}', None),
            ("look", "{}", "own-id"),
            ("note", '{"a":[1,2.5,null]}', None),
        ),
        usage=Usage(input=900, output=30, cache_read=500, cache_write=100),
    ),
    "calls": Answer(calls=(("look", "", None),)),
    "empty": Answer(empty=True),
    "thought": Answer(thinking="Only thinking."),
    "refusal": Answer(text="No, thanks.", stop="refusal"),
}


def stream(answer: Answer, protocol: Protocol) -> bytes:
    return render(answer, Wanted(protocol, MODELS[protocol], True, True))


def body(answer: Answer, protocol: str) -> bytes:
    return stream(answer, protocol)  # type: ignore[arg-type]


def cut(data: bytes, seed: int) -> list[bytes]:
    """Chunks that end anywhere. Seed 0: one byte each; 1: all at once."""
    if seed < 2:
        return [data[at : at + 1] for at in range(len(data))] if seed == 0 else [data]
    chance = random.Random(seed)
    ends = sorted(chance.sample(range(1, len(data)), min(len(data) - 1, 40)))
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


async def flowing(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def folded(protocol: str, data: bytes, seed: int = 1) -> Folded:
    found: Folded = await FOLDS[protocol](events(flowing(cut(data, seed))))
    return found


def playing(data: bytes) -> httpx2.AsyncClient:
    """A client to whom every request is answered with these bytes."""
    answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=data)
    return httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: answer))


async def final(protocol: str, data: bytes) -> Any:
    """What the official SDK puts together from the same bytes."""
    import anthropic
    import openai

    async with playing(data) as client:
        if protocol == "anthropic":
            one = anthropic.AsyncAnthropic(api_key="k", http_client=client)
            asked = [{"role": "user", "content": "Hi"}]
            async with one.beta.messages.stream(max_tokens=9, model=MODELS[protocol], messages=asked) as going:  # type: ignore[arg-type]
                return await going.get_final_message()
        other = openai.AsyncOpenAI(api_key="k", http_client=client)
        if protocol == "responses":
            async with other.responses.stream(model=MODELS[protocol], input="Hi") as answering:
                return await answering.get_final_response()
        async with other.chat.completions.stream(
            model=MODELS[protocol], messages=[{"role": "user", "content": "Hi"}]
        ) as chatting:
            return await chatting.get_final_completion()


def plain(value: Any) -> Any:
    """Without what is not there, and without what the SDKs' helpers add for their own ends."""
    added = {"parsed", "parsed_arguments", "parsed_output", "logprobs"}
    if isinstance(value, dict):
        kept = {key: plain(each) for key, each in value.items() if each is not None and key not in added}
        if "function" in kept:
            kept.pop("index", None)  # Of a call in a chat: its place in the list says the same.
        return kept
    return [plain(each) for each in value] if isinstance(value, list) else value


def typed(protocol: str, answer: Any) -> Any:
    from anthropic.types.beta import BetaMessage
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    kind = {"anthropic": BetaMessage, "chat": ChatCompletion, "responses": Response}[protocol]
    return plain(kind.model_validate(answer).model_dump(mode="json"))


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("protocol", FOLDS)
@pytest.mark.parametrize("kind", ANSWERS)
async def test_a_fold_gives_what_the_sdk_gives(protocol: str, kind: str, seed: int) -> None:
    data = body(ANSWERS[kind], protocol)
    status, answer = await folded(protocol, data, seed)
    assert status == 200
    assert typed(protocol, answer) == plain((await final(protocol, data)).model_dump(mode="json", warnings=False))


@pytest.mark.parametrize("kind", [*ANSWERS, "length"])
async def test_a_chat_is_what_the_library_reads_from_the_same_stream(kind: str) -> None:
    from pydantic_ai.messages import ModelRequest
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    answer = Answer(text="And then", stop="length") if kind == "length" else ANSWERS[kind]
    async with playing(body(answer, "chat")) as client:
        native = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(api_key="k", http_client=client))
        asked = [ModelRequest.user_text_prompt("Hi")]
        async with native.request_stream(asked, None, ModelRequestParameters()) as going:
            async for _ in going:
                pass
            theirs = going.get()
    ours = await answer_of(CHAT, answer)
    said = {
        kind: [part for part in theirs.parts if part.part_kind == kind] for kind in ("text", "thinking", "tool-call")
    }
    refusal = (theirs.provider_details or {}).get("refusal", "")
    assert ours.text == ("".join(part.content for part in said["text"]) or refusal)
    assert [part.text for part in parts_of(ours) if part.kind == "thinking"] == [
        part.content for part in said["thinking"]
    ]
    assert [(call.name, call.arguments) for call in ours.calls] == [(p.tool_name, p.args) for p in said["tool-call"]]
    assert ours.usage.tokens == theirs.usage.total_tokens
    assert ours.stop == {"stop": "end", "tool_call": "tools", "content_filter": "refused"}.get(
        theirs.finish_reason or "", theirs.finish_reason
    )


@pytest.mark.parametrize("protocol", FOLDS)
async def test_an_answer_without_counts_counts_nothing(protocol: str) -> None:
    reply = await answer_of(NAMES[protocol], Answer(text="Uncounted.", usage=None))
    assert (reply.text, reply.usage.tokens) == ("Uncounted.", 0)


def chat_piece(delta: Any, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o", "choices": [choice]}


START = {"type": "message_start", "message": {
    "id": "m", "type": "message", "role": "assistant", "model": "c", "content": [], "stop_reason": None,
    "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 2},
}}  # fmt: skip
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
END = {
    "type": "message_delta",
    "delta": {"stop_reason": "end_turn", "stop_sequence": None},
    "usage": {"output_tokens": 7},
}
STOP = {"type": "message_stop"}
DONE = "data: [DONE]\n\n"


def delta(**fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": fields}


TEXT = delta(type="text_delta", text="Hei 👋")


def sse(*said: dict[str, Any] | str) -> bytes:
    """Events as they go over the wire; text goes as it is."""
    made = (each if isinstance(each, str) else named(each) if "type" in each else unnamed(each) for each in said)
    return "".join(made).encode()


@pytest.mark.parametrize("protocol", FOLDS)
@pytest.mark.parametrize("ending", ["\r\n", "\n"])
async def test_pings_comments_and_strange_lines_are_survived(protocol: str, ending: str) -> None:
    data = body(ANSWERS["all"], protocol).decode()
    first, *rest = data.split("\n\n")
    news = 'data: {"choices":[]}' if protocol == "chat" else 'event: news\ndata: {"type":"news","choices":[]}'
    noise = [": a comment", "retry: 3000", "id: 7", "", news]
    noisy = "\n\n".join([first, *noise, *rest])
    _, expected = await folded(protocol, data.encode())
    for seed in (0, 1, 5):
        assert await folded(protocol, noisy.replace("\n", ending).encode(), seed) == (200, expected)


@pytest.mark.parametrize("protocol", FOLDS)
async def test_data_over_several_lines_is_one_event(protocol: str) -> None:
    data = body(ANSWERS["text"], protocol)
    spread = data.replace(b',"', b',\ndata: "')
    assert spread != data
    assert await folded(protocol, spread) == await folded(protocol, data)


async def test_data_may_follow_the_colon_at_once() -> None:
    data = body(ANSWERS["text"], "chat")
    assert await folded("chat", data.replace(b"data: ", b"data:")) == await folded("chat", data)


async def test_events_and_deltas_that_are_not_known_yet_are_passed_over() -> None:
    known = sse(START, BLOCK, TEXT, END, STOP)
    news = sse(START, {"type": "message_news", "x": 1}, BLOCK, TEXT, delta(type="news_delta", x=1), END, STOP)
    for data in (known, news):
        _, answer = await folded("anthropic", data)
        assert typed("anthropic", answer)["content"][0]["text"] == "Hei 👋"


async def test_a_delta_that_is_not_known_yet_does_not_overwrite_the_block() -> None:
    data = sse(START, BLOCK, delta(type="news_delta", text="Overwritten."), END, STOP)
    _, answer = await folded("anthropic", data)
    assert typed("anthropic", answer) == plain((await final("anthropic", data)).model_dump(mode="json"))


async def test_citations_signatures_and_compactions_come_as_the_sdk_has_them() -> None:
    citation = {"type": "char_location", "cited_text": "x", "document_index": 0, "document_title": None,
                "start_char_index": 0, "end_char_index": 1, "file_id": None}  # fmt: skip
    thinking = {**BLOCK, "content_block": {"type": "thinking", "thinking": "a", "signature": ""}}
    for data in (
        sse(START, BLOCK, TEXT, delta(type="citations_delta", citation=citation), END, STOP),
        sse(START, thinking, delta(type="thinking_delta", thinking="b"), delta(type="signature_delta", signature="s"),
            END, STOP),
    ):  # fmt: skip
        _, answer = await folded("anthropic", data)
        assert typed("anthropic", answer) == plain((await final("anthropic", data)).model_dump(mode="json"))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [({"input_tokens": 5, "output_tokens": 1}, None, (5, 1)), (None, {"input_tokens": 5, "output_tokens": 7}, (5, 7)),
     ({"input_tokens": 5, "output_tokens": 1}, {"input_tokens": None, "output_tokens": 7}, (5, 7)),
     ({"input_tokens": 5, "output_tokens": 1}, {"input_tokens": 6, "output_tokens": 7}, (6, 7)), (None, None, (0, 0))],
)  # fmt: skip
async def test_counts_may_come_at_the_start_at_the_end_or_not_at_all(start: Any, end: Any, expected: Any) -> None:
    message = {key: value for key, value in START["message"].items() if key != "usage"}
    first = {**START, "message": message | ({"usage": start} if start else {})}
    last = {key: value for key, value in END.items() if key != "usage"} | ({"usage": end} if end else {})
    _, answer = await folded("anthropic", sse(first, BLOCK, TEXT, last, STOP))
    assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == expected


async def test_a_chat_that_counts_in_every_piece_counts_the_last() -> None:
    used = [{"usage": {"prompt_tokens": 5, "completion_tokens": n, "total_tokens": 5 + n}} for n in (1, 2)]
    data = sse(chat_piece({"content": "a"}) | used[0], chat_piece({"content": "b"}, "stop") | used[1], DONE)
    _, answer = await folded("chat", data)
    assert answer["usage"]["completion_tokens"] == 2
    assert answer["choices"][0]["message"]["content"] == "ab"
