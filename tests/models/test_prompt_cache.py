"""What providers can cache, on the wire: each request begins with the bytes of the one before it."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.models.port import Facts
from dugnad.settings import AgentLimits
from dugnad.tools.tool import tool
from dugnad.types import Done
from tests.agent.stage_agent import set_stage
from tests.models.asking import ANTHROPIC, CHAT, RESPONSES, opened
from tests.models.provider_server import Answer, ProviderServer, Seen, Usage

PROTOCOLS = (ANTHROPIC, CHAT, RESPONSES)
_MARK = re.compile(rb',"cache_control":\{[^{}]*\}')  # Where a breakpoint stands is not a part of what is cached.


@tool
def look(length: int = 1_000) -> str:
    """Look.

    Args:
        length: How much to see.
    """
    return "seen å\n" * (length // 7)


def looking(*many: int, tokens: int = 1_000) -> list[Answer]:
    """For each number a reply with so many calls, and then the end."""
    usage = Usage(input=tokens, output=10)
    says = [Answer(text="I look.", calls=(("look", "{}", None),) * each, usage=usage) for each in many]
    return [*says, Answer(calls=(("finish", '{"result": "built"}', None),), usage=usage)]


async def requests_of(
    board: Board, protocol: str, says: list[Answer], *, window_tokens: int = 200_000, **given: Any
) -> list[Seen]:
    """What goes over the wire while a teammate works on a task."""
    async with ProviderServer(says) as server:
        model = opened(protocol, server)
        model.facts = Facts(window_tokens=window_tokens)
        try:
            stage = await set_stage(board, model=model, tools=[look], **given)
            assert await stage.run(body="All of it.") == Done("built")
        finally:
            await model.close()
    return [seen for seen in server.seen if seen.json]


def conversation(seen: Seen) -> str:
    """The messages exactly as they were sent, up to the end of the last one."""
    body = _MARK.sub(b"", seen.body).decode()
    begin = re.search(r'"(?:messages|input)":\[', body)
    assert begin is not None
    _, end = json.JSONDecoder().raw_decode(body, begin.end() - 1)
    return body[begin.end() : end - 1]


@pytest.mark.parametrize("name", PROTOCOLS)
async def test_each_request_begins_with_the_bytes_of_the_one_before(board: Board, name: str) -> None:
    seen = await requests_of(board, name, looking(*[1] * 11, 3))
    assert len(seen) == 13
    for before, after in itertools.pairwise(seen):
        assert conversation(after).startswith(conversation(before))
        assert len(conversation(after)) > len(conversation(before))
    for key in ("tools", "system", "instructions"):
        assert len({json.dumps(each.json.get(key)) for each in seen}) == 1


@pytest.mark.parametrize("name", PROTOCOLS)
async def test_making_room_changes_the_bytes_once_and_keeps_the_first_message(board: Board, name: str) -> None:
    says = [*looking(*[1] * 8)[:-1], *looking(1, tokens=9_000)[:-1], Answer(text="I looked."), *looking(1, 1)]
    seen = await requests_of(
        board, name, says, window_tokens=18_192, limits=AgentLimits(keep_share=0.01)
    )  # fmt: skip
    changed = [
        place
        for place, (before, after) in enumerate(itertools.pairwise(seen))
        if not conversation(after).startswith(conversation(before))
    ]
    assert changed == [9], "the summary was asked for at the end of the conversation, and replaced it once"
    first = seen[0].json["input" if name == RESPONSES else "messages"]
    after = seen[-1].json["input" if name == RESPONSES else "messages"]
    at = next(place for place, each in enumerate(first) if each.get("role") == "user")
    assert text_of(after[at]) == text_of(first[at])
    assert text_of(after[at]).startswith("You are alice.")


def text_of(message: Any) -> str:
    content = message["content"]
    return str(content if isinstance(content, str) else content[0]["text"])


@pytest.mark.parametrize("name", PROTOCOLS)
async def test_a_second_teammate_of_a_role_finds_tools_and_system_text_in_the_cache(board: Board, name: str) -> None:
    """Also if the lead said something else of each of them."""
    seen = []
    for who, says in (("alice", "Be kind."), ("bob", "Be quick.")):
        member = {"roles": ["coder"], "prompt": f"lena brought you to the team, and says of you:\n> {says}"}
        given = {"name": who, "member": member, "role_prompt": "You write tests."}
        seen += await requests_of(board, name, looking(), **given)
    one, other = seen
    for key in ("tools", "system", "instructions"):
        assert json.dumps(one.json.get(key)) == json.dumps(other.json.get(key))
    shared = len(common(one.body, other.body))
    assert b"Be kind." in one.body
    assert b"Be quick." in other.body
    assert b"alice" not in one.body[:shared]
    assert b"lena" not in one.body[:shared]
    assert b"You write tests." in one.body
    if name != ANTHROPIC:
        system = [[m for m in each.json.get("messages", ()) if m["role"] in ("system", "developer")] for each in seen]
        assert system[0] == system[1]


def common(one: bytes, other: bytes) -> bytes:
    return one[: next(place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)]


def marks(body: Any) -> list[tuple[str, int, int]]:
    """Where the breakpoints stand: in which part, in which message, on which block. The automatic one is on the last
    block."""
    found = [("tools", 0, place) for place, each in enumerate(body["tools"]) if "cache_control" in each]
    found += [("system", 0, place) for place, each in enumerate(body["system"]) if "cache_control" in each]
    found += [
        ("messages", at, place)
        for at, message in enumerate(body["messages"])
        for place, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    last = ("messages", len(body["messages"]) - 1, len(body["messages"][-1]["content"]) - 1)
    return list(dict.fromkeys([*found, last]))


async def test_anthropics_breakpoints_are_four_and_reach_what_was_written_before(board: Board) -> None:
    """A breakpoint finds what an earlier request wrote up to twenty blocks back, itself counted."""
    seen = await requests_of(board, ANTHROPIC, looking(1, 9, 10, 30, 1))
    written: tuple[int, int] | None = None
    for each in seen:
        body = each.json
        assert body["cache_control"]["type"] == "ephemeral"
        found = marks(body)
        assert len(found) <= 4
        assert ("tools", 0, len(body["tools"]) - 1) in found
        assert ("system", 0, len(body["system"]) - 1) in found
        blocks = [
            (at, place) for at, message in enumerate(body["messages"]) for place in range(len(message["content"]))
        ]
        if written is not None:
            ends = [blocks.index((at, place)) for part, at, place in found if part == "messages"]
            assert any(end - 19 <= blocks.index(written) <= end for end in ends)
        written = blocks[-1]


async def test_anthropic_finds_the_first_message_again_after_a_compaction(board: Board) -> None:
    says = [*looking(*[1] * 8)[:-1], *looking(1, tokens=9_000)[:-1], Answer(text="I looked."), *looking(1)]
    seen = await requests_of(
        board, ANTHROPIC, says, window_tokens=18_192, limits=AgentLimits(keep_share=0.01)
    )  # fmt: skip
    body = seen[-1].json
    assert "What happened between the first message and the turns below" in body["messages"][0]["content"][1]["text"]
    assert ("messages", 0, 0) in marks(body)
