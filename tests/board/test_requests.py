"""Questions, plans and shutdowns: asked of one, answered once."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.errors import BadInput, DugnadError, NotReady, StoppedTeammate, UnknownRequest, UnknownTeammate
from dugnad.types import Claim, Done, Message, MessageKind, Waiting
from tests.board.crew import both, crew
from tests.board.raw import race
from tests.conftest import Opener


async def ask(board: Board, kind: MessageKind = "question", *, to: str = "bob") -> str:
    """Alice asks; the request's id."""
    for name in ("alice", "bob", "carol"):
        await board.spawn(name)
    asked = await board.tell("alice", to, "which?", kind=kind)
    assert asked.request is not None
    return asked.request


async def waiting(board: Board, *, on: str = "human", to: str = "human") -> tuple[Claim, str]:
    """A task of alice's that waits for an answer; the claim and the request's id."""
    await board.put("goal")
    team = await crew(board, "alice", "bob")
    claim = await team.must_claim()
    await board.settle(claim, Waiting(on=on, question="which?", ask=to))  # type: ignore[arg-type]
    request = (await board.find(claim.task.id)).request
    assert request is not None
    return claim, request


async def test_a_question_waits_for_its_answer(board: Board) -> None:
    request = await ask(board)
    assert [message.request for message in await board.requests("bob")] == [request]
    assert (await board.request(request))[1] is None
    answer = await board.reply(request, "bob", "this one")
    assert (answer.kind, answer.sender, answer.recipient, answer.text) == ("answer", "bob", "alice", "this one")
    assert (answer.request, answer.accepted) == (request, None)
    assert await board.requests("bob") == []
    assert (await board.request(request))[1] == answer
    assert await board.take("alice", "turn") == [answer]


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize(("kind", "reply"), [("plan", "plan_reply"), ("shutdown", "shutdown_reply")])
async def test_a_plan_or_shutdown_is_accepted_or_refused(
    board: Board, kind: MessageKind, reply: str, accepted: bool
) -> None:
    request = await ask(board, kind)
    with pytest.raises(BadInput, match="accepted or refused"):
        await board.reply(request, "bob", "hm")
    answer = await board.reply(request, "bob", "so be it", accepted=accepted)
    assert (answer.kind, answer.accepted, answer.recipient) == (reply, accepted, "alice")
    assert (await board.teammate("bob")).status == "wanted", "saying yes is not yet stopping"


async def test_the_first_reply_counts(opener: Opener) -> None:
    one, two = await opener(), await opener()
    request = await ask(one, "plan")
    first = await one.reply(request, "bob", "yes", accepted=True)
    assert await two.reply(request, "bob", "yes", accepted=True) == first, "the same again is answered with itself"
    before = await one.last_event()
    for sender, text, accepted in (("bob", "no", True), ("bob", "yes", False), ("human", "yes", True)):
        with pytest.raises(NotReady, match="already answered this"):
            await two.reply(request, sender, text, accepted=accepted)
    assert await one.last_event() == before
    assert (await one.request(request))[1] == first


async def test_of_two_replies_at_once_one_counts_and_the_other_is_refused(opener: Opener, url: str) -> None:
    one, two = await opener(), await opener()
    await ask(one)
    for number in range(5):
        asked = await one.tell("alice", "bob", f"question {number}", kind="question")
        assert asked.request is not None
        answers = await race(
            url, one.reply(asked.request, "bob", "mine"), two.reply(asked.request, "human", "no, mine")
        )
        assert sorted(type(answer).__name__ for answer in answers) == ["Message", "NotReady"]
        given = next(answer for answer in answers if isinstance(answer, Message))
        assert (await one.request(asked.request))[1] == given
    alike = await one.tell("alice", "bob", "last", kind="question")
    same = await race(url, *(board.reply(alike.request or "", "bob", "yes") for board in (one, two)))
    assert same[0] == same[1]
    assert isinstance(same[0], Message)


async def test_only_the_one_who_was_asked_or_the_human_may_answer(board: Board) -> None:
    request = await ask(board)
    for other in ("carol", "alice"):
        with pytest.raises(NotReady, match="asked of bob"):
            await board.reply(request, other, "let me")
    with pytest.raises((NotReady, UnknownTeammate)):
        await board.reply(request, "nobody", "let me")
    assert (await board.reply(request, "human", "I decide")).sender == "human"


async def test_a_reply_to_nothing_is_an_error(board: Board) -> None:
    await ask(board)
    told = await board.tell("alice", "bob", "no question", request="not a request")
    for unknown in ("never asked", told.request or ""):
        with pytest.raises(UnknownRequest):
            await board.reply(unknown, "bob", "yes")


async def test_looking_up_an_unknown_request_is_an_error_with_our_name(board: Board) -> None:
    with pytest.raises(UnknownRequest):
        await board.request("never asked")


async def test_telling_an_answer_does_not_stand_in_for_replying(board: Board) -> None:
    """Otherwise the question counts as answered, and the task that waits for it waits for ever."""
    claim, request = await waiting(board)
    for kind in ("answer", "plan_reply", "shutdown_reply"):
        with pytest.raises(DugnadError):
            await board.tell("bob", "alice", "trust me", kind=kind, request=request)  # type: ignore[arg-type]
    await board.reply(request, "human", "this one")
    assert (await board.find(claim.task.id)).state == "ready"


