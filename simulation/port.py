"""A process's way to the board: the real verbs and the real database, with what can happen to a call on its way.

All processes of a world share one SQLite database. Transactions are serial there in any case, so one connection shows
everything several would; what a process loses with its connection is what it was told, and that is lost here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from dugnad.board import Board
from dugnad.board.store.seam import Asked, Row, Script, Topics, Tx, Work
from dugnad.board.store.sqlite import SqliteStore
from dugnad.errors import BoardBusy, BoardFull, BoardUnreachable, DugnadError, StaleClaim

from .faults import AT_COMMIT, Storm
from .loop import Process, VirtualLoop, never

_LATENCY_SECONDS = 0.004
_PUSHES_LOST = 300  # Of a thousand, where they are lost.
_OF_VERBS = ("the same call twice", "frozen after a turn", "busy at a result")
_DRIVER_FAULTS = tuple(kind for kind in AT_COMMIT if kind not in _OF_VERBS)
# What the same call has to answer twice. Others tell how things stand at the moment, which may have changed.
_SAME_TWICE = (
    "put", "claim", "settle", "record", "reserve", "tell", "reply", "write_note", "cancel", "release", "retry",
)  # fmt: skip
_LOST = "The database cannot be reached, and the fate of the call is unknown: repeat it with the same key."


@dataclass
class DatabaseWire:
    """The database, and who is connected to it."""

    loop: VirtualLoop
    store: SqliteStore
    storm: Storm
    committed: Callable[[str, Topics], None]  # Is told after every commit that changed something: by whom, of what.
    note: Callable[[str, str], None]  # Writes a line of the story: who, what.
    freeze: Callable[[Process], None]  # For several leases.
    over_a_wire: bool = False  # As on PostgreSQL: claims and ends look first, and then write all at once.
    ports: list[Port] = field(default_factory=list)
    reads: int = 0

    def __post_init__(self) -> None:
        self._topics: Topics = {}
        self.store.on_push(self._topics.update)

    async def write(self, work: Work, port: Port, script: Script | None = None) -> bool:
        self._topics.clear()
        by_script = await self.store.write(work, script=script)
        topics = dict(self._topics)
        if topics:
            self.committed(port.process.name, topics)
            for each in self.ports:
                if each is port:
                    each.hear(topics)
                elif each.process.alive and not self.storm.draws("pushes lost", _PUSHES_LOST):
                    delay = self.storm.random.random() * _LATENCY_SECONDS
                    self.loop.call_later(delay, each.hear, topics, context=each.process.context)
        return by_script


class Port:
    """A `Store` for one process."""

    def __init__(self, wire: DatabaseWire, process: Process) -> None:
        self.wire = wire
        self.process = process
        self.over_a_wire = wire.over_a_wire
        self._listeners: list[Callable[[Topics], None]] = []
        wire.ports.append(self)

    async def write(self, work: Work, *, alone: bool = False, script: Script | None = None) -> bool:
        storm, name = self.wire.storm, self.process.name
        fault = storm.draw(AT_COMMIT, _DRIVER_FAULTS) if name.startswith("host") else None
        if fault:
            self.wire.note(name, fault)
        if fault == "frozen before a commit":
            self.wire.freeze(self.process)
        await asyncio.sleep(storm.random.random() * _LATENCY_SECONDS)
        if fault == "stopped before a commit":
            self.process.kill()
            await never()
        elif fault == "database locked":
            raise BoardBusy
        elif fault == "disk full":
            raise BoardFull
        elif fault == "connection lost before a commit":
            raise BoardUnreachable(_LOST)
        by_script = await self.wire.write(work, self, script)
        if fault == "stopped after a commit":
            self.process.kill()
            await never()
        elif fault == "frozen after a commit":
            self.wire.freeze(self.process)
            await asyncio.sleep(0)
        elif fault == "commit done, answer lost":
            raise BoardUnreachable(_LOST)
        elif fault == "commit done, asked again":
            await asyncio.sleep(storm.random.random())  # While the connection is made anew, others go on.
            by_script = await self.wire.write(_repeated(work), self)
        return by_script

    async def read(self, name: str, /, **arguments: object) -> Sequence[Row]:
        self.wire.reads += 1
        return await self.wire.store.read(name, **arguments)

    async def snapshot(self, asks: Sequence[Asked]) -> Sequence[Sequence[Row]]:
        self.wire.reads += 1
        return await self.wire.store.snapshot(asks)

    def get_ready(self) -> None: ...

    async def shrink(self, *, whole: bool) -> bool:
        return await self.wire.store.shrink(whole=whole)

    def on_push(self, listener: Callable[[Topics], None]) -> None:
        self._listeners.append(listener)

    def hear(self, topics: Topics) -> None:
        for listener in self._listeners:
            listener(topics)

    async def close(self) -> None:
        """The database is the world's to close."""


