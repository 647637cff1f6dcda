"""How the calls of a reply are run: side by side or in order, within their time, and what is kept of their output."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable

import orjson
import pytest

from dugnad.board import Board
from dugnad.clock import Sources
from dugnad.models import ScriptedModel
from dugnad.models.port import Reply, Request
from dugnad.settings import AgentLimits
from dugnad.tools.context import Context
from dugnad.tools.tool import Tool, tool
from dugnad.types import Amount, Budget, Done, Waiting
from tests.agent.stage_agent import END, Crash, Stage, Wrapped, call, calls, last_results, results, set_stage


async def test_safe_calls_of_one_reply_run_at_the_same_time(board: Board) -> None:
    meeting = asyncio.Barrier(3)

    @tool(safe=True)
    async def meet(who: str) -> str:
        """Wait until all are there."""
        await meeting.wait()
        return who

    texts = await results(board, *(("meet", {"who": who}) for who in "abc"), tools=[meet])
    assert texts == ["a", "b", "c"]


async def test_other_calls_run_one_after_the_other_in_order(board: Board) -> None:
    log: list[str] = []

    @tool
    async def step(name: str) -> None:
        """Take a step."""
        log.append(f"{name} begins")
        await asyncio.sleep(0)
        log.append(f"{name} ends")

    @tool(safe=True)
    async def look() -> None:
        """Look."""
        log.append("look")

    await results(
        board, ("step", {"name": "a"}), ("look", {}), ("look", {}), ("step", {"name": "b"}), tools=[step, look]
    )
    assert log == ["a begins", "a ends", "look", "look", "b begins", "b ends"]


async def test_when_one_of_several_breaks_the_others_are_stopped(board: Board) -> None:
    stopped = asyncio.Event()

    @tool(safe=True)
    async def linger() -> None:
        """Stay."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise

    async def broken() -> str:
        """Break."""
        raise ValueError("our bug")

    stage = await set_stage(
        board, [calls(("linger", {}), ("broken", {}))], tools=[linger, Tool(broken, safe=True, own=True)]
    )
    claim = await stage.begin()
    with pytest.raises(ValueError, match="our bug"):
        await stage.agent.work(claim)
    assert stopped.is_set()


