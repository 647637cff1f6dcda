"""Every protocol, turn by turn: what a model understands of its provider, and what its provider gets to see."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dugnad.agent.conversation import reply_body, reply_from
from dugnad.models import Reply, open_model
from dugnad.models.port import Memory, Message, Said, ToolResult
from tests.models.asking import (
    ALL,
    ANTHROPIC,
    CHAT,
    DIRECT,
    GOOGLE,
    KEY,
    LOCAL,
    RESPONSES,
    TOOLS,
    address,
    asking,
    opened,
    provider,
    results,
    talk,
)
from tests.models.provider_server import Answer, ProviderServer, Usage
from tests.models.provider_shapes import SEALED, SIGNATURE

FIRST = Answer(
    text="Først litt blåbær 🫐 – 第一步.",
    thinking="Hva må til? よく考える 🤔",
    calls=(("note", '{"text":"blåbær \\"🫐\\"\\n"}', None),),
    usage=Usage(input=1_000, output=9, cache_read=300, cache_write=200),
)
SECOND = Answer(
    text="Two at once.", thinking="Begge deler.", calls=(("look", "{}", None), ("note", '{"text":"b"}', None))
)
THIRD = Answer(text="Ferdig ✅.")
SAYS = (["Rydd låven.", "Start now."], ["And hurry 🏃."], [])


def seen_turns(name: str, body: Any) -> list[Any]:
    return body["contents" if name == GOOGLE else "input" if name == RESPONSES else "messages"]


def only(value: Any, kind: str) -> list[Any]:
    """Every object below the value that has the key."""
    found = [value] if isinstance(value, dict) and kind in value else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [*found, *(each for part in inner for each in only(part, kind))]


@pytest.mark.parametrize("name", ALL)
async def test_a_conversation_of_three_turns_is_understood(name: str) -> None:
    async with provider(name, [FIRST, SECOND, THIRD]) as (model, server):
        messages = await talk(model, SAYS, Memory())
        first, second, third = (message for message in messages if isinstance(message, Reply))
        assert [reply.text for reply in (first, second, third)] == [FIRST.text, SECOND.text, THIRD.text]
        assert [reply.stop for reply in (first, second, third)] == ["tools", "tools", "end"]
        assert [call.name for call in second.calls] == ["look", "note"]
        assert len({call.id for reply in (first, second) for call in reply.calls}) == 3
        assert json.loads(first.calls[0].arguments) == {"text": 'blåbær "🫐"\n'}
        assert json.loads(second.calls[0].arguments) == {}
        assert third.calls == ()
        assert {reply.model for reply in (first, second, third)} == {name.partition(":")[2]}
        assert len(server.seen) == 3


@pytest.mark.parametrize("name", ALL)
async def test_tokens_are_counted_with_what_the_cache_gave_and_took(name: str) -> None:
    async with provider(name, [FIRST]) as (model, _):
        used = (await model.ask(asking())).usage
    assert (used.input_tokens, used.output_tokens, used.cache_read_tokens) == (1_000, 9, 300)
    assert used.cache_write_tokens == (0 if name == GOOGLE else 200)  # Gemini does not say.
    assert used.tokens == 1_009


def assert_thoughts_are_back(name: str, body: Any) -> None:
    """The first reply stands in the request as the provider said it, signatures and all."""
    turns = seen_turns(name, body)
    if name == ANTHROPIC:
        thinking, text, call = turns[1]["content"]
        assert thinking == {"type": "thinking", "thinking": FIRST.thinking, "signature": SIGNATURE}
        assert text == {"type": "text", "text": FIRST.text}
        assert (call["type"], call["name"], call["input"]) == ("tool_use", "note", {"text": 'blåbær "🫐"\n'})
    elif name == RESPONSES:
        thinking, text, call = turns[2:5]
        assert (thinking["type"], thinking["encrypted_content"]) == ("reasoning", SEALED)
        assert thinking["summary"] == [{"type": "summary_text", "text": FIRST.thinking}]
        assert thinking["id"].startswith("rs_")
        assert (text["id"].startswith("msg_"), text["content"][0]["text"]) == (True, FIRST.text)
        assert (call["id"].startswith("fc_"), call["arguments"]) == (True, FIRST.calls[0][1])
    elif name == GOOGLE:
        model = next(turn for turn in turns if turn["role"] == "model")
        thinking, text, call = model["parts"]
        assert thinking == {"text": FIRST.thinking, "thought": True}
        assert text == {"text": FIRST.text}
        assert call["thoughtSignature"] == SIGNATURE
        assert call["functionCall"]["args"] == {"text": 'blåbær "🫐"\n'}
    else:
        reply = next(turn for turn in turns if turn["role"] == "assistant")
        assert reply["reasoning_content"] == FIRST.thinking
        assert reply["content"] == FIRST.text
        assert reply["tool_calls"][0]["function"] == {"name": "note", "arguments": FIRST.calls[0][1]}


@pytest.mark.parametrize("name", ALL)
async def test_thinking_and_signatures_go_back_word_for_word(name: str) -> None:
    async with provider(name, [FIRST, SECOND, THIRD]) as (model, server):
        await talk(model, SAYS, Memory())
        assert_thoughts_are_back(name, server.seen[1].json)
        assert_thoughts_are_back(name, server.seen[2].json)


@pytest.mark.parametrize("name", ALL)
async def test_a_recorded_conversation_goes_on_word_for_word_with_another_object(name: str) -> None:
    async with provider(name, [FIRST, SECOND, THIRD]) as (model, server):
        messages = await talk(model, SAYS, Memory())
        told = messages[:-1]  # Without the last reply: what the third request asked with.
        read: list[Message] = [
            reply_from(json.loads(json.dumps(reply_body(each)))) if isinstance(each, Reply) else each for each in told
        ]
        again = opened(name, server)
        await again.ask(asking(*read))
        await again.close()
        assert_thoughts_are_back(name, server.seen[3].json)
        assert server.seen[3].json == server.seen[2].json


@pytest.mark.parametrize("name", ALL)
async def test_what_the_runtime_says_and_what_tools_gave_is_in_the_request(name: str) -> None:
    async with provider(name, [FIRST, SECOND, THIRD]) as (model, server):
        await talk(model, SAYS, Memory())
        for seen in server.seen:
            assert seen.method == "POST"
            assert KEY not in seen.body.decode()
        text = json.dumps(server.seen[2].json, ensure_ascii=False)
        for said in ("Rydd låven.", "Start now.", "And hurry 🏃.", "You help: søte små.", "note → gjort ✓"):
            assert said in text


@pytest.mark.parametrize("name", ALL)
async def test_system_text_tools_and_the_output_limit_are_in_every_request(name: str) -> None:
    async with provider(name, [FIRST, SECOND, THIRD]) as (model, server):
        await talk(model, SAYS, Memory())
        for body in (seen.json for seen in server.seen):
            system = {
                ANTHROPIC: lambda body: body["system"][0]["text"],
                RESPONSES: lambda body: body["instructions"],
                GOOGLE: lambda body: body["systemInstruction"]["parts"][0]["text"],
            }.get(name, lambda body: body["messages"][0]["content"])(body)
            assert system == "You help: søte små."
            described = [each for each in only(body["tools"], "description") if "name" in each]
            assert [(tool["name"], tool["description"]) for tool in described] == [
                (tool.name, tool.description) for tool in TOOLS
            ]
            schemas = [each["properties"] for each in only(body["tools"], "properties")]
            assert schemas == [{"text": {"type": "string"}}, {}]


@pytest.mark.parametrize(
    ("name", "place"),
    [(ANTHROPIC, "max_tokens"), (CHAT, "max_completion_tokens"), (RESPONSES, "max_output_tokens"),
     (LOCAL, "max_tokens")],
)  # fmt: skip
async def test_the_output_limit_has_the_name_the_provider_knows(name: str, place: str) -> None:
    async with provider(name, [THIRD]) as (model, server):
        await model.ask(asking(output_tokens_max=123))
    body = server.seen[0].json
    limits = {key: value for key, value in body.items() if key.startswith("max_")}
    assert limits == {place: 123}


async def test_gemini_is_told_the_output_limit() -> None:
    async with provider(GOOGLE, [THIRD]) as (model, server):
        await model.ask(asking(output_tokens_max=123))
    assert server.seen[0].json["generationConfig"]["maxOutputTokens"] == 123


async def test_anthropic_is_asked_to_cache_the_system_text_the_tools_and_the_conversation_in_every_turn() -> None:
    async with provider(ANTHROPIC, [FIRST, SECOND, THIRD]) as (model, server):
        await talk(model, SAYS, Memory())
        for body in (seen.json for seen in server.seen):
            assert body["cache_control"]["type"] == "ephemeral"
            assert body["system"][-1]["cache_control"]["type"] == "ephemeral"
            assert body["tools"][-1]["cache_control"]["type"] == "ephemeral"
            first, *others = body["messages"]
            assert first["content"][0]["cache_control"]["type"] == "ephemeral"
            assert not only(first["content"][1:], "cache_control")
            assert not only(others, "cache_control")


@pytest.mark.parametrize("name", DIRECT)
async def test_answers_are_streamed(name: str) -> None:
    async with provider(name, [THIRD]) as (model, server):
        await model.ask(asking())
    body = server.seen[0].json
    assert body["stream"] is True
    if name in (CHAT, LOCAL):
        assert body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("name", DIRECT)
async def test_a_server_that_does_not_stream_is_understood_too(name: str) -> None:
    async def plain(answer: Answer) -> Reply:
        from tests.models.provider_errors import Fault
        from tests.models.provider_shapes import Wanted, render

        wanted = {ANTHROPIC: "anthropic", RESPONSES: "responses"}.get(name, "chat")
        body = render(answer, Wanted(wanted, name.partition(":")[2], False, True))  # type: ignore[arg-type]
        async with provider(name, [Fault(status=200, body=body)]) as (model, _):
            return await model.ask(asking())

    reply = await plain(FIRST)
    assert (reply.text, reply.stop, reply.usage.cache_read_tokens) == (FIRST.text, "tools", 300)
    assert json.loads(reply.calls[0].arguments) == {"text": 'blåbær "🫐"\n'}


@pytest.mark.parametrize("name", ALL)
async def test_a_request_without_tools_names_none(name: str) -> None:
    async with provider(name, [THIRD]) as (model, server):
        reply = await model.ask(asking(tools=()))
    assert reply.text == THIRD.text
    assert not server.seen[0].json.get("tools")


@pytest.mark.parametrize("name", ALL)
async def test_a_reply_from_another_provider_can_be_gone_on_from(name: str) -> None:
    other = CHAT if name == ANTHROPIC else ANTHROPIC
    async with provider(other, [FIRST]) as (model, _):
        reply = await model.ask(asking(Said("Begin.")))
    async with provider(name, [THIRD]) as (model, server):
        await model.ask(asking(Said("Begin."), reply, *results(reply)))
    text = json.dumps(server.seen[0].json, ensure_ascii=False)
    assert FIRST.text in text
    assert "note → gjort ✓" in text
    assert SIGNATURE not in text  # Another's signature would be refused.


@pytest.mark.parametrize("name", ALL)
async def test_an_empty_result_and_an_empty_reply_can_be_sent_back(name: str) -> None:
    async with provider(name, [FIRST, Answer(empty=True), THIRD]) as (model, server):
        memory = Memory()
        first = await model.ask(asking(Said("Begin."), memory=memory))
        messages: list[Message] = [Said("Begin."), first, ToolResult(first.calls[0].id, "note", "")]
        empty = await model.ask(asking(*messages, memory=memory))
        assert (empty.text, empty.calls, empty.stop) == ("", (), "end")
        last = await model.ask(asking(*messages, empty, Said("Go on."), memory=memory))
    assert last.text == THIRD.text
    assert "Go on." in json.dumps(server.seen[2].json)


def test_a_models_address_is_that_of_the_double() -> None:
    """The rest of these tests would ask the world if this were wrong."""
    server = ProviderServer([THIRD])
    server.url = "http://127.0.0.1:9"
    assert {address(name, server) for name in ALL} == {"http://127.0.0.1:9", "http://127.0.0.1:9/v1"}
    assert open_model("scripted").name == "scripted"


@pytest.mark.parametrize("name", ALL)
async def test_every_answer_is_asked_for_as_a_stream(name: str) -> None:
    async with provider(name, [Answer(text="Hello.")]) as (model, server):
        assert (await model.ask(asking())).text == "Hello."
    (seen,) = server.seen
    assert "streamGenerateContent" in seen.path or seen.json["stream"] is True
