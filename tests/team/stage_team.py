"""A host on a real board with a scripted model: started and stopped in one block, and what to wait for, named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from dugnad.agent.agent import Agent
from dugnad.board import Board
from dugnad.errors import BoardBusy
from dugnad.models import ScriptedModel
from dugnad.models.port import Reply, Request
from dugnad.models.scripted import Step
from dugnad.settings import Limits, Patience, TeamLimits
from dugnad.team import Host, RunPlan
from dugnad.types import MESSAGES, Task, Teammate
from tests.agent.stage_agent import FAST

T = TypeVar("T")
# Rests for ever unless a test says otherwise; what is cancelled is not waited for long.
QUICK = {"idle_seconds": 600.0, "sweep_seconds": 0.3, "stop_seconds": 10.0, "cancel_seconds": 0.3}
# Only a push can wake anybody within a test.
NO_SWEEP = {"patience": Patience(reconnect_seconds=10, poll_seconds=600)}
SECONDS_MAX = 120.0


def short_lease(seconds: float = 1.5) -> dict[str, Any]:
    """For a board whose hosts are to be lost within a test."""
    return {"limits": Limits(lease_seconds=seconds, backoff_seconds=0.01)}


class Paused:
    """A scripted model that answers the requests `where` picks only when it is let go; or never."""

    def __init__(
        self, script: Mapping[str, Sequence[Step]] | Callable[[Request], Step], *,
        where: Callable[[Request], bool] = lambda request: True,
    ) -> None:  # fmt: skip
        self.inner = ScriptedModel(script)
        self.name, self.key, self.facts, self.asked = (
            self.inner.name, self.inner.key, self.inner.facts, self.inner.asked,
        )  # fmt: skip
        self._where = where
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def ask(self, request: Request) -> Reply:
        if self._where(request) and not self.go.is_set():
            self.reached.set()
            await self.go.wait()
        return await self.inner.ask(request)

    async def close(self) -> None:
        await self.inner.close()


class Raising:
    """A model whose provider, or whose code, does not work."""

    def __init__(self, error: Exception, *, times: int = 1_000_000, then: Any = None) -> None:
        self.inner = then or ScriptedModel({})
        self.name, self.key, self.facts = self.inner.name, self.inner.key, self.inner.facts
        self.asked: list[Request] = []
        self._error, self._times = error, times

    async def ask(self, request: Request) -> Reply:
        self.asked.append(request)
        if len(self.asked) <= self._times:
            raise self._error
        return await self.inner.ask(request)  # type: ignore[no-any-return]

    async def close(self) -> None:
        await self.inner.close()


class Between:
    """A real board. Before the first call of one verb that `where` picks, something else happens: a race, forced."""

    def __init__(
        self, board: Board, verb: str, happens: Callable[[], Awaitable[object]], *,
        where: Callable[..., bool] = lambda *given, **fields: True,
    ) -> None:  # fmt: skip
        self._board, self._verb, self._happens, self._where = board, verb, happens, where
        self.happened = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._board, name)
        if name != self._verb:
            return found

        async def first(*given: Any, **fields: Any) -> Any:
            if not self.happened and self._where(*given, **fields):
                self.happened += 1
                await self._happens()
            return await found(*given, **fields)

        return first


class AnswerLost(Between):
    """A real board. The first call of one verb is made, and its answer is lost."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._board, name)
        if name != self._verb:
            return found

        async def first(*given: Any, **fields: Any) -> Any:
            answer = await found(*given, **fields)
            if not self.happened and self._where(answer):
                self.happened += 1
                await self._happens()
            return answer

        return first


class Counted:
    """A real board, and how often one verb of it was called."""

    def __init__(self, board: Board, verb: str) -> None:
        self._board, self._verb = board, verb
        self.times = 0

    def __getattr__(self, name: str) -> Any:
        self.times += name == self._verb
        return getattr(self._board, name)


async def busy() -> None:
    raise BoardBusy


def limits(**given: Any) -> TeamLimits:
    return TeamLimits(**{**QUICK, **given})


def host_of(board: Any, model: Any, *, tools: Sequence[Any] = (), agent: Any = FAST, **fields: Any) -> Host:
    def mind(member: Teammate, may_act: Callable[[], bool]) -> Agent:
        own = model.get(member.name) if isinstance(model, dict) else model
        return Agent(board=board, teammate=member, model=own, tools=tools, limits=agent, may_act=may_act)

    return Host(
        board=board,
        mind=fields.pop("mind", mind),
        plan=RunPlan(url="", limits=limits(**fields.pop("limits", {})), **fields),
    )


@asynccontextmanager
async def hosting(board: Any, model: Any, **fields: Any) -> AsyncIterator[Host]:
    """A host at work on the board while the block lasts."""
    host = host_of(board, model, **fields)
    await host.start()
    try:
        yield host
    finally:
        await host.stop()


async def kill(host: Host) -> None:
    """The process is gone from one moment to the next: nothing of it runs on, and nobody is told."""
    running = [*host._loops, *host._running.values()]
    for life in host.workers.values():
        running += [each for each in asyncio.all_tasks() if "_attempt" in repr(each.get_coro())]
        life.agent.stop.say("killed")
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def until(board: Any, holds: Callable[[], Awaitable[T]]) -> T:
    """Wait for the board to be so."""
    async with asyncio.timeout(SECONDS_MAX):
        with board.watch(["log"]) as watch:
            while not (found := await holds()):
                await watch.wait(0.2)
            return found


async def until_ended(board: Any, *tasks: Task) -> list[Task]:
    async def ended() -> list[Task]:
        found = [await board.find(task.id) for task in tasks]
        return found if all(task.ended for task in found) else []

    return await until(board, ended)


async def until_status(board: Any, name: str, *statuses: str) -> Teammate:
    async def has_status() -> Teammate | None:
        member: Teammate = await board.teammate(name)
        return member if member.status in statuses else None

    found = await until(board, has_status)
    assert found is not None
    return found


async def until_state(board: Any, task: Task | int, *states: str) -> Task:
    async def has_state() -> Task | None:
        found: Task = await board.find(task if isinstance(task, int) else task.id)
        return found if found.state in states else None

    found = await until(board, has_state)
    assert found is not None
    return found


async def errands(board: Any) -> list[Task]:
    return [task for task in await board.list_tasks() if task.kind in MESSAGES]


async def within(what: Awaitable[T]) -> T:
    """A test that hangs should say where."""
    async with asyncio.timeout(SECONDS_MAX):
        return await what
