"""Gathers the calls of a process into shared transactions, so that they share a flush to the disk.

While one transaction is written, further calls collect; they form the next one. Calls of a set-based verb run as one
set. Any other call runs between two savepoints, so that a failed call is rolled back alone. All callers get their
answers after the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import BoardTrouble, DugnadError
from ...logs import about, logger
from .seam import Script, Store, Tx, ids_json

_BATCH_MAX = 256
_HALVED = 16  # So many calls at once are worth two transactions.
_LOG = logger(__name__)


@dataclass(slots=True)
class _QueuedCall:
    verb: Callable[..., Awaitable[Any]]
    call: Any
    in_set: bool
    answer: asyncio.Future[Any]

    @property
    def claims(self) -> bool:
        """Only a claim does not know its root."""
        return self.in_set and self.call.root is None


class Gatherer:
    def __init__(self, store: Store, scripted: Callable[[Sequence[tuple[Any, Any]]], Awaitable[Script | None]]) -> None:
        self._store = store
        self._scripted = scripted  # Makes a script of calls, each a verb and its argument, if there is one for them.
        self._waiting: dict[bool, list[_QueuedCall]] = {True: [], False: []}  # Claims, and the rest.
        self._drains: dict[tuple[bool, ...], asyncio.Task[None]] = {}
        self._in_trouble = False

    async def do(self, verb: Callable[..., Awaitable[Any]], call: Any, *, in_set: bool) -> Any:
        """Run `verb(tx, **call)`; or with `in_set` `verb(tx, calls)`, which answers each of its calls that gathered. It
        answers a refused one with the error, and writes nothing for it."""
        loop = asyncio.get_running_loop()
        asked = _QueuedCall(verb, call, in_set, loop.create_future())
        self._waiting[asked.claims].append(asked)
        kinds = (asked.claims,) if self._store.over_a_wire else (True, False)
        if kinds not in self._drains:
            self._drains[kinds] = loop.create_task(self._drain(kinds), name="dugnad board gatherer")
        return await asked.answer

    async def close(self) -> None:
        """Wait until all calls are answered."""
        while self._drains:
            await next(iter(self._drains.values()))

    async def _drain(self, kinds: tuple[bool, ...]) -> None:
        """Write claims and the rest in turn; or, if the store can, each beside the other.

        Claims learn which budgets they touch as they go; other set-based verbs know it before, and lock them in
        ascending order. Keeping the two apart makes deadlocks between transactions rare. When one happens, the database
        ends one of the two, which then runs again.

        Callers whose calls are written together get their answers together, and then make their next calls together:
        the database would do nothing meanwhile. So after a rest, the first transaction over a wire takes half of the
        calls. From then on the database writes the calls of one half while the other half goes on.
        """
        after_rest = self._store.over_a_wire and len(self._drains) == 1
        try:
            while any(self._waiting[kind] for kind in kinds):
                for waiting in filter(None, (self._waiting[kind] for kind in kinds)):
                    most = len(waiting) // 2 if after_rest and len(waiting) >= _HALVED else _BATCH_MAX
                    after_rest = False
                    batch = waiting[: min(most, _BATCH_MAX)]
                    del waiting[: len(batch)]
                    await self._commit(batch)
        finally:
            del self._drains[kinds]

    async def _commit(self, batch: list[_QueuedCall]) -> None:
        answers: list[Any] = []

        async def work(tx: Tx) -> None:
            answers[:] = await _run(tx, batch)

        try:
            script = await self._scripted([(asked.verb, asked.call) for asked in batch])
            # The set-based verbs are small.
            alone = len(batch) == 1 and batch[0].in_set and not any(self._waiting.values())
            if await self._store.write(work, alone=alone, script=script) and script is not None:
                answers = script.answers
            if self._in_trouble:
                self._note_trouble(None)
        except Exception as trouble:
            if isinstance(trouble, BoardTrouble) and not self._in_trouble:
                self._note_trouble(trouble)
            if len(batch) == 1 or isinstance(trouble, BoardTrouble):
                answers = [trouble] * len(batch)
            else:  # A bug in one call must not fail the others: each call runs again, alone.
                for asked in batch:
                    await self._commit([asked])
                return
        for asked, answer in zip(batch, answers, strict=True):
            if asked.answer.done():  # Its caller was cancelled, but the call is committed.
                continue
            if isinstance(answer, BaseException):
                asked.answer.set_exception(answer)
            else:
                asked.answer.set_result(answer)

    def _note_trouble(self, trouble: BoardTrouble | None) -> None:
        about(task=None, attempt=None, teammate=None)  # It concerns the whole process.
        self._in_trouble = trouble is not None
        if trouble:
            _LOG.warning("board-trouble kind=%s why=%s", type(trouble).__name__, trouble)
        else:
            _LOG.info("board-answers")


async def _run(tx: Tx, batch: Sequence[_QueuedCall]) -> list[Any]:
    answers: dict[int, Any] = {}
    sets: dict[Callable[..., Awaitable[Any]], list[int]] = {}
    for place, asked in enumerate(batch):
        if asked.in_set:
            sets.setdefault(asked.verb, []).append(place)
        elif len(batch) == 1:
            answers[place] = await asked.verb(tx, **asked.call)
        else:
            try:
                async with tx.savepoint():
                    answers[place] = await asked.verb(tx, **asked.call)
            except BoardTrouble:
                raise
            except DugnadError as refusal:
                answers[place] = refusal
    roots = {batch[place].call.root for places in sets.values() for place in places} - {None}
    if len(roots) > 1:
        await tx.fetch("hold_budgets", ids=ids_json(sorted(roots)))
    for verb, places in sets.items():
        answers.update(zip(places, await verb(tx, [batch[place].call for place in places]), strict=True))
    return [answers[place] for place in range(len(batch))]
