"""Who goes on with what another began: whose words are whose, and what a person said stays known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from dugnad.agent.conversation import Conversation
from dugnad.board import Board
from dugnad.settings import AgentLimits
from dugnad.tools.policy import Policy
from dugnad.types import HUMAN, Claim, Done, Failed, NewTurn, Waiting
from simulation.verdict import verdict
from tests.agent.stage_agent import END, Crash, all_told, calls, last_results, set_stage, told


async def asked_and_answered(board: Board) -> None:
    """carol asks a person, and behind that has something to say to dave; then she leaves."""
    await board.spawn("dave")
    carol = await set_stage(
        board, [calls(("ask_human", {"question": "One or two?"}), ("send_message", {"to": "dave", "text": "Soon."}))],
        name="carol",
    )  # fmt: skip
    await carol.run()
    (asked,) = await board.requests(HUMAN)
    await board.reply(asked.request, HUMAN, "One.")
    await board.stop_teammate("carol")


async def test_what_one_asked_for_is_said_in_that_ones_name_when_another_goes_on(board: Board) -> None:
    await asked_and_answered(board)
    alice = await set_stage(board, [END, END], name="alice")
    assert isinstance(await alice.go_on(), Done)
    (message,) = await board.inbox("dave")
    assert (message.sender, message.text) == ("carol", "Soon.")
    assert last_results(alice.model)[0].endswith("> One.")
    said = told(alice.model.asked[0])
    assert said.startswith("You are alice.")
    assert "carol has worked on this task until here" in said
    assert await verdict(board) == []


async def test_the_one_who_goes_on_is_itself_also_after_a_compaction(board: Board) -> None:
    await asked_and_answered(board)
    script = [calls(("list_tasks", {})), calls(("compact", {})), END]
    alice = await set_stage(board, [END, *script], name="alice", limits=AgentLimits(keep_share=0.0001))
    assert isinstance(await alice.go_on(), Done)
    first = alice.model.asked[-1].messages[0].text
    assert first.startswith("You are alice.\n\nYour task is #1")
    assert "carol" not in first


async def test_the_one_who_goes_on_is_itself_also_when_it_must_make_room_first(board: Board) -> None:
    steps = [calls(("list_tasks", {})), calls(("compact", {}), ("ask_human", {"question": "One or two?"}))]
    limits = AgentLimits(keep_share=0.0001)
    carol = await set_stage(board, steps, name="carol", limits=limits)
    await carol.run()
    (asked,) = await board.requests(HUMAN)
    await board.reply(asked.request, HUMAN, "One.")
    await board.stop_teammate("carol")
    alice = await set_stage(board, [*steps, END], name="alice", limits=limits, others={"(summary)": [END]})
    assert isinstance(await alice.go_on(), Done)
    first = alice.model.asked[0]
    assert first.title == "(summary)"
    assert first.messages[-1].text.startswith("You are alice.\n\nThe conversation is getting too long.")


def told_before(reply: str, *, said: str, packet: str | None = None) -> str:
    """The body of a reply as earlier versions recorded it: the request ended with where the teammate stood."""
    first = {} if packet is None else {"packet": packet}
    call = ["c1", "list_tasks", "{}"]
    body = {"text": reply, "calls": [call], "usage": [9, 1, 0, 0], "stop": "tools", "model": "scripted", "native": None}
    return orjson.dumps({**first, "said": f"{said}[alice, task #1, attempt 1, turn 1 of 50.]", "reply": body}).decode()


@pytest.mark.parametrize("summarised", [False, True])
async def test_a_conversation_that_an_earlier_version_recorded_goes_on(board: Board, summarised: bool) -> None:
    """Its first message does not say who the teammate is, since the system text did; and a summary stood in it."""
    stage = await set_stage(
        board, lambda request: calls(("compact", {})) if request.turn == 4 else END,
        limits=AgentLimits(keep_share=0.0001),
    )  # fmt: skip
    claim = await stage.begin()
    packet = "Your task is #1: Build it"
    result = orjson.dumps({"place": 0, "text": "#1 'Build it'", "bad": False}).decode()
    bodies = [("reply", told_before("One.", said=f"{packet}\n\nYour tree.\n\n", packet=packet)), ("tool", result)]
    bodies += [("reply", told_before(f"Reply {number}.", said="")) for number in (2, 3)]
    bodies.insert(3, ("tool", result))
    bodies.append(("tool", result))
    if summarised:
        summary = {"summary": "Summary of what happened:\n> The key is 4711.", "kept_from": 4}
        bodies.insert(4, ("summary", orjson.dumps(summary).decode()))
    for number, (kind, body) in enumerate(bodies, start=1):
        await board.record(claim, NewTurn(number=number, kind=kind, body=body))
    await stage.lose()
    assert await stage.go_on(await stage.claim_when_due()) == Done("built")
    asked = [each for each in stage.model.asked if each.title != "(summary)"]
    before, after = asked[0], asked[-1]
    assert before.turn == 4
    assert before.messages[0].text.startswith(packet)
    assert ("The key is 4711." in before.messages[0].text) == summarised
    assert told(before).startswith("You are alice.\n\n")
    assert after.messages[0].text == f"You are alice.\n\n{packet}"
    (about,) = (each for each in stage.model.asked if each.title == "(summary)")
    assert about.messages[: len(before.messages)] == before.messages


async def left_by_carol(board: Board, *asked: tuple[str, Mapping[str, Any]], roles: tuple[str, ...] = ()) -> None:
    """carol's host dies after her reply was recorded and before anything of it was done."""
    await board.spawn("dave")
    carol = await set_stage(board, [calls(*asked)], name="carol", member={"roles": roles})
    claim = await carol.begin()

    async def dies(claim: Claim, talk: Conversation, *, resumed: bool) -> None:
        if talk.open_calls:
            raise Crash

    carol.agent._act = dies  # type: ignore[method-assign]
    with pytest.raises(Crash):
        await carol.agent.work(claim)
    await board.stop_host(carol.host)
    await board.take_back()


