"""What docs/operating.md and docs/commands.md say about telemetry and health, compared with what there is."""

from __future__ import annotations

import re
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from dugnad.logs.steps import Kind
from dugnad.telemetry.metrics import GAUGES, Metrics
from dugnad.telemetry.names import span_name

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "operating.md").read_text().split("\n## Telemetry\n")[1].split("\n## ")[0]
STEPS: dict[Kind, tuple[str, str]] = {
    "attempt": ("NAME", "invoke_agent NAME"), "chat": ("anthropic:MODEL", "chat MODEL"),
    "run": ("command:NAME", "invoke_agent command:NAME"), "tool": ("NAME", "execute_tool NAME"),
    "check": ("check", "check"), "merge": ("dugnad/main", "merge"),
}  # fmt: skip


def first_column(head: str) -> set[str]:
    table = PAGE.split(f"| {head} |")[1].split("\n\n")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    names: list[str] = []
    for name in re.findall(r"`(.*?)`", " ".join(cells)):  # `.reserved` stands for the name before with another end.
        names.append(f"{names[-1].rpartition('.')[0]}{name}" if name.startswith(".") else name)
    return set(names)


def test_every_metric_is_documented_and_no_other() -> None:
    metrics = Metrics(MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False).get_meter("test"))
    own = {"dugnad.board.up", "dugnad.stale_writes", "dugnad.merges"}
    assert metrics.health is None
    assert first_column("metric") == {name for name, *_ in GAUGES} | own


def test_every_span_is_documented_and_no_other() -> None:
    assert {span_name(kind, name): told for kind, (name, told) in STEPS.items()} == {
        told: told for _, told in STEPS.values()
    }
    assert first_column("span") == {told for _, told in STEPS.values()}


def test_every_kind_of_trouble_is_documented_and_no_other() -> None:
    section = (DOCS / "commands.md").read_text().split("\n### status\n")[1].split("\n### ")[0]
    told = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    source = (DOCS.parent / "src" / "dugnad" / "telemetry" / "health.py").read_text()
    assert told == set(re.findall(r'Trouble\("(\w+)"', source))


def test_the_attributes_that_are_documented_are_those_of_the_code() -> None:
    source = (DOCS.parent / "src" / "dugnad" / "telemetry" / "names.py").read_text()
    named = re.findall(r"`((?:gen_ai|dugnad)\.[a-z_.]+?)(?:\.\*)?`", PAGE.split("**Metrics.**")[0])
    assert len(named) > 10
    assert [name for name in named if name not in source] == []
