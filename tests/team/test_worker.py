"""A teammate's life: it rests, is woken, works, and ends; and its status on the board is true all the while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.errors import ModelMisconfigured, NotReady, StoppedTeammate
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.tools.message_tools import RESTED
from dugnad.types import Task
from tests.agent.stage_agent import END, TITLE, all_told, call
from tests.board.crew import race
from tests.conftest import Opener
from tests.team.stage_team import (
    NO_SWEEP,
    Between,
    Paused,
    Raising,
    busy,
    errands,
    hosting,
    kill,
    short_lease,
    until,
    until_ended,
    until_state,
    until_status,
    within,
)

SCRIPT: dict[str, list[Step]] = {TITLE: [call("list_tasks"), END], "*": [Step(say="All right.")]}


# Rest and wake.


async def test_a_teammate_works_what_is_there_then_rests_then_shuts_itself_down(board: Board) -> None:
    await board.spawn("alice")
    task = await board.put(TITLE)
    async with hosting(board, ScriptedModel(SCRIPT), limits={"idle_seconds": 0.2}) as host:
        (done,) = await until_ended(board, task)
        assert (done.state, done.result, done.teammate) == ("done", "built", "alice")
        alice = await until_status(board, "alice", "stopped")
        assert (alice.reason, alice.host) == (RESTED, None)
        await within(asyncio.gather(*host._running.values()))
        assert not host.workers


async def test_work_wakes_one_who_rests_without_any_sweep(opener: Opener) -> None:
    board = await opener(**NO_SWEEP)
    await board.spawn("alice", roles=["coder"])
    async with hosting(board, ScriptedModel(SCRIPT), limits={"sweep_seconds": 600.0}):
        await until_status(board, "alice", "idle")
        await within(asyncio.sleep(0.1))
        for title, fields in (("One", {}), ("Two", {"role": "coder"}), ("Three", {"assignee": "alice"})):
            await until_ended(board, await board.put(title, **fields))


async def test_work_put_by_another_process_wakes_one_who_rests(opener: Opener) -> None:
    board, elsewhere = await opener(**NO_SWEEP), await opener(**NO_SWEEP)
    await board.spawn("alice")
    async with hosting(board, ScriptedModel(SCRIPT), limits={"sweep_seconds": 600.0}):
        await until_status(elsewhere, "alice", "idle")
        await until_ended(elsewhere, await elsewhere.put(TITLE))


async def test_a_wake_without_work_does_not_begin_the_rest_anew(board: Board) -> None:
    await board.spawn("alice")
    async with hosting(board, ScriptedModel(SCRIPT), limits={"idle_seconds": 0.5}) as host:
        await until_status(board, "alice", "idle")

        async def wake_and_look() -> bool:
            for life in host.workers.values():
                life.wake()
            await asyncio.sleep(0.05)
            return (await board.teammate("alice")).status == "stopped"

        assert await until(board, wake_and_look)


async def test_a_team_at_rest_asks_neither_the_model_nor_the_board(opener: Opener) -> None:
    board = await opener(**NO_SWEEP)
    for number in range(8):
        await board.spawn(f"m{number}")
    model = ScriptedModel(SCRIPT)
    async with hosting(board, model, limits={"sweep_seconds": 600.0, "idle_seconds": float("inf")}) as host:

        async def all_idle() -> bool:
            return all(each.status == "idle" for each in await board.team()) and len(host.workers) == 8

        await until(board, all_idle)
        await asyncio.sleep(0.5)
        asked = await asks_of(board, 1.0)
        assert asked == []
        assert not model.asked


async def asks_of(board: Board, seconds: float) -> list[str]:
    """What the database is asked during a while."""
    asked: list[str] = []
    store = board._store

    class Heard:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(store, name)

    board._store = board._gatherer._store = Heard()  # type: ignore[assignment]
    await asyncio.sleep(seconds)
    board._store = board._gatherer._store = store
    return asked


async def test_a_task_that_goes_on_is_told_once(board: Board) -> None:
    await board.spawn("alice")
    model = ScriptedModel({TITLE: [call("ask_human", question="Which?"), END]})
    async with hosting(board, model):
        task = await board.put(TITLE)
        await until_state(board, task, "waiting")
        (asked,) = await board.requests()
        await board.reply(str(asked.request), "human", "That one.")
        await until_ended(board, task)
    assert all_told(model.asked[-1]).count("Your task is #") == 1
    assert "That one." in all_told(model.asked[-1])
    assert not await errands(board)


# Status.


async def test_the_status_is_true_from_wanted_to_stopped(opener: Opener) -> None:
    board = await opener(**short_lease(30))
    assert (await board.spawn("alice")).status == "wanted"
    model = Paused({TITLE: [call("ask_human", question="Which?"), END]}, where=lambda request: request.turn == 1)
    async with hosting(board, model):
        await until_status(board, "alice", "idle")
        task = await board.put(TITLE)
        await within(model.reached.wait())
        assert (await board.teammate("alice")).status == "working"
        model.go.set()
        await until_state(board, task, "waiting")
        assert (await board.teammate("alice")).status == "waiting"
    assert (await board.teammate("alice")).status == "wanted"
    async with hosting(board, model):
        await until_status(board, "alice", "waiting")
        await board.stop_teammate("alice", reason="enough")
        gone = await until_status(board, "alice", "stopped")
        assert gone.reason == "enough"


async def test_a_dead_host_makes_its_teammates_lost_until_another_takes_them(opener: Opener) -> None:
    board = await opener(**short_lease(1.0))
    await board.spawn("alice")
    task = await board.put(TITLE)
    model = Paused(SCRIPT, where=lambda request: request.turn == 2)
    async with hosting(board, model) as host:
        await within(model.reached.wait())
        await kill(host)
        assert (await board.teammate("alice")).status == "working"
        await until_status(board, "alice", "lost")
    again = ScriptedModel(SCRIPT)
    async with hosting(board, again):
        (done,) = await until_ended(board, task)
    assert (done.state, done.teammate) == ("done", "alice")
    assert [request.turn for request in again.asked] == [2]  # In its own transcript.


async def test_a_bug_shows_the_teammate_as_failed_with_the_error_and_frees_the_task(board: Board) -> None:
    await board.spawn("alice")
    await board.spawn("bob")
    task = await board.put(TITLE, assignee="alice")
    models = {"alice": Raising(ValueError("half a loaf")), "bob": ScriptedModel(SCRIPT)}
    async with hosting(board, models) as host:
        failed = await until_status(board, "alice", "failed")
        assert failed.reason == "ValueError: half a loaf"
        found = await board.find(task.id)
        assert (found.state, found.tries) in (("scheduled", 1), ("ready", 1))
        assert found.reason == "alice failed: ValueError: half a loaf"
        await board.assign(task.id, None)
        (done,) = await until_ended(board, task)
        assert done.teammate == "bob"
        assert list(host.workers) == ["bob"]


async def test_a_wrong_model_fails_the_teammate_but_not_the_task(board: Board) -> None:
    await board.spawn("alice", model="some:model")
    task = await board.put(TITLE)
    model = Raising(ModelMisconfigured("The key is wrong."))
    async with hosting(board, model) as host:
        failed = await until_status(board, "alice", "failed")
        assert failed.reason == "The key is wrong."
        found = await board.find(task.id)
        assert (found.state, found.tries, found.reason) == ("ready", 0, "The key is wrong.")
        await within(asyncio.gather(*host._running.values()))
        assert host.broken_models() == {"some:model"}
    assert len(model.asked) == 1


async def test_a_message_never_revives_one_who_was_shut_down(board: Board) -> None:
    await board.spawn("alice")
    async with hosting(board, ScriptedModel(SCRIPT), limits={"idle_seconds": 0.1}) as host:
        await until_status(board, "alice", "stopped")
        with pytest.raises(StoppedTeammate):
            await board.tell("human", "alice", "Are you there?")
        assert not host.workers
        assert not await errands(board)


async def test_what_was_sent_before_a_forced_stop_is_read_in_the_next_life(board: Board) -> None:
    await board.spawn("alice")
    await board.tell("human", "alice", "Read me.")
    await board.stop_teammate("alice")
    await board.spawn("alice")
    model = ScriptedModel(SCRIPT)
    async with hosting(board, model):
        await until(board, lambda: board.inbox("human"))
    assert "Read me." in all_told(model.asked[0])


# The edge between busy and idle.


async def test_mail_that_comes_between_the_last_look_and_the_rest_is_read(opener: Opener) -> None:
    board, elsewhere = await opener(), await opener()
    await board.spawn("alice")
    race = Between(
        board, "stop_teammate", lambda: elsewhere.tell("human", "alice", "Just in time."),
        where=lambda *given, **fields: fields.get("if_quiet", False),
    )  # fmt: skip
    model = ScriptedModel(SCRIPT)
    async with hosting(race, model, limits={"idle_seconds": 0.1}):
        gone = await until_status(board, "alice", "stopped")
        assert gone.reason == RESTED
    assert race.happened == 1
    assert [message.text for message in await board.inbox("human")] == ["All right."]
    assert "Just in time." in all_told(model.asked[0])
    assert not await board.inbox("alice")


async def test_a_stop_if_quiet_is_refused_while_mail_waits(board: Board) -> None:
    await board.spawn("alice")
    await board.tell("human", "alice", "hello")
    with pytest.raises(NotReady, match="mail"):
        await board.stop_teammate("alice", if_quiet=True)
    (message,) = await board.inbox("alice")
    await board.show("alice", [message.id])
    await board.stop_teammate("alice", if_quiet=True)


@pytest.mark.parametrize("turned", [False, True])
async def test_a_message_and_a_rest_at_one_moment_have_an_order(opener: Opener, url: str, turned: bool) -> None:
    here, there = await opener(), await opener()
    for name in ("alice", "bob", "carol"):
        await here.spawn(name)
        calls = [here.stop_teammate(name, if_quiet=True), there.tell("human", name, "Are you there?")]
        answers = await race(url, *(reversed(calls) if turned else calls))
        (refusal,) = [answer for answer in answers if isinstance(answer, Exception)]
        stopped = (await here.teammate(name)).status == "stopped"
        assert isinstance(refusal, StoppedTeammate if stopped else NotReady)
        assert bool(await here.inbox(name)) is not stopped


async def test_work_that_comes_between_the_last_look_and_the_rest_is_worked(opener: Opener) -> None:
    board, elsewhere = await opener(), await opener()
    await board.spawn("alice")
    put: list[Task] = []

    async def put_one() -> None:
        put.append(await elsewhere.put(TITLE))

    race = Between(board, "stop_teammate", put_one, where=lambda *given, **fields: fields.get("if_quiet", False))
    async with hosting(race, ScriptedModel(SCRIPT), limits={"idle_seconds": 0.1}):
        await until(board, lambda: asyncio.sleep(0, put))
        (done,) = await until_ended(board, *put)
        assert done.state == "done"


async def test_a_message_at_the_end_of_the_last_turn_is_answered_before_the_rest(board: Board) -> None:
    await board.spawn("alice")
    await board.spawn("bob")

    def script(request: Request) -> Step:
        return END if request.title == TITLE else Step(say="Noted.")

    model = Paused(script, where=lambda request: request.title == TITLE)
    async with hosting(board, model, limits={"idle_seconds": 0.3}):
        task = await board.put(TITLE, assignee="alice")
        await within(model.reached.wait())
        await board.tell("bob", "alice", "One more thing.")
        model.go.set()
        await until_ended(board, task)
        await until_status(board, "alice", "stopped")
    assert "One more thing." in all_told(model.asked[-1])
    assert not await board.inbox("alice")


# Trouble with the board.


async def test_a_board_that_is_busy_when_the_human_is_answered_fails_nobody(board: Board) -> None:
    await board.spawn("alice")
    troubled = Between(board, "tell", busy)
    async with hosting(troubled, ScriptedModel(SCRIPT)):
        await board.tell("human", "alice", "hello")
        await until(board, lambda: board.inbox("human"))
        assert troubled.happened == 1
        assert (await board.teammate("alice")).status in ("idle", "working")
