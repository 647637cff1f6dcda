"""The benchmark that asks the database for the board's own statements still fits them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.proof
def test_the_benchmark_of_the_board_runs_beside_the_bare_driver() -> None:
    command = [sys.executable, "bench/board.py", "--quick", "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr
    measured = json.loads(ran.stdout)
    assert measured.keys() == {"sqlite", "postgres"}
    assert all(ratio > 0 for each in measured.values() for ratio in each["ratio_to_raw"].values())
