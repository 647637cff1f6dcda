"""The host processes of a storm: started, killed, frozen and ended by their own number, and what they heard."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.chaos_host import LIMITS

ROOT = Path(__file__).parents[2]
FREEZE_SECONDS = LIMITS.lease_seconds * 1.6
LEAVE_SECONDS_MAX = 120


class Cradle:
    """A process that forks hosts, in a network of its own where the prefix makes one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._asking = asyncio.Lock()

    @classmethod
    async def make(cls, *prefix: str) -> Cradle:
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                *prefix, sys.executable, "-m", "tests.chaos.chaos_host", cwd=ROOT, stdin=pipe, stdout=pipe
            )
        )

    async def ask(self, **order: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._asking, asyncio.timeout(LEAVE_SECONDS_MAX):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            return int(await self._process.stdout.readline())

    async def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        async with asyncio.timeout(LEAVE_SECONDS_MAX):
            await self._process.wait()


@dataclass
class Host:
    """One process. Its number is its own until it is reaped, so no other can be hit."""

    pid: int
    name: str
    cradle: Cradle
    fields: dict[str, object]
    heard: Path
    thaws: asyncio.TimerHandle | None = None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    @property
    def has_heard(self) -> bool:
        """It works: something was acknowledged to it since it began."""
        return self.heard.exists() and self.heard.stat().st_size > 0

    @property
    def has_ended(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    async def reap(self) -> int:
        if self.thaws is not None:
            self.thaws.cancel()
        return await self.cradle.ask(reap=self.pid)


@dataclass
class Hosts:
    url: str
    folder: Path
    chance: random.Random
    running: list[Host] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    async def start(self, cradle: Cradle, **fields: object) -> None:
        self.counts["starts"] += 1
        name = f"h{self.counts['starts']}"
        order = {"url": self.url, "knows_neighbours": self.chance.random() < 0.5, **fields}
        pid = await cradle.ask(**order, folder=str(self.folder), name=name)
        self.running.append(Host(pid, name, cradle, dict(fields), self.folder / f"{name}.heard"))

    def _awake(self) -> list[Host]:
        return [host for host in self.running if host.thaws is None and host.has_heard]

    async def kill(self) -> bool:
        """Kill -9 one that works, and start another in its place. False: there is none yet."""
        if not (awake := self._awake()):
            return False
        victim = self.chance.choice(awake)
        self.running.remove(victim)
        victim.signal(signal.SIGKILL)
        assert await victim.reap() == -signal.SIGKILL, self.said(victim)
        self.counts["kills"] += 1
        await self.start(victim.cradle, **victim.fields)
        return True

    async def freeze(self) -> bool:
        """Stop one that works where it stands, whatever it holds, for longer than its lease."""
        awake = self._awake()
        if len(awake) < 2 or sum(host.thaws is not None for host in self.running) >= 2:
            return False
        victim = self.chance.choice(awake)
        victim.signal(signal.SIGSTOP)
        # By a timer of its own: the frozen one may hold the board, and then whoever waits for the board waits too.
        victim.thaws = asyncio.get_running_loop().call_later(FREEZE_SECONDS, self._thaw, victim)
        self.counts["freezes"] += 1
        return True

    def _thaw(self, host: Host) -> None:
        host.thaws = None
        host.signal(signal.SIGCONT)

    def said(self, host: Host) -> str:
        path = self.folder / f"{host.name}.said"
        return f"{host.name}: {path.read_text()[-3_000:] if path.exists() else ''}"

    def complaints(self) -> list[str]:
        """What those who ended by themselves had to say: nobody should."""
        return [self.said(host) for host in self.running if host.has_ended]

    async def leave(self) -> list[str]:
        """All are told to stop, and stop in order; what those said who did not, and who complained on the way."""
        for host in self.running:
            if host.thaws is not None:
                host.thaws.cancel()
                self._thaw(host)
            host.signal(signal.SIGTERM)
        bad = [f"ended with {code}, {self.said(host)}" for host in self.running if (code := await host.reap())]
        self.running.clear()
        told = {path.name: path.read_text() for path in self.folder.glob("*.said")}
        return bad + [f"{name} complained: {text[-3_000:]}" for name, text in told.items() if "Traceback" in text]

    def heard(self) -> list[list[object]]:
        """All that was acknowledged, to whomever; a line cut short by the kill says nothing."""
        lines: list[str] = []
        for path in sorted(self.folder.glob("*.heard")):
            *whole, _ = path.read_text().split("\n")
            lines += whole
        return [json.loads(line) for line in lines]

    def counted(self, name: str) -> int:
        path = self.folder / name
        return path.stat().st_size if path.exists() else 0


async def end_all(hosts: Hosts, cradles: Sequence[Cradle]) -> None:
    """Whatever happened: nothing is left. The hosts die with the process that forked them."""
    for host in hosts.running:
        if host.thaws is not None:
            host.thaws.cancel()
    for cradle in cradles:
        await cradle.end()
