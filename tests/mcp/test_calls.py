"""What the calls of a client change, and what a call leaves alone that is refused."""

from __future__ import annotations

from typing import Any

import pytest

from dugnad.board import Board
from dugnad.types import Budget, Message, Task
from tests.mcp.clients import hosting, state_of


class RedOnce:
    """A check that is red the first time."""

    def __init__(self) -> None:
        self.said: list[str | None] = ["1 test failed", None]

    async def __call__(self, task: Task) -> str | None:
        return self.said.pop(0)


class TestCosts:
    @pytest.mark.parametrize("again", [{}, {"reports_cost": False}])
    async def test_to_be_told_a_task_again_does_not_lose_it(self, board: Board, again: dict[str, bool]) -> None:
        dear = await board.put("Dear", check="make test", budget=Budget(dollars=1.0))
        async with hosting(board, check=RedOnce()) as host:
            client = await host()
            held = await client.works(reports_cost=True)
            assert (await client("next_task", **again)).held == held
            assert "1 test failed" in await client("finish", **held, result="Done.", dollars=0.25)
            assert (await client("next_task", **again)).held == held
            assert "is over" in await client("finish", **held, result="Done.", dollars=0.5)
        assert (await board.find(dear.id)).state == "done"
        assert (await board.budget(dear.id)).spent.microdollars == 750_000

    async def test_a_cap_in_dollars_that_comes_with_a_red_check_costs_nothing(self, board: Board) -> None:
        task = await board.put("Write it", check="make test")

        async def check(checked: Task) -> str | None:
            await board.set_budget(task.id, Budget(dollars=1.0))
            return "1 test failed"

        async with hosting(board, check=check, wait_seconds=1.0) as host:
            client = await host()
            held = await client.works()
            await client("finish", **held, result="Done.", tokens=1_000, dollars=0.25)
            await state_of(board, task.id, "ready", "scheduled")
            spending = await board.budget(task.id)
            assert (spending.spent.tokens, spending.spent.microdollars) == (1_000, 250_000)
            assert (spending.reserved.tokens, spending.reserved.microdollars) == (0, 0)
            assert "cap in dollars" in await client("next_task")

    @pytest.mark.parametrize("wait_for", [[], ["99"], ["x"]])
    async def test_a_refused_end_costs_nothing_and_keeps_the_reservation(
        self, board: Board, wait_for: list[str]
    ) -> None:  # fmt: skip
        task = await board.put("Write it", budget=Budget(tokens=50_000, dollars=1.0))
        async with hosting(board) as host:
            client = await host()
            held = await client.works(reports_cost=True)
            before = await board.budget(task.id)
            wrong = await client("finish", **held, how="waiting", wait_for=wait_for, dollars=0.25, tokens=100)
            assert wrong.refused, wrong.text
            after = await board.budget(task.id)
            assert (after.spent, after.reserved) == (before.spent, before.reserved)
            assert after.reserved.microdollars > 0
            assert "is over" in await client("finish", **held, result="Done.", dollars=0.25, tokens=100)
        spent = (await board.budget(task.id)).spent
        assert (spent.microdollars, spent.tokens) == (250_000, 100)

    @pytest.mark.parametrize(
        "said", [{"dollars": 1e308}, {"dollars": float("nan")}, {"dollars": -1.0}, {"dollars": 0.0, "tokens": 2**62}]
    )
    async def test_an_amount_that_nothing_costs_is_refused_before_anything_is_done(
        self, board: Board, said: dict[str, Any]
    ) -> None:  # fmt: skip
        task = await board.put("Write it", budget=Budget(dollars=1.0))
        async with hosting(board) as host:
            client = await host()
            held = await client.works(reports_cost=True)
            for tool, more in (("finish", {"result": "Done."}), ("ask_human", {"question": "Why?"})):
                found = await client(tool, **held, **more, **said)
                assert found.refused
                assert "as dollars" in found
            assert "is over" in await client("finish", **held, result="Done.", dollars=0.25)
        assert (await board.budget(task.id)).spent.microdollars == 250_000

    async def test_a_wait_for_tasks_that_have_ended_costs_nothing_and_says_how_they_ended(self, board: Board) -> None:
        task = await board.put("Build it", budget=Budget(dollars=1.0))
        async with hosting(board) as host:
            client = await host()
            held = await client.works(reports_cost=True)
            await client("add_task", **held, title="Saw the wood")
            (child,) = [each for each in await board.list_tasks() if each.parent == task.id]
            await board.cancel(child.id)
            waits = await client("finish", **held, how="waiting", wait_for=[child.id], dollars=0.25)
            assert waits.refused
            assert f"#{child.id}" in waits
            assert (await board.budget(task.id)).spent.microdollars == 0
            assert "is over" in await client("finish", **held, result="Built.", dollars=0.5)
        assert (await board.budget(task.id)).spent.microdollars == 500_000

    async def test_what_a_client_says_counts_for_its_attempt(self, board: Board) -> None:
        task = await board.put("Write it", budget=Budget(dollars=1.0))
        async with hosting(board) as host:
            client = await host()
            held = await client.works(reports_cost=True)
            await client("ask_human", **held, question="Which colour?", dollars=0.25, tokens=100)
            (question,) = await board.requests()
            assert question.request is not None
            await board.reply(question.request, "human", "Blue.")
            held = await client.works(reports_cost=True)
            await client("finish", **held, result="Done.", dollars=0.5, tokens=200)
        turns = [turn for epoch in range(1, held["epoch"] + 1) for turn in await board.transcript(task.id, epoch)]
        assert sum(turn.used.microdollars for turn in turns) == 750_000
        assert sum(turn.used.tokens for turn in turns) == 300


