"""A conversation that an earlier version recorded goes on: its replies go back as that version sent them.

`recorded_replies.json` has, for each protocol, two replies as version 0.3 recorded them with pydantic-ai, and the
messages that it sent next.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dugnad.agent.conversation import reply_from
from dugnad.board import Board
from dugnad.models import Reply
from dugnad.models.port import Message, Said
from dugnad.text import Told
from dugnad.types import Done, NewTurn
from tests.agent.stage_agent import set_stage
from tests.models.asking import ANTHROPIC, CHAT, GOOGLE, RESPONSES, address, asking, opened, provider, results
from tests.models.provider_server import Answer, Fault, ProviderServer

RECORDED = json.loads(Path(__file__).with_name("recorded_replies.json").read_text())
STALE = Fault(
    status=400,
    body=b'{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `thinking` '
    b'block. The block is bound to a different conversation."}}',
)
FINISH = Answer(calls=(("finish", '{"result": "built"}', None),))


def recorded(name: str, server: ProviderServer) -> list[dict[str, Any]]:
    """The bodies of the replies. Ids are sent back only to the address that gave them."""
    url = address(name, server)
    return [body | {"native": body["native"].replace("URL", url)} for body in RECORDED[name]["replies"]]


def conversation(replies: list[Reply]) -> list[Message]:
    first, second = replies
    begin, hurry = [Said(Told("Rydd låven.")), Said(Told("Start now."))], Said(Told("And hurry 🏃."))
    return [*begin, first, *results(first), hurry, second, *results(second)]


def plain(value: Any) -> Any:
    """Without marks for the cache, and the result of a tool as a text, however it was written."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    made = {key: plain(each) for key, each in value.items() if key not in ("cache_control", "is_error")}
    if made.get("type") == "tool_result" and isinstance(made["content"], list):
        made["content"] = "".join(each["text"] for each in made["content"])
    return made


@pytest.mark.parametrize("name", [ANTHROPIC, CHAT, RESPONSES])
async def test_a_recorded_reply_goes_back_as_the_earlier_version_sent_it(name: str) -> None:
    async with provider(name, [Answer(text="Done.")]) as (model, server):
        replies = [reply_from(body) for body in recorded(name, server)]
        await model.ask(asking(*conversation(replies)))
        sent = plain(server.seen[0].json["input" if name == RESPONSES else "messages"])
    before = plain(RECORDED[name]["sent"])[: len(sent)]
    assert sent == before
    assert len(sent) >= 5


@pytest.mark.parametrize("name", [ANTHROPIC, CHAT, RESPONSES])
async def test_a_recorded_reply_can_go_on_with_google(name: str) -> None:
    async with provider(GOOGLE, [Answer(text="Done.")]) as (model, server):
        replies = [reply_from(body) for body in recorded(name, server)]
        assert (await model.ask(asking(*conversation(replies)))).text == "Done."
        assert "Two at once." in server.seen[0].body.decode()


@pytest.mark.parametrize("name", [ANTHROPIC, CHAT, RESPONSES])
async def test_a_task_of_an_earlier_version_is_gone_on_with(board: Board, name: str) -> None:
    async with ProviderServer([FINISH]) as server:
        model = opened(name, server)
        stage = await set_stage(board, model=model)
        claim = await stage.begin()
        first, second = recorded(name, server)
        turns = [
            ("reply", {"said": "Rydd låven.", "reply": first}), ("tool", {"place": 0, "text": "gjort"}),
            ("reply", {"said": "", "reply": second}), ("tool", {"place": 0, "text": "sett"}),
            ("tool", {"place": 1, "text": "gjort"}),
        ]  # fmt: skip
        for number, (kind, body) in enumerate(turns, start=1):
            await board.record(claim, NewTurn(number=number, kind=kind, body=json.dumps(body)))  # type: ignore[arg-type]
        await stage.lose()
        assert await stage.go_on() == Done("built")
        await model.close()
    said = plain(server.seen[0].json["input" if name == RESPONSES else "messages"])
    theirs = [each for each in plain(RECORDED[name]["sent"]) if is_the_models(each)][: 7 if name == RESPONSES else 2]
    assert [each for each in said if is_the_models(each)] == theirs


def is_the_models(message: Any) -> bool:
    return message.get("role") == "assistant" or message.get("type") in ("reasoning", "function_call")


async def test_a_thought_that_anthropic_does_not_know_again_is_left_out_from_then_on() -> None:
    """Newer models refuse a thought whose conversation has changed in front of it, as after a compaction."""
    async with provider(ANTHROPIC, lambda seen: next(script)) as (model, server):
        replies = [reply_from(body) for body in recorded(ANTHROPIC, server)]
        messages = conversation(replies)
        script = iter([STALE, Answer(text="On.", thinking="New."), Answer(text="End.")])
        request = asking(*messages)
        reply = await model.ask(request)
        assert reply.text == "On."
        await model.ask(asking(*messages, reply, Said(Told("And?")), memory=request.memory))
    kinds = [[block["type"] for each in seen.json["messages"] for block in each["content"]] for seen in server.seen]
    assert [kind.count("thinking") for kind in kinds] == [2, 0, 1]


@pytest.mark.parametrize("name", [CHAT, RESPONSES])
async def test_an_id_goes_back_only_to_the_server_that_gave_it(name: str) -> None:
    async with provider(RESPONSES, [Answer(text="Done.")]) as (model, server):
        replies = [reply_from(body) for body in RECORDED[name]["replies"]]
        await model.ask(asking(*conversation(replies)))
    text = server.seen[0].body.decode()
    assert "Two at once." in text
    assert not any(each in text for each in ('"id":', "rs_", 'encrypted_content":"', "reasoning_content"))