async def test_a_tool_that_takes_too_long_is_stopped_and_that_is_told(board: Board) -> None:
    stopped = []

    @tool
    async def forever() -> None:
        """Never end."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    (text,) = await results(board, ("forever", {}), tools=[forever], limits=AgentLimits(tool_seconds_max=0.01))
    assert (
        text
        == "Error: forever took longer than 0.01 seconds and was given up. It may have happened, in part or in whole."
    )
    assert stopped == [True]


async def test_a_plain_function_does_not_hold_up_the_others_and_is_given_up_in_time(board: Board) -> None:
    go_on = threading.Event()

    @tool
    def block() -> None:
        """Block."""
        go_on.wait(60)

    try:
        (text,) = await results(board, ("block", {}), tools=[block], limits=AgentLimits(tool_seconds_max=0.01))
    finally:
        go_on.set()
    assert text.startswith("Error: block took longer than 0.01 seconds")


async def test_a_timeout_inside_a_users_tool_is_its_own_trouble(board: Board) -> None:
    @tool
    async def late() -> None:
        """Be late."""
        raise TimeoutError("the server did not answer")

    assert await results(board, ("late", {}), tools=[late]) == ["Error: TimeoutError: the server did not answer"]


async def test_what_no_database_can_keep_is_replaced_in_an_output(board: Board) -> None:
    @tool
    def odd() -> str:
        """Odd text."""
        return "a\0b\ud800c\udc00 \U0001f600 \u2028"

    stage = await set_stage(board, [call("odd"), END], tools=[odd])
    await stage.run()
    assert last_results(stage.model) == ["a\ufffdb?c? \U0001f600 \u2028"]
    turns = await board.transcript(1, 1)
    assert orjson.loads(turns[1].body)["text"] == "a\ufffdb?c? \U0001f600 \u2028"


async def test_an_endless_output_is_kept_up_to_a_bound(board: Board) -> None:
    @tool
    def pour() -> str:
        """Pour."""
        return "ä" * 5_000

    limits = AgentLimits(tool_bytes_max=4_001, tool_chars_max=300)
    stage = await set_stage(board, [call("pour"), END], tools=[pour], limits=limits)
    await stage.run()
    turns = await board.transcript(1, 1)
    assert orjson.loads(turns[1].body)["whole"] == "ä" * 2_000
    assert len(last_results(stage.model)[0]) < 450


async def test_an_output_of_control_characters_is_kept_too(board: Board) -> None:
    @tool
    def binary() -> str:
        """Binary."""
        return "\x01" * (4 * 1024 * 1024)

    assert (await results(board, ("binary", {}), tools=[binary]))[0].startswith("\x01")


def ticking() -> Callable[[], int]:
    """A clock on which ten milliseconds pass between two looks."""
    times = itertools.count(1_000, 10)
    return lambda: next(times)


async def test_the_time_of_a_users_tool_is_paid_from_the_roots_seconds(board: Board) -> None:
    seen: list[int] = []

    @tool
    async def look(context: Context) -> None:
        """Look at the account."""
        seen.append((await context.board.budget(1)).reserved.milliseconds)

    stage = await set_stage(board, [call("look"), END], tools=[look], sources=Sources(working_ms=ticking()))
    await stage.run(budget=Budget(seconds=1_000))
    spending = await board.budget(1)
    assert seen == [120_000]
    assert spending.reserved.milliseconds == 0
    assert spending.spent.milliseconds == 3 * 10  # Two calls of the model, one of the tool.


async def test_a_tool_is_given_the_seconds_that_the_model_left(board: Board) -> None:
    @tool
    def work() -> None:
        """Work."""

    stage = await set_stage(board, [call("work"), END], tools=[work], sources=Sources(working_ms=ticking()))
    assert await stage.run(budget=Budget(seconds=100)) == Done("built")


async def without_seconds_left(board: Board, ran: list[str]) -> Stage:
    """A task that was put down in front of its only tool call, for want of seconds."""

    @tool
    def work() -> None:
        """Work."""
        ran.append("work")

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        if request.turn == 1:  # Something else of this task uses up the seconds meanwhile.
            much = Amount(milliseconds=9_500)
            await board.spend(claim, await board.reserve(claim, much), much)
        return await inner.ask(request)

    stage = await set_stage(board, [call("work"), END], tools=[work], limits=AgentLimits(model_seconds_max=0.5))
    claim = await stage.begin(budget=Budget(seconds=10))
    stage.agent.model = Wrapped(stage.model, ask)
    outcome = await stage.go_on(claim)
    assert isinstance(outcome, Waiting)
    assert outcome.on == "budget"
    assert (await board.budget(1)).held == "seconds"
    return stage


async def test_without_seconds_left_a_users_tool_is_not_run_and_the_task_waits(board: Board) -> None:
    ran: list[str] = []
    stage = await without_seconds_left(board, ran)
    assert not ran
    await board.raise_budget(1, Budget(seconds=100))
    assert await stage.go_on() == Done("built")


async def test_a_tool_that_waited_for_seconds_is_run_when_there_are_some(board: Board) -> None:
    ran: list[str] = []
    stage = await without_seconds_left(board, ran)
    await board.raise_budget(1, Budget(seconds=100))
    await stage.go_on()
    assert ran == ["work"]


async def test_what_was_reserved_for_a_tool_comes_back_when_the_board_refuses_it(board: Board) -> None:
    @tool
    async def find(context: Context) -> None:
        """Find what is not there."""
        await context.board.find(999)

    seen: list[int] = []

    @tool
    async def look(context: Context) -> None:
        """Look at the account."""
        seen.append((await context.board.budget(1)).reserved.milliseconds)

    stage = await set_stage(board, [call("find"), call("look"), END], tools=[find, look])
    assert await stage.run(budget=Budget(seconds=10_000)) == Done("built")
    assert seen[0] <= 120_000


async def test_a_call_that_was_interrupted_is_told_so_and_not_run_again(board: Board) -> None:
    ran: list[str] = []

    @tool
    async def pay() -> None:
        """Pay."""
        ran.append("pay")
        raise Crash

    stage = await set_stage(board, [call("pay"), END], tools=[pay])
    with pytest.raises(Crash):
        await stage.agent.work(await stage.begin())
    await stage.lose()
    assert await stage.go_on(await stage.claim_when_due()) == Done("built")
    assert ran == ["pay"]
    assert last_results(stage.model)[0].startswith("Interrupted: ")


async def test_a_keyed_call_that_was_interrupted_is_run_again_with_the_same_key(board: Board) -> None:
    keys: list[str] = []

    @tool(keyed=True)
    async def pay(context: Context) -> str:
        """Pay."""
        keys.append(context.key)
        if len(keys) == 1:
            raise Crash
        return "paid"

    stage = await set_stage(board, [call("pay"), END], tools=[pay])
    with pytest.raises(Crash):
        await stage.agent.work(await stage.begin())
    await stage.lose()
    await stage.go_on(await stage.claim_when_due())
    assert len(keys) == 2
    assert keys[0] == keys[1]
    assert last_results(stage.model) == ["paid"]


async def test_a_call_that_ended_is_never_run_again(board: Board) -> None:
    ran: list[str] = []

    @tool
    async def first() -> None:
        """First."""
        ran.append("first")

    @tool
    async def second() -> None:
        """Second."""
        ran.append("second")
        raise Crash

    stage = await set_stage(board, [calls(("first", {}), ("second", {})), END], tools=[first, second])
    with pytest.raises(Crash):
        await stage.agent.work(await stage.begin())
    await stage.lose()
    await stage.go_on(await stage.claim_when_due())
    assert ran == ["first", "second"]
    assert last_results(stage.model)[0] == "Done."
    assert last_results(stage.model)[1].startswith("Interrupted: ")


async def test_a_call_behind_a_question_is_run_after_the_answer(board: Board) -> None:
    ran: list[str] = []

    @tool
    async def pay() -> None:
        """Pay."""
        ran.append("pay")

    stage = await set_stage(board, [calls(("ask_human", {"question": "Pay?"}), ("pay", {})), END], tools=[pay])
    await stage.run()
    (asked,) = await board.requests()
    await board.reply(str(asked.request), "human", "yes")
    await stage.go_on()
    assert ran == ["pay"]


async def test_a_call_that_ends_the_task_stops_all_after_it(board: Board) -> None:
    end = ("finish", {"result": "built"})
    before, after = (("note", {"title": title, "text": "x"}) for title in ("before", "after"))
    stage = await set_stage(board, [calls(before, end, after)])
    assert await stage.run() == Done("built")
    assert [note.title for note in await board.search_notes()] == ["before"]


@pytest.mark.parametrize("wrong", [("show_task", {"task": 999}), ("no_such_tool", {}), ("show_task", {"task": "x"})])
async def test_a_call_that_fails_stops_only_finish(board: Board, wrong: tuple[str, dict[str, object]]) -> None:
    """Otherwise a change that was refused would be handed in as if it had been made."""
    end, note = ("finish", {"result": "built"}), ("note", {"title": "after", "text": "x"})
    stage = await set_stage(board, [calls(wrong, note, end), calls(end)])
    assert await stage.run() == Done("built")
    failed, _, held = last_results(stage.model)
    assert failed.startswith("Error: ")
    assert held.startswith(f"Not handed in: {wrong[0]} of the same reply failed.")
    assert [note.title for note in await board.search_notes()] == ["after"]


async def test_finish_is_held_back_after_a_crash_too(board: Board) -> None:
    @tool
    async def die() -> None:
        """Die."""
        raise Crash

    wrong, end = ("show_task", {"task": 999}), ("finish", {"result": "built"})
    stage = await set_stage(board, [calls(wrong, ("die", {}), end), calls(end)], tools=[die])
    with pytest.raises(Crash):
        await stage.run()
    await stage.lose()
    assert await stage.go_on(await stage.claim_when_due()) == Done("built")
    assert last_results(stage.model)[2].startswith("Not handed in: show_task of the same reply failed.")
