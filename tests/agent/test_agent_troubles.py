"""When there is no reply: what is waited out, what is paid, what ends the attempt, and what goes up."""

from __future__ import annotations

import asyncio

import pytest

from dugnad.board import Board
from dugnad.clock import Sources
from dugnad.errors import BoardBusy, HostLost, ModelMisconfigured, RequestRejected, StaleClaim
from dugnad.models import ScriptedModel
from dugnad.models.port import Reply, Request
from dugnad.models.scripted import Step
from dugnad.settings import AgentLimits, Limits
from dugnad.tools.tool import tool
from dugnad.types import Budget, Claim, Done, Failed, NewTurn, Released
from tests.agent.stage_agent import END, TITLE, Wrapped, call, gave, last_results, of_task, set_stage, told

CALM = Sources(chance=lambda: 0.0)


def faulty(*faults: str, then: Step = END) -> Step:
    return Step(calls=then.calls, say=then.say, faults=faults)


async def kinds(board: Board) -> list[str]:
    return [event.kind for event in await board.events()]


async def test_a_rate_limit_cools_the_key_down_for_all_and_does_not_fail_the_task(opener) -> None:
    board = await opener(sources=CALM)
    elsewhere = await opener(sources=CALM)
    cooled = asyncio.Event()
    order: list[str] = []

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        order.append(request.teammate)
        try:
            return await inner.ask(request)
        finally:
            cooled.set()

    script = {TITLE: [faulty("rate_limited")], "Other": [END]}
    model = ScriptedModel(script, retry_after=2.0)
    first = await set_stage(board, model=Wrapped(model, ask))
    second = await set_stage(elsewhere, model=Wrapped(ScriptedModel(script), ask), name="bob")
    claim, other = await first.begin(), await second.begin("Other")

    async def after() -> object:
        await cooled.wait()
        with elsewhere.watch(["cooldown"]) as watch:  # In the log: on a slow machine the pause may be over already.
            while not (said := [each.data for each in await elsewhere.events() if each.kind == "cooled"]):
                await watch.wait(5)
        assert [(each["pace"], each["strikes"]) for each in said] == [("scripted", 1)]
        return await second.go_on(other)

    async with asyncio.timeout(120):
        outcomes = await asyncio.gather(first.go_on(claim), after())
    assert outcomes == [Done("built"), Done("built")]
    assert order[0] == "alice"
    assert len(order) == 3
    (event,) = [event for event in await board.events() if event.kind == "cooled"]
    asked_at = [each.at for each in await board.events() if each.kind == "reserved" and each.seq > event.seq]
    assert len(asked_at) == 2
    assert event.data["milliseconds"] == 2_000
    assert all(at >= event.data["until"] for at in asked_at)  # The event is written a moment after the pause begins.
    assert (await board.find(claim.task.id)).tries == 0


@pytest.mark.parametrize("seconds", [0.123, 0.321])
async def test_a_key_cools_down_for_as_long_as_its_provider_says(board: Board, seconds: float) -> None:
    model = ScriptedModel({TITLE: [faulty("rate_limited")]}, retry_after=seconds)
    assert await (await set_stage(board, model=model)).run() == Done("built")
    (event,) = [event for event in await board.events() if event.kind == "cooled"]
    assert event.data["milliseconds"] == round(seconds * 1000)