def _repeated(work: Work) -> Work:
    async def again(tx: Tx) -> None:
        tx.repeated = True
        await work(tx)

    return again


class WitnessedBoard(Board):
    """A board that notes what its callers were told, and delivers some calls twice."""

    told: list[tuple[object, ...]]
    differing: list[str]
    calls: dict[str, int]
    storm: Storm
    now: Callable[[], float]
    on_call: Callable[[str, Any, Any, float], None]
    freeze: Callable[[], None]  # The process it belongs to.

    async def _do(self, verb: Callable[..., Awaitable[Any]], *given: Any, **named: Any) -> Any:
        send = partial(super()._do, verb, *given, **named)
        return await self._witnessed(verb.__name__, SimpleNamespace(**named), send)

    async def _do_in_set(self, verb: Callable[..., Awaitable[Any]], call: Any) -> Any:
        return await self._witnessed(verb.__name__, call, partial(super()._do_in_set, verb, call))

    async def _witnessed(self, verb: str, call: Any, send: Callable[[], Awaitable[Any]]) -> Any:
        began = self.now()
        self.calls[verb] = self.calls.get(verb, 0) + 1
        turn = call.turn.kind if verb == "record" else None
        if turn == "tool" and self.storm.draws("busy at a result", AT_COMMIT["busy at a result"]):
            raise BoardBusy
        try:
            answer = await send()
        except StaleClaim:
            if verb == "settle":
                self.told.append(("stale", call.task, call.epoch))
            raise
        self._note(verb, call, answer)
        self.on_call(verb, call, answer, began)
        repeatable = verb in _SAME_TWICE and getattr(call, "may_repeat", True) and answer is not None
        if repeatable and self.storm.draws("the same call twice", AT_COMMIT["the same call twice"]):
            await self._again(verb, answer, send)
        if turn == "reply" and self.storm.draws("frozen after a turn", AT_COMMIT["frozen after a turn"]):
            self.freeze()
            await asyncio.sleep(0)
        return answer

    async def _again(self, verb: str, answer: Any, send: Callable[[], Awaitable[Any]]) -> None:
        """A call that was sent twice has to be one. What went wrong on the second way says nothing."""
        try:
            second = await send()
        except StaleClaim as refused:
            if verb == "settle":
                self.differing.append(f"{verb}: the same call again was refused: {refused}")
        except DugnadError:
            pass
        except Exception as bug:
            self.differing.append(f"{verb}: the same call again failed: {type(bug).__name__}: {bug}")
        else:
            if _gist(answer) != _gist(second):
                self.differing.append(f"{verb}: answered {_gist(answer)}, and the same call again {_gist(second)}")

    def _note(self, verb: str, call: Any, answer: Any) -> None:
        if verb == "put":
            self.told += [("put", task.id) for task in answer]
        elif verb == "claim" and answer is not None and hasattr(answer, "epoch"):
            self.told.append(("claim", answer.task.id, answer.epoch))
        elif verb == "record":
            self.told.append(("turn", call.task, call.epoch, answer))
        elif verb == "reserve":
            self.told.append(("reserve", answer))
        elif verb == "settle":
            self.told.append(("settled as", call.task, call.epoch, answer))


def _gist(answer: Any) -> Any:
    """What two answers are compared by: a task may have moved on in between, but must be the same one."""
    if isinstance(answer, list):
        return [_gist(each) for each in answer]
    if hasattr(answer, "epoch") and hasattr(answer, "task"):
        return answer.task.id, answer.epoch
    return getattr(answer, "id", answer)
