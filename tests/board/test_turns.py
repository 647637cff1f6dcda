"""What happens in an attempt is recorded as it happens, in order, once."""

from __future__ import annotations

import json

import pytest

from dugnad.board import Board
from dugnad.errors import BadInput, BadText, DugnadError, StaleClaim
from dugnad.settings import Limits
from dugnad.types import Amount, Budget, Claim, Done, Failed, NewTurn, Waiting
from tests.board.crew import Crew, both, crew
from tests.board.raw import lapse
from tests.board.topics import change
from tests.conftest import Opener

# Everything text can hold: other planes, joiners, line separators, controls, what is not a character at all.
STRANGE = "".join(
    map(chr, [*range(1, 0x300), 0x2028, 0x2029, 0x200D, 0xFEFF, 0xFFFD, 0xFFFE, 0xFFFF, 0x1F600, 0x10FFFF])
)
BODIES = [
    pytest.param(STRANGE, id="all kinds of characters"),
    pytest.param(json.dumps({"text": "\0 and \ud800", "deep": json.dumps("\0")}), id="escapes inside JSON text"),
    pytest.param('{"path": "C:\\\\u0000", "quote": "\\""}', id="backslashes"),
    pytest.param("\\u0000 \\ud83d \\x00 % _ ' \" \\", id="not JSON at all"),
    pytest.param("e\u0301 \u00e9 \u212b \u00c5 ﬁ", id="not normalised"),
    pytest.param("", id="empty"),
    pytest.param("1e400 null 12345678901234567890.10", id="numbers"),
]


async def held(board: Board) -> tuple[Crew, Claim]:
    await board.put("goal", budget=Budget(tokens=1_000))
    team = await crew(board)
    return team, await team.must_claim()


def turn(number: int, body: str = "{}", **fields: object) -> NewTurn:
    return NewTurn(**{"number": number, "kind": "reply", "body": body, **fields})  # type: ignore[arg-type]


async def test_turns_are_read_back_as_they_were_recorded_in_order(board: Board) -> None:
    _, claim = await held(board)
    kinds = ["request", "reply", "tool", "tool", "summary"]
    used = Amount(tokens=1, microdollars=2, milliseconds=3)
    for number, kind in enumerate(kinds, start=1):
        assert await board.record(claim, turn(number, f'{{"n": {number}}}', kind=kind, used=used)) == number
    found = await board.transcript(claim.task.id, claim.epoch)
    assert [(each.number, each.kind, each.body) for each in found] == [
        (number, kind, f'{{"n": {number}}}') for number, kind in enumerate(kinds, start=1)
    ]
    assert {(each.task, each.epoch, each.used, each.covers) for each in found} == {
        (claim.task.id, claim.epoch, used, None)
    }


async def test_a_long_transcript_is_read_page_by_page(board: Board) -> None:
    _, claim = await held(board)
    await both(*(board.record(claim, turn(number, str(number))) for number in range(25, 0, -1)))
    found: list[int] = []
    while page := await board.transcript(claim.task.id, claim.epoch, after=found[-1] if found else 0, page=10):
        assert len(page) <= 10
        found += [each.number for each in page]
    assert found == list(range(1, 26))


@pytest.mark.parametrize("body", BODIES)
async def test_any_text_survives_the_round_trip(board: Board, body: str) -> None:
    _, claim = await held(board)
    await board.record(claim, turn(1, body))
    assert (await board.transcript(claim.task.id, claim.epoch))[0].body == body
    await board.hand_over(claim, body)
    assert (await board.attempts(claim.task.id))[0].handover == body


async def test_the_same_turn_twice_is_one(opener: Opener) -> None:
    one, two = await opener(), await opener()
    _, claim = await held(one)
    key = await one.reserve(claim, Amount(tokens=10))
    same = turn(1, "{}", used=Amount(tokens=4), reservation=key)
    for board in (one, two, one):
        assert await board.record(claim, same) == 1
    assert await both(*(board.record(claim, turn(2)) for board in (one, two, one, two))) == [2, 2, 2, 2]
    assert [each.number for each in await two.transcript(claim.task.id, claim.epoch)] == [1, 2]
    assert (await two.budget(claim.task.root)).spent.tokens == 4
    assert [event.kind for event in await one.events()].count("turn") == 2


