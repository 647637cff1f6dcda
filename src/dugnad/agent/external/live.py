"""What an external agent does in the middle of a run: its calls of our tools are done, and the rest is noted.

A call is recorded like the reply of any mind, with its result, so keys, fences and guards are those that exist. A call
that has to wait ends the run: it becomes what the run asked, and is made again when the run is recorded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ...acp.updates import Happening
from ...board import Board
from ...errors import BoardTrouble
from ...models.port import LIVE, Reply, Said, ToolCall
from ...prompts import tell
from ...text import shorten
from ...tools.message_tools import inbox_text
from ...types import Claim, Waiting
from ..conversation import NOT_GRANTED, Conversation
from ..tool_calls import Actor, Result

KEPT_MAX = 500  # Happenings of one run in the transcript.
_KEEP_CHARS_MAX = 8_000
_PAUSE_SECONDS = 1.0
T = TypeVar("T")


@dataclass(kw_only=True, eq=False)
class LiveRun:
    """One run while it goes on."""

    board: Board
    claim: Claim
    talk: Conversation
    said: Said | None  # What the run was told; None: it is recorded already.
    actor: Actor
    command: str
    note: Callable[[str], None]
    over: asyncio.Event = field(default_factory=asyncio.Event)  # The run has to end.
    waits: list[ToolCall] = field(default_factory=list)  # What has to be answered before it can go on.
    cut: str = ""  # Which limit it reached.
    trouble: BaseException | None = None  # Why nothing more of it counts.
    _kept: int = 0
    _to_keep: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    _calls: set[asyncio.Task[tuple[str, bool]]] = field(default_factory=set)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # Turns are numbered one after another.

    # Calls of our tools.

    async def call(self, name: str, arguments: str) -> tuple[str, bool]:
        """What the agent is answered, and whether that is a refusal. A call that began is recorded, even if the agent
        does not wait for its answer. A run that has to end gets none: it would ask its model again with it, and what
        that costs until the run is cancelled, no agent counts."""
        task = asyncio.create_task(self._in_turn(name, arguments))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        answer = await asyncio.shield(task)
        if self.over.is_set():
            await asyncio.Event().wait()
        return answer

    async def _in_turn(self, name: str, arguments: str) -> tuple[str, bool]:
        async with self._turn:
            if self.over.is_set():
                return tell("external.run_ends"), True
            try:
                return await self._call(ToolCall(f"call-{self.talk.number}", name, arguments))
            except asyncio.CancelledError:
                raise
            except BaseException as trouble:  # The claim is lost, or it is a bug: the run ends with it.
                self._end_with(trouble)
                return tell("external.run_ends"), True

    def _end_with(self, trouble: BaseException) -> None:
        self.trouble = self.trouble or trouble
        self.over.set()

    async def _call(self, call: ToolCall) -> tuple[str, bool]:
        talk, said = self.talk, self.said
        reply = Reply(calls=(call,), stop="tools", model=self.command, run=LIVE)
        turn = talk.next_turn("reply", talk.reply_turn(said, reply), shown=tuple(talk.shown))
        talk.number = await self._patiently(self.board.record, self.claim, turn)
        talk.apply_reply(said, reply)
        talk.recorded, self.said = self.claim.epoch, None
        result = await self._patiently(self.actor.run, 0)
        if isinstance(result.ends, Waiting):
            self.wait_for(call)
            result = Result(text=tell("external.run_waits"))
        result = await self._patiently(self._with_messages, result)
        await self._patiently(self.actor.record, 0, result)
        self.note(f"runs {self.command}")
        return result.text, result.bad or result.text.startswith(NOT_GRANTED)

    async def _with_messages(self, result: Result) -> Result:
        """The result, with what others wrote meanwhile."""
        name = self.claim.teammate
        if not await self.board.has_unread(name):
            return result
        messages = await self.board.take(name, f"t{self.claim.task.id}.e{self.talk.epoch}.{self.talk.number}")
        leads = frozenset(member.name for member in await self.board.team() if member.lead)
        text = f"{result.text}\n\n{inbox_text(messages, leads, outside=True)}"
        return replace(result, text=text, shown=(*result.shown, *(each.id for each in messages)))

    async def _patiently(self, verb: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Try until the board answers: a run is not lost because the database is away for a moment."""
        while True:
            try:
                return await verb(*arguments)
            except BoardTrouble as trouble:
                self.note(f"waits for the board: {trouble}")
                await asyncio.sleep(_PAUSE_SECONDS)

    def wait_for(self, call: ToolCall) -> None:
        """The run ends, and this call is made."""
        self.waits.append(call)
        self.over.set()

    def ask(self, question: str) -> None:
        """The run ends, and a person is asked. The first question counts: the others come again in the next run."""
        if not self.waits:
            self.wait_for(ToolCall("call-0", "ask_human", json.dumps({"question": question})))

    # What it does on its own.

    def happened(self, happening: Happening) -> None:
        if happening.doing:
            self.note(f"{self.command}: {happening.doing}")
        if happening.keep and self._kept < KEPT_MAX:
            self._kept += 1
            last = self._kept == KEPT_MAX
            self._to_keep.put_nowait("more than this is not kept" if last else happening.keep)

    @asynccontextmanager
    async def recording(self) -> AsyncIterator[None]:
        """Record what happens meanwhile. At the end nothing is left to be recorded."""
        keeping = asyncio.create_task(self._keep_all())
        try:
            yield
            self.over.set()
            self._to_keep.put_nowait("")
            await keeping
            async with self._turn:  # A call that is under way is recorded first.
                pass
        finally:
            left = (keeping, *self._calls)
            for each in left:
                each.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _keep_all(self) -> None:
        while self.trouble is None and (text := await self._to_keep.get()):
            await self._keep(text)

    async def _keep(self, text: str) -> None:
        """People can do without it, so it is not tried again."""
        try:
            async with self._turn:
                turn = self.talk.next_turn("live", {"text": shorten(text, _KEEP_CHARS_MAX)})
                self.talk.number = await self.board.record(self.claim, turn)
        except BoardTrouble:
            pass
        except asyncio.CancelledError:
            raise
        except BaseException as trouble:
            self._end_with(trouble)