async def test_a_provider_in_trouble_is_asked_again_with_growing_pauses(board: Board) -> None:
    pauses: list[float] = []
    real, agent = asyncio.sleep, asyncio.current_task()
    stage = await set_stage(board, [faulty("unavailable", "unavailable", "unavailable")], sources=CALM)

    async def note_pause(seconds: float) -> None:
        if asyncio.current_task() is agent:  # The board has tasks of its own.
            pauses.append(seconds)
        await real(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dugnad.agent.model_calls.asyncio.sleep", note_pause)
        assert await stage.run() == Done("built")
    assert [pause for pause in pauses if pause] == [0.005, 0.01, 0.02]
    assert len(stage.model.asked) == 4
    assert not await board.cooldowns()
    assert (await board.find(1)).tries == 0


async def test_a_provider_that_stays_in_trouble_lets_the_key_cool_down(opener) -> None:
    board = await opener(limits=Limits(cooldown_seconds=0.01), sources=CALM)
    stage = await set_stage(
        board, [faulty(*["unavailable"] * 3)], limits=AgentLimits(retry_seconds=0.001, retries_max=1)
    )
    assert await stage.run() == Done("built")
    assert (await kinds(board)).count("cooled") == 1


async def test_when_patience_is_over_the_task_is_given_back_and_not_failed(opener) -> None:
    board = await opener(sources=CALM)
    stage = await set_stage(board, [], limits=AgentLimits(patience_max=2, give_back_seconds=77))
    stage.model._script = {TITLE: [faulty(*["rate_limited"] * 9)]}
    outcome = await stage.run()
    assert outcome == Released("scripted gave no reply: scripted: too many requests.", 77, resume=True)
    found = await board.find(1)
    assert (found.state, found.tries) == ("scheduled", 0)


async def test_an_answer_that_was_lost_counts_as_spent(board: Board) -> None:
    stage = await set_stage(board, [faulty("timeout")])
    await stage.run(budget=Budget(tokens=1_000_000))
    first, second = [event for event in await board.events() if event.kind == "reserved"]
    lost, paid = [event for event in await board.events() if event.kind == "spent"]
    assert lost.data["key"] == first.data["key"]
    assert lost.data["tokens"] == first.data["tokens"]
    assert paid.data["key"] == second.data["key"]
    assert paid.data["tokens"] < second.data["tokens"]
    spending = await board.budget(1)
    assert spending.spent.tokens == lost.data["tokens"] + paid.data["tokens"]


@pytest.mark.parametrize("fault", ["rate_limited", "unavailable", "overflow"])
async def test_what_the_provider_refused_costs_no_tokens(board: Board, fault: str) -> None:
    stage = await set_stage(
        board,
        [call("list_tasks"), call("list_tasks"), faulty(fault)],
        limits=AgentLimits(retry_seconds=0.01, keep_share=0.0001),
    )
    assert await stage.run(budget=Budget(tokens=1_000_000)) == Done("built")
    spending = await board.budget(1)
    assert spending.spent.tokens == sum(turn.used.tokens for turn in await board.transcript(1, 1))
    assert spending.reserved.tokens == 0


async def test_an_overflow_makes_room_and_goes_on(board: Board) -> None:
    long = call("note", title="t", text="word " * 2_000)
    stage = await set_stage(
        board, [long, long, long, faulty("overflow")], others={"(summary)": [Step(say="In short.")] * 9},
        limits=AgentLimits(retry_seconds=0.01, keep_share=0.01),
    )  # fmt: skip
    assert await stage.run() == Done("built")
    assert [request.title for request in stage.model.asked][-3:] == [TITLE, "(summary)", TITLE]
    assert "In short." in stage.model.asked[-1].messages[1].text
    assert len(stage.model.asked[-1].messages) < len(stage.model.asked[-3].messages)


@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_an_overflow_that_cannot_be_helped_fails_the_task(board: Board, turns: int) -> None:
    look = call("note", title="t", text="word " * 2_000)
    stage = await set_stage(board, [*[look] * turns, faulty(*["overflow"] * 99)], limits=AgentLimits(keep_share=0.01))
    outcome = await stage.run()
    assert isinstance(outcome, Failed)
    assert not outcome.retry
    assert "the context is full and cannot be made smaller" in outcome.reason
    assert (await board.budget(1)).reserved.tokens == 0


async def test_room_is_made_twice_for_one_request_and_no_third_time(board: Board) -> None:
    limits = AgentLimits(window_tokens_default=108_192, keep_share=0.16)
    steps = [*[call("note", title="t", text="word " * 150)] * 30, faulty(*["overflow"] * 99)]
    stage = await set_stage(board, steps, others={"(summary)": [Step(say="In short.")] * 9}, limits=limits)
    outcome = await stage.run()
    assert isinstance(outcome, Failed)
    assert "the context is full and cannot be made smaller" in outcome.reason
    refused = [request for request in stage.model.asked if request.title == TITLE and request.turn == 31]
    assert len(refused) == 3
    assert len({len(request.messages) for request in refused}) == 3  # There was room to be made each time.


async def test_a_rejected_request_fails_the_attempt_and_another_is_made(board: Board) -> None:
    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        raise RequestRejected("no such parameter")

    stage = await set_stage(board, model=Wrapped(ScriptedModel({}), ask))
    assert await stage.run() == Failed("no such parameter", retry=True)
    assert (await board.find(1)).state == "scheduled"
    assert (await board.budget(1)).reserved.tokens == 0


async def test_a_model_that_is_set_up_wrongly_is_raised(board: Board) -> None:
    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        raise ModelMisconfigured("the key is wrong")

    stage = await set_stage(board, model=Wrapped(ScriptedModel({}), ask))
    claim = await stage.begin()
    with pytest.raises(ModelMisconfigured, match="the key is wrong"):
        await stage.agent.work(claim)
    assert (await board.find(1)).state == "claimed"
    assert (await board.budget(1)).reserved.tokens == 0


async def test_a_holder_that_lost_its_task_while_the_model_thought_writes_nothing_more(board: Board) -> None:
    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        if request.turn == 2:
            await board.release(1, why="taken away")
            marks.append(await board.last_event())
        return await inner.ask(request)

    marks: list[int] = []
    stage = await set_stage(board, model=Wrapped(ScriptedModel({TITLE: [call("list_tasks"), END]}), ask))
    claim = await stage.begin()
    with pytest.raises(StaleClaim):
        await stage.agent.work(claim)
    assert await board.last_event() == marks[0]
    assert [turn.kind for turn in await board.transcript(1, claim.epoch)] == ["reply", "tool"]
    assert (await board.find(1)).state == "ready"


async def test_a_holder_that_lost_its_task_while_a_tool_ran_writes_nothing_more(board: Board) -> None:
    marks: list[int] = []

    @tool
    async def slow() -> None:
        """Take a while."""
        await board.release(1)
        marks.append(await board.last_event())

    stage = await set_stage(board, [call("slow"), END], tools=[slow])
    claim = await stage.begin()
    with pytest.raises(StaleClaim):
        await stage.agent.work(claim)
    assert await board.last_event() == marks[0]
    assert len(stage.model.asked) == 1


async def test_a_lost_host_is_raised_and_not_told_to_the_model(board: Board) -> None:
    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        await board.stop_host(stage.host)
        return await inner.ask(request)

    stage = await set_stage(board, model=Wrapped(ScriptedModel({TITLE: [call("claim_task", task=2), END]}), ask))
    claim = await stage.begin()
    await board.put("Other")
    with pytest.raises(HostLost):
        await stage.agent.work(claim)
    assert len(stage.model.asked) == 1


@pytest.mark.parametrize("worked", [False, True])
async def test_what_was_claimed_by_name_is_worked_once_if_its_result_could_not_be_recorded(
    board: Board, worked: bool
) -> None:
    stage = await set_stage(board, [call("claim_task", task=2), END], others={"Other": [Step(say="done")]})
    claim = await stage.begin()
    await board.put("Other")
    record = board.record

    async def busy_at_a_result(claim: Claim, turn: NewTurn) -> int:
        if turn.kind == "tool":
            raise BoardBusy
        return await record(claim, turn)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(board, "record", busy_at_a_result)
        with pytest.raises(BoardBusy):
            await stage.agent.work(claim)
    (other,) = stage.agent.claimed
    if worked:
        await stage.go_on(stage.agent.claimed.pop())
    await stage.go_on(claim)
    assert [each.task.id for each in stage.agent.claimed] == ([] if worked else [other.task.id])
    said = "You held #2 before; it is done now." if worked else "You hold #2 'Other' now. You work it after this one."
    assert last_results(stage.model) == [said]


async def test_work_can_be_stopped_while_the_model_thinks_and_goes_on_elsewhere(board: Board) -> None:
    thinking = asyncio.Event()

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        if request.turn == 2 and not thinking.is_set():
            thinking.set()
            await asyncio.Event().wait()
        return await inner.ask(request)

    stage = await set_stage(board, model=Wrapped(ScriptedModel({TITLE: [call("list_tasks"), END]}), ask))
    claim = await stage.begin(budget=Budget(tokens=100_000))
    work = asyncio.create_task(stage.agent.work(claim))
    await thinking.wait()
    before = await board.last_event()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert await board.last_event() == before
    assert (await board.budget(1)).reserved.tokens > 0
    await stage.lose()  # What was reserved is of unknown fate, so it counts as spent.
    assert (await board.budget(1)).reserved.tokens == 0
    assert await stage.go_on(await stage.claim_when_due()) == Done("built")
    assert [request.turn for request in of_task(stage.model)] == [1, 2]


async def test_work_can_be_stopped_while_a_tool_runs_and_the_model_is_told(board: Board) -> None:
    running = asyncio.Event()

    @tool
    async def forever() -> None:
        """Never end."""
        running.set()
        await asyncio.Event().wait()

    stage = await set_stage(board, [call("forever"), END], tools=[forever])
    work = asyncio.create_task(stage.agent.work(await stage.begin()))
    await running.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await stage.lose()
    assert await stage.go_on(await stage.claim_when_due()) == Done("built")
    assert gave(stage.model.asked[-1]).startswith("Interrupted: ")
    assert told(stage.model.asked[-1]) == "[turn 1 of 50]"
