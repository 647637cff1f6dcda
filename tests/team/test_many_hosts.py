"""Several host processes on one board: they share the work, and what one loses another goes on with."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.types import NewTask, Task
from tests.board import oracle
from tests.conftest import Opener
from tests.proof import sample
from tests.team.hosts_stage import (
    IMPATIENT,
    LIMITS,
    HostProcess,
    all_ended,
    freeze,
    host_processes,
    in_second_turn,
    log_of,
    marks,
    seated,
    slow_host,
    until,
)

TITLES = ("long one", "long two")


async def put_long(board: Board) -> list[Task]:
    return await board.put_many([NewTask(title=title) for title in TITLES])


async def assert_gone_on(board: Board, task: Task, *, ended_as: str) -> None:
    """The second attempt went on in the transcript of the first, and ended the task."""
    first, second = await board.attempts(task.id)
    assert (first.ended_as, second.ended_as, second.continues) == (ended_as, "done", first.epoch)
    assert second.host != first.host
    # Of the first attempt the reply and the mark, of the second only the last word: nothing was said or done again.
    assert [turn.kind for turn in await board.transcript(task.id, first.epoch)] == ["reply", "tool"]
    assert [turn.kind for turn in await board.transcript(task.id, second.epoch)] == ["reply"]


async def assert_sound(board: Board, folder: Path, *titles: str) -> None:
    """Nothing lost, nothing done twice, and the log replays to the tables."""
    assert await oracle.verdict(board) == []
    assert marks(folder) == Counter(titles)


@pytest.mark.parametrize("count", sample([2, 4], (2).__eq__))
async def test_hosts_share_the_work_and_do_everything_once(opener: Opener, url: str, folder: Path, count: int) -> None:
    board = await opener(limits=LIMITS)
    with host_processes() as running:
        for number in range(count):
            running.append(HostProcess(url, folder, f"mate{number}a", f"mate{number}b", lease_seconds=30, seats_max=2))
        hosts = {await seated(board, each) for each in running}
        # As many tasks as there are teammates that end only together; behind them diamonds for whoever is free.
        hands = 2 * count
        entries = [NewTask(title=f"together {hands}") for _ in range(hands)]
        for number in range(6):
            top = len(entries) + 1
            entries.append(NewTask(title=f"top {number}", needs=tuple(range(-hands, 0))))
            entries += [NewTask(title=f"{side} {number}", needs=(-top,)) for side in ("left", "right")]
            entries.append(NewTask(title=f"join {number}", needs=(-top - 1, -top - 2)))
        await board.put_many(entries)
        await all_ended(board)
        for each in running:
            await each.leaves_well()
    events = await log_of(board)
    assert {event.data["host"] for event in events if event.kind == "claimed"} == hosts
    assert sum(event.kind == "claimed" for event in events) == len(entries)
    await assert_sound(board, folder, *(entry.title for entry in entries[hands:]))


@pytest.mark.parametrize("known", [True, False], ids=["neighbours known", "only the lease"])
async def test_a_killed_hosts_work_and_teammates_are_taken_over(
    opener: Opener, url: str, folder: Path, known: bool
) -> None:
    board = await opener(limits=LIMITS)
    # A neighbour that is known to be dead is not waited for: within this test such a lease never runs out.
    order = {"knows_neighbours": known, "lease_seconds": 600 if known else 5.0}
    with host_processes() as running:
        victim = slow_host(url, folder, "alice", "bob", **order)
        running.append(victim)
        old = await seated(board, victim)
        tasks = await put_long(board)
        await in_second_turn(board, [task.id for task in tasks])
        other = HostProcess(url, folder, "carol", **order)
        running.append(other)
        new = await seated(board, other)
        victim.kill()
        await all_ended(board)
        for task in tasks:
            await assert_gone_on(board, task, ended_as="lost")
        assert {each.name: each.host for each in await board.team()} == dict.fromkeys(("alice", "bob", "carol"), new)
        await other.leaves_well()
    gone = "host_stopped" if known else "host_lost"
    assert any(event.kind == gone and event.data["host"] == old for event in await log_of(board))
    await assert_sound(board, folder, *TITLES)


async def test_a_frozen_host_that_wakes_after_its_lease_is_refused_and_stops_its_work(
    opener: Opener, url: str, folder: Path
) -> None:
    board = await opener(limits=LIMITS, patience=IMPATIENT)
    with host_processes() as running:
        zombie = slow_host(url, folder, "alice", "bob")
        running.append(zombie)
        await seated(board, zombie)
        tasks = await put_long(board)
        await in_second_turn(board, [task.id for task in tasks])
        other = HostProcess(url, folder, "carol")
        running.append(other)
        new = await seated(board, other)
        await freeze(board, zombie)
        await all_ended(board)
        zombie.signal(signal.SIGCONT)
        assert sorted(await zombie.stopped_calls(len(tasks))) == [task.id for task in tasks]
        assert sorted(await zombie.refused(len(tasks))) == [task.id for task in tasks]
        for task in tasks:
            await assert_gone_on(board, task, ended_as="lost")
        assert {each.host for each in await board.team()} == {new}
        # It goes on as a host like any other, without what it lost.
        await until(board, lambda events: any(event.kind == "host_back" for event in events))
        await zombie.leaves_well()
        await other.leaves_well()
    await assert_sound(board, folder, *TITLES)


async def test_a_host_told_to_stop_gives_back_its_work_and_the_next_goes_on_at_once(
    opener: Opener, url: str, folder: Path
) -> None:
    board = await opener(limits=LIMITS)
    with host_processes() as running:
        first = slow_host(url, folder, "alice", "bob", lease_seconds=600)
        running.append(first)
        await seated(board, first)
        tasks = await put_long(board)
        await in_second_turn(board, [task.id for task in tasks])
        second = HostProcess(url, folder, "carol", lease_seconds=600)
        running.append(second)
        new = await seated(board, second)
        await first.leaves_well()
        await all_ended(board)
        for task in tasks:
            await assert_gone_on(board, task, ended_as="released")
            assert (await board.find(task.id)).tries == 0
        await until(
            board,
            lambda events: (
                {"alice", "bob"} <= {e.data["name"] for e in events if e.kind == "seated" and e.data["host"] == new}
            ),
        )
        await second.leaves_well()
    assert not any(event.kind == "taken_back" for event in await log_of(board))
    await assert_sound(board, folder, *TITLES)


async def test_all_hosts_killed_at_once_lose_nothing(opener: Opener, url: str, folder: Path) -> None:
    board = await opener(limits=LIMITS)
    with host_processes() as running:
        for name in ("alice", "bob"):
            running.append(slow_host(url, folder, name))
            await seated(board, running[-1])
        tasks = await put_long(board)
        await in_second_turn(board, [task.id for task in tasks])
        await asyncio.gather(*(asyncio.to_thread(each.kill) for each in running))
        last = HostProcess(url, folder, "carol")
        running.append(last)
        await all_ended(board)
        for task in tasks:
            await assert_gone_on(board, task, ended_as="lost")
        await last.leaves_well()
    await assert_sound(board, folder, *TITLES)
