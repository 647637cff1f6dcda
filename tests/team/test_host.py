"""A host: one heartbeat for all, lost work stops, others' lost work goes on, and an orderly end loses nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from dugnad.board import Board
from dugnad.clock import Sources
from dugnad.errors import ModelMisconfigured
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.settings import Limits, Patience
from dugnad.tools.tool import tool
from dugnad.types import Task, Teammate
from tests.agent.stage_agent import END, TITLE, all_told, call, calls, of_task
from tests.conftest import Opener
from tests.team.stage_team import (
    AnswerLost,
    Between,
    Paused,
    busy,
    host_of,
    hosting,
    kill,
    short_lease,
    until,
    until_ended,
    until_state,
    until_status,
    within,
)

SCRIPT: dict[str, list[Step]] = {TITLE: [call("list_tasks"), END], "*": [END]}


# The beat.


async def test_one_heartbeat_keeps_the_claims_of_all_its_teammates(opener: Opener) -> None:
    board = await opener(**short_lease(3.0))
    names = [f"m{number}" for number in range(5)]
    for name in names:
        await board.spawn(name)
    tasks = [await board.put(f"{TITLE} {number}") for number in range(5)]
    model = Paused({"*": [END]})
    async with hosting(board, model):
        for task in tasks:
            await until_state(board, task, "claimed")
        await asyncio.sleep(6.5)  # More than two leases.
        assert {each.status for each in await board.team()} == {"working"}
        model.go.set()
        done = await until_ended(board, *tasks)
    assert {task.state for task in done} == {"done"}
    assert [task.tries for task in done] == [0] * 5
    assert len(model.asked) == 5


@pytest.mark.parametrize("how", ["release", "cancel"])
async def test_work_whose_claim_was_lost_stops_at_once_and_life_goes_on(opener: Opener, how: str) -> None:
    """Long before the next beat: the push about the task tells."""
    board = await opener(**short_lease(90))
    await board.spawn("alice")
    model = Paused({TITLE: [END], "Other": [END]}, where=lambda request: request.title == TITLE)
    async with hosting(board, model) as host:
        task = await board.put(TITLE)
        await within(model.reached.wait())
        if how == "release":
            await board.release(task.id, delay_seconds=600)
        else:
            await board.cancel(task.id)
        (life,) = host.workers.values()
        await until(board, lambda: asyncio.sleep(0, life.claim is None))
        (done,) = await until_ended(board, await board.put("Other"))
        assert (done.state, done.teammate) == ("done", "alice")
    assert (await board.find(task.id)).state == ("scheduled" if how == "release" else "cancelled")


async def test_a_tool_with_effects_does_not_run_after_the_loss(board: Board) -> None:
    """The claim goes while the model thinks; what it then asks for is never done."""
    ran: list[str] = []

    @tool
    def change() -> str:
        """Change the world."""
        ran.append("change")
        return "changed"

    await board.spawn("alice")
    model = Paused({TITLE: [call("change"), END], "Other": [END]}, where=lambda request: request.title == TITLE)
    async with hosting(board, model, tools=[change]):
        task = await board.put(TITLE)
        await within(model.reached.wait())
        await board.cancel(task.id)
        model.go.set()
        await until_ended(board, await board.put("Other"))
    assert ran == []


async def test_no_tool_runs_when_the_lease_is_over_by_our_own_clock(opener: Opener) -> None:
    """The machine sleeps between two tools. Work that nobody took meanwhile goes on under the same claim."""
    slept, looks = [0.0], [0]
    ran: list[str] = []

    def clock() -> float:
        looks[0] += bool(slept[0])
        return Sources().uptime() + slept[0]

    @tool
    def first() -> str:
        """The machine falls asleep during this, and wakes much later."""
        ran.append("first")
        slept[0] = 3_600.0
        return "done"

    @tool
    def second() -> str:
        """Change the world."""
        ran.append("second")
        return "changed"

    board = await opener(**short_lease(60), sources=Sources(uptime=clock))
    await board.spawn("alice")
    model = ScriptedModel({TITLE: [calls(("first", {}), ("second", {})), END]})
    async with hosting(board, model, tools=[first, second]) as host:
        task = await board.put(TITLE)
        await until(board, lambda: asyncio.sleep(0, looks[0] >= 3))  # By the tool, then by whoever waits for the beat.
        assert ran == ["first"]
        await host._renew()
        (done,) = await until_ended(board, task)
    assert (done.state, done.claims) == ("done", 1)
    assert ran == ["first"]  # Whether the second had begun cannot be known later, so the model is told to look.
    assert "Interrupted: " in all_told(model.asked[-1])


async def test_while_the_board_hangs_past_the_lease_all_work_is_dropped_and_goes_on_later(opener: Opener) -> None:
    board = await opener(**short_lease(1.0))
    await board.spawn("alice")
    released = asyncio.Event()

    async def hang() -> None:
        await released.wait()

    hung = Between(board, "heartbeat", hang)
    model = Paused({TITLE: [END]})
    async with hosting(hung, model, knows_neighbours=False) as host:
        task = await board.put(TITLE)
        await within(model.reached.wait())
        (life,) = host.workers.values()
        await until(board, lambda: asyncio.sleep(0, hung.happened and life.claim is None))
        assert not host.lease_runs()
        model.go.set()
        released.set()
        (done,) = await until_ended(board, task)
    assert done.state == "done"


async def test_a_host_that_was_stopped_from_outside_begins_anew_under_another_id(opener: Opener) -> None:
    board = await opener(**short_lease(0.9))
    await board.spawn("alice")
    model = Paused({TITLE: [END]}, where=lambda request: len(model.asked) == 0)
    async with hosting(board, model) as host:
        task = await board.put(TITLE)
        await within(model.reached.wait())
        before = host.id
        await board.stop_host(before)
        await until(board, lambda: asyncio.sleep(0, host.id != before))
        model.go.set()
        (done,) = await until_ended(board, task)
        assert done.state == "done"
        assert (await board.teammate("alice")).host == host.id


# Taking over.


async def test_the_tasks_of_a_dead_host_go_on_at_another_which_never_stopped_working(opener: Opener) -> None:
    board, other = await opener(**short_lease(1.0)), await opener(**short_lease(1.0))
    await board.spawn("alice")
    task = await board.put(TITLE)
    model = Paused(SCRIPT, where=lambda request: request.turn == 2)
    dead = host_of(board, model)
    await dead.start()
    await within(model.reached.wait())
    again = ScriptedModel(SCRIPT)
    async with hosting(other, again) as second:
        await kill(dead)
        (done,) = await until_ended(other, task)
        assert (done.state, done.tries) == ("done", 1)
        assert (await other.teammate("alice")).host == second.id
    assert [request.turn for request in again.asked] == [2]


async def test_two_hosts_never_run_the_same_teammate(opener: Opener) -> None:
    board, other = await opener(), await opener()
    for number in range(6):
        await board.spawn(f"m{number}")
    model = ScriptedModel({"*": [END]})
    async with hosting(board, model) as first, hosting(other, model) as second:

        async def all_seated() -> bool:
            return len(first.workers) + len(second.workers) >= 6

        await until(board, all_seated)
        tasks = [await board.put(f"t{number}") for number in range(30)]
        await until_ended(board, *tasks)
        assert not first.workers.keys() & second.workers.keys()
        assert all([len(await board.attempts(task.id)) == 1 for task in tasks])


async def test_who_has_a_seat_here_but_no_life_is_given_one(board: Board) -> None:
    """The seat was taken, and the answer was lost."""
    await board.spawn("alice")

    troubled = AnswerLost(board, "seat", busy, where=bool)
    async with hosting(troubled, ScriptedModel(SCRIPT)):
        await until_ended(board, await board.put(TITLE))
    assert troubled.happened == 1


async def test_a_mind_that_cannot_be_made_fails_its_teammate_alone(board: Board) -> None:
    await board.spawn("alice", model="no:such")
    await board.spawn("bob", model="bug")
    await board.spawn("carol")
    good = host_of(board, ScriptedModel(SCRIPT)).mind

    def mind(member: Teammate, may_act: Callable[[], bool]) -> Any:
        if member.model == "no:such":
            raise ModelMisconfigured("There is no model 'no:such'.")
        if member.model == "bug":
            raise ValueError("not a model")
        return good(member, may_act)

    async with hosting(board, None, mind=mind) as host:
        (done,) = await until_ended(board, await board.put(TITLE))
        assert done.teammate == "carol"
        assert (await until_status(board, "alice", "failed")).reason == "There is no model 'no:such'."
        assert "not a model" in str((await until_status(board, "bob", "failed")).reason)
        assert host.broken_models() == {"no:such", "bug"}


# The end.


async def test_an_orderly_stop_records_the_turn_under_way_and_gives_the_task_back(board: Board) -> None:
    await board.spawn("alice")
    task = await board.put(TITLE)
    steps = [call("note", title="a", text="b"), call("list_tasks"), END]
    model = Paused({TITLE: steps}, where=lambda request: request.turn == 1)
    host = host_of(board, model)
    await host.start()
    await within(model.reached.wait())
    stopping = asyncio.ensure_future(host.stop())
    await asyncio.sleep(0.05)
    model.go.set()
    await within(stopping)
    back = await board.find(task.id)
    assert (back.state, back.tries, back.reason) == ("ready", 0, "its host was stopped")
    assert [each.kind for each in await board.transcript(task.id, 1)] == ["reply", "tool"]
    assert (await board.teammate("alice")).status == "wanted"
    assert not any(each.alive for each in await board.hosts())
    again = ScriptedModel({TITLE: steps})
    async with hosting(board, again):
        (done,) = await until_ended(board, task)
    assert (done.state, done.tries) == ("done", 0)
    assert [request.turn for request in again.asked] == [2, 3]
    assert len(await board.search_notes()) == 1


async def test_a_stop_does_not_wait_for_what_hangs(board: Board) -> None:
    reached, freed = asyncio.Event(), asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        reached.set()
        while not freed.is_set():
            try:
                await freed.wait()
            except asyncio.CancelledError:
                pass
        return "over"

    await board.spawn("alice")
    task = await board.put(TITLE)
    async with hosting(board, ScriptedModel({TITLE: [call("hang"), END]}), tools=[hang], limits={"stop_seconds": 0.2}):
        await within(reached.wait())
    back = await board.find(task.id)
    assert (back.state, back.tries) == ("ready", 0)
    freed.set()
    await asyncio.sleep(0.05)
    assert (await board.find(task.id)).state == "ready"  # What was left behind can write nothing.


async def test_a_stopped_host_leaves_nothing_running(board: Board) -> None:
    await board.teammate((await board.spawn("alice")).name)
    before = asyncio.all_tasks()
    async with hosting(board, ScriptedModel(SCRIPT)):
        await until_ended(board, await board.put(TITLE))
    await asyncio.sleep(0.05)
    left = {task.get_name() for task in asyncio.all_tasks() - before}
    assert {name for name in left if not name.startswith("dugnad board")} == set()


async def test_stopping_again_and_again_never_counts_as_a_try(board: Board) -> None:
    await board.spawn("alice")
    task = await board.put(TITLE)

    def script(request: Request) -> Step:
        return END if request.turn == 6 else call("list_tasks")

    model = ScriptedModel(script)
    for turn in range(1, 5):
        pausing = Paused(script, where=lambda request, turn=turn: request.turn >= turn)  # type: ignore[misc]
        host = host_of(board, pausing)
        await host.start()
        await within(pausing.reached.wait())
        stopping = asyncio.ensure_future(host.stop())
        await asyncio.sleep(0.02)
        pausing.go.set()
        await within(stopping)
    async with hosting(board, model):
        (done,) = await until_ended(board, task)
    assert (done.state, done.tries) == ("done", 0)
    assert all_told(of_task(model)[-1]).count("Your task is #1") == 1


# Trouble with the database itself.


async def interrupt(url: str, seconds: float) -> None:
    """Cut every connection of a server, or hold the lock of a file for a while."""
    if url.startswith("sqlite"):
        other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(seconds)
        other.execute("ROLLBACK")
        other.close()
        return
    connection = await asyncpg.connect(url.split("?", maxsplit=1)[0])
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    await connection.close()


async def test_a_database_that_is_away_for_a_moment_delays_the_work_and_no_more(opener: Opener, url: str) -> None:
    board = await opener(
        limits=Limits(lease_seconds=5, backoff_seconds=0.01),
        patience=Patience(busy_seconds=0.2, reconnect_seconds=5, poll_seconds=0.5),
    )
    for name in ("alice", "bob"):
        await board.spawn(name)

    def script(request: Request) -> Step:
        return END if request.turn == 12 else Step(calls=(("list_tasks", {}),), seconds=0.02)

    tasks: list[Task] = [await board.put(f"t{number}") for number in range(4)]
    async with hosting(board, ScriptedModel(script)):
        await until_state(board, tasks[0], "claimed")
        await interrupt(url, 1.0)
        await interrupt(url, 1.0)
        done = await until_ended(board, *tasks)
        assert {task.state for task in done} == {"done"}
        assert {each.status for each in await board.team()} <= {"idle", "working"}
