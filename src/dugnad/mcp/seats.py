"""The seats of clients at this host: which teammate a client is, and that it has its seat whenever it calls."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ..agent.outside.client import OutsideClient
from ..agent.outside.mind import PREFIX, is_outside
from ..board import Board
from ..board.verbs.members import CLIENT_LEFT
from ..errors import BadInput, DugnadError, HostLost, NotReady, UnknownTeammate
from ..prompts import tell
from ..team.errands import own_budget
from ..team.host import Host
from ..tools.message_tools import GONE, may_come_back
from ..tools.policy import Policy
from ..types import Budget, Teammate

_NAMES = {"claude-code": "claude", "codex-mcp-client": "codex"}  # How programs call themselves, and what people say.
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")
_NUMBERS_MAX = 1_000
_SEAT_SECONDS, _AGAIN_SECONDS = 30.0, 4.0  # For the upkeep to seat a client that comes, and one whose call waits.
_ANEW_TRIES, _ANEW_SECONDS = 40, 0.1  # While a host that was lost registers again.


class NotHere(DugnadError):
    """The client is not a teammate any more."""


class NameTaken(BadInput):
    """Another living teammate has the name."""


def name_for(client: str) -> str:
    """A teammate's name for a program that calls itself so."""
    plain = _NOT_IN_A_NAME.sub("-", client.casefold()).strip("-")[:30].strip("-")
    return _NAMES.get(plain, plain) or "agent"


@dataclass(kw_only=True)
class Seat:
    """One client's place at the host."""

    board: Board
    host: Host
    client: OutsideClient
    name: str
    roles: tuple[str, ...] = ()
    policy: Policy = field(default_factory=Policy)
    budget: Budget = field(default_factory=Budget)  # Of a goal that the client puts.
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def allows(self, tool: str) -> bool:
        return self.policy.decide(tool, self.roles) == "allow"

    async def taken(self, seconds: float = _AGAIN_SECONDS) -> None:
        """Be seated here. NotHere: somebody shut the teammate down, or it works elsewhere."""
        async with self._lock:
            for _ in range(_ANEW_TRIES):
                if self.client.is_seated:
                    return
                with suppress(HostLost):  # The host starts anew.
                    return await self._take(seconds)
                await asyncio.sleep(_ANEW_SECONDS)
        raise NotHere(tell("mcp.not_here", why="its host starts anew; call this again."))

    async def _take(self, seconds: float) -> None:
        try:
            member = await self.board.teammate(self.name)
        except UnknownTeammate:
            member = None
        if member is not None and member.host == self.host.id:
            await self._until_seated(seconds)
            return
        if member is not None and member.status in GONE and not came_and_went(member):
            raise NotHere(tell("mcp.stop", name=self.name, why=member.reason or member.status))
        if member is not None and member.status not in GONE:
            raise NotHere(tell("mcp.not_here", why=f"another client works as {self.name}."))
        seated = await self.board.spawn(
            self.name, roles=self.roles, model=self.client.model, host=self.host.id, by="board"
        )  # fmt: skip
        if seated.host != self.host.id:
            raise NotHere(tell("mcp.not_here", why=f"another client works as {self.name}."))
        await self._until_seated(seconds)

    async def _until_seated(self, seconds: float) -> None:
        """The host's upkeep starts the worker."""
        if await self.client.until(seconds, lambda: self.client.is_seated):
            return
        why = self.host.failed.get(self.name) or self.host.trouble or "the host does not answer; call this again."
        raise NotHere(tell("mcp.not_here", why=why))


def came_and_went(member: Teammate) -> bool:
    """Whether a teammate that is gone may come back by itself: its client left, or it failed."""
    return may_come_back(member) or member.reason == CLIENT_LEFT or member.status == "failed"


async def sit_down(
    host: Host, clients: dict[str, OutsideClient], *, wanted: str, roles: Sequence[str], exactly: bool
) -> Seat:
    """Take a seat under the wanted name; unless it must be `exactly` that one, with a number if a living teammate has
    it. NameTaken: it is not free."""
    numbered = (wanted if count == 1 else f"{wanted}-{count}" for count in itertools.count(1))
    board, plan = host.board, host.plan
    for name in itertools.islice(numbered, 1 if exactly else _NUMBERS_MAX):
        if name in clients or not await _is_free(board, name):
            continue
        client = clients[name] = OutsideClient(model=f"{PREFIX}{wanted}")
        seat = Seat(
            board=board, host=host, client=client, name=name, roles=tuple(roles), policy=Policy.of(plan.policies),
            budget=own_budget(plan),
        )  # fmt: skip
        try:
            await seat.taken(_SEAT_SECONDS)
        except (NotHere, NotReady):  # Somebody was quicker.
            del clients[name]
            continue
        except BaseException:
            del clients[name]
            raise
        return seat
    raise NameTaken(f"Another teammate is called {wanted}; choose another name with --as, or end that client first.")


async def _is_free(board: Board, name: str) -> bool:
    try:
        member = await board.teammate(name)
    except UnknownTeammate:
        return True
    return member.status in GONE and (is_outside(member) or came_and_went(member))