async def test_a_second_question_cannot_use_the_first_ones_id(board: Board) -> None:
    request = await ask(board)
    with pytest.raises(DugnadError):
        await board.tell("carol", "bob", "me too", kind="question", request=request)
    assert len(await board.requests("bob")) == 1


@pytest.mark.parametrize("on", ["human", "plan"])
async def test_a_task_that_waits_for_an_answer_becomes_ready_with_it(board: Board, on: str) -> None:
    claim, request = await waiting(board, on=on)
    (asked,) = await board.requests()
    assert (asked.request, asked.text, asked.sender, asked.task) == (request, "which?", "alice", claim.task.id)
    assert asked.kind == ("plan" if on == "plan" else "question")
    with board.watch(["ready:", "inbox:alice"]) as watch:
        await board.reply(request, "human", "this one", accepted=None if on == "human" else True)
        assert watch.changed == {"ready:", "inbox:alice"}
    task = await board.find(claim.task.id)
    assert (task.state, task.waiting_for) == ("ready", None)
    again = await board.claim("alice", claim.host)
    assert again is not None
    assert again.continues == claim.epoch
    # The task goes on with it; in the inbox it would be read in whatever conversation comes next.
    assert await board.take("alice", "turn") == []
    (_, answer) = await board.request(request)
    assert answer is not None
    assert answer.text == "this one"


async def test_a_task_may_wait_for_a_teammates_answer(board: Board) -> None:
    claim, request = await waiting(board, to="bob")
    assert await board.requests() == []
    await board.reply(request, "bob", "this one")
    assert (await board.find(claim.task.id)).state == "ready"


@pytest.mark.parametrize(("to", "error"), [("nobody", UnknownTeammate), ("bob", StoppedTeammate)])
async def test_a_task_cannot_wait_for_an_answer_nobody_will_give(
    board: Board, to: str, error: type[DugnadError]
) -> None:
    await board.put("goal")
    team = await crew(board, "alice", "bob")
    claim = await team.must_claim()
    await board.stop_teammate("bob")
    with pytest.raises(error):
        await board.settle(claim, Waiting(on="human", question="which?", ask=to))
    assert (await board.find(claim.task.id)).state == "claimed"
    assert await board.settle(claim, Done()) == "done"


async def test_what_a_task_asked_that_went_on_otherwise_needs_no_answer(board: Board) -> None:
    claim, request = await waiting(board)
    await board.release(claim.task.id)
    assert await board.requests() == []
    again = await board.claim("alice", claim.host)
    assert again is not None
    await board.settle(again, Waiting(on="human", question="or that?"))
    (asked,) = await board.requests()
    assert asked.text == "or that?"
    await board.reply(request, "human", "this one")  # Late, but no error; and no answer to what is asked now.
    assert [each.text for each in await board.requests()] == ["or that?"]


async def test_an_answer_helps_even_if_the_asker_was_stopped_meanwhile(board: Board) -> None:
    claim, request = await waiting(board)
    await board.stop_teammate("alice")
    await board.reply(request, "human", "this one")
    assert (await board.teammate("alice")).status == "stopped"
    again = await board.claim("bob", claim.host)
    assert again is not None
    assert (again.task.id, again.continues) == (claim.task.id, claim.epoch)
    assert ((await board.request(request))[1] or again).text == "this one"  # type: ignore[union-attr]


async def test_an_answer_revives_no_task_that_moved_on(board: Board) -> None:
    claim, request = await waiting(board)
    await board.cancel(claim.task.id)
    assert (await board.reply(request, "human", "too late")).text == "too late"
    assert (await board.find(claim.task.id)).state == "cancelled"


async def test_an_old_answer_does_not_end_a_later_wait(board: Board) -> None:
    claim, first = await waiting(board)
    await board.release(claim.task.id)
    again = await board.claim("bob", claim.host)
    assert again is not None
    await board.settle(again, Waiting(on="human", question="and now?"))
    await board.reply(first, "human", "the old answer")
    assert (await board.find(claim.task.id)).state == "waiting"
    (second,) = await board.requests()
    await board.reply(second.request or "", "human", "the new answer")
    assert (await board.find(claim.task.id)).state == "ready"


async def test_an_answer_and_a_cancel_at_once_leave_one_end(opener: Opener, url: str) -> None:
    one, two = await opener(), await opener()
    claim, request = await waiting(one)
    answers = await race(url, one.reply(request, "human", "go on"), two.cancel(claim.task.id))
    assert isinstance(answers[0], Message)
    assert answers[1] == [claim.task.id]
    assert (await one.find(claim.task.id)).state == "cancelled"


async def test_many_answers_in_one_batch_wake_their_own_tasks(board: Board) -> None:
    for number in range(5):
        await board.put(f"goal {number}")
    team = await crew(board, *"abcde")
    claims = [await team.must_claim(name) for name in "abcde"]
    await both(*(board.settle(claim, Waiting(on="human", question="which?")) for claim in claims))
    asked = await board.requests()
    await both(*(board.reply(each.request or "", "human", "yes") for each in asked[:3]))
    assert (await board.count_tasks()) == {"ready": 3, "waiting": 2}


async def test_what_asked_one_to_leave_is_not_read_in_its_next_life(board: Board) -> None:
    await board.spawn("alice")
    await board.tell("human", "alice", "Please leave.", kind="shutdown")
    await board.tell("human", "alice", "And thank you.")
    await board.stop_teammate("alice", by="human", reason="enough")
    await board.spawn("alice")
    assert [message.text for message in await board.inbox("alice")] == ["And thank you."]
