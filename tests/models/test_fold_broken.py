"""Streams that end in trouble: an error on the way is that error, and half an answer is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dugnad.errors import (
    AnswerLost,
    ContextOverflow,
    ModelMisconfigured,
    ModelTrouble,
    ModelUnavailable,
    QuotaSpent,
    RateLimited,
    RequestRejected,
)
from dugnad.models import Reply
from tests.models.asking import ANTHROPIC, CHAT, RESPONSES, answer_of, asking, provider
from tests.models.provider_server import Answer, Fault
from tests.models.provider_shapes import Protocol, Wanted, render, responses_plain
from tests.models.test_fold import BLOCK, DONE, END, START, STOP, TEXT, chat_piece, delta, sse

NAMES: dict[Protocol, str] = {"anthropic": ANTHROPIC, "chat": CHAT, "responses": RESPONSES}
WHOLE = Answer(text="Ferdig 🎉.", thinking="Hm.", calls=(("note", '{"text":"æ"}', None), ("look", "{}", None)))
HALF = chat_piece({"role": "assistant", "content": "Half"})
RESPONSE = responses_plain(Answer(text="Whole."), "gpt-5")


async def heard(protocol: Protocol, data: bytes) -> Reply:
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    return await answer_of(NAMES[protocol], Fault(status=200, headers=headers, body=data))


def anthropic_error(kind: str, message: str = "Sorry.") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def chat_error(**error: Any) -> dict[str, Any]:
    return {"error": {"message": "Sorry.", **error}}


def response_error(code: str) -> dict[str, Any]:
    return {"type": "error", "code": code, "message": "Sorry.", "param": None, "sequence_number": 3}


def failed(code: str) -> dict[str, Any]:
    error = {"code": code, "message": "Sorry."}
    return {"type": "response.failed", "response": RESPONSE | {"status": "failed", "output": [], "error": error}}


ERRORS = [
    ("anthropic", anthropic_error("overloaded_error"), RateLimited),
    ("anthropic", anthropic_error("rate_limit_error"), RateLimited),
    ("anthropic", anthropic_error("api_error"), ModelUnavailable),
    ("anthropic", anthropic_error("timeout_error"), ModelUnavailable),
    ("anthropic", anthropic_error("a_new_kind_of_error"), ModelUnavailable),
    ("anthropic", anthropic_error("authentication_error"), ModelMisconfigured),
    ("anthropic", anthropic_error("permission_error"), ModelMisconfigured),
    ("anthropic", anthropic_error("billing_error"), QuotaSpent),
    ("anthropic", anthropic_error("not_found_error"), ModelMisconfigured),
    ("anthropic", anthropic_error("request_too_large"), ContextOverflow),
    ("anthropic", anthropic_error("invalid_request_error", "prompt is too long: 9 > 8."), ContextOverflow),
    ("anthropic", anthropic_error("invalid_request_error"), RequestRejected),
    ("chat", chat_error(code=429), RateLimited),
    ("chat", chat_error(code=502), ModelUnavailable),
    ("chat", chat_error(code=400), RequestRejected),
    ("chat", chat_error(code="insufficient_quota"), QuotaSpent),
    ("chat", chat_error(code="context_length_exceeded"), ContextOverflow),
    ("chat", chat_error(code="server_is_overloaded"), RateLimited),
    ("chat", chat_error(type="server_error"), ModelUnavailable),
    ("chat", chat_error(code="rate_limit_exceeded"), RateLimited),
    ("chat", chat_error(type="rate_limit_error", code=None), RateLimited),
    ("chat", chat_error(code="429"), RateLimited),
    ("responses", response_error("rate_limit_exceeded"), RateLimited),
    ("responses", response_error("server_is_overloaded"), RateLimited),
    ("responses", response_error("insufficient_quota"), QuotaSpent),
    ("responses", response_error("context_length_exceeded"), ContextOverflow),
    ("responses", response_error("server_error"), ModelUnavailable),
    ("responses", failed("rate_limit_exceeded"), RateLimited),
    ("responses", failed("server_error"), ModelUnavailable),
    ("responses", {"type": "error", **chat_error(code="rate_limit_exceeded")}, RateLimited),
]  # fmt: skip


@pytest.mark.parametrize(("protocol", "error", "kind"), ERRORS)
async def test_an_error_in_a_stream_is_what_it_would_be_without(
    protocol: Protocol, error: Any, kind: type[ModelTrouble]
) -> None:
    begun = {"anthropic": sse(START, BLOCK, TEXT), "chat": sse(HALF), "responses": b""}[protocol]
    for data in (begun + sse(error), sse(error)):
        with pytest.raises(kind) as met:
            await heard(protocol, data)
        assert type(met.value) is kind
        assert str(met.value).startswith(NAMES[protocol])
        assert "Sorry." in str(met.value) or "prompt is too long" in str(met.value)


async def test_an_error_that_is_a_bare_text_is_told() -> None:
    with pytest.raises(ModelUnavailable, match=r"^openai-chat:gpt-4o: Bad luck\.$"):
        await heard("chat", sse(HALF, {"error": "Bad luck."}))


def places(data: bytes) -> list[int]:
    """Some hundred places in the stream, among them the ends of all events and inside a character."""
    ends = [at + 2 for at in range(len(data)) if data[at : at + 2] == b"\n\n"]
    inside = [at for at in range(len(data)) if 0x80 <= data[at] < 0xC0]
    return sorted({*range(1, len(data), max(1, len(data) // 40)), *ends[:-1], *inside})


@pytest.mark.parametrize("protocol", NAMES)
@pytest.mark.parametrize("cleanly", [True, False], ids=["cleanly", "rudely"])
async def test_half_an_answer_is_never_taken_for_a_whole_one(protocol: Protocol, cleanly: bool) -> None:
    """Wherever it is cut: either nothing that counts is missing, or there is no answer."""
    data = render(WHOLE, Wanted(protocol, NAMES[protocol].partition(":")[2], True, True))
    script = [Fault(answer=WHOLE, cut_after_bytes=place, cut_cleanly=cleanly) for place in places(data)]
    lost = 0
    async with provider(NAMES[protocol], script) as (model, _):
        for _ in script:
            try:
                reply = await model.ask(asking())
            except AnswerLost:
                lost += 1
                continue
            assert cleanly
            assert (reply.text, reply.stop) == (WHOLE.text, "tools")
            assert [json.loads(call.arguments) for call in reply.calls] == [{"text": "æ"}, {}]
    assert lost > 20


@pytest.mark.parametrize(
    ("protocol", "data"),
    [
        ("anthropic", b""), ("anthropic", sse(START)), ("anthropic", sse(START, BLOCK, TEXT, END)),
        ("anthropic", sse(START, BLOCK, TEXT)), ("chat", b""), ("chat", sse(HALF)), ("chat", sse(DONE)),
        ("chat", sse(HALF, ": nothing more\n\n")), ("responses", b""),
        ("responses", sse({"type": "response.created", "response": RESPONSE})),
        ("responses", sse({"type": "response.completed", "response": RESPONSE})[:-1]),
    ],
)  # fmt: skip
async def test_a_stream_without_its_end_is_an_answer_lost(protocol: Protocol, data: bytes) -> None:
    with pytest.raises(AnswerLost):
        await heard(protocol, data)


@pytest.mark.parametrize(
    ("protocol", "data"),
    [
        ("anthropic", sse(BLOCK, TEXT, END, STOP)), ("anthropic", sse(START, "data: []\n\n", END, STOP)),
        ("anthropic", sse(START, "data: null\n\n", END, STOP)), ("chat", sse("data: 3\n\n")),
        ("chat", sse('data: {"choices":7}\n\n')), ("responses", sse({"type": "response.completed"})),
        ("responses", sse("data: []\n\n")),
        ("anthropic", sse(START, "data: {oops\n\n", END, STOP)),
        ("chat", sse("data: {oops\n\n")),
        ("responses", sse("data: {oops\n\n")),
        ("anthropic", sse(START, TEXT, END, STOP)),
        ("anthropic", sse(START, {**BLOCK, "content_block": {"type": "news"}}, END, STOP)),
    ],
)  # fmt: skip
async def test_a_stream_that_breaks_the_protocol_is_an_answer_lost(protocol: Protocol, data: bytes) -> None:
    with pytest.raises(AnswerLost):
        await heard(protocol, data)


async def test_arguments_that_are_not_json_are_kept_as_they_were_written() -> None:
    tool = {**BLOCK, "content_block": {"type": "tool_use", "id": "t", "name": "note", "input": {}}}
    pieces = [delta(type="input_json_delta", partial_json=piece) for piece in ('{"text": "h', "alf \\")]
    reply = await heard("anthropic", sse(START, tool, *pieces, END, STOP))
    assert reply.calls[0].arguments == '{"text": "half \\'


@pytest.mark.parametrize(
    "written",
    ["[1]", "7", '"text"'],
)
async def test_arguments_that_are_no_object_are_kept_as_they_were_written(written: str) -> None:
    tool = {**BLOCK, "content_block": {"type": "tool_use", "id": "t", "name": "note", "input": {}}}
    reply = await heard("anthropic", sse(START, tool, delta(type="input_json_delta", partial_json=written), END, STOP))
    assert json.loads(reply.calls[0].arguments) == json.loads(written)


async def test_a_chat_may_leave_out_what_others_send() -> None:
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "note", "arguments": '{"te'}}
    rest = {"index": 0, "id": "", "function": {"name": None, "arguments": 'xt":"b"}'}}
    reply = await heard("chat", sse(chat_piece({"tool_calls": [call]}), chat_piece({"tool_calls": [rest]}), DONE))
    assert (reply.calls[0].id, reply.calls[0].name, reply.calls[0].arguments) == ("a", "note", '{"text":"b"}')
    assert reply.stop == "tools"
    ended = await heard("chat", sse(HALF, chat_piece({}, "stop")))  # Without [DONE].
    assert (ended.text, ended.stop) == ("Half", "end")
