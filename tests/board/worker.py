"""A worker as a real process: a host with a few teammates that claim, work, add follow-ups and settle.

    python worker.py URL NAME SEED FOLDER

Right after each answer of the board it writes what was acknowledged to FOLDER/NAME-SEED.txt, so that a test can check
that nothing acknowledged is lost, whenever the process is killed.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import TextIO

from dugnad.board import Board, open_board
from dugnad.errors import BudgetSpent, HostLost, LimitReached, NotReady, StaleClaim, StoppedTeammate
from dugnad.settings import Limits, Patience
from dugnad.types import OPEN, Amount, Claim, Done, Failed, NewTurn, Outcome, Released, Waiting

LIMITS = Limits(lease_seconds=1.5, backoff_seconds=0.05, backoff_seconds_max=0.4, attempts_max=4)
PATIENCE = Patience(busy_seconds=20, reconnect_seconds=20, poll_seconds=0.5)
TURN = Amount(tokens=100)
WORK_SECONDS = (0.005, 0.08)
RUN_SECONDS_MAX = 600


class Worker:
    def __init__(self, board: Board, name: str, host: str, chance: random.Random, heard: TextIO) -> None:
        self.board = board
        self.name = name
        self.host = host
        self.chance = chance
        self._heard = heard

    def heard(self, *what: object) -> None:
        self._heard.write(json.dumps(what) + "\n")
        self._heard.flush()

    async def beat(self) -> None:
        while True:
            await self.board.heartbeat(self.host)
            await asyncio.sleep(LIMITS.lease_seconds / 4)

    async def sweep(self) -> None:
        while True:
            await asyncio.sleep(0.3 + self.chance.random() / 2)
            await self.board.take_back()

    async def at_rest(self) -> bool:
        return not (await self.board.count_tasks()).keys() & OPEN

    async def sit(self, teammate: str) -> bool:
        """Take the seat; a namesake's place is free once its host is lost."""
        try:
            await self.board.spawn(teammate)
            await self.board.seat(self.host, name=teammate)
            return True
        except NotReady:
            return False
        except HostLost:
            await self.board.heartbeat(self.host)
            return False

    async def live(self, teammate: str) -> None:
        seated = False
        while not await self.at_rest():
            if not seated and not (seated := await self.sit(teammate)):
                await asyncio.sleep(0.1)
                continue
            with self.board.watch_for(teammate, ()) as watch:
                try:
                    claim = await self.board.claim(teammate, self.host)
                except (HostLost, StoppedTeammate):  # Frozen for too long: begin again.
                    await self.board.heartbeat(self.host)
                    seated = False
                    continue
                if claim is None:
                    await watch.wait(0.2)
                    continue
            self.heard("claim", claim.task.id, claim.epoch)
            await self.work(claim)

    async def work(self, claim: Claim) -> None:
        try:
            outcome = await self.turn(claim) or self.decide()
            how = await self.board.settle(claim, outcome)
        except StaleClaim:
            self.heard("stale", claim.task.id, claim.epoch)
            return
        self.heard("settled as", claim.task.id, claim.epoch, how)

    async def turn(self, claim: Claim) -> Outcome | None:
        """One turn under a reservation; an outcome if the budget does not allow it."""
        try:
            key = await self.board.reserve(claim, TURN)
        except BudgetSpent as spent:
            if spent.may_free_up:
                return Released("others hold what is left", delay_seconds=0.05)
            return Waiting(on="budget", amount=TURN)
        self.heard("reserve", key)
        await asyncio.sleep(self.chance.uniform(*WORK_SECONDS))
        used = Amount(tokens=self.chance.randint(10, TURN.tokens))
        await self.board.record(claim, NewTurn(number=1, kind="reply", body='"done"', used=used, reservation=key))
        self.heard("turn", claim.task.id, claim.epoch, 1)
        if self.chance.random() < 0.06:
            try:
                more = await self.board.follow_up(claim, f"found in #{claim.task.id}")
                self.heard("put", more.id)
            except LimitReached:
                pass
        return None

    def decide(self) -> Outcome:
        dice = self.chance.random()
        if dice < 0.04:
            return Failed("a bad day", retry=True)
        if dice < 0.08:
            return Released("for somebody else")
        if dice < 0.085:
            return Failed("it cannot be done")
        return Done("as asked")


async def main(url: str, name: str, seed: int, folder: Path) -> None:
    chance = random.Random(seed)
    with (folder / f"{name}-{seed}.txt").open("a") as heard:
        async with await open_board(url, limits=LIMITS, patience=PATIENCE) as board:
            worker = Worker(board, name, await board.start_host(name), chance, heard)
            chores = [asyncio.create_task(worker.beat()), asyncio.create_task(worker.sweep())]
            team = [worker.live(f"{name}.{number}") for number in range(chance.randint(2, 4))]
            async with asyncio.timeout(RUN_SECONDS_MAX), asyncio.TaskGroup() as group:
                lives = [group.create_task(life) for life in team]
                for chore in chores:  # A chore that dies of a bug must not be overheard.
                    chore.add_done_callback(lambda done: done.cancelled() or [life.cancel() for life in lives])
            for chore in chores:
                if chore.done():
                    chore.result()
                chore.cancel()
            await board.stop_host(worker.host)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
