"""A storm over real hosts on one board, and the verdict when it is over.

    python -m tests.chaos.storm {sqlite | postgres | both} [--kills N] [--freezes N] [--crashes N] ... [--json]

Hosts with eight teammates work goals with budgets, checks, follow-ups and messages. Faults come by a seeded schedule,
each after some progress. Then it is calm, everything has to come to rest, and the log, the tables and what each host
was told must agree. It ends with 1 if a promise was broken, and with 2 if a fault could not be tried here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from dugnad.board import Board, open_board
from dugnad.settings import Patience
from dugnad.types import ENDED, HUMAN, OPEN, Budget, NewTask
from tests.board import oracle
from tests.chaos.chaos_host import LIMITS, NAMES, patiently
from tests.chaos.chaos_hosts import Cradle, Hosts, end_all
from tests.chaos.chaos_places import CannotBeTried, Server, SmallDisk, crashing_server, small_disk
from tests.chaos.chaos_verdict import every_task, verdict

HOSTS = 4
GOAL_TASKS = 20
MORE = Budget(tasks=5, tokens=50_000, dollars=1.0)
PATIENCE = Patience(busy_seconds=20, reconnect_seconds=60, poll_seconds=0.5)
CRASHES = ("stop", "kill", "backend")


@dataclass(frozen=True)
class Plan:
    """How often each fault is to happen; those of the other database are left out."""

    kills: int = 120
    freezes: int = 24
    crashes: int = 6  # PostgreSQL.
    partitions: int = 4  # PostgreSQL.
    fills: int = 4  # SQLite.
    failed_writes: int = 20  # SQLite; at least so many.
    seconds_max: int = 800
    seed: int = 7


class Storm:
    def __init__(self, board: Board, hosts: Hosts, place: SmallDisk | Server, plan: Plan) -> None:
        self.board, self.hosts, self.place, self.plan = board, hosts, place, plan
        self.chance = random.Random(plan.seed)
        self.counts = hosts.counts
        self.planned: list[str] = []
        self.roots: list[int] = []
        self.acknowledged: list[list[object]] = []
        self._next_at = 0
        self._kinds: dict[str, Callable[[], Awaitable[bool]]] = {
            "kills": hosts.kill, "freezes": hosts.freeze, "crashes": self._crash, "partitions": self._cut,
            "fills": self._fill,
        }  # fmt: skip
        wanted = asdict(plan)
        never = ("fills",) if isinstance(place, Server) else ("crashes", "partitions")
        self.faults = [kind for kind in self._kinds if kind not in never for _ in range(wanted[kind])]
        self.chance.shuffle(self.faults)

    # The work.

    async def put_goal(self) -> None:
        """A root with a budget; under it what needs something, what is checked, what is loose. What a third of the
        roots may spend is too little, and so are a third's task runs: somebody has to raise them."""
        number = len(self.roots)
        budget = (Budget(tasks=GOAL_TASKS), Budget(tokens=60_000), Budget(tokens=10**9, dollars=1.0))[number % 3]
        entries = [NewTask(title=f"goal {number}.0", key=f"goal {number}.0", budget=budget)]
        for place in range(1, GOAL_TASKS):
            kind = "work" if place % 4 else "checked"
            entries.append(
                NewTask(
                    title=f"{kind} {number}.{place}",
                    key=f"{number}.{place}",
                    parent=-1,
                    needs=(-self.chance.randint(2, place),) if place > 1 and place % 2 else (),
                    check="look whether it is mended" if kind == "checked" else None,
                    priority=self.chance.randint(0, 2),
                )
            )
        put = await patiently(lambda: self.board.put_many(entries))
        self.acknowledged += [["put", task.id] for task in put]
        self.planned += [entry.title for entry in entries]
        self.roots.append(put[0].id)
        name, text = self.chance.choice(NAMES), f"How is goal {number}?"
        told = await patiently(lambda: self.board.tell(HUMAN, name, text, key=f"ask {number}"))
        self.acknowledged.append(["told", told.id])

    async def raise_what_is_held(self) -> None:
        for root in self.roots:
            if (await patiently(partial(self.board.budget, root))).held is not None:
                key = f"raise {self.counts['raises']}"
                await patiently(partial(self.board.raise_budget, root, MORE, key=key))
                self.counts["raises"] += 1

    # The faults.

    async def strike(self) -> None:
        """The next fault; if it cannot happen just now, another goes first."""
        kind = self.faults.pop()
        if not await self._kinds[kind]():
            self.faults.insert(self.chance.randint(0, len(self.faults)), kind)

    async def _crash(self) -> bool:
        assert isinstance(self.place, Server)
        await self.place.crash(CRASHES[self.counts["crashes"] % len(CRASHES)])
        self.counts["crashes"] += 1
        return True

    async def _cut(self) -> bool:
        assert isinstance(self.place, Server)
        if not await self.place.cut():
            return False
        self.counts["partitions"] += 1
        return True

    async def _fill(self) -> bool:
        """Until at least one host has met the full disk too."""
        assert isinstance(self.place, SmallDisk)
        before = self.hosts.counted("troubles")
        await self.place.fill(self.board)
        try:
            async with asyncio.timeout(120):
                while self.hosts.counted("troubles") == before:  # noqa: ASYNC110  They can only tell by a file.
                    await asyncio.sleep(0.05)
        finally:
            self.place.empty()
        self.counts["fills"] += 1
        return True

    def _is_calm(self) -> bool:
        failed_enough = isinstance(self.place, Server) or self.hosts.counted("failed") >= self.plan.failed_writes
        return not self.faults and failed_enough

    # From the first goal to rest.

    async def rage(self) -> None:
        for name in NAMES:
            await self.board.spawn(name)
        async with asyncio.timeout(self.plan.seconds_max):
            while True:
                counts = await patiently(self.board.count_tasks)
                ended = sum(counts.get(state, 0) for state in ENDED)
                is_open = sum(counts.get(state, 0) for state in OPEN)
                if not self._is_calm() and is_open < GOAL_TASKS:
                    await self.put_goal()
                elif self._is_calm():
                    if isinstance(self.place, SmallDisk):
                        (self.place.folder / "calm").touch()
                    if not is_open and not await self._has_mail():
                        return
                if self.faults and ended >= self._next_at:
                    await self.strike()
                    self._next_at = ended + self.chance.randint(1, 3)
                await self.raise_what_is_held()
                if complaints := self.hosts.complaints():
                    raise AssertionError(f"a host ended by itself. {complaints[0]}")
                await asyncio.sleep(0.03)

    async def standing(self) -> str:
        """What a storm that does not come to rest is about."""
        team = [f"{each.name}: {each.status} at {each.host} {each.reason or ''}" for each in await self.board.team()]
        tasks = [task for task in await every_task(self.board) if task.state in OPEN][:20]
        works = [f"#{task.id} {task.title}: {task.state} by {task.teammate}, {task.reason}" for task in tasks]
        said = [self.hosts.said(host) for host in self.hosts.running]
        room = os.statvfs(self.place.folder).f_bavail if isinstance(self.place, SmallDisk) else "much"
        lines = [
            f"{dict(Counter(self.faults))} left, {dict(self.counts)}, {room} blocks free",
            *team,
            *works,
            *said,
            await self._mail(),
        ]
        return "it does not come to rest:\n" + "\n".join(lines)

    async def _mail(self) -> str:
        return str({name: len(await self.board.inbox(name)) for name in NAMES})

    async def _has_mail(self) -> bool:
        return any([await patiently(partial(self.board.has_unread, name)) for name in NAMES])


