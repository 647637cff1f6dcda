"""A board in trouble at any one call of a whole life: nothing is lost, done twice, or left held by nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dugnad import Team
from dugnad.board import Board
from dugnad.errors import BoardBusy
from dugnad.models import ScriptedModel
from dugnad.models.scripted import Step
from dugnad.team import requests
from dugnad.types import Amount, Budget, Task
from tests.agent.stage_agent import END, TITLE, call
from tests.conftest import Opener
from tests.team.stage_team import (
    AnswerLost,
    Between,
    Paused,
    busy,
    errands,
    hosting,
    short_lease,
    until,
    until_ended,
    until_status,
)

SCRIPT = {
    TITLE: [call("note", title="a", text="b"), call("schedule_followup", title="More"), END],
    "More": [call("list_tasks"), END],
    "*": [Step(say="All right.")],
}
READING = (
    "beginning", "budget", "has_unread", "hosts", "inbox", "mail_and_budget", "next_lapse", "ready_work", "requests",
    "shutdown_requests", "surroundings", "team",
)  # fmt: skip
WRITING = (
    "claim", "put", "record", "reply", "reserve", "seat", "settle", "spawn", "stop_teammate", "take",
    "take_back", "tell", "follow_ups", "write_note",
)  # fmt: skip


async def whole_life(board: Board, troubled: Any, verb: str = "") -> None:
    """Somebody joins, works a task and what follows from it, answers the human, is asked to leave, and goes."""
    await board.put(TITLE)
    if verb in ("seat", "take_back"):  # Who joins by itself is spawned in its seat.
        await board.spawn("alice")
    if verb == "take_back":  # There is nothing to take back, unless a host has left something.
        gone = await board.start_host("gone")
        await board.seat(gone, name="alice")
        await board.claim("alice", gone)
        await board.stop_host(gone)
    async with hosting(troubled, ScriptedModel(SCRIPT), agents=1) as host:

        async def all_done() -> list[Task]:
            found = await board.list_tasks()
            return found if len(found) == 2 and all(task.state == "done" for task in found) else []

        done = await until(board, all_done)
        (name,) = {str(task.teammate) for task in done}
        await board.tell("human", name, "hello")
        await until(board, lambda: board.inbox("human"))
        await until_ended(board, *await errands(board))
        await requests.stop(board, name)
        await until_status(board, name, "stopped")
        assert host.workers.keys() <= {name}
    assert [task.state for task in await board.list_tasks()] == ["done"] * 3
    assert [task.tries for task in await board.list_tasks()] == [int(verb == "take_back"), 0, 0]
    assert len(await board.search_notes()) == 1
    assert [message.text for message in await board.inbox("human")] == ["All right.", "Nothing holds me."]
    assert [each.status for each in await board.team()] == ["stopped"]
    assert troubled.happened == 1


@pytest.mark.parametrize("verb", [*READING, *WRITING])
async def test_a_board_that_is_busy_once_changes_nothing(opener: Opener, verb: str) -> None:
    board = await opener(**short_lease(3.0))
    await whole_life(board, Between(board, verb, busy), verb)


@pytest.mark.parametrize("verb", WRITING)
async def test_an_answer_that_is_lost_once_changes_nothing(opener: Opener, verb: str) -> None:
    board = await opener(**short_lease(3.0))
    something = bool if verb in ("claim", "seat", "take") else lambda answer: True
    await whole_life(board, AnswerLost(board, verb, busy, where=something), verb)


@pytest.mark.parametrize("trouble", [Between, AnswerLost])
async def test_a_beat_that_fails_once_loses_nothing(opener: Opener, trouble: type[Between]) -> None:
    board = await opener(**short_lease(4.0))
    await board.spawn("alice")
    model = Paused({TITLE: [END]})
    troubled = trouble(board, "heartbeat", busy)
    async with hosting(troubled, model):
        task = await board.put(TITLE)
        await until(board, lambda: asyncio.sleep(0, troubled.happened))
        await asyncio.sleep(4.0)
        model.go.set()
        (done,) = await until_ended(board, task)
    assert (done.state, done.tries, len(await board.attempts(task.id))) == ("done", 0, 1)


async def test_who_was_interrupted_by_the_board_does_not_wait_for_what_it_has_reserved_itself(board: Board) -> None:
    await board.spawn("alice")
    # One call reserves all there is. Its reply cannot be recorded, so it counts as spent, and a person is asked.
    task = await board.put(TITLE, budget=Budget(tokens=8_000))
    troubled = Between(board, "record", busy)
    async with hosting(troubled, ScriptedModel({TITLE: [END]})):

        async def is_held() -> bool:
            return (await board.budget(task.id)).held == "tokens"

        await until(board, is_held)
        spending = await board.budget(task.id)
        assert (spending.reserved, spending.spent.tokens) == (Amount(), 8_000)
        await board.raise_budget(task.id, Budget(tokens=100_000))
        (done,) = await until_ended(board, task)
    assert (done.state, done.tries, troubled.happened) == ("done", 0, 1)


@pytest.mark.parametrize("verb", ["fail_teammate", "settle"])
async def test_a_failing_teammate_fails_also_when_the_board_is_busy(board: Board, verb: str) -> None:
    await board.spawn("alice")
    task = await board.put(TITLE)

    def broken(request: Any) -> Step:
        raise ValueError("a bug")

    async with hosting(Between(board, verb, busy), ScriptedModel(broken)):
        assert (await until_status(board, "alice", "failed")).reason == "ValueError: a bug"
        assert (await board.find(task.id)).state in ("ready", "scheduled")


async def test_a_team_that_a_busy_board_kept_from_starting_starts_when_it_is_asked_again(
    url: str, opener: Opener
) -> None:
    board = await opener()
    async with Team.open(url, model=ScriptedModel({TITLE: [END]})) as team:
        team._board = troubled = Between(team.board, "start_host", busy)  # type: ignore[assignment]
        with pytest.raises(BoardBusy):
            await team.start()
        await team.spawn("alice")
        task = await board.put(TITLE)
        host = await team.start()
        await until_ended(board, task)
        assert (await board.find(task.id)).state == "done"
        assert host.id in {each.id for each in await board.hosts()}
    assert troubled.happened == 1
