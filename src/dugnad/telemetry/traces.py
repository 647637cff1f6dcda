"""One trace for each line of attempts at a task, with a span for each step. Ids are derived and not drawn.

The trace's id is made of the board, the task and the epoch in which its line of attempts began. So an attempt that
continues an earlier one, on any host, continues the trace, and what is sent twice is the same span.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from ..board import Board
from ..errors import DugnadError
from ..logs import logger
from ..logs.steps import Facts, Kind
from ..types import Attempt, Claim
from .names import attributes, span_name, trouble_of

_LOG = logger(__name__)
LINKS_MAX = 20
_LINK_SECONDS = 5.0  # For reading what an attempt is linked to, before its span is sent without links.


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStep:
    """A step under way."""

    kind: Kind
    name: str
    trace: int
    span: int
    parent: int | None
    places: Iterator[int]  # Numbers the steps of an attempt.
    attempt: tuple[int, int]  # The task and the epoch.
    began_ms: int
    began_working: int  # By a clock that cannot be set.


_WITHIN: ContextVar[OpenStep | None] = ContextVar("within", default=None)


def trace_id(board: str, task: int, born: int) -> int:
    return _derived(16, board, task, born)


def span_id(board: str, task: int, epoch: int, place: int = 0) -> int:
    """Of an attempt; with a place, of one of its steps."""
    return _derived(8, board, task, epoch, place)


def _derived(size: int, *parts: str | int) -> int:
    made = hashlib.sha256(":".join(map(str, ("dugnad", size, *parts))).encode()).digest()
    return int.from_bytes(made[:size]) or 1


def born(attempts: Sequence[Attempt], epoch: int) -> int:
    """The epoch in which the line of attempts of this one began."""
    before = {each.epoch: each.continues for each in attempts}
    while (earlier := before.get(epoch)) is not None and earlier < epoch:
        epoch = earlier
    return epoch


class GivenIds(IdGenerator):
    """Gives the ids that were set just before."""

    trace = span = 1

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class Traces:
    """Makes spans of steps. A step outside of an attempt has none."""

    def __init__(
        self, board: Board, identity: str, provider: TracerProvider, ids: GivenIds, *, contents: bool
    ) -> None:  # fmt: skip
        """`provider` was made with these `ids`."""
        self._board, self._identity, self._contents = board, identity, contents
        self._provider, self._ids = provider, ids
        self._tracer = provider.get_tracer("dugnad")
        self._sending: set[asyncio.Task[None]] = set()

    @contextmanager
    def within(self, step: OpenStep | None) -> Iterator[None]:
        token = _WITHIN.set(step)
        try:
            yield
        finally:
            with suppress(ValueError):  # Work that was left behind ends in another context.
                _WITHIN.reset(token)

    def begin(self, kind: Kind, name: str, facts: Facts) -> OpenStep | None:
        around, sources = _WITHIN.get(), self._board.sources
        times = {"began_ms": sources.now_ms(), "began_working": sources.working_ms()}
        if kind == "attempt":
            claim: Claim = facts["claim"]
            task, epoch, first = claim.task.id, claim.epoch, born(facts["attempts"], claim.epoch)
            trace, span = trace_id(self._identity, task, first), span_id(self._identity, task, epoch)
            parent = None if first == epoch else span_id(self._identity, task, first)
            return OpenStep(
                kind=kind, name=name, trace=trace, span=span, parent=parent, places=count(1), attempt=(task, epoch),
                **times,
            )  # fmt: skip
        if around is None:
            return None
        return OpenStep(
            kind=kind, name=name, trace=around.trace, parent=around.span, places=around.places, attempt=around.attempt,
            span=span_id(self._identity, *around.attempt, next(around.places)), **times,
        )  # fmt: skip

    def end(self, step: OpenStep, facts: Facts, raised: BaseException | None) -> None:
        lasted = max(0, self._board.sources.working_ms() - step.began_working)
        if step.kind != "attempt":
            self._send(step, lasted, facts, raised, ())
            return
        sending = asyncio.get_running_loop().create_task(self._send_linked(step, lasted, facts, raised))
        self._sending.add(sending)
        sending.add_done_callback(self._sent)

    def _sent(self, sending: asyncio.Task[None]) -> None:
        self._sending.discard(sending)
        if not sending.cancelled() and (bug := sending.exception()) is not None:
            _LOG.warning("telemetry-bug why=%s", f"{type(bug).__name__}: {bug}")

    async def _send_linked(self, step: OpenStep, lasted: int, facts: Facts, raised: BaseException | None) -> None:
        links: list[Link] = []
        with suppress(DugnadError, TimeoutError):  # It is sent without the links that could not be read.
            async with asyncio.timeout(_LINK_SECONDS):
                await self._link(facts["claim"], facts["attempts"], links)
        self._send(step, lasted, facts, raised, links)

    async def _link(self, claim: Claim, attempts: Sequence[Attempt], links: list[Link]) -> None:
        """To the earlier attempts at the task, and to the attempts that ended what it needs."""
        for each in [each for each in attempts if each.epoch < claim.epoch][-LINKS_MAX // 2 :]:
            links.append(self._link_to(each, attempts, "earlier attempt"))
        for need, state in await self._board.needs_of(claim.task.id):
            if state != "open" and len(links) < LINKS_MAX:
                others = await self._board.attempts(need.task)
                links += [self._link_to(each, others, "need") for each in others[-1:]]

    def _link_to(self, attempt: Attempt, attempts: Sequence[Attempt], why: str) -> Link:
        trace = trace_id(self._identity, attempt.task, born(attempts, attempt.epoch))
        context = self._context(trace, span_id(self._identity, attempt.task, attempt.epoch))
        return Link(
            context, {"dugnad.link": why, "dugnad.task.id": attempt.task, "dugnad.attempt.epoch": attempt.epoch}
        )

    def _context(self, trace: int, span: int) -> SpanContext:
        sampled = self._provider.sampler.should_sample(None, trace, "").decision is Decision.RECORD_AND_SAMPLE
        return SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(int(sampled)))

    def _send(
        self, step: OpenStep, lasted: int, facts: Facts, raised: BaseException | None, links: Sequence[Link]
    ) -> None:
        parent = self._context(step.trace, step.parent) if step.parent is not None else None
        told = attributes(step.kind, step.name, {**facts, "board": self._identity[:8]}, contents=self._contents)
        self._ids.trace, self._ids.span = step.trace, step.span
        span = self._tracer.start_span(
            span_name(step.kind, step.name), set_span_in_context(NonRecordingSpan(parent)) if parent else None,
            kind=SpanKind.CLIENT if step.kind == "chat" else SpanKind.INTERNAL, attributes=told, links=links,
            start_time=step.began_ms * 1_000_000,
        )  # fmt: skip
        if why := trouble_of(step.kind, facts, raised):
            span.set_attribute("error.type", why)
            span.set_status(Status(StatusCode.ERROR))
        span.end((step.began_ms + lasted) * 1_000_000)

    async def close(self) -> None:
        """Wait until the last attempts are on their way."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=_LINK_SECONDS + 1)