async def report(storm: Storm, began: float, left: list[str]) -> dict[str, Any]:
    storm.acknowledged += storm.hosts.heard()
    events = Counter(event.kind for event in await oracle.read_log(storm.board))
    wrong = left + await verdict(storm.board, [e for e in storm.acknowledged if e[0] != "failed"], storm.planned)
    counts = {kind: storm.counts[kind] for kind in ("kills", "freezes", "crashes", "partitions", "fills")}
    return {
        **counts,
        "failed_writes": storm.hosts.counted("failed"),
        "troubles_met": storm.hosts.counted("troubles"),
        "tasks": len(storm.planned),
        "claims": events["claimed"],
        "takeovers": events["taken_back"],
        "stale_refusals": sum(str(each[0]).startswith("stale") for each in storm.acknowledged),
        "raises": storm.counts["raises"],
        "events": sum(events.values()),
        "acknowledged": sum(not str(each[0]).startswith("stale") for each in storm.acknowledged),
        "seconds": round(time.monotonic() - began, 1),
        "wrong": wrong,
    }


async def weather(database: str, plan: Plan, folder: Path) -> dict[str, Any]:
    began = time.monotonic()
    where: AbstractAsyncContextManager[Any] = small_disk(folder) if database == "sqlite" else crashing_server(folder)
    cradles: list[Cradle] = []
    async with where as place, await open_board(place.url, limits=LIMITS, patience=PATIENCE) as board:
        hosts = Hosts(place.url, folder, random.Random(plan.seed))
        storm = Storm(board, hosts, place, plan)
        try:
            cradles += await place.cradles()
            for number in range(HOSTS):
                far = {"url": place.far_url} if isinstance(place, Server) and number == 0 else {}
                await hosts.start(cradles[-1 if far else 0], **place.fields, **far)
            try:
                await storm.rage()
            except TimeoutError:
                raise AssertionError(await storm.standing()) from None
            left = await hosts.leave()
        finally:
            await end_all(hosts, cradles)
        found = await report(storm, began, left)
    if alive := [each.cmdline() for each in psutil.Process().children(recursive=True)]:
        found["wrong"].append(f"processes are left: {alive}")
    return {"database": database, "seed": plan.seed, **found}