async def test_a_tool_that_refuses_is_an_error(board: Board) -> None:
    await board.put("Write it")
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("add_task", {"title": ""}), ("add_task", {"title": "x", "needs": ["99"]}),
        ("message", {"to": "nobody", "text": "x"}), ("message", {"to": "lead", "text": "x"}),
        ("finish", {"how": "waiting", "wait_for": []}),
    ]  # fmt: skip
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        for tool, arguments in wrong:
            found = await client(tool, **held, **arguments)
            assert found.refused, (tool, arguments, found.text)
        assert len(await board.list_tasks()) == 1
        assert "is over" in await client("finish", **held, result="Done.")


class TestRequests:
    @pytest.mark.parametrize("has_task", [True, False])
    async def test_a_refusal_in_words_alone_shuts_nobody_down(self, board: Board, has_task: bool) -> None:
        task = await board.put("Write it")
        async with hosting(board) as host:
            client = await host()
            held = await client.works()
            asked = await board.tell("human", "claude", "Please stop.", kind="shutdown")
            mark = held if has_task else {}
            found = await client("message", **mark, request=asked.request, text="No, I am not done.")
            assert found.refused
            assert "Say accept=true or accept=false." in found
            assert asked.request is not None
            assert (await board.request(asked.request))[1] is None
            assert not (await client("message", **mark, request=asked.request, accept=False, text="No.")).refused
            assert (await board.find(task.id)).state == "claimed"
            assert "is over" in await client("finish", **held, result="Done.")

    @pytest.mark.parametrize("has_task", [True, False])
    async def test_a_question_is_answered_in_words_alone(self, board: Board, has_task: bool) -> None:
        await board.spawn("boss", lead=True)
        await board.put("Write it")
        async with hosting(board) as host:
            client = await host()
            held = await client.works()
            asked = await board.tell("boss", "claude", "Shall we ship?", kind="question")
            mark = held if has_task else {}
            assert not (await client("message", **mark, request=asked.request, text="On Monday.")).refused
            (answer,) = await board.inbox("boss")
        assert (answer.text, answer.accepted) == ("On Monday.", None)


async def test_an_answer_comes_back_with_its_question(board: Board) -> None:
    await board.put("Paint it")
    async with hosting(board) as host:
        client = await host()
        await client("ask_human", **await client.works(), question="Which colour?")
        (question,) = await board.requests()
        assert question.request is not None
        await board.reply(question.request, "human", "Blue.")
        again = await client("next_task")
    asked, answered = again.text.find("Which colour?"), again.text.find("Blue.")
    assert 0 < asked < answered


async def test_a_notice_is_shown_once_to_a_client_that_waits(board: Board) -> None:
    async with hosting(board, wait_seconds=0.2) as host:
        client = await host()
        told: Message = await board.tell("human", "claude", "The office is closed.", kind="notice")
        assert told.kind == "notice"
        assert "unread messages" in await client("tasks")
        found = await client("next_task")
        assert "Nothing yet" in found
        assert "> The office is closed." in found
        assert "unread messages" not in await client("tasks")
        assert "The office is closed." not in await client("next_task")


async def test_numbers_of_tasks_may_be_numbers(board: Board) -> None:
    task = await board.put("Build it")
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        assert not (await client("add_task", **held, title="Saw the wood")).refused
        (child,) = [each for each in await board.list_tasks() if each.parent == task.id]
        assert not (await client("add_task", **held, title="Paint it", needs=[child.id])).refused
        assert not (await client("add_task", title="Sell it", needs=[child.id])).refused
        assert f"waits for #{child.id}" in await client("finish", **held, how="waiting", wait_for=[child.id])
    found = {each.title: each.state for each in await board.list_tasks()}
    assert (found["Paint it"], found["Sell it"]) == ("blocked", "blocked")


async def test_a_message_to_a_lead_that_is_not_there_says_whom_to_write_to(board: Board) -> None:
    await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        for mark in ({}, await client.works()):
            found = await client("message", **mark, to="lead", text="x")
            assert found.refused
            assert "There is no lead to write to" in found


async def test_an_end_is_told_in_plain_sentences(board: Board) -> None:
    task = await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        ended = await client("finish", **await client.works(), result="Done.")
    assert ended.text == f"#{task.id} is over, and you do not hold it any more. Call next_task."


async def test_a_client_with_a_newer_claim_is_told_which(board: Board) -> None:
    task = await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        old = await client.works()
        await client("finish", **old, how="released", result="Later.")
        new = await client.works()
        found = await client("finish", **old, result="Done.")
        assert found.refused
        assert f"you hold it with epoch {new['epoch']}" in found
        assert "is over" in await client("finish", **new, result="Done.")
    assert (await board.find(task.id)).state == "done"
