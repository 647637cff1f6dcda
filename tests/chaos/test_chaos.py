"""Storms over real hosts on each database: nothing acknowledged is lost, and no promise is broken.

They are part of `make proof`. The long version is `make chaos`. Where a fault cannot be made on this machine the test
fails and says why.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dugnad.board import Board
from tests.chaos.chaos_verdict import verdict

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 300
SIZES = pytest.mark.parametrize(("kills", "others"), [(2, 1), pytest.param(12, 3, marks=pytest.mark.proof)])


def storm(database: str, **wanted: int) -> dict[str, Any]:
    """In a process of its own, which may have mounts of its own."""
    options = [word for name, value in wanted.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.chaos.storm", database, "--json", "--seconds-max", str(SECONDS_MAX), *options],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS_MAX + 60,
    )  # fmt: skip
    if not ran.stdout:
        pytest.fail(ran.stderr[-6_000:])
    found: dict[str, Any] = json.loads(ran.stdout)
    assert found["wrong"] == [], ran.stderr
    assert {name: found[name] for name in wanted if name != "failed_writes"} == {
        name: value for name, value in wanted.items() if name != "failed_writes"
    }
    return found


@SIZES
@pytest.mark.timeout(900)
def test_hosts_killed_frozen_and_out_of_disk_lose_nothing_on_sqlite(kills: int, others: int) -> None:
    found = storm("sqlite", kills=kills, freezes=others, fills=others, failed_writes=others + 2)
    assert found["failed_writes"] >= others + 2
    assert found["takeovers"] > 0


@SIZES
@pytest.mark.timeout(900)
def test_hosts_killed_frozen_and_cut_off_from_a_crashing_server_lose_nothing_on_postgresql(
    kills: int, others: int
) -> None:
    found = storm("postgres", kills=kills, freezes=others, crashes=others, partitions=1)
    assert found["takeovers"] > 0


async def test_the_verdict_names_what_was_lost_and_what_was_done_twice(board: Board) -> None:
    for name in ("alice", "bob"):
        await board.spawn(name)
    await board.put("work 0.1")
    for _ in range(2):
        await board.write_note("alice", "work 0.1", "This is how.")
        await board.tell("alice", "bob", "It goes well.")
    heard = [["told", 99], ["noted", 99], ["claim", 1, 1]]
    found = "\n".join(await verdict(board, heard, ["work 0.1", "work 0.5"]))
    for words in (
        "('told', 99) was acknowledged",
        "('noted', 99) was acknowledged",
        "('claim', 1, 1) was acknowledged",
        "#1 never ended",
        "work 0.1 ended ready",
        "too few: {'work 0.5': 1, 'more 0.5': 1}",
        "notes too many: {'work 0.1': 1}",
        "messages sent twice: {'It goes well.': 2}",
        "message 1 to bob was shown 0 times",
    ):
        assert words in found
