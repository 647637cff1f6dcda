"""The board at work, offline, in about ten seconds.

Three worker processes share one board. They are scripted: no model is asked, they sleep a little and say "done". One
of them is killed with kill -9 while it holds a task; another takes the task over when the lease has run out. Nothing
is lost, nothing is done twice, and the budget holds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

from dugnad import Board, Budget, Done, Need, NewTask, open_board
from dugnad.errors import StaleClaim
from dugnad.settings import Limits
from dugnad.types import Amount, Claim, Event, NewTurn

LIMITS = Limits(lease_seconds=2, backoff_seconds=0.1)
WORKERS = ("alice", "bob", "carol")
SLOW = "Write its tests"
PLAN = (
    NewTask(title="Ship a slugify() function", budget=Budget(tasks=12, tokens=2_000)),
    NewTask(title="Write slugify()", parent=-1),
    NewTask(title=SLOW, parent=-1),
    NewTask(title="Write the page about it", parent=-1),
    NewTask(title="Review it", parent=-1, needs=(-2, -3)),
    NewTask(title="Announce it", parent=-1, needs=(Need(-5, "approved"), -4)),
    NewTask(title="Apologise for it", parent=-1, needs=(Need(-5, "rejected"),)),
)


async def work(url: str, name: str) -> None:
    """One worker process: claim, work, settle, until nothing is left to do."""
    async with await open_board(url, limits=LIMITS) as board:
        host = await board.start_host(f"{name}'s process")
        await board.spawn(name)
        await board.seat(host, name=name)
        beating = asyncio.create_task(beat(board, host))
        while (await board.count_tasks()).keys() - {"done", "skipped"}:
            with board.watch_for(name, ()) as watch:
                claim = await board.claim(name, host)
                if claim is None:
                    await watch.wait(1)
                    continue
            await one_task(board, claim)
        beating.cancel()
        await board.stop_host(host)


async def beat(board: Board, host: str) -> None:
    while True:
        await board.heartbeat(host)
        await board.take_back()
        await asyncio.sleep(0.5)


async def one_task(board: Board, claim: Claim) -> None:
    try:
        reserved = await board.reserve(claim, Amount(tokens=120))
        await asyncio.sleep(30 if claim.task.title == SLOW and claim.number == 1 else 0.4)
        if claim.task.title == "Write slugify()":
            await board.follow_up(claim, "Handle the letter ß", body="Found while writing slugify().")
            await board.tell(
                claim.teammate, "human", "slugify() forgot the letter ß; there is a task now.", claim=claim
            )
        turn = NewTurn(number=1, kind="reply", body='{"scripted": true}', used=Amount(tokens=95), reservation=reserved)
        await board.record(claim, turn)
        await board.settle(claim, Done("done", "approved" if claim.task.title == "Review it" else None))
    except StaleClaim as lost:
        print(f"       {claim.teammate}: {lost}", flush=True)


SENTENCES = {
    "put": "{who} puts {task}",
    "claimed": "{who} claims {task}",
    "done": "{who} finishes {task}",
    "host_lost": "the board misses the heartbeat of {label}",
    "taken_back": "the board takes back {task}",
    "skipped": "the board skips {task}, which {reason}",
    "told": "{who} tells {to}: {text}",
    "forfeited": "the board counts the {tokens} tokens reserved for {task} as spent",
}


def sentence(event: Event, titles: dict[int, str]) -> str | None:
    task = f"#{event.task} {titles.get(event.task or 0)!r}"
    words = SENTENCES.get(event.kind)
    return None if words is None else words.format(who=event.actor, task=task, **event.data)


async def narrate(board: Board, victim: asyncio.Future[str]) -> None:
    """Print the log as it grows; say who works on the slow task, so that it can be killed."""
    titles: dict[int, str] = {}
    async for event in board.follow():
        if event.kind == "put":
            titles[event.task or 0] = str(event.data.pop("title"))
        if line := sentence(event, titles):
            print(f"  {event.seq:3}  {line}", flush=True)
        if event.kind == "claimed" and titles[event.task or 0] == SLOW and not victim.done():
            victim.set_result(event.actor)


async def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="dugnad-demo-"))
    url = f"sqlite:///{folder}/board.db"
    print("A goal and six tasks with needs, a budget of 12 task runs, three scripted workers: no model is asked.\n")
    async with await open_board(url, limits=LIMITS) as board:
        tasks = await board.put_many(PLAN)
        victim: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        telling = asyncio.create_task(narrate(board, victim))
        processes = {
            name: await asyncio.create_subprocess_exec(sys.executable, __file__, url, name) for name in WORKERS
        }
        try:
            async with asyncio.timeout(60):
                unlucky = await victim
                await asyncio.sleep(1)
                os.kill(processes[unlucky].pid, signal.SIGKILL)
                print(f"       kill -9: {unlucky}'s process is gone, in the middle of {SLOW!r}", flush=True)
                await asyncio.gather(*(process.wait() for process in processes.values()))
        finally:
            for process in processes.values():
                if process.returncode is None:
                    process.kill()
        await asyncio.sleep(0.2)
        telling.cancel()
        return await report(board, tasks[0].id, url)


async def report(board: Board, root: int, url: str) -> int:
    counts, spending = await board.count_tasks(), await board.budget(root)
    whole = await board.replayed_state() == await board.observed_state()
    print(f"\n{counts.get('done', 0)} tasks done, {counts.get('skipped', 0)} skipped; none lost, none done twice.")
    print(f"Budget: {spending.runs} of {spending.tasks_max} task runs, {spending.spent.tokens} of 2000 tokens.")
    events = await board.last_event()
    print(f"The {events} events of the log replay to the state of the board: {'yes' if whole else 'NO'}.")
    print(f"Look inside: open_board({url!r})")
    return 0 if whole and counts == {"done": 7, "skipped": 1} else 1


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(work(sys.argv[1], sys.argv[2]))
    else:
        sys.exit(asyncio.run(main()))
