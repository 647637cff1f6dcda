"""No test can hang the suite: one that takes too long fails, and those behind it still run."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
HANGS = """
import asyncio, threading

async def test_waits_for_an_event():
    await asyncio.Event().wait()

def test_waits_for_a_lock():
    threading.Event().wait()

def test_ends():
    pass
"""


def test_a_test_that_hangs_fails_and_the_next_one_runs(folder: Path) -> None:
    (folder / "test_hangs.py").write_text(HANGS)
    (folder / "pytest.ini").write_text(
        f"[pytest]\nasyncio_mode = auto\ntimeout_method = {SETTINGS['timeout_method']}\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", "-o", "timeout=1", "test_hangs.py"],
        cwd=folder, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stdout
    assert "2 failed, 1 passed" in ran.stdout
    assert ran.stdout.count("Timeout (>1.0s)") >= 2


def test_every_test_has_a_limit() -> None:
    assert 0 < SETTINGS["timeout"] <= 600
