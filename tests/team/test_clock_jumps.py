"""A clock that jumps, a laptop that slept: leases are over by the clock, and nobody who lives loses anything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dugnad.board import Board
from dugnad.clock import Sources, wall_ms
from dugnad.models import ScriptedModel
from dugnad.team import Host, Team
from dugnad.team.lost_hosts import Silence
from dugnad.team.plan import RunPlan
from dugnad.types import HostInfo as HostRecord
from tests.agent.stage_agent import END, TITLE
from tests.board.raw import connect
from tests.conftest import Opener
from tests.team.stage_team import Paused, hosting, kill, short_lease, until, until_ended, within

HOUR = 3_600_000
_CLOCK = (
    "CREATE OR REPLACE FUNCTION now_ms() RETURNS bigint LANGUAGE sql STABLE AS "
    "'SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint + {}'"
)


class SteppedClock:
    """The clock of a board: on SQLite it is handed in, on PostgreSQL it is a function of the board's schema."""

    def __init__(self, url: str) -> None:
        self._url, self._off = url, 0
        self.sources = Sources(now_ms=lambda: wall_ms() + self._off)

    async def step(self, milliseconds: int) -> None:
        self._off += milliseconds
        if self._url.startswith("postgres"):
            connection = await connect(self._url)
            await connection.execute(_CLOCK.format(self._off))
            await connection.close()


async def have_looked(board: Board, hosts: Sequence[Host]) -> None:
    """Until each of them counts as alive again, and has looked at the others a few times since."""

    async def alive() -> bool:
        return all(each.alive for each in await board.hosts())

    await until(board, alive)
    for _ in range(4):
        looks = [host._look_at for host in hosts]
        await until(board, lambda seen=looks: asyncio.sleep(0, all(h._look_at > s for h, s in zip(hosts, seen))))  # type: ignore[misc]  # noqa: B905


async def kinds(board: Board) -> set[str]:
    return {event.kind for event in await board.events()}


LOST = {"host_lost", "host_stopped", "taken_back", "forfeited", "released", "retrying", "failed"}


@pytest.mark.parametrize("jumps", [(HOUR,), (100 * HOUR,), (-HOUR,), (HOUR, -HOUR, 2 * HOUR)], ids=str)
async def test_the_only_host_keeps_its_task_when_the_clock_jumps(
    opener: Opener, url: str, jumps: tuple[int, ...]
) -> None:
    clock = SteppedClock(url)
    board = await opener(**short_lease(1.5), sources=clock.sources)
    await board.spawn("alice")
    model = Paused({TITLE: [END]})
    async with hosting(board, model) as host:
        task = await board.put(TITLE)
        await within(model.reached.wait())
        for jump in jumps:
            await clock.step(jump)
            await have_looked(board, [host])
        assert not await kinds(board) & LOST
        model.go.set()
        (done,) = await until_ended(board, task)
    assert (done.state, done.claims, done.tries) == ("done", 1, 0)


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 1_000], ids=str)
async def test_of_two_hosts_neither_calls_the_other_lost_when_the_clock_jumps(
    opener: Opener, url: str, jump: int
) -> None:
    """Also by less than a lease: then only the one that has not beaten for longest is over its time."""
    clock = SteppedClock(url)
    board = await opener(**short_lease(1.5), sources=clock.sources)
    for name in ("alice", "bob"):
        await board.spawn(name)
    one, two = Paused({TITLE: [END]}), Paused({TITLE: [END]})
    async with (
        hosting(board, one, seats_max=1, knows_neighbours=False) as here,
        hosting(board, two, seats_max=1, knows_neighbours=False) as there,
    ):
        tasks = [await board.put(TITLE) for _ in range(2)]
        await within(asyncio.gather(one.reached.wait(), two.reached.wait()))
        seats = {each.name: each.seat for each in await board.team()}
        for _ in range(3):
            await clock.step(jump)
            await have_looked(board, [here, there])
        assert not await kinds(board) & LOST
        assert {each.name: each.seat for each in await board.team()} == seats
        for model in (one, two):
            model.go.set()
        done = await until_ended(board, *tasks)
    assert [(task.state, task.claims, task.tries) for task in done] == [("done", 1, 0)] * 2


