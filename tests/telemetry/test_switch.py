"""Telemetry is off unless the user's environment asks for it, and says in one sentence why it cannot be on."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.logs.steps import LISTENER, count, step
from dugnad.telemetry.exporting import exporting, wanted
from tests.cli.shell import run
from tests.cli.terminal import MODEL, make_project
from tests.telemetry.collector import collecting

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("given", "signals"),
    [
        ({}, ()),
        ({ENDPOINT: ""}, ()),
        ({ENDPOINT: "http://collector:4318"}, ("TRACES", "METRICS")),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, ("TRACES",)),
        ({ENDPOINT: "http://collector:4318", "OTEL_METRICS_EXPORTER": "none"}, ("TRACES",)),
        ({ENDPOINT: "http://collector:4318", "OTEL_SDK_DISABLED": "TRUE"}, ()),
        ({"OTEL_SERVICE_NAME": "mine", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, ()),
    ],
)
def test_what_the_standard_variables_ask_for(given: dict[str, str], signals: tuple[str, ...]) -> None:
    assert wanted(given) == signals


async def test_without_an_endpoint_nobody_listens(board: Board) -> None:
    async with exporting(board, {}) as told:
        assert (told, LISTENER.get()) == ("", None)
        with step("tool", "bash", arguments="{}") as facts:
            facts["result"] = "green"
        count("stale-write")


def test_without_an_endpoint_nothing_of_opentelemetry_is_loaded() -> None:
    code = "import sys, dugnad.cli.conduct; print([each for each in sys.modules if 'opentelemetry.sdk' in each])"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=clean)
    assert said.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"])
async def test_a_protocol_that_is_not_spoken_is_told(board: Board, name: str) -> None:
    async with exporting(board, {ENDPOINT: "http://collector:4317", name: "grpc"}) as told:
        assert told == f"Telemetry: none; {name} is 'grpc', and dugnad speaks only 'http/protobuf'; set it to that."
        assert LISTENER.get() is None


async def test_without_the_extra_the_work_goes_on_and_the_user_is_told(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    async with exporting(board, {ENDPOINT: "http://collector:4318"}) as told:
        assert 'run `pip install "dugnad[otel]"`' in told
        assert LISTENER.get() is None


async def test_a_setting_that_cannot_be_used_is_told(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "-1")
    async with exporting(board, {ENDPOINT: "http://127.0.0.1:1"}) as told:
        assert told.startswith("Telemetry: none; ValueError: interval value -1.0 is invalid")


async def test_what_the_user_says_of_the_service_counts(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"OTEL_SERVICE_NAME": "night-shift", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test"}
    with collecting(monkeypatch, **given) as collector:
        async with exporting(board):
            pass
        assert "night-shift" in collector.everything()
        assert "deployment.environment" in collector.everything()


async def test_after_the_block_nobody_listens(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = logging.getLogger("opentelemetry")
    before = (list(theirs.handlers), theirs.propagate)
    with collecting(monkeypatch):
        async with exporting(board):
            assert LISTENER.get() is not None
            assert theirs.propagate is False
        assert LISTENER.get() is None
        assert (theirs.handlers, theirs.propagate) == before


def test_a_run_of_the_command_sends_its_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, '"*": [{calls: [{note: {title: A word, text: for all}}]}, {say: It is done.}]')
    with collecting(monkeypatch) as collector:
        ran = run("run", "Goal", *MODEL, folder=tmp_path, **{ENDPOINT: collector.url})
        assert (ran.returncode, ran.stderr) == (0, "")
        assert f"Telemetry: traces and metrics go to {collector.url}.\n" in ran.stdout
        assert {each.name for each in collector.spans} == {"invoke_agent alice", "chat script", "execute_tool note"}
        assert collector.numbers["dugnad.tasks"]["ended",] == 1


def test_json_is_one_object_with_telemetry_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, '"*": [{say: It is done.}]')
    with collecting(monkeypatch) as collector:
        ran = run("work", "--json", *MODEL, folder=tmp_path, **{ENDPOINT: collector.url})
        assert (ran.returncode, ran.stderr, ran.stdout.count("\n")) == (0, "", 1)
        assert collector.numbers["dugnad.board.up"] == {(): 1}
