"""Claiming: which task, by whom, when, and who is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.board import Board, open_board
from dugnad.clock import Sources
from dugnad.errors import HostLost, NotReady, StoppedTeammate, UnknownTask, UnknownTeammate
from dugnad.types import Done, Failed, NewTask, Released, Waiting
from tests.board.crew import both, claim_many, crew, expire, kinds, make_due, meddle
from tests.conftest import Opener

# Which task.


def in_order(*lanes: dict[str, str]) -> list[NewTask]:
    """Eight tasks whose titles begin with the place in which they should be taken, spread over these lanes."""
    entries = [
        NewTask(title="6 old"),
        NewTask(title="7 young"),
        NewTask(title="5 short chain"),
        NewTask(title="behind", needs=(-3,), priority=99),
        NewTask(title="4 long chain"),
        NewTask(title="behind", needs=(-5,)),
        NewTask(title="behind", needs=(-6,)),
        NewTask(title="8 unimportant", priority=-1),
        NewTask(title="behind", needs=(-8,)),
        NewTask(title="2 important", priority=5),
        NewTask(title="3 important", priority=5),
        NewTask(title="1 most important", priority=6),
    ]
    return [replace(entry, **lanes[int(entry.title[0]) % len(lanes)]) if entry.title[0].isdigit() else entry
            for entry in entries]  # fmt: skip


@pytest.mark.parametrize(
    "lanes",
    [[{}], [{}, {"role": "coder"}], [{"assignee": "alice"}, {"role": "coder"}, {}]],
    ids=["one lane", "two lanes", "three lanes"],
)
async def test_work_is_taken_by_priority_then_longest_chain_then_age(board: Board, lanes: list[dict[str, str]]) -> None:
    await board.put_many(in_order(*lanes))
    team = await crew(board, roles=["coder"])
    taken = [(await team.must_claim()).task.title for _ in range(8)]
    assert [title[0] for title in taken] == list("12345678")
    assert await team.claim() is None


async def test_those_who_ask_together_are_served_in_the_same_order(board: Board) -> None:
    await board.put_many(in_order({}, {"role": "coder"}))
    names = [f"mate{place}" for place in range(5)]
    team = await crew(board, *names, roles=["coder"])
    claims = await claim_many(board, names, team.host)
    assert [(claim.teammate, claim.task.title[0]) for claim in claims] == list(zip(names, "12345", strict=True))


async def test_a_chain_put_piece_by_piece_counts_as_one_put_at_once(board: Board) -> None:
    plain = await board.put("plain")
    first = await board.put("first")
    second = await board.put("second", needs=[first.id])
    third = await board.put("third", needs=[second.id])
    late = await board.put("late")
    await board.add_need(late.id, third.id)
    assert [(await board.find(task.id)).chain for task in (first, second, third, late)] == [3, 2, 1, 0]
    team = await crew(board)
    assert [(await team.must_claim()).task.id for _ in range(2)] == [first.id, plain.id]


async def test_roles_and_names_decide_who_may_take_what(board: Board) -> None:
    for_bob = await board.put("for bob", assignee="bob", role="coder", priority=5)
    for_coders = await board.put("for coders", role="coder", priority=4)
    for_others = await board.put("for others", role="tester", priority=3)
    for_all = await board.put("for all")
    team = await crew(board, "alice", roles=["coder", "reviewer"])
    await board.spawn("bob")
    await board.seat(team.host, name="bob")
    assert (await team.must_claim("alice")).task.id == for_coders.id
    assert (await team.must_claim("alice")).task.id == for_all.id
    assert await team.claim("alice") is None
    assert (await team.must_claim("bob")).task.id == for_bob.id
    assert await team.claim("bob") is None
    assert (await board.find(for_others.id)).state == "ready"


async def test_a_named_task_is_claimed_past_the_order(board: Board) -> None:
    await board.put("important", priority=9)
    plain = await board.put("plain")
    claim = await (await crew(board)).must_claim(task=plain.id)
    assert claim.task == await board.find(plain.id)
    assert (claim.task.state, claim.task.teammate, claim.task.host) == ("claimed", "alice", claim.host)


async def test_a_named_task_is_claimed_under_the_same_rules_as_any(board: Board) -> None:
    task = await board.put("task")
    behind = await board.put("behind", needs=[task.id])
    later = await board.put("later", delay_seconds=3600)
    coders = await board.put("for coders", role="coder")
    bobs = await board.put("for bob", assignee="bob")
    team = await crew(board, "alice", "bob")
    await team.must_claim("bob", task=task.id)
    seq = await board.last_event()
    refusals = {
        task.id: "is claimed by bob", behind.id: "is blocked", later.id: "is scheduled",
        coders.id: "is for coder, and alice may not claim it", bobs.id: "is for @bob, and alice may not claim it",
    }  # fmt: skip
    for each, message in refusals.items():
        with pytest.raises(NotReady, match=f"#{each} {message}"):
            await team.claim("alice", task=each)
    with pytest.raises(UnknownTask, match="#999"):
        await team.claim("alice", task=999)
    assert await board.last_event() == seq


async def test_a_named_and_an_unnamed_claim_at_once_get_different_tasks(board: Board) -> None:
    best, other = await board.put("best", priority=1), await board.put("other")
    team = await crew(board, "alice", "bob", "carol")
    named, unnamed, late = await both(
        team.must_claim("alice", task=best.id), team.must_claim("bob"), team.claim("carol", task=best.id)
    )
    assert not isinstance(named, BaseException | None)
    assert not isinstance(unnamed, BaseException | None)
    assert (named.task.id, unnamed.task.id) == (best.id, other.id)
    assert isinstance(late, NotReady)


async def test_many_teammates_claim_at_once_and_none_shares_a_task(board: Board) -> None:
    for place in range(7):
        await board.put(str(place), role="coder" if place % 2 else None)
    names = [f"mate{place}" for place in range(10)]
    team = await crew(board, *names, roles=["coder"])
    claims = await claim_many(board, names, team.host)
    assert len(claims) == len({claim.task.id for claim in claims}) == len({claim.teammate for claim in claims}) == 7
    assert await claim_many(board, names, team.host) == []
    assert await board.count_tasks() == {"claimed": 7}


async def test_each_claim_charges_the_root_one_run(board: Board) -> None:
    root = await board.put("root")
    await board.put("child", parent=root.id)
    team = await crew(board)
    await board.settle(await team.must_claim(), Released("no"))
    for _ in range(2):
        await team.must_claim()
    assert (await board.budget(root.id)).runs == 3


# When.


async def test_a_task_is_not_claimed_before_it_is_due(board: Board, url: str) -> None:
    by_delay = await board.put("by delay", delay_seconds=3600, priority=1)
    by_date = await board.put("by date", not_before=9_000_000_000_000)
    past = await board.put("past", not_before=1, delay_seconds=0)
    assert (by_delay.state, by_date.state, past.state) == ("scheduled", "scheduled", "ready")
    assert by_date.due_at == 9_000_000_000_000
    team = await crew(board)
    assert (await team.must_claim()).task.id == past.id
    assert await team.claim() is None
    for task in (by_delay, by_date):
        await make_due(url, task.id)
        claim = await team.must_claim()
        assert (claim.task.id, claim.task.due_at) == (task.id, None)


async def test_a_short_delay_passes_by_itself(board: Board) -> None:
    task = await board.put("soon", delay_seconds=0.05)
    assert task.state == "scheduled"
    team = await crew(board)
    async with asyncio.timeout(120):
        with board.watch_for("alice", []) as watch:
            while (claim := await team.claim()) is None:
                await watch.wait(1)
    assert claim.task.id == task.id
    assert await kinds(board, task.id) == ["put", "ready", "claimed"]


async def test_on_sqlite_the_clock_handed_in_decides_to_the_millisecond(folder: Path) -> None:
    now = 1_000_000
    async with await open_board(f"sqlite:///{folder}/board.db", sources=Sources(now_ms=lambda: now)) as board:
        task = await board.put("later", delay_seconds=10, not_before=1_009_000)
        assert task.due_at == 1_010_000
        team = await crew(board)
        now = 1_009_999
        assert await team.claim() is None
        now = 1_010_000
        assert (await team.must_claim()).task.id == task.id


# The same call twice.


async def test_the_same_claim_key_gives_the_same_claim(opener: Opener) -> None:
    here, there = await opener(), await opener()
    await here.put_many([NewTask(title="one"), NewTask(title="two")])
    team = await crew(here)
    first = await team.must_claim(key="k")
    seq = await here.last_event()
    assert await team.claim(key="k") == first
    assert await there.claim("alice", team.host, key="k") == first
    assert await here.last_event() == seq
    await here.settle(first, Failed("no"))
    again = await team.must_claim(key="k")
    assert (again.task.id, again.epoch, again.number) == (first.task.id, first.epoch, first.number)
    assert (await here.budget(first.task.root)).runs == 1


async def test_the_same_claim_key_at_the_same_moment_gives_the_same_claim(board: Board) -> None:
    await board.put_many([NewTask(title="one"), NewTask(title="two")])
    team = await crew(board)
    one, two = await both(team.claim(key="k"), team.claim(key="k"))
    assert one == two
    assert await board.count_tasks() == {"claimed": 1, "ready": 1}


# Who is refused.


async def test_only_a_living_seated_teammate_may_claim(board: Board, url: str) -> None:
    task = await board.put("task")
    team = await crew(board, "alice", "bob", "dave")
    other = await board.start_host("other")
    await board.spawn("carol")
    await board.stop_teammate("bob")
    await board.fail_teammate("dave", by="board", reason="a bug")
    seq = await board.last_event()

    async def refused(error: type[Exception], teammate: str, host: str) -> None:
        for options in ({}, {"task": task.id}):
            with pytest.raises(error):
                await board.claim(teammate, host, **options)

    await refused(UnknownTeammate, "nobody", team.host)
    await refused(StoppedTeammate, "bob", team.host)
    await refused(StoppedTeammate, "dave", team.host)
    await refused(HostLost, "carol", team.host)
    await refused(HostLost, "alice", other)
    await refused(HostLost, "alice", "no such host")
    await refused(HostLost, "human", team.host)
    await expire(url, team.host)
    await refused(HostLost, "alice", team.host)
    assert await board.last_event() == seq
    await board.take_back()
    await refused(HostLost, "alice", team.host)
    await board.heartbeat(team.host)
    assert await team.claim() is not None


async def test_a_stopped_host_claims_nothing_more(board: Board) -> None:
    await board.put("task")
    team = await crew(board)
    await board.stop_host(team.host)
    with pytest.raises(HostLost):
        await team.claim()


async def test_a_lease_further_away_than_the_maximum_is_void(board: Board, url: str) -> None:
    task, other = await board.put("task"), await board.put("other")
    team = await crew(board)
    await team.must_claim()
    await meddle(url, "UPDATE hosts SET lease_until = 9000000000000 WHERE id = $1", team.host)
    with pytest.raises(HostLost):
        await team.claim(task=other.id)
    assert [host.alive for host in await board.hosts()] == [False]
    assert await board.take_back() == [task.id]


async def test_a_refused_claim_gathered_with_good_ones_fails_alone(board: Board) -> None:
    await board.put("task")
    team = await crew(board)
    bad, good = await both(team.claim("nobody"), team.claim())
    assert isinstance(bad, UnknownTeammate)
    assert not isinstance(good, BaseException | None)


# Attempts.


async def test_attempts_are_numbered_and_go_on_only_after_a_wait_or_a_lost_host(board: Board, url: str) -> None:
    task = await board.put("task")
    team = await crew(board)
    waited = await team.must_claim()
    await board.settle(waited, Waiting(on="human", question="which?"))
    (request,) = await board.requests()
    await board.reply(str(request.request), "human", "this one")
    lost = await team.must_claim()
    assert (lost.number, lost.continues) == (2, waited.epoch)
    await expire(url, team.host)
    await board.take_back()
    await make_due(url, task.id)
    await board.heartbeat(team.host)
    retried = await team.must_claim()
    assert (retried.number, retried.continues) == (3, lost.epoch)
    await board.settle(retried, Failed("flaky", retry=True), handover='{"tip": 1}')
    await make_due(url, task.id)
    released = await team.must_claim()
    assert (released.number, released.continues) == (4, None)
    await board.settle(released, Released("not mine"))
    last = await team.must_claim()
    assert (last.number, last.continues) == (5, None)
    await board.settle(last, Done("ok"))
    rows = await board.attempts(task.id)
    assert [row.ended_as for row in rows] == ["waiting", "lost", "retry", "released", "done"]
    assert [row.epoch for row in rows] == sorted({row.epoch for row in rows})
    assert rows[2].handover == '{"tip": 1}'
    assert all(row.ended_at is not None and (row.teammate, row.host) == ("alice", team.host) for row in rows)
    assert (await board.find(task.id)).claims == 4  # Waiting for a person is no claim.
