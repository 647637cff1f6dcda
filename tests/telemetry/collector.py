"""A small collector: it takes OTLP over HTTP as a real one does, and keeps what came."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

NAMES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A span as it came."""

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    kind: int
    failed: bool
    told: dict[str, Any]
    links: list[tuple[bytes, bytes, str]]
    nanoseconds: int


@dataclass
class Collector:
    url: str = ""
    status: int = 200
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    spans: list[Seen] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[str, dict[tuple[str, ...], float]] = field(default_factory=dict)  # The last of each metric.
    asked: threading.Event = field(default_factory=threading.Event)
    came: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)  # Until this is set, nobody is answered.

    def take(self, path: str, body: bytes) -> None:
        self.bodies.append(body)
        if path.endswith("/v1/traces"):
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(_told(group.resource.attributes))
                self.spans += [_seen(span) for scope in group.scope_spans for span in scope.spans]
            return
        for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in (each for scope in group.scope_metrics for each in scope.metrics):
                points = metric.gauge.data_points or metric.sum.data_points
                self.numbers[metric.name] = {
                    tuple(_told(each.attributes).values()): each.as_double or float(each.as_int) for each in points
                }

    def of(self, begins: str) -> list[Seen]:
        return [each for each in self.spans if each.name.startswith(begins)]

    def everything(self) -> str:
        return b"".join(self.bodies).decode(errors="replace")


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_value(each) for each in found.values] if kind == "array_value" else found


def _told(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _seen(span: Any) -> Seen:
    links = [(each.trace_id, each.span_id, _told(each.attributes)["dugnad.link"]) for each in span.links]
    return Seen(
        name=span.name, trace=span.trace_id, id=span.span_id, parent=span.parent_span_id, kind=span.kind,
        failed=span.status.code == 2, told=_told(span.attributes), links=links,
        nanoseconds=span.end_time_unix_nano - span.start_time_unix_nano,
    )  # fmt: skip


@contextmanager
def collecting(patch: pytest.MonkeyPatch, *, answers: bool = True, **environment: str) -> Iterator[Collector]:
    """A collector on loopback, named by the standard variables of this process."""
    collector = Collector()
    if answers:
        collector.go.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            collector.headers.append(dict(self.headers))
            collector.asked.set()
            collector.go.wait(300)
            collector.take(self.path, body)
            collector.came.set()
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *given: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    for name in NAMES:
        patch.delenv(name, raising=False)
    for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **environment}.items():
        patch.setenv(name, value)
    try:
        yield collector
    finally:
        collector.go.set()
        server.shutdown()
        server.server_close()
