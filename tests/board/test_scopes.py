"""A host with a scope: its teammates claim under certain roots only, by whatever way they ask."""

from __future__ import annotations

import asyncio

import pytest

from dugnad.board import Board
from dugnad.errors import NotReady
from dugnad.types import Done, NewTask
from tests.board.crew import Crew, expire
from tests.conftest import Opener


async def scoped(board: Board, *names: str, roots: list[int]) -> Crew:
    host = await board.start_host("scoped", scope=roots)
    for name in names:
        await board.spawn(name)
        await board.seat(host, name=name)
    return Crew(board, host)


async def test_a_scoped_host_takes_only_what_is_under_its_roots(board: Board) -> None:
    leftover = await board.put("leftover", priority=9)
    goal = await board.put("goal")
    crew = await scoped(board, "alice", "bob", roots=[goal.id])
    claim = await crew.must_claim()
    assert claim.task.id == goal.id
    follow = await board.follow_up(claim, "found on the way")
    assert (await crew.must_claim("bob")).task.id == follow.id
    await board.settle(claim, Done("done"))
    assert await crew.claim() is None
    assert (await board.find(leftover.id)).state == "ready"


async def test_a_claim_by_name_does_not_pass_by_the_scope(board: Board) -> None:
    leftover, goal = await board.put("leftover"), await board.put("goal")
    crew = await scoped(board, "alice", roots=[goal.id])
    with pytest.raises(NotReady, match="not under the goal of this run"):
        await crew.claim(task=leftover.id)
    assert (await board.find(leftover.id)).epoch == 0
    assert await crew.claim(task=goal.id) is not None


async def test_hosts_of_different_scopes_ask_at_one_moment_and_each_gets_its_own(board: Board) -> None:
    first, second, third = [await board.put(title) for title in ("first", "second", "third")]
    one = await scoped(board, "alice", roots=[second.id])
    two = await scoped(board, "bob", roots=[third.id])
    free = await board.start_host("free")
    await board.spawn("carol")
    await board.seat(free, name="carol")
    found = await asyncio.gather(one.claim("alice"), two.claim("bob"), board.claim("carol", free), one.claim("alice"))
    assert [claim and claim.task.id for claim in found] == [second.id, third.id, first.id, None]


async def test_a_scope_looks_past_what_is_not_for_the_asker_and_what_has_no_run_left(board: Board) -> None:
    goal = await board.put("goal", not_for="alice")
    child = await board.put("child", parent=goal.id)
    crew = await scoped(board, "alice", "bob", roots=[goal.id])
    found = await asyncio.gather(crew.claim("alice"), crew.claim("bob"))
    assert [claim and claim.task.id for claim in found] == [child.id, goal.id]


async def test_a_scope_survives_a_lost_lease(opener: Opener, url: str) -> None:
    board = await opener()
    await board.put("leftover")
    goal = await board.put("goal")
    crew = await scoped(board, "alice", roots=[goal.id])
    await expire(url, crew.host)
    await board.take_back()
    await board.heartbeat(crew.host)
    await board.seat(crew.host, name="alice")
    assert (await crew.must_claim()).task.id == goal.id
    assert await crew.claim() is None


async def test_ready_work_is_counted_under_some_roots_by_the_same_lanes(board: Board) -> None:
    goal = await board.put("goal")
    entries = [
        NewTask(title="a", role="coder", parent=goal.id), NewTask(title="b", role="coder", parent=goal.id),
        NewTask(title="c", role="coder", not_for="bob", parent=goal.id),
        NewTask(title="d", assignee="alice", not_for="bob", parent=goal.id),
        NewTask(title="later", parent=goal.id, delay_seconds=60),
    ]  # fmt: skip
    await board.put_many(entries)
    alone = await board.ready_work()
    assert alone == await board.ready_work(roots=[goal.id]) == {"": 1, "coder": 2, "coder!bob": 1, "@alice": 1}
    await board.put("leftover", role="tester")
    assert await board.ready_work(roots=[goal.id]) == alone
