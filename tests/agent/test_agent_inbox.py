"""Messages in a conversation: shown once, in order, marked when the reply is recorded, and never lost by a crash."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import Reply, Request
from dugnad.types import Done
from tests.agent.stage_agent import END, Crash, Wrapped, all_told, call, set_stage, told


async def team(board: Board) -> None:
    await board.spawn("alice")
    await board.spawn("bob")
    await board.spawn("lena", lead=True)


async def test_messages_are_shown_once_and_marked_with_the_reply(board: Board) -> None:
    await team(board)
    await board.tell("bob", "alice", "hello there")
    unread: list[int] = []

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        unread.append(len(await board.inbox("alice")))
        return await inner.ask(request)

    stage = await set_stage(board, [call("list_tasks"), call("list_tasks"), END])
    stage.agent.model = Wrapped(stage.model, ask)
    await stage.run()
    assert unread == [1, 0, 0]
    assert ["hello there" in told(request) for request in stage.model.asked] == [True, False, False]
    assert all_told(stage.model.asked[-1]).count("hello there") == 1


async def test_messages_come_in_the_order_shutdown_human_lead_peers(board: Board) -> None:
    await team(board)
    await board.tell("bob", "alice", "peer one")
    await board.tell("lena", "alice", "lead one")
    await board.tell("human", "alice", "human one")
    await board.tell("bob", "alice", "peer two")
    await board.tell("human", "alice", "stop", kind="shutdown", request="r1")
    await board.tell("lena", "alice", "lead two")
    stage = await set_stage(board, [END])
    await stage.run()
    lines = [line for line in told(stage.model.asked[0]).splitlines() if line.startswith(("From ", "> "))]
    assert lines == [
        "From the human [shutdown]:", "> stop", "From the human:", "> human one", "From lena (lead):", "> lead one",
        "From lena (lead):", "> lead two", "From bob:", "> peer one", "From bob:", "> peer two",
    ]  # fmt: skip


async def test_a_message_that_comes_while_the_model_thinks_is_shown_in_the_next_turn(board: Board) -> None:
    await team(board)

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        if request.turn == 1:
            await board.tell("bob", "alice", "by the way")
        return await inner.ask(request)

    stage = await set_stage(board, [call("list_tasks"), END])
    stage.agent.model = Wrapped(stage.model, ask)
    await stage.run()
    assert ["by the way" in told(request) for request in stage.model.asked] == [False, True]


async def test_a_message_that_comes_with_the_last_reply_waits_for_the_next_task(board: Board) -> None:
    await team(board)

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        if request.task == 1:
            await board.tell("bob", "alice", "too late")
        return await inner.ask(request)

    stage = await set_stage(board, [END], others={"Next": [END]})
    stage.agent.model = Wrapped(stage.model, ask)
    await stage.run()
    assert len(await board.inbox("alice")) == 1
    await stage.run("Next")
    assert "too late" in told(stage.model.asked[-1])
    assert not await board.inbox("alice")


@pytest.mark.parametrize("new", [False, True], ids=["alone", "with a new one"])
async def test_a_crash_before_the_reply_is_recorded_shows_messages_again(board: Board, new: bool) -> None:
    await team(board)
    await board.tell("bob", "alice", "do not lose me")

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        reply = await inner.ask(request)
        if request.turn == 2 and len(inner.asked) == 2:
            raise Crash
        return reply

    stage = await set_stage(board, [call("list_tasks"), call("list_tasks"), END])
    stage.agent.model = Wrapped(stage.model, ask)
    claim = await stage.begin()
    with pytest.raises(Crash):
        await stage.agent.work(claim)
    await board.tell("bob", "alice", "nor me")
    await stage.lose()
    if new:
        await board.tell("bob", "alice", "me neither")
    assert await stage.go_on(await stage.claim_when_due()) == Done("built")
    everything = all_told(stage.model.asked[-1])
    assert everything.count("do not lose me") == 1
    assert everything.count("nor me") == 1
    assert everything.count("me neither") == int(new)
    assert not await board.inbox("alice")


async def test_a_crash_in_the_first_turn_shows_the_packet_and_the_messages_again(board: Board) -> None:
    await team(board)
    await board.tell("bob", "alice", "do not lose me")

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        reply = await inner.ask(request)
        if len(inner.asked) == 1:
            raise Crash
        return reply

    stage = await set_stage(board, [END])
    stage.agent.model = Wrapped(stage.model, ask)
    with pytest.raises(Crash):
        await stage.agent.work(await stage.begin(body="The body."))
    assert len(await board.inbox("alice")) == 1
    await stage.lose()
    assert await stage.go_on(await stage.claim_when_due()) == Done("built")
    first, second = map(told, stage.model.asked)
    for text in (first, second):
        assert text.count("do not lose me") == 1
        assert text.count("> The body.") == 1


async def test_what_a_shut_down_peer_said_is_still_shown(board: Board) -> None:
    await team(board)
    await board.tell("bob", "alice", "my last words")
    await board.stop_teammate("bob")
    stage = await set_stage(board, [END])
    await stage.run()
    assert "From bob:\n> my last words" in told(stage.model.asked[0])


async def test_a_reply_to_a_plan_says_whether_it_was_accepted(board: Board) -> None:
    await team(board)
    asked = await board.tell("alice", "bob", "plan", kind="plan")
    await board.reply(str(asked.request), "bob", "not so", accepted=False)
    stage = await set_stage(board, [END])
    await stage.run()
    assert "From bob [plan reply]:\nrefused\n> not so" in told(stage.model.asked[0])