async def test_what_a_dead_host_held_is_taken_over_also_after_a_jump(opener: Opener, url: str) -> None:
    clock = SteppedClock(url)
    board = await opener(**short_lease(1.0), sources=clock.sources)
    await board.spawn("alice")
    model = Paused({TITLE: [END]})
    async with hosting(board, model, knows_neighbours=False) as gone:
        task = await board.put(TITLE)
        await within(model.reached.wait())
        await kill(gone)
        await clock.step(HOUR)
        async with hosting(board, ScriptedModel({TITLE: [END]}), knows_neighbours=False):
            (done,) = await until_ended(board, task)
    assert (done.state, done.claims, done.tries) == ("done", 2, 1)


def seen(*leases: int) -> list[HostRecord]:
    return [
        HostRecord(id=f"h{place}", label="", alive=True, started_at=0, lease_until=lease)
        for place, lease in enumerate(leases)
    ]


def test_a_host_is_silent_only_after_two_beats_in_which_we_were_awake() -> None:
    silence = Silence(30.0)
    found = [silence.watch(seen(1, at), at) for at in range(0, 25, 5)]
    assert found == [{}] * 4 + [{"h0": 1}]
    assert silence.watch(seen(1), 21.0) == {"h0": 1}
    assert silence.watch(seen(2), 22.0) == {}, "it has beaten"


def test_however_long_we_slept_it_counts_as_half_a_beat() -> None:
    """So who slept with us, and had not beaten for a whole beat before, has half of one left."""
    silence = Silence(30.0)
    for at in (0, 5, 10, 10_000, 10_004):
        assert silence.watch(seen(1), at) == {}
    assert silence.watch(seen(1), 10_005) == {"h0": 1}


def test_one_who_has_just_come_calls_nobody_lost_at_once() -> None:
    assert Silence(30.0).watch(seen(1), 1e9) == {}


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
async def test_a_shutdown_is_for_the_life_it_was_asked_in_whatever_the_clock_says(
    opener: Opener, url: str, jump: int
) -> None:
    clock = SteppedClock(url)
    board = await opener(sources=clock.sources)
    host = await board.start_host("here")

    async def ask() -> str:
        asked = await board.tell("human", "ada", "Please leave.", kind="shutdown")
        assert asked.request is not None
        return asked.request

    async def open_requests() -> list[str]:
        return [each.request for each in await board.shutdown_requests(host)]

    await board.spawn("ada", host=host)
    first = await ask()
    assert await open_requests() == [first]
    await board.stop_teammate("ada")
    await clock.step(jump)
    await board.heartbeat(host)
    await board.spawn("ada", host=host)
    assert await open_requests() == []
    assert [each.kind for each in await board.requests("ada")] == []
    again = await ask()
    assert await open_requests() == [again]
    assert [each.request for each in await board.requests("ada")] == [again]


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_what_a_run_took_goes_by_a_clock_that_nobody_can_set(opener: Opener, url: str, step: int) -> None:
    clock = SteppedClock(url)
    board = await opener(sources=clock.sources)
    model = Paused({TITLE: [END]}, where=lambda request: True)
    async with Team(RunPlan(url=url, model=model), board=board) as team:
        await team.spawn("alice")
        task = await board.put(TITLE)
        working = asyncio.ensure_future(team.work([task.id]))
        await within(model.reached.wait())
        await clock.step(step)
        model.go.set()
        await within(working)
        end = await team.report([task.id])
    assert end.took is None or end.took.milliseconds < HOUR // 2
    assert step < 0 or end.took is not None
