"""Waiting without asking: a push wakes who it concerns, and a slow sweep covers a lost push."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.board.store.watch import Watch
from dugnad.settings import Limits, Patience
from dugnad.types import Budget, Done, NewTask, Waiting
from tests.board.crew import crew
from tests.board.raw import until
from tests.board.topics import change, deafen, listeners, touch, wake_folder
from tests.conftest import Opener

LONG = 60.0  # Seconds; a wait that should end by itself, and fails the test if it does not.
NO_SWEEP = Patience(reconnect_seconds=10, poll_seconds=600)

# Another process: says when it has opened the board, and puts a task for each role it is told on its standard input.
PEER = """
import asyncio, sys
from dugnad.board import open_board

async def main():
    async with await open_board(sys.argv[1]) as board:
        print("open", flush=True)
        for line in sys.stdin:
            await board.put("from another process", role=line.strip())
            print("put", flush=True)

asyncio.run(main())
"""


class Peer:
    """A process of its own on the same board."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def hear(self) -> str:
        assert self._process.stdout is not None
        return (await asyncio.wait_for(self._process.stdout.readline(), LONG)).decode().strip()

    async def put(self, role: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{role}\n".encode())
        assert await self.hear() == "put"

    async def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), LONG)


@contextlib.asynccontextmanager
async def peer(url: str) -> AsyncIterator[Peer]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PEER, url, stdin=pipe, stdout=pipe)
    other = Peer(process)
    try:
        assert await other.hear() == "open"
        yield other
    finally:
        await other.leave()


async def quiet(board: Board) -> None:
    """Return when the sweep that begins with the first watch is over; the next one is far away."""
    await board.put("for nobody", role="probe")
    assert await change(board, ["ready:probe"], LONG)


def woken(watches: list[Watch]) -> int:
    return sum(bool(watch.changed) for watch in watches)


def touch_unheard(url: str, topic: str) -> None:
    """A commit whose push is lost for sure: nothing here runs, so nobody can listen again before it is over."""
    command = [sys.executable, "-m", "tests.board.topics", url, topic]
    subprocess.run(command, cwd=Path(__file__).parents[2], check=True, timeout=LONG)


TOPICS = ["ready:", "ready:coder", "ready:@alice", "inbox:alice", "task:1", "budget:1", "team", "notes", "log"]


async def stage(board: Board) -> None:
    """Task 1 and alice, and nothing that a sweep would find."""
    await board.put("goal", role="nobody", budget=Budget(tasks=1))
    await board.spawn("alice")


@pytest.mark.parametrize("topic", TOPICS)
async def test_a_waiter_is_woken_by_its_own_board_and_by_another(opener: Opener, topic: str) -> None:
    one, two = await opener(patience=NO_SWEEP), await opener(patience=NO_SWEEP)
    await stage(one)
    for board in (two, one):
        with one.watch([topic]) as watch:
            await touch(board, topic)
            assert await watch.wait(LONG)
            assert not watch.changed, "and begins anew"
        if topic in ("task:1", "team"):
            break  # Happens once.


@pytest.mark.parametrize("move", ["release", "retry", "add_need"])
async def test_who_watches_a_task_is_woken_when_it_is_moved_by_hand(opener: Opener, move: str) -> None:
    """Also when nobody holds it: a late holder may still be at work, and a need that is added ends that."""
    board = await opener(patience=NO_SWEEP)
    team = await crew(board, "ann")
    task = await board.put("goal")
    if move == "release":
        await board.settle(await team.must_claim("ann"), Waiting(on="human", question="May I?"))
    if move == "retry":
        await board.cancel(task.id)
    other = await board.put("other")
    await quiet(board)
    with board.watch([f"task:{task.id}"]) as watch:
        match move:
            case "release":
                await board.release(task.id)
            case "retry":
                await board.retry(task.id)
            case "add_need":
                await board.add_need(task.id, other.id)
        assert await watch.wait(LONG)


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic != "log"])
async def test_a_waiter_is_not_woken_by_what_does_not_concern_it(opener: Opener, topic: str) -> None:
    one, two = await opener(patience=NO_SWEEP), await opener(patience=NO_SWEEP)
    await stage(one)
    await quiet(one)
    with one.watch([topic]) as watch, one.watch(["inbox:human"]) as last:
        for other in TOPICS:
            if other not in (topic, "log") and not (topic == "budget:1" and other == "task:1"):
                await touch(one, other)
        await two.tell("alice", "human", "the last change")
        assert await last.wait(LONG)  # Pushes come in the order of commits.
        assert not watch.changed
        assert await watch.wait(0.01) is False


