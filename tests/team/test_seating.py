"""Who starts where: a process that brings its own teammates runs them itself, whoever else is about."""

from __future__ import annotations

from dugnad import Team
from dugnad.models import ScriptedModel
from tests.conftest import Opener
from tests.team.stage_team import until, until_status


async def test_those_a_process_brings_are_its_own_though_another_host_takes_all_who_are_wanted(
    opener: Opener, url: str
) -> None:
    board = await opener()
    async with Team.open(url, model=ScriptedModel({})) as greedy, Team.open(url, model=ScriptedModel({})) as other:
        host = await greedy.start()
        await board.spawn("walter")
        await until_status(board, "walter", "idle")
        assert (await board.teammate("walter")).host == host.id, "who is wanted goes to whoever looks"
        joined = await other.assemble(2, roles=("coder",), here=True)
        own = await other.start()
        await until(board, lambda: _lives(own.workers, joined))
        assert {(each.host, each.roles) for each in await board.team() if each.name in joined} == {(own.id, ("coder",))}
        assert set(host.workers) == {"walter"}


async def _lives(lives: object, names: list[str]) -> bool:
    return all(name in lives for name in names)  # type: ignore[operator]


async def test_one_that_is_spawned_for_a_host_is_seated_there_at_once(opener: Opener) -> None:
    board = await opener()
    host = await board.start_host("one")
    there = await board.spawn("alice", host=host)
    assert (there.status, there.host, there.seat) == ("idle", host, 1)
    again = await board.spawn("alice", host=await board.start_host("two"))
    assert (again.host, again.seat) == (host, 1), "it is there already"