def one(database: str, plan: Plan, keep: bool) -> dict[str, Any]:
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="dugnad-chaos-", dir=parent))
    try:
        return asyncio.run(weather(database, plan, folder))
    finally:
        if keep:
            print(f"What the hosts said is in {folder}.", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def both(plan: Plan) -> Iterator[dict[str, Any]]:
    """Each in a process of its own: kills and freezes are shared between the two."""
    for place, database in enumerate(("sqlite", "postgres")):
        share = {**asdict(plan), "kills": (plan.kills + place) // 2, "freezes": (plan.freezes + place) // 2}
        options = [word for name, value in share.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        command = [sys.executable, "-m", "tests.chaos.storm", database, "--json", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            printed, _ = process.communicate()
        except BaseException as why:
            if not isinstance(why, KeyboardInterrupt):  # Which it has heard itself.
                process.terminate()
            process.wait(120)  # It takes its server and its hosts away.
            raise
        if not printed:
            sys.exit(process.returncode)
        yield json.loads(printed)


def told(found: dict[str, Any]) -> str:
    counts = ", ".join(
        f"{value} {name.replace('_', ' ')}" for name, value in found.items() if isinstance(value, int | float)
    )
    wrong = found["wrong"]
    return f"{found['database']}: {counts}.\n" + ("\n".join(map(str, wrong[:20])) or "Nothing lost, no promise broken.")


def main() -> None:
    parser = argparse.ArgumentParser(description="A storm over real hosts; see the top of this file.")
    parser.add_argument("database", choices=["sqlite", "postgres", "both"])
    for each in fields(Plan):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=int, default=each.default)
    parser.add_argument("--json", action="store_true", help="print one JSON object a database")
    parser.add_argument("--keep", action="store_true", help="keep what the hosts wrote")
    given = vars(parser.parse_args())
    database, as_json, keep = given.pop("database"), given.pop("json"), given.pop("keep")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    plan = Plan(**given)
    broken = False
    try:
        for found in both(plan) if database == "both" else [one(database, plan, keep)]:
            print(json.dumps(found) if as_json else told(found), flush=True)
            broken = broken or bool(found["wrong"])
    except CannotBeTried as why:
        print(why, file=sys.stderr)
        sys.exit(2)
    sys.exit(broken)


if __name__ == "__main__":
    main()