async def test_when_the_time_is_over_the_answer_is_no(board: Board) -> None:
    assert await change(board, ["inbox:nobody", "task:99"], 0.01) is False


async def test_a_waiter_is_woken_by_another_process(opener: Opener, url: str) -> None:
    board = await opener(patience=NO_SWEEP)
    await quiet(board)
    async with peer(url) as other:
        with board.watch(["ready:coder"]) as watch, board.watch(["ready:tester"]) as idle:
            await other.put("coder")
            assert await watch.wait(LONG)
            assert not idle.changed
            await other.put("tester")
            assert await idle.wait(LONG)


async def test_nothing_is_missed_between_a_look_and_a_wait(opener: Opener) -> None:
    one, two = await opener(patience=NO_SWEEP), await opener(patience=NO_SWEEP)
    await stage(one)
    with one.watch(["inbox:alice", "inbox:human"]) as watch:
        assert await one.inbox("alice") == []
        await two.tell("human", "alice", "just after the look")
        await two.tell("alice", "human", "and once more")
        assert await watch.wait(LONG)
        assert len(await one.inbox("alice")) == 1
    with one.watch(["inbox:alice"]) as watch:
        await one.tell("human", "alice", "hello")
        assert await watch.wait(0), "what is known needs no time"


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("who", ["own board", "other board"])
async def test_as_many_waiters_are_woken_as_there_is_work(opener: Opener, count: int, who: str) -> None:
    one, two = await opener(patience=NO_SWEEP), await opener(patience=NO_SWEEP)
    await stage(one)
    await quiet(one)
    with contextlib.ExitStack() as stack:
        watches = [stack.enter_context(one.watch(["ready:coder"])) for _ in range(10)]
        last = stack.enter_context(one.watch(["inbox:human"]))
        writer = one if who == "own board" else two
        for number in range(count):
            await writer.put(f"task {number}", role="coder")
        await writer.tell("alice", "human", "the last change")
        assert await last.wait(LONG)
        assert woken(watches) == count
        assert [await watch.wait(0) for watch in watches] == [True] * count + [False] * (10 - count), "the first come"


async def test_work_that_many_tasks_bring_at_once_wakes_that_many(opener: Opener) -> None:
    board = await opener(patience=NO_SWEEP)
    gate = await board.put("gate", role="probe")
    for number in range(4):
        await board.put(f"behind {number}", needs=[gate.id], role="coder")
    team = await crew(board, roles=["probe"])
    claim = await team.must_claim()
    await quiet(board)
    with contextlib.ExitStack() as stack:
        watches = [stack.enter_context(board.watch(["ready:coder", "inbox:alice"])) for _ in range(10)]
        await board.settle(claim, Done())
        assert woken(watches) == 4


async def test_a_change_of_more_than_a_push_can_name_wakes_everybody(opener: Opener) -> None:
    one, two = await opener(patience=NO_SWEEP), await opener(patience=NO_SWEEP)
    roles = [f"a-rather-long-name-of-a-role-{number}" for number in range(400)]
    with one.watch([f"ready:{roles[-1]}"]) as last, one.watch(["ready:someone-else"]) as other:
        await two.put_many([NewTask(title="work", role=role) for role in roles])
        assert await last.wait(LONG)
        assert await other.wait(LONG)


async def test_everybody_who_watches_an_inbox_or_the_log_is_woken(board: Board) -> None:
    await stage(board)
    with contextlib.ExitStack() as stack:
        watches = [stack.enter_context(board.watch([topic])) for topic in ("inbox:alice", "log") for _ in range(5)]
        await board.tell("human", "alice", "hello")
        assert woken(watches) == 10


