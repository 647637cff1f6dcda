"""What the three protocols make of a conversation and of an answer, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dugnad.models.anthropic import AnthropicMessages
from dugnad.models.chat import Chat
from dugnad.models.direct import DirectModel
from dugnad.models.native import native_of, parts_of
from dugnad.models.port import Facts, Message, Reply, Said, ToolCall, ToolResult
from dugnad.models.protocol import Heard, WireProtocol, strict
from dugnad.models.responses import Responses
from dugnad.text import Told

URL = "http://127.0.0.1:1/v1"
BEGIN, ON = Said(Told("Begin.")), Said(Told("On."))


def responses(model: str = "gpt-5.5", url: str = URL) -> Responses:
    return Responses(model, url, {})


def chat() -> Chat:
    return Chat("m", URL, {}, theirs=True)


def anthropic() -> AnthropicMessages:
    return AnthropicMessages("claude-sonnet-5-5", URL, "k")


def encoded(protocol: WireProtocol, *messages: Message) -> list[Any]:
    return protocol.encode(messages, "", thoughts=True)[0]


def reply_of(protocol: WireProtocol, answer: Any) -> Reply:
    model = DirectModel("openai:m", protocol, key="k", facts=Facts())
    return model._reply(protocol.read(answer, 3))


def completion(**message: Any) -> Any:
    return {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": "stop"}]}


# What was said.


def test_a_thought_in_the_text_of_a_chat_is_no_text_and_goes_back_where_it_was() -> None:
    reply = reply_of(chat(), completion(content="<think>Hm.</think>Hello.<think>And?</think>"))
    assert reply.text == "Hello."
    (message,) = encoded(chat(), reply)
    assert message == {
        "role": "assistant",
        "content": "<think>\nHm.\n</think>\n\nHello.\n\n<think>\nAnd?\n</think>",
    }


def test_a_thought_that_is_not_closed_is_text() -> None:
    assert reply_of(chat(), completion(content="So <think>and then")).text == "So and then"


def test_a_text_in_pieces_is_one_text() -> None:
    pieces = [{"type": "text", "text": "One "}, {"type": "text", "text": "two."}]
    assert reply_of(chat(), completion(content=pieces)).text == "One two."


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    calls = [{"function": {"name": "look", "arguments": "{}"}}, {"id": "", "function": {"name": "look"}}]
    found = reply_of(chat(), completion(tool_calls=calls)).calls
    assert [(call.id, call.arguments) for call in found] == [("call_3_0", "{}"), ("call_3_1", "{}")]


def test_arguments_that_a_server_sends_as_an_object_are_written_out() -> None:
    calls = [{"id": "c", "function": {"name": "look", "arguments": {"at": "it"}}}]
    assert json.loads(reply_of(chat(), completion(tool_calls=calls)).calls[0].arguments) == {"at": "it"}


def test_a_signature_beside_a_call_of_a_chat_goes_back() -> None:
    signed = {"google": {"thought_signature": "s"}}
    calls = [{"id": "c", "function": {"name": "look", "arguments": "{}"}, "extra_content": signed}]
    (message,) = encoded(chat(), reply_of(chat(), completion(tool_calls=calls)))
    assert message["tool_calls"][0]["extra_content"] == signed


def test_once_a_chat_thought_every_reply_with_calls_has_the_field() -> None:
    calls = (ToolCall("c", "look", "{}"),)
    thought = reply_of(chat(), completion(content="Hi.", reasoning="Hm."))
    plain, called = Reply(text="Hi."), Reply(calls=calls)
    sent = encoded(chat(), BEGIN, called, ON, thought, ON, plain, ON, called)
    assert [each.get("reasoning") for each in sent if each["role"] == "assistant"] == [None, "Hm.", None, ""]


@pytest.mark.parametrize("make", [anthropic, chat, responses])
def test_an_answer_that_is_text_and_calls_needs_no_form_of_its_own(make: Any) -> None:
    reply = Reply(text="Hi.", calls=(ToolCall("c", "look", '{"at":1}'),))
    parts = parts_of(reply)
    assert native_of(parts, "openai", URL) is None
    assert encoded(make(), reply) == encoded(make(), Reply(text="Hi.", calls=reply.calls, native=None))


def test_unknown_fields_are_passed_over_and_an_unknown_block_is_no_answer() -> None:
    block = {"type": "text", "text": "Hi.", "news": 1}
    assert (
        reply_of(anthropic(), {"content": [block], "news": {}, "usage": {"input_tokens": 3, "news": 2}}).text == "Hi."
    )
    with pytest.raises(ValueError, match="news"):
        anthropic().read({"content": [{"type": "news"}]}, 1)


@pytest.mark.parametrize("wrong", [{"content": [{"type": "text", "text": 7}]}, {"content": None}, {}])
def test_an_answer_of_the_wrong_types_is_none(wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        anthropic().read(wrong, 1)


def test_a_hidden_thought_of_anthropic_goes_back() -> None:
    blocks = [{"type": "redacted_thinking", "data": "sealed"}, {"type": "text", "text": "Hi."}]
    (message,) = encoded(anthropic(), reply_of(anthropic(), {"content": blocks}))
    assert message["content"] == blocks


def test_a_text_of_spaces_is_not_sent_to_anthropic() -> None:
    result = ToolResult("c", "look", "")
    sent = encoded(anthropic(), BEGIN, Reply(text=" ", calls=(ToolCall("c", "look", "{"),)), result)
    assert sent[1]["content"] == [{"type": "tool_use", "id": "c", "name": "look", "input": {"INVALID_JSON": "{"}}]
    assert sent[2]["content"] == [{"type": "tool_result", "tool_use_id": "c"}]


# OpenAI Responses.


THOUGHT = {"type": "reasoning", "id": "rs_1", "encrypted_content": "sealed", "summary": [
    {"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."},
]}  # fmt: skip
SAID = {
    "type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary",
    "content": [{"type": "output_text", "text": "Hi."}],
}  # fmt: skip


def test_the_parts_of_a_thought_go_back_as_one_and_a_text_with_its_phase() -> None:
    thought, said = encoded(responses(), reply_of(responses(), {"output": [THOUGHT, SAID]}))
    assert thought == THOUGHT
    assert (said["id"], said["phase"], said["content"][0]["text"]) == ("msg_1", "commentary", "Hi.")


def test_a_thought_with_nothing_behind_it_is_left_out() -> None:
    answer = {"output": [THOUGHT], "incomplete_details": {"reason": "max_output_tokens"}}
    reply = reply_of(responses(), answer)
    assert (reply.stop, encoded(responses(), reply)) == ("length", [])


def test_the_reasoning_of_gpt_oss_goes_back() -> None:
    raw = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    thought, _ = encoded(responses(), reply_of(responses(), {"output": [raw, SAID]}))
    assert thought["content"] == raw["content"]


@pytest.mark.parametrize(
    ("model", "reasons"),
    [("gpt-5", True), ("gpt-5.5-mini", True), ("o3", True), ("gpt-6-sol", True), ("gpt-4o", False),
     ("gpt-4.1-mini", False), ("gpt-5-chat-latest", False)],
)  # fmt: skip
def test_only_a_model_that_reasons_is_asked_for_its_thoughts_and_given_ids(model: str, reasons: bool) -> None:
    from tests.models.asking import asking

    assert ("include" in responses(model).head(asking())) is reasons
    sent = encoded(responses(model), reply_of(responses(model), {"output": [THOUGHT, SAID]}))
    assert any("id" in each for each in sent) is reasons


def test_what_another_server_keeps_is_not_named() -> None:
    reply = reply_of(responses(), {"output": [THOUGHT, SAID]})
    assert encoded(responses(url="http://127.0.0.1:2/v1"), reply) == [{"role": "assistant", "content": "Hi."}]


# Tools.


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": True},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}]}}, "required": ["a"]},
        {"anyOf": []}, {}, True,
    ],
)  # fmt: skip
def test_a_schema_with_anything_open_is_not_strict(schema: Any) -> None:
    assert strict(schema) is None


def test_a_schema_of_which_all_is_required_is_closed_at_every_depth() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": inner}}, "required": ["a"]}
    found = strict(schema)
    assert found is not None
    assert found["additionalProperties"] is False
    assert found["properties"]["a"]["items"] == {**inner, "additionalProperties": False}
    assert "additionalProperties" not in schema


def test_heard_counts_never_fall_below_nothing() -> None:
    heard: Heard = chat().read(
        {**completion(content="Hi."), "usage": {"prompt_tokens": -3, "completion_tokens": "x"}}, 1
    )
    assert heard.usage.tokens == 0
