"""Scripts: what they write is what the verbs would write, and where something stands in the way, the verbs decide."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from dugnad.board import Board, open_board
from dugnad.errors import BudgetSpent, CoolingDown, StaleClaim
from dugnad.types import Amount, Budget, Done, Need, NewTurn, Pace
from tests.board.crew import crew, kinds
from tests.board.test_answer_lost import PATIENCE, log_of, sources, state_of
from tests.conftest import Opener
from tests.postgres_server import PostgresServer

SEVEN = Amount(tokens=7)


def turn(number: int, **more: Any) -> NewTurn:
    return NewTurn(number=number, kind="reply", body='{"text": "x"}', **more)


async def scripts_of(board: Board, work: Callable[[], Awaitable[Any]]) -> list[bool]:
    """For each transaction that this writes, whether a script was enough."""
    enough: list[bool] = []
    real = board._store.write

    async def write(work: Any, **more: Any) -> bool:
        enough.append(await real(work, **more))
        return enough[-1]

    board._store.write = write  # type: ignore[method-assign]
    try:
        await work()
    finally:
        board._store.write = real  # type: ignore[method-assign]
    return enough


async def test_over_a_wire_one_half_of_many_calls_is_written_while_the_other_goes_on(board: Board, url: str) -> None:
    async def puts(count: int) -> int:
        async def works() -> None:
            await asyncio.gather(*(board.put("a task") for _ in range(count)))

        return len(await scripts_of(board, works))

    assert [await puts(count) for count in (1, 8, 32)] == [1, 1, 2 if url.startswith("postgres") else 1]


async def test_a_task_of_a_holder_is_written_by_scripts(board: Board, url: str) -> None:
    team = await crew(board)
    task = await board.put("one")
    await board.put("behind", needs=[task.id])
    claim = await team.must_claim()

    async def works() -> None:
        message = await board.tell("human", "alice", "hello")
        key = await board.reserve(claim, SEVEN, pace=Pace(key="k"))
        await board.take("alice", "first")
        await board.record(claim, turn(1, used=SEVEN, reservation=key, shown=(message.id,)))
        await board.record(claim, turn(2, used=Amount(milliseconds=5)))
        assert await board.settle(claim, Done("well")) == "done"

    # Telling and taking are not scripts. On SQLite, the end of a task that another waits for is not one either.
    ends = url.startswith("postgres")
    assert await scripts_of(board, works) == [False, True, False, True, True, ends]
    assert (await board.budget(task.root)).spent == Amount(tokens=7, milliseconds=5)
    assert (await kinds(board))[-2:] == ["done", "ready"]
    assert not await board.has_unread("alice")


@pytest.mark.parametrize("count", [7, 9, 64, 73, 130])
async def test_each_of_many_calls_at_once_is_written_as_it_was_made(board: Board, count: int) -> None:
    names = [f"mate{number}" for number in range(count)]
    host = await board.start_host("one")
    await asyncio.gather(*(board.spawn(name, host=host) for name in names))
    await asyncio.gather(*(board.put(f"for {name}", assignee=name) for name in names))
    claims = [claim for claim in await asyncio.gather(*(board.claim(name, host) for name in names)) if claim]
    await asyncio.gather(*(board.record(each, turn(1)) for each in claims[::2]))
    await asyncio.gather(*(board.settle(each, Done(f"done by {each.teammate}")) for each in claims))
    done = {task.assignee: task.result for task in await board.list_tasks(page=1_000)}
    assert done == {name: f"done by {name}" for name in names}
    turns = [len(await board.transcript(each.task.id, each.epoch)) for each in claims]
    assert turns == [number % 2 == 0 for number in range(count)]
    told = await board.events()
    assert [event.seq for event in told] == list(range(1, len(told) + 1))
    assert sorted(event.actor for event in told if event.kind == "done") == sorted(names)


async def test_the_verbs_decide_where_something_stands_in_the_way(opener: Opener) -> None:
    board = await opener()
    team = await crew(board)
    await board.put("one", budget=Budget(tokens=10))
    claim = await team.must_claim()
    key = await board.reserve(claim, SEVEN, pace=Pace(key="k"))
    with pytest.raises(BudgetSpent):
        await board.reserve(claim, SEVEN, pace=Pace(key="k"))
    await board.record(claim, turn(1, used=Amount(tokens=9), reservation=key))  # More than was reserved.
    assert await board.record(claim, turn(1, used=Amount(tokens=9), reservation=key)) == 1  # The same again.
    assert (await board.budget(claim.task.root)).spent == Amount(tokens=9)
    await board.cool_down("k", reason="429", by="alice", seconds=60)
    with pytest.raises(CoolingDown):
        await board.reserve(claim, Amount(tokens=1), pace=Pace(key="k"))
    await board.release(claim.task.id)
    for late in (board.record(claim, turn(2)), board.reserve(claim, Amount()), board.settle(claim, Done())):
        with pytest.raises(StaleClaim):
            await late


async def test_what_one_gives_back_is_in_the_log_before_another_reserves_it(board: Board) -> None:
    """In one transaction. Each event of the log leaves the goal under its cap, and not only the last one."""
    team = await crew(board, "alice", "bob")
    goal = await board.put("one", budget=Budget(tokens=10))
    first = await team.must_claim()
    await board.follow_up(first, "two")
    second = await team.must_claim("bob")
    key = await board.reserve(first, SEVEN)
    await asyncio.gather(
        board.reserve(second, Amount(tokens=5)),
        board.record(first, turn(1, used=Amount(tokens=4), reservation=key)),
    )
    kept = await board.budget(goal.root)
    assert (kept.spent, kept.reserved) == (Amount(tokens=4), Amount(tokens=5))
    assert [kind for kind in await kinds(board) if kind in ("reserved", "spent")] == ["reserved", "spent", "reserved"]


async def test_a_reservation_that_is_still_open_counts_when_its_task_ends(board: Board) -> None:
    team = await crew(board)
    await board.put("one")
    claim = await team.must_claim()
    await board.reserve(claim, SEVEN)
    assert await scripts_of(board, lambda: board.settle(claim, Done())) == [False]
    assert (await board.budget(claim.task.root)).spent == SEVEN


async def test_what_changed_between_the_look_and_the_script_is_seen(opener: Opener, url: str) -> None:
    """Another process moves a dependent, and takes the candidate, after this one has looked."""
    here, there = await opener(), await opener()
    ours, theirs = await crew(here, "alice"), await crew(there, "bob")
    one, two = await here.put("one", priority=3), await here.put("two", priority=2)
    behind = await here.put("behind", needs=[Need(one.id), Need(two.id)])
    third, fourth = await here.put("third"), await here.put("fourth")
    first, second = await ours.must_claim("alice"), await theirs.must_claim("bob")
    real, looked = here._store.read, []

    async def read(name: str, /, **given: Any) -> Any:
        rows = await real(name, **given)
        if name == "view_dependents":
            looked.append(await there.settle(second, Done()))
        if name == "view_candidates":
            looked.append((await theirs.must_claim("bob")).task.id)
        return rows

    here._store.read = read  # type: ignore[method-assign]
    assert await here.settle(first, Done()) == "done"
    if not looked:  # On SQLite nothing is looked at before.
        await there.settle(second, Done())
    assert (await here.find(behind.id)).state == "ready"
    await here.cancel(behind.id)
    mine = await ours.must_claim("alice")
    assert (mine.task.id, looked) in ((fourth.id, ["done", third.id]), (third.id, []))
    here._store.read = real  # type: ignore[method-assign]


async def test_a_task_that_a_person_assigned_after_the_look_is_left_to_its_assignee(opener: Opener) -> None:
    here, there = await opener(), await opener()
    ours, theirs = await crew(here, "alice"), await crew(there, "bob")
    task = await here.put("one")
    real = here._store.read

    async def read(name: str, /, **given: Any) -> Any:
        rows = await real(name, **given)
        if name == "view_candidates":
            await there.assign(task.id, "bob")
        return rows

    here._store.read = read  # type: ignore[method-assign]
    if here._store.over_a_wire:
        assert await ours.claim("alice") is None
    here._store.read = real  # type: ignore[method-assign]
    await there.assign(task.id, "bob")
    assert await ours.claim("alice") is None
    claim = await theirs.must_claim("bob")
    assert claim.task == await here.find(task.id), "a claim tells of the task as it is on the board"


@pytest.fixture(scope="module")
def server() -> Any:
    found = PostgresServer()
    found.start()
    yield found
    found.remove()


@pytest.fixture
async def plain_user(server: PostgresServer) -> AsyncIterator[str]:
    """A user that may not make temporary functions, so that nothing is a script."""
    connection = await asyncpg.connect(server.url)
    await connection.execute("REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC")
    await connection.execute("CREATE USER plain")
    await connection.execute("CREATE SCHEMA plain AUTHORIZATION plain")
    yield server.url.replace("postgres@", "plain@") + "?board=plain"
    await connection.close()


async def test_without_scripts_the_same_is_written(server: PostgresServer, plain_user: str) -> None:
    async def a_day(board: Board) -> None:
        team = await crew(board, "alice", "bob")
        tasks = [await board.put(f"task {place}", priority=-place) for place in range(3)]
        await board.put("behind", needs=[task.id for task in tasks])
        for name in ("alice", "bob", "alice", "bob"):
            claim = await team.must_claim(name)
            for number in (1, 2):
                key = await board.reserve(claim, SEVEN, pace=Pace(key="k"))
                await board.record(claim, turn(number, used=Amount(tokens=number), reservation=key))
            await board.settle(claim, Done(f"{name} did it", "approved"), handover="take care")

    logs, states, scripts = [], [], []
    for url in (f"{server.url}?board=whole", plain_user):
        async with await open_board(url, patience=PATIENCE, sources=sources(1)) as board:
            scripts.append(sum(await scripts_of(board, lambda board=board: a_day(board))))  # type: ignore[misc]
            assert await board.replayed_state() == await board.observed_state()
            logs.append(await log_of(board))
            states.append(await state_of(board))
    assert logs[0] == logs[1]
    assert states[0] == states[1]
    assert scripts == [4 * 6, 0]