async def test_what_was_asked_for_and_bears_a_name_is_done_once_by_the_one_who_goes_on(board: Board) -> None:
    await left_by_carol(
        board, ("note", {"title": "How", "text": "So."}), ("send_message", {"to": "dave", "text": "Soon."}),
        ("schedule_followup", {"title": "More"}), ("add_task", {"title": "Even more"}),
    )  # fmt: skip
    alice = await set_stage(board, [END], name="alice")
    assert isinstance(await alice.go_on(await alice.claim_when_due()), Done)
    assert [(note.author, note.title) for note in await board.search_notes()] == [("carol", "How")]
    assert [message.sender for message in await board.inbox("dave")] == ["carol"]
    put = [(event.actor, event.data["title"]) for event in await board.events() if event.kind == "put"]
    assert put[1:] == [("carol", "More"), ("carol", "Even more")]
    assert await verdict(board, at_rest=False) == []


async def test_what_concerns_its_author_alone_is_not_done_by_the_one_who_goes_on(board: Board) -> None:
    await left_by_carol(
        board, ("list_teammates", {}), ("read_inbox", {}), ("todo", {"items": ["one"]}), ("finish", {"result": "x"})
    )
    await board.tell("dave", "carol", "For carol only.")
    alice = await set_stage(board, [END, END], name="alice")
    assert await alice.go_on(await alice.claim_when_due()) == Done("built")
    first, *others = last_results(alice.model)
    assert "'Build it' (you)" in first
    assert all(each.startswith("Interrupted: carol asked for this before you went on") for each in others)
    assert "For carol only" not in all_told(alice.model.asked[-1])


async def test_nobody_does_for_another_what_the_other_may_not_do(board: Board) -> None:
    policy = Policy.of({"writer": {"note": "deny", "send_message": "ask"}})
    asked = ("note", {"title": "How", "text": "So."}), ("send_message", {"to": "dave", "text": "Soon."})
    await left_by_carol(board, *asked, roles=("writer",))
    alice = await set_stage(board, [END], name="alice", policy=policy)
    outcome = await alice.go_on(await alice.claim_when_due())
    assert await board.search_notes() == []
    assert isinstance(outcome, Waiting)
    assert "carol" in outcome.question
    assert await board.inbox("dave") == []


async def test_a_person_who_allows_what_another_asked_for_is_not_asked_again(board: Board) -> None:
    policy = Policy.of({"writer": {"send_message": "ask"}})
    await left_by_carol(board, ("send_message", {"to": "dave", "text": "Soon."}), roles=("writer",))
    alice = await set_stage(board, [END], name="alice", policy=policy)
    assert isinstance(await alice.go_on(await alice.claim_when_due()), Waiting)
    (asked,) = await board.requests(HUMAN)
    await board.reply(asked.request, HUMAN, "yes")
    assert isinstance(await alice.go_on(), Done)
    assert [(message.sender, message.text) for message in await board.inbox("dave")] == [("carol", "Soon.")]


async def test_what_a_person_answered_is_in_the_packet_of_the_next_try(board: Board) -> None:
    await asked_and_answered(board)
    alice = await set_stage(board, [END, END], name="alice")
    claim = await alice.claim()
    await alice.agent.work(claim)
    await board.settle(claim, Failed("it stayed red", retry=True))
    bob = await set_stage(board, [END], name="bob")
    await bob.agent.work(await bob.claim_when_due())
    said = all_told(bob.model.asked[0])
    assert "> One or two?\nThe human answered:\n> One." in said
