"""Hosts on this machine whose process is gone are found before their lease is over; nobody else is taken for dead."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from dugnad.models import ScriptedModel
from dugnad.team.lost_hosts import dead_neighbours, own_label, process_exists
from dugnad.types import HostInfo
from tests.agent.stage_agent import END, TITLE
from tests.conftest import Opener
from tests.team.stage_team import hosting, short_lease, until_ended

OWN = "machine:100:place"


def host(label: str, *, alive: bool = True) -> HostInfo:
    return HostInfo(id=label, label=label, alive=alive, started_at=0)


def dead(*labels: str, own: str = OWN) -> list[str]:
    return [each.label for each in dead_neighbours(map(host, labels), own, exists=lambda pid: pid == 100)]


def test_one_of_this_machine_whose_process_ended_is_dead() -> None:
    assert dead("machine:7:place", OWN, "machine:8:place") == ["machine:7:place", "machine:8:place"]


@pytest.mark.parametrize(
    "label",
    [
        "elsewhere:7:place",
        "machine:7:elsewhere",
        "machine:x:place",
        "machine::place",
        "machine:-7:place",
        "a label",
        "",
    ],
)
def test_what_is_not_certain_is_left_to_the_lease(label: str) -> None:
    assert dead(label) == []


def test_one_that_is_lost_already_is_not_looked_at() -> None:
    assert dead_neighbours([host("machine:7:place", alive=False)], OWN, exists=lambda pid: False) == []


@pytest.mark.parametrize("own", ["machine:100:?", "label", ""])
def test_who_does_not_know_its_own_place_takes_nobody_for_dead(own: str) -> None:
    assert dead("machine:7:?", "machine:7:place", "label", own=own) == []


def test_a_process_that_was_waited_for_exists_no_more() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process_exists(child.pid)
    child.kill()
    child.wait()
    child.stdin.close()  # type: ignore[union-attr]
    assert not process_exists(child.pid)
    assert process_exists(os.getpid())
    assert process_exists(1)  # Somebody else's.


def test_a_label_names_this_very_process_and_is_the_same_for_its_children() -> None:
    machine, pid, place = own_label().split(":")
    assert pid == str(os.getpid())
    code = "from dugnad.team.lost_hosts import own_label; print(own_label())"
    theirs = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert (theirs.split(":")[0], theirs.split(":")[2]) == (machine, place)
    assert theirs.split(":")[1] != pid


WORKER = """
import asyncio, sys
from dugnad.board import open_board
from dugnad.settings import Limits
from dugnad.team.lost_hosts import own_label

async def main():
    board = await open_board(sys.argv[1], limits=Limits(lease_seconds=100))
    host = await board.start_host(own_label())
    await board.seat(host, name="alice")
    claim = await board.claim("alice", host)
    print(claim.task.id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_the_work_of_a_killed_neighbour_goes_on_at_once(opener: Opener, url: str) -> None:
    board = await opener(**short_lease(100))
    await board.spawn("alice")
    task = await board.put(TITLE)
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, url, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert (await child.stdout.readline()).decode().strip() == str(task.id)
    child.kill()
    await child.wait()
    async with hosting(board, ScriptedModel({TITLE: [END]})):
        (done,) = await until_ended(board, task)
    assert (done.state, done.teammate) == ("done", "alice")
