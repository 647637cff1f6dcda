"""A client that works by itself is a teammate like any other: it claims, finishes, asks, and loses what it loses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.errors import ModelMisconfigured
from dugnad.settings import TeamLimits
from dugnad.types import Budget, Task
from tests.mcp.clients import HANGS, hosting, state_of


async def test_a_client_takes_a_task_and_finishes_it(board: Board) -> None:
    task = await board.put("Write it", body="In plain words.")
    async with hosting(board) as host:
        client = await host()
        given = await client("next_task")
        assert given.held == {"task": task.id, "epoch": 1}
        assert "> In plain words." in given
        ended = await client("finish", **given.held, result="It is written.")
    assert not ended.refused
    assert f"#{task.id} is over" in ended
    found = await board.find(task.id)
    assert (found.state, found.result, found.teammate) == ("done", "It is written.", "claude")


async def test_next_task_tells_the_task_again_to_a_client_that_forgot_it(board: Board) -> None:
    await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        first = await client("next_task")
        assert (await client("next_task")).text == first.text


async def test_nothing_yet_is_no_error(board: Board) -> None:
    async with hosting(board, wait_seconds=0.1) as host:
        client = await host()
        found = await client("next_task")
    assert "Nothing yet" in found
    assert not found.refused


async def test_nobody_claims_for_a_client_that_does_not_ask(board: Board) -> None:
    async with hosting(board) as host:
        client = await host()
        task = await board.put("Write it")
        await client("tasks")
        assert (await board.find(task.id)).state == "ready"
        waiting = asyncio.create_task(client.works())
        await state_of(board, task.id, "claimed")
        assert (await waiting)["task"] == task.id


async def test_a_task_wakes_a_client_that_asks_and_not_one_that_does_not(board: Board) -> None:
    async with hosting(board, wait_seconds=HANGS) as host:
        await host("idle")
        busy = await host("busy")
        waiting = asyncio.create_task(busy("next_task"))
        async with asyncio.timeout(HANGS):
            while not busy.seat.client.asking:  # noqa: ASYNC110  Nothing else tells.
                await asyncio.sleep(0)
        await board.put("Write it")
        assert (await waiting).held


async def test_a_red_check_is_the_answer_and_the_claim_lives_on(board: Board) -> None:
    said: list[str | None] = ["1 test failed", None]

    async def check(task: Task) -> str | None:
        return said.pop(0)

    task = await board.put("Write it", check="make test")
    async with hosting(board, check=check) as host:
        client = await host()
        held = await client.works()
        red = await client("finish", **held, result="Done.")
        assert "> 1 test failed" in red
        assert not red.refused
        assert (await board.find(task.id)).epoch == held["epoch"]
        assert not (await client("progress", **held, text="Mending.")).refused
        assert "is over" in await client("finish", **held, result="Done.")
    assert (await board.find(task.id)).state == "done"
    assert (await board.budget(task.id)).runs == 1


async def test_a_check_that_stays_red_ends_the_attempt(board: Board) -> None:
    async def check(task: Task) -> str | None:
        return "still red"

    task = await board.put("Write it", check="make test")
    async with hosting(board, check=check, limits=TeamLimits(check_rounds_max=1)) as host:
        client = await host()
        held = await client.works()
        assert "still red" in await client("finish", **held, result="Done.")
        assert "you do not hold it any more" in await client("finish", **held, result="Done.")
    assert (await board.find(task.id)).tries == 1


async def test_the_same_finish_again_is_the_same_finish(board: Board) -> None:
    release = asyncio.Event()
    checks = 0

    async def check(task: Task) -> str | None:
        nonlocal checks
        checks += 1
        await release.wait()
        return None

    task = await board.put("Write it", check="make test")
    async with hosting(board, check=check, wait_seconds=0.3) as host:
        client = await host()
        held = await client.works()
        assert "still being checked" in await client("finish", **held, result="Done.")
        assert "still being checked" in await client("finish", **held, result="Done.")
        other = await client("finish", **held, result="Something else.")
        assert other.refused
        assert "being checked with what you gave to finish first" in other
        release.set()
        while "still being checked" in (ended := await client("finish", **held, result="Done.")):
            pass
        assert "is over" in ended
        assert (await client("finish", **held, result="Done.")).text == ended.text
    assert (await board.find(task.id)).result == "Done."
    assert checks == 1


async def test_an_old_epoch_is_refused_whatever_the_call(board: Board) -> None:
    task = await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        old = {"task": held["task"], "epoch": held["epoch"] + 5}
        for tool, more in (
            ("finish", {"result": "x"}),
            ("progress", {"text": "x"}),
            ("ask_human", {"question": "x"}),
            ("add_task", {"title": "x"}),
            ("note", {"title": "x", "text": "x"}),
            ("message", {"to": "human", "text": "x"}),
        ):
            found = await client(tool, **old, **more)
            assert found.refused, tool
            assert f"You do not hold #{task.id} with epoch {old['epoch']}" in found
        assert await board.search_notes() == []
        assert await board.inbox() == []
        assert "is over" in await client("finish", **held, result="Done.")


async def test_a_question_puts_the_task_down_and_the_answer_comes_with_it(board: Board) -> None:
    task = await board.put("Paint it")
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        asked = await client("ask_human", **held, question="Which colour?")
        assert "> Which colour?" in asked
        assert (await board.find(task.id)).state == "waiting"
        assert (await client("finish", **held, result="Red.")).refused
        (question,) = await board.requests()
        assert question.request is not None
        await board.reply(question.request, "human", "Blue.")
        again = await client("next_task")
        assert again.held["epoch"] > held["epoch"]
        assert "> Blue." in again.text.replace("> > ", "> ")
        assert "is over" in await client("finish", **again.held, result="It is blue.")
    assert (await board.find(task.id)).result == "It is blue."


async def test_a_task_may_wait_for_a_follow_up(board: Board) -> None:
    task = await board.put("Build it")
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        assert "'Saw the wood'" in await client("add_task", **held, title="Saw the wood")
        (child,) = [each for each in await board.list_tasks() if each.parent == task.id]
        waits = await client("finish", **held, how="waiting", wait_for=[str(child.id)])
        assert f"waits for #{child.id}" in waits
        held = await client.works()
        assert held["task"] == child.id
        await client("finish", **held, result="Sawn.")
        again = await client("next_task")
        assert again.held["task"] == task.id
        assert "Sawn." in again
        await client("finish", **again.held, result="Built.")
    assert {each.state for each in await board.list_tasks()} == {"done"}


@pytest.mark.parametrize(("how", "state"), [("failed", "failed"), ("released", "ready")])
async def test_a_client_may_fail_a_task_or_give_it_back(board: Board, how: str, state: str) -> None:
    task = await board.put("Square the circle")
    async with hosting(board) as host:
        client = await host()
        ended = await client("finish", **await client.works(), how=how, result="It cannot be done.")
        assert "you do not hold it any more" in ended
        found = await state_of(board, task.id, state)
    assert "It cannot be done." in (found.reason or "")


async def test_messages_come_with_the_answers_and_only_once(board: Board) -> None:
    await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        await board.tell("human", "claude", "Use short words.")
        first = await client("progress", **held, text="Writing.")
        assert "> Use short words." in first
        assert "Use short words." not in await client("progress", **held, text="Still writing.")
        assert not await board.has_unread("claude")


async def test_a_message_to_a_client_without_a_task_becomes_its_next_task(board: Board) -> None:
    async with hosting(board) as host:
        client = await host()
        await board.tell("human", "claude", "How is it going?")
        assert "unread messages" in await client("tasks")
        given = await client("next_task")
        assert "> How is it going?" in given
        await client("finish", **given.held, result="It goes well.")
        (answer,) = await board.inbox()
    assert (answer.sender, answer.text) == ("claude", "It goes well.")


async def test_a_request_is_answered_with_a_message(board: Board) -> None:
    await board.spawn("boss", lead=True)
    await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        asked = await board.tell("boss", "claude", "Shall we ship?", kind="question")
        assert f"message(request='{asked.request}'" in await client("progress", **held, text="Writing.")
        assert "Sent" not in await client("message", **held, request=asked.request, text="Yes.")
        (answer,) = await board.inbox("boss")
    assert answer.text == "Yes."


class TestBudgets:
    async def test_a_client_that_does_not_report_gets_no_task_under_a_cap_in_dollars(self, board: Board) -> None:
        dear = await board.put("Dear", budget=Budget(dollars=1.0))
        async with hosting(board, wait_seconds=0.2) as host:
            client = await host()
            for _ in range(2):
                found = await client("next_task")
                assert "cap in dollars" in found
                assert not found.refused
            cheap = await board.put("Cheap")
            assert (await client.works())["task"] == cheap.id
        assert (await board.budget(dear.id)).runs == 0

    async def test_a_client_that_reports_must_say_what_it_cost(self, board: Board) -> None:
        dear = await board.put("Dear", budget=Budget(dollars=1.0))
        async with hosting(board) as host:
            client = await host()
            held = await client.works(reports_cost=True)
            assert "Call this again with dollars" in await client("finish", **held, result="Done.")
            assert "is over" in await client("finish", **held, result="Done.", dollars=0.25, tokens=1_000)
        spent = (await board.budget(dear.id)).spent
        assert (spent.microdollars, spent.tokens) == (250_000, 1_000)

    async def test_tokens_that_are_not_reported_count_as_the_most_they_can_be(self, board: Board) -> None:
        task = await board.put("Write it", budget=Budget(tokens=50_000))
        async with hosting(board) as host:
            client = await host()
            await client("finish", **await client.works(), result="Done.")
        assert (await board.budget(task.id)).spent.tokens == 50_000

    async def test_a_spent_budget_lets_the_task_wait(self, board: Board) -> None:
        task = await board.put("Write it", budget=Budget(tokens=10_000))
        await board.put("More", parent=task.id)
        async with hosting(board, wait_seconds=0.5) as host:
            client = await host()
            await client("finish", **await client.works(), result="Done.", tokens=10_000)
            found = await client("next_task")
        assert "Nothing yet" in found


class TestPolicies:
    async def test_what_is_denied_is_refused(self, board: Board) -> None:
        await board.put("Write it")
        async with hosting(board, policies={"add_tasks": "deny", "note": "deny"}) as host:
            client = await host()
            held = await client.works()
            for found in (await client("add_task", title="x"), await client("note", title="x", text="x")):
                assert found.refused
            assert "add_tasks" in await client("add_task", **held, title="x")
        assert len(await board.list_tasks()) == 1

    async def test_what_is_asked_about_waits_for_the_person(self, board: Board) -> None:
        task = await board.put("Write it")
        async with hosting(board, policies={"add_tasks": "ask"}) as host:
            client = await host()
            held = await client.works()
            assert (await client("add_task", title="x")).refused
            waits = await client("add_task", **held, title="Saw the wood")
            assert "waits for a person" in waits
            (question,) = await board.requests()
            assert question.request is not None
            await board.reply(question.request, "human", "yes")
            again = await client("next_task")
            assert again.held["task"] == task.id
        assert "Saw the wood" in {each.title for each in await board.list_tasks()}

    async def test_a_client_cannot_be_held_to_a_policy_for_its_own_tools(self, board: Board) -> None:
        async with hosting(board, policies={"bash": "ask"}) as host:
            with pytest.raises(ModelMisconfigured, match="has tools of its own"):
                await host()


async def test_hostile_arguments_are_refused_in_a_sentence(board: Board) -> None:
    await board.put("Write it")
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("finish", {"task": 1}), ("finish", {"task": "one", "epoch": 1}), ("finish", {"task": 2**70, "epoch": 1}),
        ("task", {"task": 99}), ("task", {"task": -1}), ("tasks", {"state": "odd"}), ("tasks", {"extra": 1}),
        ("add_task", {"title": ""}), ("add_task", {"title": "x" * 5_000}), ("add_task", {"title": "x", "needs": ["y"]}),
        ("note", {"title": "\ud800", "text": ""}), ("message", {"to": "", "text": "x"}),
        ("progress", {"task": 1, "epoch": 1, "text": "x"}), ("message", {"request": "no-such", "text": "x"}),
    ]  # fmt: skip
    async with hosting(board) as host:
        client = await host()
        for tool, arguments in wrong:
            found = await client(tool, **arguments)
            assert found.refused or tool == "note", (tool, arguments, found.text)
            assert "Traceback" not in found
