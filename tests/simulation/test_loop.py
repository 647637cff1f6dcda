"""The virtual loop: time that jumps, an order by seed, processes that stop for good or freeze."""

from __future__ import annotations

import asyncio

import pytest

from simulation.loop import DeadWait, Process, ThreadRefused, VirtualLoop, never


def test_a_day_of_waiting_takes_no_time() -> None:
    loop = VirtualLoop(0)

    async def day() -> float:
        await asyncio.sleep(86_400)
        return loop.time()

    assert loop.run_until_complete(day()) == 86_400
    loop.close()


def order(seed: int) -> list[int]:
    loop = VirtualLoop(seed)
    ran: list[int] = []

    async def one(number: int) -> None:
        await asyncio.sleep(1)
        ran.append(number)

    async def all_of_them() -> None:
        await asyncio.gather(*map(one, range(8)))

    loop.run_until_complete(all_of_them())
    loop.close()
    return ran


def test_the_seed_decides_who_runs_first() -> None:
    assert order(1) == order(1)
    assert sorted(order(1)) == list(range(8))
    assert len({tuple(order(seed)) for seed in range(5)}) > 1


def test_a_wait_that_nothing_can_end_says_who_waits_and_where() -> None:
    loop = VirtualLoop(0)
    with pytest.raises(DeadWait, match=r"nothing can|Nothing can.*Task-\d+ at test_loop\.py:\d+|loop\.py:\d+"):
        loop.run_until_complete(never())
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.get_coro().close()
    loop.close()


def test_a_thread_is_refused_by_name() -> None:
    loop = VirtualLoop(0)

    async def threaded() -> None:
        await asyncio.to_thread(print, "never printed")

    with pytest.raises(ThreadRefused, match="print"):
        loop.run_until_complete(threaded())
    loop.close()


def test_a_process_that_is_stopped_for_good_runs_no_finally_block() -> None:
    loop, process, ran = VirtualLoop(0), Process("p"), []

    async def working() -> None:
        try:
            ran.append("begun")
            await asyncio.sleep(10)
            ran.append("went on")
        finally:
            ran.append("finally")

    async def play() -> None:
        loop.start(process, working())
        await asyncio.sleep(5)
        process.kill()
        await asyncio.sleep(100)

    loop.run_until_complete(play())
    assert ran == ["begun"]
    loop.bury(process)
    loop.close()


def test_a_process_may_stop_at_any_step_and_tells_whoever_watches() -> None:
    loop, process, steps, died = VirtualLoop(0), Process("p"), [], []
    process.on_death = lambda: died.append(loop.time())
    process.steps_left = 3

    async def working() -> None:
        while True:
            steps.append(loop.time())
            await asyncio.sleep(1)

    async def play() -> None:
        loop.start(process, working())
        await asyncio.sleep(100)

    loop.run_until_complete(play())
    assert len(steps) <= 3
    assert len(died) == 1
    loop.bury(process)
    loop.close()


def test_a_frozen_process_comes_back_with_all_it_had_to_do() -> None:
    loop, process, seen = VirtualLoop(0), Process("p"), []

    async def working() -> None:
        await asyncio.sleep(1)
        seen.append(loop.time())

    async def play() -> None:
        task = loop.start(process, working())
        loop.freeze(process)
        await asyncio.sleep(60)
        assert not seen
        loop.thaw(process)
        await task

    loop.run_until_complete(play())
    assert seen == [61.0]  # It had not begun when it froze, and its own second began with the thaw.
    loop.close()
