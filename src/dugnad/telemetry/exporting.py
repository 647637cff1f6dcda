"""From the standard OTEL_* variables to a listener that sends what a host does to a collector, by OTLP over HTTP.

Sending happens in threads of the SDK, from queues with a bound; what does not fit is dropped. No trouble of the
collector reaches the work, and the end of a host waits a few seconds at most.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ..board import Board
from ..errors import DugnadError
from ..logs import hide, logger
from ..logs.steps import LISTENER, Facts, Kind

if TYPE_CHECKING:
    from .metrics import Metrics
    from .traces import Traces

_LOG = logger(__name__)
_FLUSH_SECONDS = 5.0
_LOOK_SECONDS = 5.0  # For the board, before its numbers count as unknown.
_SIGNALS = ("TRACES", "METRICS")
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_MISSING = 'OpenTelemetry is not installed; run `pip install "dugnad[otel]"`, or set OTEL_SDK_DISABLED=true'


def wanted(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The signals that the user asked for, by the standard variables."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    return tuple(
        each for each in _SIGNALS
        if (environment.get(_ENDPOINT) or environment.get(f"OTEL_EXPORTER_OTLP_{each}_ENDPOINT"))
        and environment.get(f"OTEL_{each}_EXPORTER", "otlp").strip() == "otlp"
    )  # fmt: skip


def refused(signals: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """Why what was asked for cannot be done; empty: it can."""
    for name in ("OTEL_EXPORTER_OTLP_PROTOCOL", *(f"OTEL_EXPORTER_OTLP_{each}_PROTOCOL" for each in signals)):
        if environment.get(name, "http/protobuf").strip() != "http/protobuf":
            return f"{name} is {environment[name]!r}, and dugnad speaks only 'http/protobuf'; set it to that"
    return ""


@asynccontextmanager
async def exporting(board: Board, environment: Mapping[str, str] = os.environ) -> AsyncIterator[str]:
    """While the block lasts, send what this host does. Yields what to tell the user; empty: nothing was asked for."""
    signals = wanted(environment)
    if not signals:
        yield ""
        return
    _hide_headers(environment)
    listener, told = None, refused(signals, environment)
    if not told:
        try:
            listener = Exporter(board, await board.identity(), signals, environment)
        except ImportError:
            told = _MISSING
        except Exception as trouble:  # For example a certificate that cannot be read. The team works without it.
            told = f"{type(trouble).__name__}: {trouble}"
    if listener is None:
        yield f"Telemetry: none; {told}."
        return
    token = LISTENER.set(listener)
    looking = asyncio.create_task(listener.keep_looking())
    give_back = _take_log()
    try:
        yield f"Telemetry: {' and '.join(signals).lower()} go to {_where(environment, signals)}."
    finally:
        looking.cancel()
        await asyncio.wait({looking})
        if await listener.close():  # Otherwise a thread still sends, and would print its troubles.
            give_back()
        with suppress(ValueError):  # The block was ended from another task.
            LISTENER.reset(token)


class Exporter:
    """Listens to the steps of this process. It never raises, and never waits."""

    def __init__(
        self, board: Board, identity: str, signals: tuple[str, ...], environment: Mapping[str, str]
    ) -> None:  # fmt: skip
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource

        own = {
            "service.name": "dugnad", "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
            "dugnad.board": identity[:8],
        }  # fmt: skip
        resource = Resource(own).merge(OTELResourceDetector().detect())  # What the user says counts.
        contents = environment.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").strip().lower()
        self._board, self._providers, self._troubled = board, list[Any](), False
        self._every = _seconds(environment.get("OTEL_METRIC_EXPORT_INTERVAL"))
        self.traces: Traces | None = None
        self.metrics: Metrics | None = None
        if "TRACES" in signals:
            self._trace(identity, resource, contents in ("true", "span_only", "span_and_event"))
        if "METRICS" in signals:
            self._measure(resource)

    def _trace(self, identity: str, resource: Any, contents: bool) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from .traces import GivenIds, Traces

        ids = GivenIds()
        provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=ids)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self.traces = Traces(self._board, identity, provider, ids, contents=contents)
        self._providers.append(provider)

    def _measure(self, resource: Any) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        from .metrics import Metrics

        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self.metrics = Metrics(provider.get_meter("dugnad"))
        self._providers.append(provider)

    # What the core tells.

    def step(self, kind: Kind, name: str, facts: Facts) -> AbstractContextManager[Facts]:
        return self._step(kind, name, facts)

    @contextmanager
    def _step(self, kind: Kind, name: str, facts: Facts) -> Iterator[Facts]:
        merges = int(kind == "merge" and self.metrics is not None)
        opened, raised = None, None
        with self._harmless():
            opened = self.traces.begin(kind, name, facts) if self.traces else None
        if self.metrics:
            self.metrics.merging += merges
        try:
            if self.traces and opened:
                with self.traces.within(opened):
                    yield facts
            else:
                yield facts
        except BaseException as trouble:
            raised = trouble
            raise
        finally:
            with self._harmless():
                if self.metrics:
                    self.metrics.merging -= merges
                if self.traces and opened:
                    self.traces.end(opened, facts, raised)

    def count(self, what: str) -> None:
        with self._harmless():
            if self.metrics:
                self.metrics.count(what)

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """A bug here must not become one of the work. It is logged once."""
        try:
            yield
        except Exception as bug:
            if not self._troubled:
                _LOG.warning("telemetry-bug why=%s", f"{type(bug).__name__}: {bug}", exc_info=bug)
            self._troubled = True

    # Looking at the board, and the end.

    async def keep_looking(self) -> None:
        while self.metrics is not None:
            await self._look()
            await asyncio.sleep(self._every)

    async def _look(self) -> None:
        if self.metrics is None:
            return
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                self.metrics.health = await self._board.health()
        except (DugnadError, TimeoutError):
            self.metrics.health = None

    async def close(self) -> bool:
        """Send what is left, within a few seconds. False: a collector does not answer, and nobody waits for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self._look()
                if self.traces:
                    await self.traces.close()
        done, loop = asyncio.Event(), asyncio.get_running_loop()

        def flush() -> None:
            for provider in self._providers:
                with suppress(Exception):  # The SDK's own last collection has no more time than one interval.
                    provider.force_flush(int(_FLUSH_SECONDS * 1000))
                with suppress(Exception):
                    provider.shutdown()
            with suppress(RuntimeError):  # The loop was closed, since nobody waited any longer.
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=flush, name="dugnad telemetry", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_SECONDS):
                await done.wait()
        return done.is_set()