@pytest.mark.parametrize("other", [turn(1, "otherwise"), turn(1, "first", kind="tool")], ids=["body", "kind"])
async def test_another_turn_under_the_same_number_is_refused(board: Board, other: NewTurn) -> None:
    _, claim = await held(board)
    await board.record(claim, turn(1, "first"))
    before = await board.last_event()
    with pytest.raises(BadInput, match="already recorded"):
        await board.record(claim, other)
    assert await board.last_event() == before
    assert (await board.transcript(claim.task.id, claim.epoch))[0].body == "first"


@pytest.mark.parametrize("there", [False, True], ids=["both new", "one there already"])
async def test_two_different_turns_under_one_number_at_once_are_one_and_a_refusal(board: Board, there: bool) -> None:
    _, claim = await held(board)
    if there:
        await board.record(claim, turn(1, "first"))
    answers = await both(board.record(claim, turn(1, "first")), board.record(claim, turn(1, "second")))
    assert answers[0] == 1
    assert isinstance(answers[1], BadInput), "its body is nowhere, so it must not hear that it is recorded"


async def test_two_boards_cannot_record_two_turns_under_one_number(opener: Opener) -> None:
    one, two = await opener(), await opener()
    _, claim = await held(one)
    for number in range(1, 11):
        answers = await both(one.record(claim, turn(number, "one")), two.record(claim, turn(number, "two")))
        assert sorted(str(isinstance(answer, BadInput)) for answer in answers) == ["False", "True"]
        kept = (await one.transcript(claim.task.id, claim.epoch))[-1].body
        assert kept == ("two" if isinstance(answers[0], BadInput) else "one")


async def test_a_summary_covers_a_range_and_deletes_nothing(board: Board) -> None:
    _, claim = await held(board)
    for number in range(1, 5):
        await board.record(claim, turn(number))
    await board.record(claim, turn(5, "in short", kind="summary", covers=(1, 4)))
    found = await board.transcript(claim.task.id, claim.epoch)
    assert [each.number for each in found] == [1, 2, 3, 4, 5]
    assert [each.covers for each in found] == [None] * 4 + [(1, 4)]


async def test_a_turn_and_its_cost_are_one_transaction(board: Board) -> None:
    _, claim = await held(board)
    key = await board.reserve(claim, Amount(tokens=10))
    before = await board.last_event()
    await board.record(claim, turn(1, used=Amount(tokens=7), reservation=key))
    events = await board.events(before)
    assert sorted(event.kind for event in events) == ["spent", "turn"]
    with pytest.raises(DugnadError):
        await board.record(claim, turn(2, used=Amount(tokens=7), reservation="no such key"))
    assert len(await board.transcript(claim.task.id, claim.epoch)) == 1
    account = await board.budget(claim.task.root)
    assert (account.spent.tokens, account.reserved.tokens) == (7, 0)


async def test_one_reservation_settled_by_two_turns_at_once_is_settled_once(board: Board) -> None:
    _, claim = await held(board)
    key = await board.reserve(claim, Amount(tokens=10))
    await both(*(board.record(claim, turn(n, used=Amount(tokens=10), reservation=key)) for n in (1, 2)))
    account = await board.budget(claim.task.root)
    assert (account.spent.tokens, account.reserved.tokens) == (10, 0)


async def test_a_turn_marks_the_messages_it_shows_and_only_its_own(board: Board) -> None:
    _, claim = await held(board)
    await board.spawn("bob")
    mine, other = await board.tell("human", "alice", "hello"), await board.tell("human", "bob", "hello")
    assert [message.id for message in await board.take("alice", "first turn")] == [mine.id]
    await board.record(claim, turn(1, shown=(mine.id, other.id)))
    assert (await board.inbox("alice", queued=False))[0].shown_at is not None
    assert (await board.inbox("bob", queued=False))[0].shown_at is None
    assert await board.take("alice", "second turn") == []
    await board.record(claim, turn(2, shown=(mine.id,)))
    assert [event.kind for event in await board.events()].count("shown") == 1


async def test_a_refused_turn_shows_no_message(board: Board) -> None:
    _, claim = await held(board)
    told = await board.tell("human", "alice", "hello")
    await board.release(claim.task.id)
    with pytest.raises(StaleClaim):
        await board.record(claim, turn(1, shown=(told.id,)))
    assert [message.id for message in await board.take("alice", "again")] == [told.id]


