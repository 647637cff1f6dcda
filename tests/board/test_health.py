"""The numbers that an operator watches: right, from one snapshot, and without reading a whole board."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.board.store.queries import load
from dugnad.types import Budget, Done, Failed, Outcome, Released, Waiting
from tests.board.crew import crew
from tests.board.raw import connect, grow_old
from tests.conftest import Opener

SQL = Path(__file__).parents[2] / "src" / "dugnad" / "board" / "store" / "sql" / "health.sql"
NAMES = [line.removeprefix("-- name: ") for line in SQL.read_text().splitlines() if line.startswith("-- name: ")]
LARGE = ("tasks", "messages", "events", "needs", "turns", "attempts", "reservations", "calls")


async def test_every_state_is_counted_as_the_tables_say(board: Board) -> None:
    alice = await crew(board)
    for title in ("done", "failed", "asks", "held", "skips"):
        await board.put(title, budget=Budget(tasks=1) if title == "held" else None)
    await board.put("behind", needs=[2])
    await board.put("later", delay_seconds=600)
    first: tuple[Outcome, ...] = (Done("yes"), Failed("no"), Waiting(on="human", question="Which?"), Released("again"))
    for task, outcome in enumerate(first, start=1):
        held = await board.claim("alice", alice.host, task=task)
        assert held is not None
        await board.settle(held, outcome)
    await board.cancel(5)
    assert await board.claim("alice", alice.host) is None  # Its one run is used up.
    now = await board.health()
    counts = await board.count_tasks()
    assert {state: number for state, number in now.tasks.items() if number and state != "ended"} == {
        state: number for state, number in counts.items() if state in now.tasks
    }
    assert now.tasks["ended"] == sum(number for state, number in counts.items() if state not in now.tasks)
    assert now.held == (4,)
    assert (now.requests, now.asked_at) == (1, (await board.requests())[0].sent_at)
    assert now.last_event == await board.last_event()


async def test_an_answered_question_waits_no_more(board: Board) -> None:
    alice = await crew(board)
    await board.put("asks")
    await board.settle(await alice.must_claim(), Waiting(on="human", question="Which?"))
    assert (await board.health()).requests == 1
    (asked,) = await board.requests()
    assert asked.request is not None
    await board.reply(asked.request, "human", "This one.", accepted=True)
    now = await board.health()
    assert (now.requests, now.asked_at, now.tasks["ready"]) == (0, None, 1)
    assert now.ready_since == (await board.events())[-1].at


async def test_the_oldest_ready_task_is_known_after_its_events_were_pruned(opener: Opener, url: str) -> None:
    board = await opener()
    task = await board.put("old")
    await grow_old(url, 3_600)
    await board.prune(1_800)
    assert (await board.health()).ready_since == (await board.find(task.id)).put_at


@pytest.mark.parametrize("name", NAMES)
async def test_no_statement_reads_a_whole_table_that_grows(board: Board, url: str, name: str) -> None:
    assert await board.last_event() == 0
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            file.create_function("now_ms", 0, lambda: 0)
            plan = [str(row[3]) for row in file.execute(f"EXPLAIN QUERY PLAN {load('sqlite')[name].text}")]
        aliases = {"asked": "messages", "reply": "messages", "first": "", "events": "events"}
        scans = [line.split()[1] for line in plan if line.startswith("SCAN") and "INDEX" not in line]
        assert [each for each in scans if aliases.get(each, each) in LARGE] == []
        return
    connection = await connect(url)
    await connection.execute("SET enable_seqscan = off")
    rows = await connection.fetch(f"EXPLAIN {load('postgres')[name].text}")
    await connection.close()
    assert [row[0] for row in rows if any(f"Seq Scan on {each}" in row[0] for each in LARGE)] == []
