"""Whether a run is over, while the team changes: what moves from one place to another is never seen in neither."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dugnad import Team
from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.team import Host, RunPlan
from dugnad.team.minds import Minds, Models
from dugnad.tools.message_tools import MADE_ROOM
from dugnad.types import Budget
from tests.agent.stage_agent import TITLE
from tests.conftest import Opener

CALLS = range(1, 7)


class Restless:
    """A real board. Before one call of it, whichever that is, something else happens."""

    def __init__(self, board: Board, number: int, happens: Callable[[], Awaitable[object]]) -> None:
        self._board, self._left, self._happens = board, number, happens

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._board, name)
        if not callable(found):
            return found

        async def later(*given: Any, **fields: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                await self._happens()
            return await found(*given, **fields)

        return later


async def team_on(board: Board, number: int, happens: Callable[[], Awaitable[object]], **fields: Any) -> Team:
    """A team that looks at a board on which something happens before that call; with a host that is not started."""
    restless: Any = Restless(board, number, happens)
    plan = RunPlan(**{"url": "", "model": ScriptedModel({}), "agents": 3, **fields})
    team = Team(plan, board=restless)
    minds = Minds(plan, restless, Models(plan), {})
    team._host = Host(board=restless, mind=minds, plan=plan, id=await board.start_host("here"))
    return team


@pytest.mark.parametrize("number", CALLS)
async def test_the_last_task_the_cap_allows_is_seen_while_it_is_taken(opener: Opener, number: int) -> None:
    """It is claimed, and with that the cap is reached and the root held: the run ends only when the task has."""
    board = await opener()
    elsewhere = await board.start_host("elsewhere")
    for name in ("alice", "bob"):
        await board.spawn(name, host=elsewhere)
    root = await board.put(TITLE, budget=Budget(tasks=1))
    await board.put("Another", parent=root.id)

    async def taken() -> None:
        assert await board.claim("alice", elsewhere) is not None
        assert await board.claim("bob", elsewhere) is None
        assert (await board.budget(root.id)).held == "tasks"

    team = await team_on(board, number, taken)
    assert await team.standing([root.id]) == "working"


@pytest.mark.parametrize("number", CALLS)
async def test_one_who_joins_for_the_work_that_waits_is_seen(opener: Opener, number: int) -> None:
    """The author made room, and nobody is there but the one who comes just now for the review."""
    board = await opener()
    await board.spawn("alice")
    await board.stop_teammate("alice", by="board", reason=f"{MADE_ROOM}bob")
    task = await board.put("Review", not_for="alice")

    async def joins() -> None:
        await board.spawn("bob", host=host)

    team = await team_on(board, number, joins)
    assert team.host is not None
    host = team.host.id
    assert await team.standing([task.id]) == "working"
    if number == 1:  # Whoever asks before anything changed says the same.
        assert not await (await team_on(board, 100, joins)).is_over()


@pytest.mark.parametrize("number", CALLS)
async def test_a_host_for_all_work_is_not_over_while_one_joins(opener: Opener, number: int) -> None:
    board = await opener()
    await board.put(TITLE)

    async def joins() -> None:
        await board.spawn("bob")

    assert not await (await team_on(board, number, joins, agents=1)).is_over()


@pytest.mark.parametrize("number", CALLS)
async def test_nobody_joins_for_what_somebody_takes_at_this_moment(opener: Opener, number: int) -> None:
    """Ready work and the team are looked at together, so a task that was just taken calls for nobody."""
    board = await opener()
    await board.put(TITLE)

    async def taken() -> None:
        assert await board.claim("alice", host) is not None

    team = await team_on(board, number, taken, agents=3)
    assert team.host is not None
    host = team.host.id
    await board.spawn("alice", host=host)
    await team.host._grow()
    assert [each.name for each in await board.team()] == ["alice"]
