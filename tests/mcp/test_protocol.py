"""The server half of the protocol answers both eras of clients, and is small enough for every client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.mcp.serve import served
from dugnad.mcp.tools import ClientTools
from dugnad.prompts import load, tell
from dugnad.tools.mcp.serving import Link, Offering, listed
from tests.mcp.clients import MODERN, NearClient, called, envelope, hosting, said

TOOLS = [
    "next_task", "task", "tasks", "add_task", "finish", "progress", "ask_human", "message", "note", "search_notes",
]  # fmt: skip


async def nobody() -> Any:
    raise AssertionError("No seat is needed for this.")


@pytest.fixture
def offering() -> Offering:
    return served(ClientTools(seat=nobody).served())


def asks(method: str, number: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def test_there_are_ten_tools_of_less_than_3000_tokens_together(offering: Offering) -> None:
    assert [each.spec.name for each in offering.tools] == TOOLS == list(load("mcp_tools"))
    assert len(json.dumps([listed(each) for each in offering.tools])) / 4 < 3_000


def test_each_argument_is_described_and_none_is_hidden(offering: Offering) -> None:
    for each in offering.tools:
        schema = listed(each)["inputSchema"]
        assert schema["type"] == "object"
        assert all(part["description"] for part in schema["properties"].values()), each.spec.name
        assert not {"seat", "call"} & schema["properties"].keys()


def test_the_instructions_are_not_cut_by_any_client() -> None:
    whole = tell("mcp.instructions")
    assert len(whole) <= 2_000
    first = whole[:512]
    assert all(word in first for word in ("next_task", "finish", "task and epoch", '"Not done"', "Stop when"))


async def test_a_client_of_the_older_era_begins_with_initialize(offering: Offering) -> None:
    link = Link()
    refused = await offering.answer(asks("tools/list"), link)
    assert refused is not None
    assert refused["error"]["code"] == -32600
    given = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    begun = await offering.answer(asks("initialize", **given), link)
    assert begun is not None
    assert begun["result"]["protocolVersion"] == "2025-06-18"
    assert begun["result"]["instructions"] == tell("mcp.instructions")
    assert "resultType" not in begun["result"]
    listing = await offering.answer(asks("tools/list"), link)
    assert listing is not None
    assert len(listing["result"]["tools"]) == 10
    for method in ("server/discover", "tasks/list", "sampling/createMessage"):
        found = await offering.answer(asks(method), link)
        assert found is not None
        assert found["error"]["code"] == -32601


async def test_an_unknown_version_is_answered_with_one_that_is_known(offering: Offering) -> None:
    begun = await offering.answer(asks("initialize", protocolVersion="1999-01-01", capabilities={}), Link())
    assert begun is not None
    assert begun["result"]["protocolVersion"] == "2025-11-25"


async def test_a_client_of_the_newer_era_needs_no_session(offering: Offering) -> None:
    found = await offering.answer(asks("server/discover", "a-text", _meta=envelope()), Link())
    assert found is not None
    assert found["id"] == "a-text"
    result = found["result"]
    assert result["supportedVersions"] == [MODERN]
    assert result["resultType"] == "complete"
    assert result["instructions"] == tell("mcp.instructions")
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "dugnad"
    listing = await offering.answer(asks("tools/list", _meta=envelope()), Link())
    assert listing is not None
    assert {"ttlMs", "cacheScope", "resultType", "tools"} <= listing["result"].keys()


async def test_the_eras_are_not_mixed(offering: Offering) -> None:
    modern, older = Link(), Link()
    await offering.answer(asks("server/discover", _meta=envelope()), modern)
    begun = await offering.answer(asks("initialize", protocolVersion="2025-06-18", capabilities={}), modern)
    assert begun is not None
    assert begun["error"]["code"] == -32022
    await offering.answer(asks("initialize", protocolVersion="2025-06-18", capabilities={}), older)
    found = await offering.answer(asks("tools/list", _meta=envelope()), older)
    assert found is not None
    assert found["error"]["code"] == -32600
    wrong = {**envelope(), "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    late = await offering.answer(asks("tools/list", _meta=wrong), Link())
    assert late is not None
    assert (late["error"]["code"], late["error"]["data"]["supported"]) == (-32022, [MODERN])


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ([], -32600),
        ("x", -32600),
        ({}, -32600),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, -32600),
        ({"jsonrpc": "2.0", "id": {}, "method": "ping"}, -32600),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": 7}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}, -32602),
        ({"jsonrpc": "2.0", "id": 1}, -32600),
        (called("no_such_tool", {}), -32602),
        (asks("tools/call", name="task", arguments=[]), -32602),
        (asks("prompts/get", name="nothing"), -32602),
        (asks("resources/read", uri=7), -32602),
        (asks("tools/call"), -32602),
    ],
)
async def test_what_is_no_request_gets_an_error(offering: Offering, message: Any, code: int) -> None:
    found = await offering.answer(message, Link(version="2025-06-18"))
    assert found is not None
    assert found["error"]["code"] == code


async def test_a_notification_is_not_answered(offering: Offering) -> None:
    for method in ("notifications/initialized", "notifications/anything"):
        assert await offering.answer({"jsonrpc": "2.0", "method": method}, Link()) is None


async def test_the_prompt_work_makes_a_client_loop(offering: Offering) -> None:
    link = Link(version="2025-06-18")
    listing = await offering.answer(asks("prompts/list"), link)
    assert listing is not None
    assert [each["name"] for each in listing["result"]["prompts"]] == ["work"]
    found = await offering.answer(asks("prompts/get", name="work"), link)
    assert found is not None
    text = found["result"]["messages"][0]["content"]["text"]
    assert "next_task" in text
    assert "finish" in text


async def test_a_task_is_a_resource(board: Board) -> None:
    task = await board.put("Write it", body="In plain words.")
    async with hosting(board) as host:
        client: NearClient = await host()
        templates = await client.offering.answer(asks("resources/templates/list"), client.link)
        assert templates is not None
        assert templates["result"]["resourceTemplates"][0]["uriTemplate"] == "dugnad://task/{number}"
        found = await client.offering.answer(asks("resources/read", uri=f"dugnad://task/{task.id}"), client.link)
        assert found is not None
        assert "> In plain words." in found["result"]["contents"][0]["text"]
        for uri in (
            "dugnad://task/99",
            "dugnad://task/x",
            "file:///etc/passwd",
            "dugnad://task/1/../2",
            "dugnad://task/١",
        ):
            wrong = await client.offering.answer(asks("resources/read", uri=uri), client.link)
            assert wrong is not None
            assert wrong["error"]["code"] == -32002, uri


class TestAskingThePersonAtTheClient:
    async def test_over_an_open_connection(self, board: Board) -> None:
        await board.put("Paint it")
        asked: list[Any] = []

        async def request(method: str, params: Any) -> Any:
            asked.append((method, params["message"]))
            return {"action": "accept", "content": {"answer": "Blue."}}

        async with hosting(board) as host:
            client: NearClient = await host()
            client.link.can_ask, client.link.request = True, request
            held = await client.works()
            found = await client("ask_human", **held, question="Which colour?")
            assert "> Blue." in found
            assert "is over" in await client("finish", **held, result="It is blue.")
        assert asked == [("elicitation/create", "Which colour?")]

    @pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel"}, {}, {"action": "accept"}])
    async def test_without_an_answer_the_task_waits(self, board: Board, answer: dict[str, Any]) -> None:
        task = await board.put("Paint it")

        async def request(method: str, params: Any) -> Any:
            return answer

        async with hosting(board) as host:
            client: NearClient = await host()
            client.link.can_ask, client.link.request = True, request
            assert "waits for a person" in await client("ask_human", **await client.works(), question="Which colour?")
        assert (await board.find(task.id)).state == "waiting"

    async def test_in_two_calls_without_a_session(self, board: Board) -> None:
        await board.put("Paint it")
        async with hosting(board) as host:
            client: NearClient = await host()
            meta = {"_meta": envelope(elicitation={"form": {}})}
            given = said(await client.offering.answer(called("next_task", {}, **meta), Link()))
            asked = {**given.held, "question": "Which colour?"}
            first = await client.offering.answer(called("ask_human", asked, **meta), Link())
            assert first is not None
            assert first["result"]["resultType"] == "input_required"
            (key,) = first["result"]["inputRequests"]
            more = {"inputResponses": {key: {"action": "accept", "content": {"answer": "Blue."}}}, **meta}
            assert "> Blue." in said(await client.offering.answer(called("ask_human", asked, **more), Link()))
            declined = {"inputResponses": {key: {"action": "cancel"}}, **meta}
            found = said(await client.offering.answer(called("ask_human", asked, **declined), Link()))
            assert "waits for a person" in found

    async def test_a_policy_is_never_answered_at_the_client(self, board: Board) -> None:
        await board.put("Paint it")

        async def request(method: str, params: Any) -> Any:
            raise AssertionError("The client's own program could answer this.")

        async with hosting(board, policies={"add_tasks": "ask"}) as host:
            client: NearClient = await host()
            client.link.can_ask, client.link.request = True, request
            assert "waits for a person" in await client("add_task", **await client.works(), title="x")


async def test_calls_side_by_side_are_run_one_after_another(board: Board) -> None:
    await board.put("Write it")
    async with hosting(board) as host:
        client: NearClient = await host()
        held = await client.works()
        found = await asyncio.gather(*(client("note", **held, title=f"Note {each}", text="x") for each in range(10)))
        assert not any(each.refused for each in found)
    assert len(await board.search_notes()) == 10
