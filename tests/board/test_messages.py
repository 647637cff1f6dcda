"""Inboxes: sent once, read in order, shown once, never lost, and never a way to wake the stopped."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.errors import BadInput, BadText, StaleClaim, StoppedTeammate, UnknownTeammate
from dugnad.settings import Limits
from dugnad.types import Message, NewTurn
from tests.board.crew import both, crew
from tests.board.raw import assert_refused, race
from tests.conftest import Opener


async def trio(board: Board) -> None:
    for name in ("alice", "bob", "carol"):
        await board.spawn(name)


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


async def test_a_message_lies_in_the_inbox_until_it_is_shown(board: Board) -> None:
    await trio(board)
    task = await board.put("goal")
    told = await board.tell("alice", "bob", "hello", task=task.id)
    assert (told.sender, told.recipient, told.kind, told.text) == ("alice", "bob", "text", "hello")
    assert (told.task, told.request, told.accepted, told.shown_at) == (task.id, None, None, None)
    assert await board.inbox("bob") == [told]
    assert await board.take("bob", "turn 1") == [told]
    assert await board.inbox("bob") == [told], "taken is not shown"
    await board.show("bob", [told.id])
    assert await board.inbox("bob") == []
    (receipt,) = await board.inbox("bob", queued=False)
    assert receipt.shown_at is not None
    assert await board.take("bob", "turn 2") == []


async def test_the_human_has_an_inbox_from_the_start(board: Board) -> None:
    await trio(board)
    told = await board.tell("alice", "human", "look at this")
    assert await board.inbox() == [told]
    assert await board.take("human", "web") == [told]
    await board.show("human", [told.id])
    assert await board.inbox() == []


async def test_a_broadcast_reaches_all_but_the_sender_and_the_stopped(board: Board) -> None:
    await trio(board)
    await board.spawn("dave")
    await board.stop_teammate("carol")
    await board.fail_teammate("dave", by="host", reason="bug")
    sent = await board.broadcast("alice", "lunch", key="lunch")
    assert [message.recipient for message in sent] == ["bob", "human"]
    await board.spawn("erin")
    assert await board.broadcast("alice", "lunch", key="lunch") == sent, "the same key is the same call"
    assert await board.inbox("erin") == []
    assert [message.recipient for message in await board.broadcast("human", "work")] == ["alice", "bob", "erin"]
    for name in ("carol", "dave"):
        assert await board.inbox(name, queued=False) == []


async def test_a_message_with_the_same_key_is_sent_once(opener: Opener, url: str) -> None:
    one, two = await opener(), await opener()
    await trio(one)
    first = await one.tell("alice", "bob", "hello", key="greeting")
    assert await two.tell("alice", "bob", "hello", key="greeting") == first
    racing = await race(url, *(board.tell("alice", "bob", "again", key="second") for board in (one, two)))
    assert isinstance(racing[0], Message)
    assert racing[0] == racing[1]
    assert texts(await one.inbox("bob")) == ["hello", "again"]
    assert [event.kind for event in await one.events()].count("told") == 2


async def test_messages_are_taken_shutdown_first_then_human_lead_peers_and_by_age(board: Board) -> None:
    await trio(board)
    await board.spawn("lee", lead=True)
    for sender, text in (("bob", "peer 1"), ("lee", "lead 1"), ("human", "human 1"), ("carol", "peer 2")):
        await board.tell(sender, "alice", text)
    await board.tell("bob", "alice", "peer shutdown", kind="shutdown")
    for sender, text in (("lee", "lead 2"), ("human", "human 2")):
        await board.tell(sender, "alice", text)
    await board.tell("lee", "alice", "lead shutdown", kind="shutdown")
    order = ["peer shutdown", "lead shutdown", "human 1", "human 2", "lead 1", "lead 2", "peer 1", "peer 2"]
    assert texts(await board.take("alice", "all")) == order
    assert texts(await board.take("alice", "some", count=3)) == order[:3], "the first in reading order, not the oldest"


async def test_the_same_take_gives_the_same_messages_whatever_came_since(board: Board) -> None:
    await trio(board)
    await board.tell("bob", "alice", "first")
    taken = await board.take("alice", "turn 1")
    await board.tell("human", "alice", "second")
    assert await board.take("alice", "turn 1") == taken
    assert texts(await board.take("alice", "turn 2")) == ["second", "first"]


async def test_what_was_taken_but_not_shown_before_a_crash_is_given_again(board: Board) -> None:
    team = await crew(board, "alice")
    await board.put("goal")
    claim = await team.must_claim()
    for text in ("first", "second", "third"):
        await board.tell("human", "alice", text)
    taken = await board.take("alice", "before the crash", count=2)
    assert texts(taken) == ["first", "second"]
    again = await board.take("alice", "after the crash")
    assert texts(again) == ["first", "second", "third"]
    await board.record(claim, NewTurn(number=1, kind="request", body="{}", shown=(again[0].id,)))
    assert texts(await board.take("alice", "later")) == ["second", "third"]


async def test_two_takes_at_once_lose_nothing_and_what_is_shown_is_shown_once(opener: Opener, url: str) -> None:
    one, two = await opener(), await opener()
    await trio(one)
    for number in range(10):
        await one.tell("bob", "alice", str(number))
    same = await both(*(board.take("alice", "the same") for board in (one, two)))
    assert same[0] == same[1]
    assert len(same[0]) == 10
    taken = await both(one.take("alice", "one"), two.take("alice", "two"))
    assert {message.id for part in taken for message in part} == {message.id for message in same[0]}
    ids = [message.id for message in same[0]]
    await race(url, one.show("alice", ids), two.show("alice", ids))
    shown = [event.data["messages"] for event in await one.events() if event.kind == "shown"]
    assert shown == [ids], "one receipt for each"
    assert await one.take("alice", "third") == []


async def test_one_cannot_mark_anothers_messages_as_shown(board: Board) -> None:
    await trio(board)
    told = await board.tell("human", "alice", "for alice")
    await board.show("bob", [told.id])
    await board.show("alice", [])
    assert await board.inbox("alice") == [told]


async def test_an_unknown_recipient_or_sender_is_an_error(board: Board) -> None:
    await trio(board)
    before = await board.last_event()
    for call in (
        board.tell("alice", "nobody", "hello"),
        board.tell("nobody", "alice", "hello"),
        board.broadcast("nobody", "hello"),
        board.take("nobody", "key"),
    ):
        with pytest.raises(UnknownTeammate, match="nobody"):
            await call
    assert await board.last_event() == before


@pytest.mark.parametrize("how", ["stopped", "failed"])
async def test_a_message_never_revives_a_teammate_that_was_shut_down(board: Board, how: str) -> None:
    await trio(board)
    if how == "stopped":
        await board.stop_teammate("bob")
    else:
        await board.fail_teammate("bob", by="host", reason="bug")
    for kind in ("text", "question", "plan", "shutdown"):
        with pytest.raises(StoppedTeammate, match="bob"):
            await board.tell("human", "bob", "wake up", kind=kind)
    await board.broadcast("human", "wake up, all")
    assert (await board.teammate("bob")).status == how
    assert await board.inbox("bob", queued=False) == []


async def test_what_lay_in_the_inbox_when_it_was_stopped_is_read_when_it_is_back(board: Board) -> None:
    await trio(board)
    await board.tell("human", "bob", "before")
    await board.stop_teammate("bob")
    await board.spawn("bob")
    await board.tell("human", "bob", "after")
    assert texts(await board.take("bob", "back")) == ["before", "after"]


async def test_a_message_and_a_stop_at_once_have_an_order(opener: Opener, url: str) -> None:
    one, two = await opener(), await opener()
    for turn in range(6):
        name = f"mate{turn}"
        await one.spawn(name)
        calls = [one.tell("human", name, "hello"), two.stop_teammate(name)]
        told = (await race(url, *(calls if turn % 2 else calls[::-1])))[0 if turn % 2 else 1]
        order = [e.kind for e in await one.events() if name in (e.data.get("name"), e.data.get("to"))]
        if isinstance(told, Message):
            assert order == ["spawned", "told", "stopped_teammate"]
        else:
            assert isinstance(told, StoppedTeammate)
            assert order == ["spawned", "stopped_teammate"]


async def test_a_stale_claim_tells_nothing(board: Board) -> None:
    team = await crew(board, "alice", "bob")
    await board.put("goal")
    claim = await team.must_claim()
    told = await board.tell("alice", "bob", "in time", claim=claim)
    assert told.task == claim.task.id
    await board.release(claim.task.id)
    with pytest.raises(StaleClaim):
        await board.tell("alice", "bob", "late", claim=claim)
    with pytest.raises(StaleClaim):
        await board.broadcast("alice", "late", claim=claim)
    assert texts(await board.inbox("bob")) == ["in time"]
    assert await board.inbox("human") == []


@pytest.mark.parametrize("text", ["a NUL \0", "half a pair \ude00", "é" * 51])
async def test_text_that_cannot_be_stored_is_refused(opener: Opener, text: str) -> None:
    board = await opener(limits=Limits(body_bytes_max=100))
    await trio(board)
    asked = await board.tell("alice", "bob", "which?", kind="question")
    for call in (
        board.tell("alice", "bob", text),
        board.broadcast("alice", text),
        board.reply(asked.request or "", "bob", text),
    ):
        with pytest.raises(BadText):
            await call
    assert texts(await board.inbox("bob")) == ["which?"]


@pytest.mark.parametrize("bad", ["a\0b", "a\ud800b"], ids=["NUL", "half a pair"])
async def test_a_name_or_key_that_is_no_text_is_refused_by_our_name_for_it(board: Board, bad: str) -> None:
    await trio(board)
    for call in (
        board.tell(bad, "bob", "x"),
        board.tell("alice", bad, "x"),
        board.tell("alice", "bob", "x", request=bad),
        board.tell("alice", "bob", "x", key=bad),
        board.take(bad, "key"),
        board.take("alice", bad),
        board.reply(bad, "human", "x"),
    ):
        await assert_refused(call)


async def test_a_message_of_an_unknown_kind_is_refused(board: Board) -> None:
    await trio(board)
    with pytest.raises(BadInput):
        await board.tell("alice", "bob", "x", kind="gossip")  # type: ignore[arg-type]


async def test_any_text_survives(board: Board) -> None:
    await trio(board)
    strange = "\u0001\n\t\\u0000 'quoted' \"twice\" % _ \U0001f600 \u2028 $1 ?1 :name"
    await board.tell("alice", "bob", strange)
    assert texts(await board.take("bob", "key")) == [strange]


async def test_an_inbox_is_read_page_by_page_and_all_inboxes_at_once(board: Board) -> None:
    await trio(board)
    sent = [await board.tell("human", name, str(n)) for n in range(4) for name in ("alice", "bob")]
    assert await board.inbox(None) == sent
    first = await board.inbox(None, page=5)
    assert first + await board.inbox(None, after=first[-1].id, page=5) == sent
    assert texts(await board.inbox("bob", after=sent[3].id)) == ["2", "3"]