async def test_a_teammates_watch_covers_its_roles_its_name_everyones_and_its_inbox(opener: Opener) -> None:
    board = await opener(patience=NO_SWEEP)
    await stage(board)
    await quiet(board)
    for topic in ("ready:", "ready:coder", "ready:@alice", "inbox:alice"):
        with board.watch_for("alice", ["coder"]) as watch, board.watch_for("zoe", ["tester"]) as other:
            await touch(board, topic)
            assert watch.changed == {topic}
            assert other.changed == set()


async def test_due_work_wakes_at_its_time(opener: Opener) -> None:
    one, two = await opener(patience=NO_SWEEP), await opener(patience=NO_SWEEP)
    team = await crew(one, roles=["coder"])
    for board, role in ((one, "coder"), (two, None)):
        with one.watch_for("alice", ["coder"]) as watch:
            task = await board.put("later", role=role, delay_seconds=0.3)
            while (claim := await team.claim()) is None:
                assert await watch.wait(LONG)
        assert claim.task.id == task.id
        await one.settle(claim, Done())


async def test_work_that_comes_due_before_what_was_known_wakes_in_time(opener: Opener) -> None:
    board = await opener(patience=NO_SWEEP)
    await board.put("much later", role="coder", delay_seconds=500)
    await quiet(board)
    with board.watch(["ready:coder"]) as watch:
        await board.put("soon", role="coder", delay_seconds=0.1)
        assert await watch.wait(LONG)


@pytest.mark.parametrize("topic", ["ready:coder", "inbox:alice"])
async def test_a_lost_push_is_covered_by_the_sweep(opener: Opener, url: str, topic: str) -> None:
    board = await opener(patience=Patience(reconnect_seconds=10, poll_seconds=0.1))
    await stage(board)
    with board.watch([topic]) as watch:
        touch_unheard(url, topic)
        assert await watch.wait(LONG)


@pytest.mark.parametrize("topic", ["task:1", "budget:1", "log"])
async def test_a_lost_push_about_a_task_a_budget_or_the_log_is_covered_too(
    opener: Opener, url: str, topic: str
) -> None:
    """Whoever waits for a task to end, or follows the log, has no other way to hear of it."""
    board = await opener(patience=Patience(reconnect_seconds=10, poll_seconds=0.1))
    await stage(board)
    with board.watch([topic]) as watch:
        async with asyncio.timeout(LONG):
            while not await watch.wait(0.3):  # What is there at the sweep's first look is no news.
                touch_unheard(url, topic)


async def test_after_its_listener_was_cut_a_board_hears_again(opener: Opener, url: str) -> None:
    one, two = await opener(patience=NO_SWEEP), await opener(patience=NO_SWEEP)
    await stage(one)
    await quiet(one)
    if url.startswith("sqlite"):
        await deafen(url)
        one = await opener(patience=NO_SWEEP)  # A process hears again when it opens the board anew.
    else:
        with one.watch(["ready:coder"]) as watch:
            touch_unheard(url, "ready:coder")
            assert await watch.wait(LONG), "what was missed meanwhile is looked up"

        async def both_listen() -> bool:
            return len(await listeners(url)) == 2

        await until(both_listen)
    with one.watch(["inbox:alice"]) as watch:
        await touch(two, "inbox:alice")
        assert await watch.wait(LONG)


async def test_a_process_that_died_without_a_word_is_forgotten(opener: Opener, url: str) -> None:
    """SQLite: its socket file stays behind and must not stand in anybody's way."""
    one = await opener(patience=NO_SWEEP, limits=Limits())
    async with peer(url) as other:
        other._process.kill()
        await other._process.wait()
    two = await opener(patience=NO_SWEEP)
    with one.watch(["ready:coder"]) as watch:
        await two.put("after a death", role="coder")
        assert await watch.wait(LONG)
    if url.startswith("sqlite"):
        assert len(list(wake_folder(url).iterdir())) == 2
