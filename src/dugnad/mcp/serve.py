"""A team's host that has only clients: what they are offered, and how they come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version

from ..agent.outside.client import OutsideClient
from ..agent.outside.mind import PREFIX
from ..board import Board
from ..board.verbs.members import CLIENT_LEFT
from ..errors import BadInput
from ..prompts import tell
from ..team import RunPlan, Team
from ..team.host import Host
from ..team.minds import must_keep
from ..tools.mcp.serving import Offering, ServedPrompt, ServedTool, Template
from ..tools.policy import Policy
from ..tools.task_tools import task_text
from .seats import Seat, sit_down
from .tools import WAIT_SECONDS, ClientTools

_TASK = "dugnad://task/"


@dataclass(kw_only=True)
class ClientHost:
    """A process that takes seats for clients."""

    board: Board
    plan: RunPlan
    host: Host
    clients: dict[str, OutsideClient] = field(default_factory=dict)

    async def seat(self, wanted: str, *, roles: Sequence[str], exactly: bool) -> Seat:
        """A seat under this name. ModelMisconfigured: a policy says what no client can be held to."""
        must_keep(Policy.of(self.plan.policies), f"{PREFIX}{wanted}", wanted, roles)
        return await sit_down(self.host, self.clients, wanted=wanted, roles=roles, exactly=exactly)

    async def read(self, uri: str) -> str:
        number = uri.removeprefix(_TASK)
        if not uri.startswith(_TASK) or not number.isascii() or not number.isdecimal() or len(number) > 18:
            raise BadInput(tell("mcp.no_such_address", uri=uri))
        return await task_text(self.board, int(number))


@asynccontextmanager
async def client_host(plan: RunPlan, board: Board) -> AsyncIterator[ClientHost]:
    """A host without teammates of its own. What its clients hold is given back at the end."""
    clients: dict[str, OutsideClient] = {}
    limits = replace(plan.limits, idle_seconds=float("inf"))
    plan = replace(plan, agents=0, seats_max=0, enough=None, limits=limits, clients=clients)
    async with Team(plan, board=board) as team:
        try:
            yield ClientHost(board=board, plan=plan, host=await team.start(), clients=clients)
        finally:
            await team.leave(CLIENT_LEFT)


def served(tools: Sequence[ServedTool] = (), read: Callable[[str], Awaitable[str]] | None = None) -> Offering:
    """What a client is offered."""
    work = ServedPrompt(name="work", description=tell("mcp.work_is"), text=tell("mcp.work"))
    template = Template(uri=f"{_TASK}{{number}}", name="task", description=tell("mcp.task_is"))
    return Offering(
        version=version("dugnad"), instructions=tell("mcp.instructions"), prompts=(work,), templates=(template,),
        tools=tools, read=read,
    )  # fmt: skip


def offered(
    seat: Callable[[], Awaitable[Seat]], host: Callable[[], Awaitable[ClientHost]],
    wait_seconds: float = WAIT_SECONDS,
) -> Offering:  # fmt: skip
    """The same for a client whose seat and host may still be on their way."""

    async def read(uri: str) -> str:
        await seat()
        return await (await host()).read(uri)

    return served(ClientTools(seat=seat, wait_seconds=wait_seconds).served(), read)
