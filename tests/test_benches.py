"""The benchmarks that know more of the code than its interfaces still fit it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.scale_drawing import BEGIN, END, fitted, write

ROOT = Path(__file__).parent.parent


@pytest.mark.proof
def test_the_benchmark_of_the_board_runs_beside_the_bare_driver() -> None:
    command = [sys.executable, "bench/board.py", "--quick", "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr
    measured = json.loads(ran.stdout)
    assert measured.keys() == {"sqlite", "postgres"}
    assert all(ratio > 0 for each in measured.values() for ratio in each["ratio_to_raw"].values())


@pytest.mark.proof
def test_the_benchmark_of_the_team_runs_a_thousand_teammates() -> None:
    command = [sys.executable, "bench/team.py", "--quick", "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr
    measured = json.loads(ran.stdout)
    assert measured["makespan_ratio"].keys() == {"sqlite", "postgres"}
    assert measured["followups"]["run"] == 100
    assert measured["thousand"]["mb_above_bare"] > 0


@pytest.mark.proof
def test_the_benchmark_of_a_turn_asks_a_model_over_both_protocols() -> None:
    command = [sys.executable, "bench/turn.py", "--quick", "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr
    measured = json.loads(ran.stdout)
    for protocol in ("anthropic", "openai"):
        assert measured[protocol]["cpu_ms_over_bare"].keys() == {"h0", "h100"}
    assert measured["command_cpu_ms"].keys() == {"tasks", "add", "log", "show"}
    one = ("cpu_ms_per_call_at_1000", "kb_per_waiting_teammate", "mb_resident_at_1000", "first_request_cpu_ms")
    assert all(measured[key] > 0 for key in one)


@pytest.mark.proof
def test_the_benchmark_of_the_cost_finds_most_of_the_input_in_the_cache() -> None:
    """It counts tokens and measures no time, so its figures are the same on every machine."""
    command = [sys.executable, "bench/cost.py", "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr
    measured = json.loads(ran.stdout)
    assert measured.keys() == {"full_price_share", "team_full_price_share", "first_request_tokens", "peers"}
    assert all(share < 0.05 for share in measured["full_price_share"]["200000"].values())
    assert all(share < 0.10 for share in measured["full_price_share"]["32000"].values())
    assert measured["team_full_price_share"].keys() == {"openai", "anthropic"}
    assert all(share < 0.12 for share in measured["team_full_price_share"].values())
    assert measured["first_request_tokens"]["worker"] < 3_500
    assert measured["first_request_tokens"]["reviewer"] < measured["first_request_tokens"]["worker"]
    pydantic_ai = measured["peers"]["pydantic_ai"]
    assert pydantic_ai["full_price_share"].keys() == {"200000", "32000"}
    assert pydantic_ai["first_request_tokens"]["worker"] > 2_000, "it has the tools of a worker, too"


@pytest.mark.proof
def test_the_benchmark_of_the_page_runs_in_a_browser() -> None:
    command = [sys.executable, "bench/web.py", "--quick", "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr
    measured = json.loads(ran.stdout)
    assert measured["first_view_ms"] > 0
    assert measured["event_to_pixel_ms"].keys() == measured["time_machine_ms"].keys() == {"p50", "p99"}
    assert 0 < measured["client_bytes_compressed"] < 100_000
    assert measured["cpu_percent_100_pages"] >= 0
    assert measured["routes"] > 20
    assert measured["routes_open"] == 0


@pytest.mark.proof
def test_the_benchmark_of_the_mcp_server_runs_clients_over_both_ways() -> None:
    command = [sys.executable, "bench/mcp.py", "--quick", "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr
    measured = json.loads(ran.stdout)
    assert measured["tools"] == 10
    assert measured["tool_tokens"] < 3_000
    assert measured["call_ms_over_board"].keys() == {"stdio", "http"}
    assert measured["clients_100"]["mb"] > 0


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_the_benchmark_of_growth_measures_every_part_and_is_drawn(tmp_path: Path) -> None:
    command = [sys.executable, "bench/scale.py", "--quick", "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert ran.returncode == 0, ran.stderr
    measured = json.loads(ran.stdout)
    assert measured.keys() == {"hosts", "teammates", "boards", "wakes", "idle", "reads"}
    for rows in (*measured["hosts"].values(), *measured["teammates"].values()):
        assert all(row["tasks_per_second"] > 0 and row["bytes_per_task"] >= 0 for row in rows)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "scale.md").write_text(f"Before\n{BEGIN}\nold\n{END}\nAfter\n")
    write(tmp_path, measured)
    page = (tmp_path / "scale.md").read_text()
    assert page.startswith("Before\n")
    assert page.endswith("After\n")
    assert "old" not in page
    assert page.count("Fitted:") == 2
    picture = ElementTree.parse(tmp_path / "pictures" / "scale.svg").getroot()
    assert len(picture.findall("{http://www.w3.org/2000/svg}polyline")) == 5


def test_the_page_on_growth_has_what_was_measured() -> None:
    page = (ROOT / "docs" / "scale.md").read_text()
    before, _, rest = page.partition(BEGIN)
    assert "pictures/scale.svg" in before
    assert "Fitted:" in rest.partition(END)[0]


def test_a_line_is_fitted_through_its_points() -> None:
    slope, start = fitted([(0, 1), (1, 3), (2, 5)])
    assert (round(slope, 9), round(start, 9)) == (2, 1)
