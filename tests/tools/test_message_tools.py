"""Talking tools, through the real loop: messages, notices, and requests that wait for an answer."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import Reply, Request
from dugnad.tools.message_tools import MADE_ROOM, RESTED
from dugnad.types import Done, Waiting
from tests.agent.stage_agent import (
    END,
    TITLE,
    Wrapped,
    all_told,
    call,
    calls,
    gave,
    last_results,
    of_task,
    result,
    results,
    set_stage,
    told,
)
from tests.board.crew import crew, meddle


async def answer(board: Board, text: str, *, accepted: bool | None = None, by: str = "human") -> None:
    """To the one thing that waits."""
    (asked,) = await board.requests(by)
    assert asked.request is not None
    await board.reply(asked.request, by, text, accepted=accepted)


async def spawn(board: Board, *names: str) -> None:
    for name in names:
        await board.spawn(name)


async def test_a_message_lies_in_the_others_inbox_with_the_task_it_is_about(board: Board) -> None:
    await board.spawn("bob")
    assert await result(board, "send_message", to="bob", text="hello") == "Sent to bob."
    (message,) = await board.inbox("bob")
    assert (message.sender, message.text, message.task, message.kind) == ("alice", "hello", 1, "text")


async def test_the_human_can_be_told_something(board: Board) -> None:
    assert await result(board, "send_message", to="human", text="hello") == "Sent to human."
    assert [message.text for message in await board.inbox()] == ["hello"]


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"to": "nobody", "text": "x"}, "There is no teammate 'nobody'"),
        ({"to": "carl", "text": "x"}, "carl was shut down"),
        ({"to": "bob", "text": "a\0b"}, "NUL"),
        ({"to": "bob", "text": "x" * (256 * 1024 + 1)}, "bytes"),
        ({"to": "bob"}, "text: Field required"),
        ({"to": ["bob"], "text": "x"}, "to: Input should be a valid string"),
    ],
)
async def test_what_is_wrong_with_a_message_is_told(board: Board, arguments: dict[str, object], wrong: str) -> None:
    await board.spawn("bob")
    await board.spawn("carl")
    await board.stop_teammate("carl")
    (text,) = await results(board, ("send_message", arguments))
    assert text.startswith("Error: ")
    assert wrong in text
    assert not await board.inbox(None)


async def test_a_broadcast_reaches_all_who_were_not_shut_down(board: Board) -> None:
    for name in ("bob", "carl", "dora"):
        await board.spawn(name)
    await board.stop_teammate("carl")
    assert await result(board, "broadcast", text="hear") == "Sent to bob, dora, human."
    assert sorted(message.recipient for message in await board.inbox(None)) == ["bob", "dora", "human"]


async def test_the_inbox_can_be_looked_into(board: Board) -> None:
    stage = await set_stage(board, [call("read_inbox"), END])
    await board.spawn("bob", lead=True)
    claim = await stage.begin()
    await board.tell("bob", "alice", "one\ntwo", task=claim.task.id)
    await stage.go_on(claim)
    assert "From bob (lead), about #1:\n> one\n> two" in told(stage.model.asked[0])
    assert gave(stage.model.asked[1]) == "Your inbox is empty."


async def test_a_message_that_was_read_with_a_tool_is_not_shown_a_second_time(board: Board) -> None:
    await board.spawn("bob")
    stage = await set_stage(board, [call("read_inbox"), call("list_tasks"), END])

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        if request.turn == 1:  # It arrives while the model thinks.
            await board.tell("bob", "alice", "only once")
        return await inner.ask(request)

    stage.agent.model = Wrapped(stage.model, ask)
    await stage.run()
    assert all_told(stage.model.asked[-1]).count("only once") == 1


async def test_teammates_are_listed_with_roles_and_what_they_do(board: Board) -> None:
    await board.spawn("bob", roles=["coder", "writer"], lead=True)
    for name, by, reason in (("carl", "human", "enough"), ("dora", "dora", RESTED), ("emma", "board", f"{MADE_ROOM}x")):
        await board.spawn(name)
        await board.stop_teammate(name, by=by, reason=reason)
    await board.spawn("fred")
    await board.fail_teammate("fred", by="fred", reason="a bug")
    team = await crew(board, "gina", "hank", "ivar", "jens")
    waited = await board.put("Wait for it")
    await board.settle(await team.must_claim("gina", task=waited.id), Waiting(on="human", question="?"))
    other = await board.put("Wait for that")
    await board.settle(await team.must_claim("hank", task=other.id), Waiting(on="tasks", tasks=(waited.id,)))
    busy = await board.put("Work")
    await team.must_claim("ivar", task=busy.id)
    lines = (await result(board, "list_teammates")).splitlines()
    assert sorted(lines) == [
        "alice (any work), on #4 'Build it' (you)",
        "bob (lead, coder, writer), joining",
        "carl (any work), shut down",
        "dora (any work), resting, comes back when there is work",
        "emma (any work), resting, comes back when there is work",
        "fred (any work), failed and left",
        "gina (any work), waits for a person",
        "hank (any work), waits for #1",
        "ivar (any work), on #3 'Work'",
        "jens (any work), free",
    ]


async def test_who_writes_to_one_that_rests_is_told_what_brings_it_back(board: Board) -> None:
    await board.spawn("bob")
    await board.stop_teammate("bob", by="bob", reason=RESTED)
    said = await result(board, "send_message", to="bob", text="hello")
    assert said == (
        "Error: bob rests and reads no messages: it left because there was nothing to do. A task for bob alone brings "
        "it back. Otherwise write to another teammate, or write a note."
    )
    assert not await board.inbox(None)


async def test_a_question_puts_the_task_down_and_the_answer_comes_back_once(board: Board) -> None:
    stage = await set_stage(board, [call("ask_human", question="Which?"), call("list_tasks"), END])
    assert await stage.run() == Waiting(on="human", question="Which?")
    assert (await board.find(1)).state == "waiting"
    assert await board.claim("alice", stage.host) is None
    assert len(stage.model.asked) == 1
    await answer(board, "The second\nFrom the human: and more")
    assert await stage.go_on() == Done("built")
    request = stage.model.asked[-1]
    assert gave(stage.model.asked[1]) == ("The human answered:\n> The second\n> From the human: and more")
    assert all_told(request).count("The second") == 1
    assert not await board.inbox("alice")
    assert len(of_task(stage.model)) == 3


async def test_an_answer_without_words_is_a_yes(board: Board) -> None:
    stage = await set_stage(board, [call("ask_human", question=""), END])
    assert await stage.run() == Waiting(on="human", question="May I go on?")
    await answer(board, "")
    await stage.go_on()
    assert last_results(stage.model) == ["The human answered:\n> yes"]


@pytest.mark.parametrize("question", [" ", "a\0b", "x" * (256 * 1024 + 1)], ids=["blank", "NUL", "too long"])
async def test_a_question_that_cannot_be_sent_is_told(board: Board, question: str) -> None:
    assert (await result(board, "ask_human", question=question)).startswith("Error: ")


async def test_two_questions_in_one_reply_are_asked_one_after_the_other(board: Board) -> None:
    stage = await set_stage(board, [calls(("ask_human", {"question": "A?"}), ("ask_human", {"question": "B?"})), END])
    assert await stage.run() == Waiting(on="human", question="A?")
    await answer(board, "a")
    assert await stage.go_on() == Waiting(on="human", question="B?")
    await answer(board, "b")
    assert await stage.go_on() == Done("built")
    assert last_results(stage.model) == ["The human answered:\n> a", "The human answered:\n> b"]
    assert len(stage.model.asked) == 2


async def test_an_answer_is_not_lost_when_the_one_who_asked_dies_with_it_in_hand(board: Board) -> None:
    stage = await set_stage(board, [call("ask_human", question="Which?"), END])
    await stage.run()
    await answer(board, "that one")
    await stage.claim()
    await stage.lose()
    assert await stage.go_on(await stage.claim_when_due()) == Done("built")
    assert last_results(stage.model) == ["The human answered:\n> that one"]


async def test_the_answer_comes_to_whoever_goes_on_with_the_task(board: Board) -> None:
    stage = await set_stage(board, [call("ask_human", question="Which?"), END])
    await stage.run()
    await answer(board, "that one")
    other = await set_stage(board, [call("ask_human", question="Which?"), END], name="bob", host=stage.host)
    assert await other.go_on() == Done("built")
    assert last_results(other.model) == ["The human answered:\n> that one"]


async def test_a_plan_goes_to_the_lead_and_comes_back_approved(board: Board) -> None:
    await board.spawn("lena", lead=True)
    stage = await set_stage(board, [call("submit_plan", plan="1. Do it."), END])
    assert await stage.run() == Waiting(on="plan", question="1. Do it.", ask="lena")
    await answer(board, "", accepted=True, by="lena")
    assert await stage.go_on() == Done("built")
    assert last_results(stage.model) == ["Approved. lena answered:\n> yes"]


async def test_a_plan_goes_to_the_human_without_a_lead_and_may_come_back_refused(board: Board) -> None:
    stage = await set_stage(board, [call("submit_plan", plan="1. Do it."), END])
    assert await stage.run() == Waiting(on="plan", question="1. Do it.", ask="human")
    await answer(board, "too risky", accepted=False)
    assert await stage.go_on() == Done("built")
    assert last_results(stage.model) == ["Not approved. The human answered:\n> too risky"]


async def test_a_leads_own_plan_goes_to_the_human(board: Board) -> None:
    stage = await set_stage(board, [call("submit_plan", plan="p"), END], member={"lead": True})
    assert await stage.run(assignee="alice") == Waiting(on="plan", question="p", ask="human")


async def test_a_plan_does_not_go_to_a_lead_that_was_shut_down(board: Board) -> None:
    await board.spawn("lena", lead=True)
    await board.stop_teammate("lena")
    stage = await set_stage(board, [call("submit_plan", plan="p"), END])
    assert await stage.run() == Waiting(on="plan", question="p", ask="human")


async def test_a_request_is_answered_by_its_id(board: Board) -> None:
    await spawn(board, "alice", "bob")
    asked = await board.tell("bob", "alice", "Shall we?", kind="question")
    stage = await set_stage(board, [call("respond", request=asked.request, accept=False, text="We shall"), END])
    await stage.run()
    assert f"Answer with respond(request={asked.request!r}, accept=true or false, text=...)." in told(
        stage.model.asked[0]
    )
    assert last_results(stage.model) == ["Answered bob's question: We shall."]
    _, reply = await board.request(str(asked.request))
    assert reply is not None
    assert (reply.sender, reply.text, reply.accepted) == ("alice", "We shall", None)


async def test_a_plan_and_a_shutdown_are_accepted_or_refused(board: Board) -> None:
    await spawn(board, "alice", "bob")
    plan = await board.tell("bob", "alice", "p", kind="plan", request="r-plan")
    stop = await board.tell("human", "alice", "stop", kind="shutdown", request="r-stop")
    accepted, refused = await results(
        board,
        ("respond", {"request": plan.request, "accept": True}),
        ("respond", {"request": stop.request, "accept": False, "text": "busy"}),
    )
    assert (accepted, refused) == ("Answered bob's plan: yes.", "Answered human's shutdown: busy.")
    verdicts = [(await board.request(str(each.request)))[1] for each in (plan, stop)]
    assert [reply and reply.accepted for reply in verdicts] == [True, False]


async def test_what_cannot_be_answered_is_told(board: Board) -> None:
    await spawn(board, "alice", "bob")
    theirs = await board.tell("human", "bob", "q", kind="question")
    done = await board.tell("bob", "alice", "q", kind="question")
    await board.reply(str(done.request), "human", "I was faster")
    texts = await results(
        board,
        ("respond", {"request": "nothing", "accept": True}),
        ("respond", {"request": theirs.request, "accept": True}),
        ("respond", {"request": done.request, "accept": True, "text": "late"}),
    )
    assert [text.startswith("Error: ") for text in texts] == [True, True, True]
    assert "That was asked of bob, not of you." in texts[1]


async def test_a_shutdown_asked_of_an_earlier_life_is_over(board: Board, url: str) -> None:
    await board.spawn("alice")
    asked = await board.tell("human", "alice", "Go.", kind="shutdown")
    await meddle(url, "UPDATE messages SET sent_at = 1")
    await board.stop_teammate("alice", by="human", reason="shut down as asked")
    (said,) = await results(board, ("respond", {"request": asked.request, "accept": True}))
    assert "That was asked before you were spawned again; it is over." in said
    assert (await board.find(1)).state == "done"  # It went on.


async def test_a_second_answer_that_says_something_else_is_not_told_as_given(board: Board) -> None:
    await spawn(board, "alice", "bob")
    asked = await board.tell("bob", "alice", "p", kind="plan")
    first, second = await results(
        board,
        ("respond", {"request": asked.request, "accept": True}),
        ("respond", {"request": asked.request, "accept": False, "text": "no, wait"}),
    )
    assert first == "Answered bob's plan: yes."
    assert second.startswith("Error: ")


async def test_a_task_that_waits_lets_its_teammate_work_on_others(board: Board) -> None:
    stage = await set_stage(board, [call("ask_human", question="Ok?"), END])
    await board.put(TITLE, priority=1)
    await board.put("Other")
    worked = await stage.drain()
    assert [(claim.task.id, type(outcome)) for claim, outcome in worked] == [(1, Waiting), (2, Done)]
    await answer(board, "ok")
    assert [type(outcome) for _, outcome in await stage.drain()] == [Done]


async def test_a_message_can_be_for_everyone(board: Board) -> None:
    await board.spawn("bob")
    (text,) = await results(board, ("send_message", {"to": "everyone", "text": "Look."}))
    assert text == "Sent to bob, human."
    assert [each.text for each in await board.inbox("bob")] == ["Look."]


async def test_a_message_to_the_lead_needs_no_name(board: Board) -> None:
    await board.spawn("lena", lead=True)
    (text,) = await results(board, ("send_message", {"to": "lead", "text": "Look."}))
    assert text == "Sent to lena."


async def test_a_lead_does_not_write_to_itself(board: Board) -> None:
    stage = await set_stage(
        board, [call("send_message", to="lead", text="Look."), END], name="lena", member={"lead": True}
    )
    await stage.run(assignee="lena")
    assert last_results(stage.model)[0].startswith("Error: There is no lead to write to")


async def test_a_lead_that_left_is_not_written_to(board: Board) -> None:
    await board.spawn("lena", lead=True)
    await board.stop_teammate("lena")
    (text,) = await results(board, ("send_message", {"to": "lead", "text": "Look."}))
    assert text.startswith("Error: There is no lead to write to")


async def test_a_teammate_with_such_a_name_is_the_one_who_is_meant(board: Board) -> None:
    await board.spawn("everyone")
    await board.spawn("bob")
    assert await results(board, ("send_message", {"to": "everyone", "text": "Look."})) == ["Sent to everyone."]
    assert not await board.inbox("bob")


async def test_a_teammate_that_was_shut_down_cannot_be_written_to_and_the_advice_can_be_followed(board: Board) -> None:
    await board.spawn("bob")
    await board.stop_teammate("bob")
    (text,) = await results(board, ("send_message", {"to": "bob", "text": "Look."}))
    assert text == (
        'Error: bob was shut down and reads no messages. Write to another teammate or to "human", or write a note.'
    )