def _hide_headers(environment: Mapping[str, str]) -> None:
    """The headers may hold a key; their values are secrets."""
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", *(f"OTEL_EXPORTER_OTLP_{each}_HEADERS" for each in _SIGNALS)):
        for pair in environment.get(name, "").split(","):
            value = pair.partition("=")[2].strip()
            for form in (value, unquote(value), *unquote(value).split()):
                hide({name: form})


def _where(environment: Mapping[str, str], signals: tuple[str, ...]) -> str:
    from .names import shown

    return shown(environment.get(_ENDPOINT) or environment[f"OTEL_EXPORTER_OTLP_{signals[0]}_ENDPOINT"])


def _seconds(milliseconds: str | None) -> float:
    try:
        return max(0.1, float(milliseconds or 60_000) / 1000)
    except ValueError:
        return 60.0


def _take_log() -> Callable[[], None]:
    """Lines of the SDK, such as that a collector does not answer, go to our log and not onto the user's screen. Returns
    what ends that."""

    class Passed(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            _LOG.warning("telemetry-trouble why=%s", record.getMessage())

    theirs, passed = logging.getLogger("opentelemetry"), Passed(logging.WARNING)
    before, theirs.propagate = theirs.propagate, False
    theirs.addHandler(passed)

    def give_back() -> None:
        theirs.removeHandler(passed)
        theirs.propagate = before

    return give_back