async def test_what_was_handed_over_is_there_for_later_attempts(board: Board) -> None:
    team, claim = await held(board)
    await board.hand_over(claim, '{"so far": 1}')
    await board.hand_over(claim, '{"so far": 2}')
    await board.settle(claim, Failed("no", retry=True))
    (first,) = await board.attempts(claim.task.id)
    assert (first.handover, first.ended_as, first.reason) == ('{"so far": 2}', "retry", "no")
    while (again := await team.claim()) is None:
        await change(board, ["ready:"], 5)
    await board.settle(again, Done("ok"), handover="the end")
    assert [(each.number, each.handover) for each in await board.attempts(claim.task.id)] == [
        (1, '{"so far": 2}'),
        (2, "the end"),
    ]


async def test_what_a_lost_holder_handed_over_is_kept(board: Board, url: str) -> None:
    team, claim = await held(board)
    await board.hand_over(claim, "half way")
    await lapse(url, team.host)
    await board.take_back()
    (attempt,) = await board.attempts(claim.task.id)
    assert (attempt.handover, attempt.ended_as) == ("half way", "lost")


async def test_each_attempt_has_its_own_transcript(board: Board) -> None:
    team, claim = await held(board)
    await board.record(claim, turn(1, "asked"))
    await board.settle(claim, Waiting(on="human", question="which?"))
    await board.reply((await board.requests())[0].request or "", "human", "this one")
    again = await team.must_claim()
    assert again.continues == claim.epoch
    await board.record(again, turn(1, "went on"))
    bodies = [[each.body for each in await board.transcript(claim.task.id, c.epoch)] for c in (claim, again)]
    assert bodies == [["asked"], ["went on"]]


async def test_a_stale_claim_records_and_hands_over_nothing(board: Board) -> None:
    _, claim = await held(board)
    await board.record(claim, turn(1))
    await board.cancel(claim.task.id)
    before = await board.last_event()
    with pytest.raises(StaleClaim):
        await board.record(claim, turn(2))
    with pytest.raises(StaleClaim):
        await board.hand_over(claim, "too late")
    assert await board.last_event() == before
    assert len(await board.transcript(claim.task.id, claim.epoch)) == 1


async def test_one_stale_holder_in_a_batch_does_not_harm_the_others(board: Board) -> None:
    await board.put("first")
    await board.put("second")
    team = await crew(board, "alice", "bob")
    stale, sound = await team.must_claim("alice"), await team.must_claim("bob")
    await board.release(stale.task.id)
    answers = await both(*(board.record(claim, turn(n)) for n in (1, 2) for claim in (stale, sound)))
    assert [type(answer) for answer in answers] == [StaleClaim, int, StaleClaim, int]
    assert len(await board.transcript(sound.task.id, sound.epoch)) == 2


@pytest.mark.parametrize("body", ["a NUL \0", "half a pair \ud83d", "x" * 101, "é" * 51])
async def test_what_cannot_be_stored_is_refused_before_anything_happens(opener: Opener, body: str) -> None:
    board = await opener(limits=Limits(turn_bytes_max=100, body_bytes_max=100))
    _, claim = await held(board)
    before = await board.last_event()
    with pytest.raises(BadText):
        await board.record(claim, turn(1, body))
    with pytest.raises(BadText):
        await board.hand_over(claim, body)
    assert await board.last_event() == before


async def test_a_turn_as_large_as_allowed_is_kept(board: Board) -> None:
    _, claim = await held(board)
    body = "å" * (board.limits.turn_bytes_max // 2)
    await board.record(claim, turn(1, body))
    assert (await board.transcript(claim.task.id, claim.epoch))[0].body == body


@pytest.mark.parametrize(
    "bad",
    [turn(0), turn(-1), turn(2**40), turn(1, kind="no such kind"), turn(1, kind="summary", covers=(4, 2))],
    ids=["zero", "negative", "huge", "kind", "backwards"],
)
async def test_a_turn_that_cannot_be_right_is_refused_as_bad_input(board: Board, bad: NewTurn) -> None:
    _, claim = await held(board)
    with pytest.raises(BadInput):
        await board.record(claim, bad)
