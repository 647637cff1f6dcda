"""Work that a teammate added: whether it is told of its end, between its own tasks and in them."""

from __future__ import annotations

from dugnad.board import Board
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.team import requests
from dugnad.types import Task
from tests.agent.stage_agent import END, TITLE, all_told, call, told
from tests.team.stage_team import Paused, hosting, until, until_ended, until_state, within

ADD = call("add_tasks", tasks=[{"title": "Part", "role": "helper"}])
WORDS = "'Part', which you added, is done (bob): built"


async def part_of(board: Board) -> Task:
    return next(task for task in await board.list_tasks() if task.title == "Part")


async def test_a_notice_of_work_for_a_task_that_is_over_is_not_read_with_the_next(board: Board) -> None:
    await board.spawn("alice")
    await board.spawn("bob", roles=["helper"])
    model = Paused(
        {TITLE: [ADD, END], "Part": [END], "Next": [call("list_tasks"), END]},
        where=lambda request: request.title == TITLE and request.turn == 2,
    )
    async with hosting(board, model):
        first = await board.put(TITLE, assignee="alice")
        await within(model.reached.wait())
        await until_ended(board, await part_of(board))
        assert [each.text for each in await board.inbox("alice")] == [f"#2 {WORDS}"]
        model.go.set()
        await until_ended(board, first)
        await until_ended(board, await board.put("Next", assignee="alice"))
    (last,) = [request for request in model.asked if request.title == "Next" and request.turn == 2]
    assert "which you added" not in all_told(last)
    assert not await board.inbox("alice")


async def test_what_ends_while_the_task_waits_for_something_else_is_told_when_it_goes_on(board: Board) -> None:
    def script(request: Request) -> Step:
        if request.title == TITLE:
            return (ADD, call("ask_human", question="Which?"), END)[request.turn - 1]
        return END

    await board.spawn("alice")
    await board.spawn("bob", roles=["helper"])
    model = Paused(script, where=lambda request: request.title == "Part")
    async with hosting(board, model):
        first = await board.put(TITLE, assignee="alice")
        await until_state(board, first, "waiting")
        model.go.set()
        await until_ended(board, await part_of(board))

        async def is_told() -> bool:
            return bool(await board.inbox("alice"))

        await until(board, is_told)
        await requests.answer(board, "1", "This.")
        await until_ended(board, first)
    assert f"> #2 {WORDS}" in told(model.asked[-1])
