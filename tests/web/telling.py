"""Telling a board what happened, on a clock that moves only when it is told to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from dugnad.board import Board, open_board
from dugnad.clock import Sources, wall_ms
from dugnad.settings import Limits
from dugnad.types import Amount, Claim, NewTurn

Call = tuple[str, dict[str, object], str]  # A tool, its arguments, and what it returned.
MODEL = "scripted:tides"
LEASE_SECONDS = 120.0  # The longest there is: a host of a story lives while a test looks at it.


@dataclass
class Clock:
    now: int

    def later(self, minutes: float) -> None:
        self.now += round(minutes * 60_000)


@dataclass
class Teller:
    """Does on a board what hosts and teammates do."""

    board: Board
    clock: Clock
    hosts: dict[str, str] = field(default_factory=dict)  # The host of each teammate.
    _numbers: dict[tuple[int, int], int] = field(default_factory=dict)

    async def host(self, label: str) -> str:
        return await self.board.start_host(label)

    async def join(self, name: str, host: str, *roles: str, lead: bool = False, model: str = MODEL) -> None:
        await self.board.spawn(name, roles=roles, lead=lead, model=model)
        await self.board.seat(host, name=name)
        self.hosts[name] = host

    async def beat(self) -> None:
        """The hosts that teammates sit at are alive."""
        for host in sorted(set(self.hosts.values())):
            await self.board.heartbeat(host)

    async def claim(self, name: str, task: int) -> Claim:
        await self.beat()
        found = await self.board.claim(name, self.hosts[name], task=task)
        assert found is not None, (name, task)
        return found

    async def turn(
        self, claim: Claim, text: str, *calls: Call, said: str = "", tokens: int = 2_400, dollars: float = 0.012,
        minutes: float = 0.5,
    ) -> None:  # fmt: skip
        """One reply of the model with the results of the tools that it called, as the loop records it."""
        used = Amount(tokens=tokens, microdollars=round(dollars * 1_000_000), milliseconds=round(minutes * 20_000))
        kept = await self.board.reserve(claim, Amount(tokens=tokens * 2, microdollars=used.microdollars * 2))
        self.clock.later(minutes)
        reply = {
            "text": text, "calls": [[f"c{n}", name, json.dumps(given)] for n, (name, given, _) in enumerate(calls)],
            "usage": [tokens * 9 // 10, tokens // 10, tokens // 2, 0], "stop": "tools" if calls else "end",
            "model": MODEL, "native": None,
        }  # fmt: skip
        body = json.dumps({"said": said, "reply": reply})
        await self.record(claim, "reply", body, used, kept)
        for place, (_, _, result) in enumerate(calls):
            await self.record(claim, "tool", json.dumps({"place": place, "text": result}))

    async def verdict(self, claim: Claim, result: str, told: str) -> None:
        """Work that was handed in, and what came of it."""
        await self.turn(claim, "", ("finish", {"result": result}, "Handed in."))
        await self.record(claim, "tool", json.dumps({"place": 0, "text": told, "verdict": True}))

    async def summary(self, claim: Claim, text: str) -> None:
        number = self._numbers.get((claim.task.id, claim.epoch), 0)
        body = json.dumps({"summary": text, "kept_from": 1, "who": ""})
        await self.record(claim, "summary", body, covers=(1, number))

    async def record(
        self, claim: Claim, kind: str, body: str, used: Amount | None = None, reservation: str | None = None,
        covers: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        place = (claim.task.id, claim.epoch)
        number = self._numbers[place] = self._numbers.get(place, 0) + 1
        turn = NewTurn(
            number=number, kind=kind, body=body, used=used or Amount(), reservation=reservation,  # type: ignore[arg-type]
            covers=covers,
        )  # fmt: skip
        await self.board.record(claim, turn)


async def teller(url: str, *, minutes_ago: float = 90.0, limits: Limits | None = None) -> Teller:
    """A board whose story began a while ago."""
    clock = Clock(wall_ms() - round(minutes_ago * 60_000))
    sources = Sources(now_ms=lambda: clock.now, chance=lambda: 0.5)
    given = limits or Limits(lease_seconds=LEASE_SECONDS, backoff_seconds=60)
    return Teller(await open_board(url, limits=given, sources=sources), clock)


async def keep_alive(url: str, hosts: Sequence[str]) -> None:
    """Renew the leases of a story's hosts now, for a test that comes later."""
    async with await open_board(url, limits=Limits(lease_seconds=LEASE_SECONDS)) as board:
        for host in hosts:
            await board.heartbeat(host)
