"""What a call costs on a large board: as much as on a small one, if its answer is the same.

Counted is work, and not time: on SQLite the steps of its machine, of which one reads one row; on PostgreSQL the rows
that it took from tables and indexes. A number that grows with the board is a scan, a count, or a sort.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest

from bench.fill import fill_past
from dugnad.board import Board, open_board
from dugnad.board.store.postgres import _PLANNING
from dugnad.board.store.queries import load
from dugnad.settings import Limits
from dugnad.team.report import report
from dugnad.types import Amount, Budget, Claim, Done, NewTask, NewTurn, Waiting
from tests.board.raw import connect, run

SIZES = (2_500, 20_000)
GROWS = (
    "tasks", "needs", "attempts", "turns", "budgets", "reservations", "messages", "notes", "calls", "events", "hosts",
    "snapshot",
)  # fmt: skip
LIMITS = Limits(tasks_per_root_max=10**6, children_max=10**6, lease_seconds=3_600, lease_seconds_max=10**9)
Act = Callable[[Board, "Stage"], Awaitable[Any]]


class Stage:
    """The small part of a board that is the same on both: a goal with a few tasks, and a teammate at work."""

    url: str
    root: int
    host: str
    scoped: str
    claim: Claim
    tasks: list[int]

    async def set(self, board: Board) -> None:
        self.host, self.scoped = await board.start_host("one"), ""
        await board.spawn("alice", roles=["coder"], host=self.host)
        goal = await board.put("goal", assignee="human", budget=Budget(tokens=10**6))
        self.root = goal.id
        self.tasks = [
            task.id
            for task in await board.put_many(
                [NewTask(title=f"t{n}", parent=self.root, role="coder", key=f"k{n}") for n in range(12)]
            )
        ]
        for task in self.tasks[:3]:
            held = await board.claim("alice", self.host, task=task)
            assert held is not None
            await board.settle(held, Done("ok"))
        asked = await board.claim("alice", self.host, task=self.tasks[3])
        assert asked is not None
        await board.settle(asked, Waiting(on="human", question="Which?"))
        claim = await board.claim("alice", self.host, task=self.tasks[4])
        assert claim is not None
        self.claim = claim
        self.scoped = await board.start_host("two", scope=[self.root, 1])
        await board.spawn("bob", roles=["past", "coder"], host=self.scoped)


async def _turn(board: Board, stage: Stage) -> None:
    key = await board.reserve(stage.claim, Amount(tokens=100))
    turn = NewTurn(number=1, kind="reply", body="{}", used=Amount(tokens=9), reservation=key)
    await board.record(stage.claim, turn)


async def _look(board: Board, stage: Stage) -> None:
    with board.watch(["log"]) as watch:
        await watch.wait(0.01)
        await board._look()


async def _prune_a_part(board: Board, stage: Stage) -> None:
    """The snapshot that they are folded into grows with the board; only what they name is read of it."""
    await run(stage.url, "UPDATE events SET at = 1 WHERE seq <= 30")
    assert (await board.prune(10**6)).events == 30


ACTS: dict[str, Act] = {
    "tasks": lambda board, stage: board.list_tasks(page=20),
    "tasks in a state": lambda board, stage: board.list_tasks(states=["waiting"], page=20),
    "tasks in open states": lambda board, stage: board.list_tasks(states=["ready", "blocked", "claimed"], page=20),
    "tasks under a goal": lambda board, stage: board.list_tasks(root=stage.root, page=20),
    "tasks in a state under the large goal": lambda board, stage: board.list_tasks(root=1, states=["waiting"], page=20),
    "tasks of a teammate that waits": lambda board, stage: board.list_tasks(states=["waiting"], teammate="alice"),
    "tasks that ended last": lambda board, stage: board.ended_last(page=10),
    "tasks that ended last under the large goal": lambda board, stage: board.ended_last(root=1, page=10),
    "children": lambda board, stage: board.children(stage.tasks[0]),
    "a task": lambda board, stage: board.find(stage.tasks[0]),
    "counts": lambda board, stage: board.count_tasks(),
    "counts under the large goal": lambda board, stage: board.count_tasks(root=1),
    "events": lambda board, stage: board.events(page=20),
    "events of a task": lambda board, stage: board.events(task=stage.tasks[0]),
    "budgets": lambda board, stage: board.budgets(page=20),
    "needs": lambda board, stage: board.all_needs(stage.tasks),
    "inbox": lambda board, stage: board.inbox(page=20),
    "inbox with what was read": lambda board, stage: board.inbox(queued=False, page=20),
    "requests": lambda board, stage: board.requests(),
    "recent talk": lambda board, stage: board.recent_talk("human"),
    "notes": lambda board, stage: board.search_notes(page=20),
    "notes of a goal": lambda board, stage: board.search_notes(root=stage.root, page=20),
    "team": lambda board, stage: board.team(),
    "hosts": lambda board, stage: board.hosts(),
    "next lapse": lambda board, stage: board.next_lapse(),
    "ready work": lambda board, stage: board.ready_work(),
    "ready work under the large goal": lambda board, stage: board.ready_work(roots=[1]),
    "moment": lambda board, stage: board.moment([stage.root, 1], scope=[stage.root, 1]),
    "report": lambda board, stage: report(board, [stage.root], began_ms=2**50),
    "past attempts": lambda board, stage: board.past_attempts(most=50),
    "surroundings": lambda board, stage: board.surroundings(stage.claim.task, "alice", mates=5, notes=5, messages=5),
    "sweep": _look,
    "claim": lambda board, stage: board.claim("alice", stage.host),
    "claim under a goal": lambda board, stage: board.claim("bob", stage.scoped),
    "a turn": _turn,
    "settle": lambda board, stage: board.settle(stage.claim, Done("ok")),
    "put": lambda board, stage: board.put("new"),
    "put under the large goal": lambda board, stage: board.put("new", parent=1, key="new"),
    "cancel": lambda board, stage: board.cancel(stage.tasks[6]),
    "heartbeat": lambda board, stage: board.heartbeat(stage.host),
    "take back": lambda board, stage: board.take_back(),
    "seat": lambda board, stage: board.seat(stage.host),
    "send": lambda board, stage: board.tell("human", "alice", "Hello."),
    "note": lambda board, stage: board.write_note("human", "t", "x"),
    "raise a budget": lambda board, stage: board.raise_budget(stage.root, Budget(tokens=5)),
    "prune what is not old": lambda board, stage: board.prune(10**6),
    "prune a part of the log": _prune_a_part,
}  # fmt: skip


@pytest.fixture
def opcodes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that SQLite has made, in tens."""
    made, real = [0], sqlite3.connect

    def step() -> int:
        made[0] += 1
        return 0

    def counting(*given: Any, **named: Any) -> sqlite3.Connection:
        connection = real(*given, **named)
        connection.set_progress_handler(step, 10)
        return connection

    monkeypatch.setattr(sqlite3, "connect", counting)
    return made


_ROWS = """
SELECT (SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_user_tables WHERE schemaname = $1)
  + (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE schemaname = $1)
"""


async def _rows(url: str) -> int:
    """The rows that PostgreSQL has read. A process of the server tells its numbers when it ends."""
    connection, board = await connect(url), url.partition("?board=")[2]
    try:
        at_work = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dugnad'"
        for _ in range(2_000):
            if not await connection.fetchval(at_work):
                break
            await asyncio.sleep(0.005)
        return int(await connection.fetchval(_ROWS, board))
    finally:
        await connection.close()


async def _work(url: str, size: int, opcodes: list[int]) -> dict[str, int]:
    """What each call costs on a board of this size."""
    stage, found = Stage(), dict[str, int]()
    stage.url = url
    async with await open_board(url, limits=LIMITS) as board:
        await fill_past(url, size)
        await stage.set(board)
    if url.startswith("postgres"):
        connection = await connect(url)
        await connection.execute("VACUUM ANALYZE")
        await connection.close()
    for name, act in ACTS.items():
        before = opcodes[0] if url.startswith("sqlite") else await _rows(url)
        async with await open_board(url, limits=LIMITS) as board:
            begun = opcodes[0]
            await act(board, stage)
            ended = opcodes[0]
        found[name] = ended - begun if url.startswith("sqlite") else await _rows(url) - before
    return found


async def test_a_call_costs_the_same_on_a_larger_board(url: str, postgres: str, opcodes: list[int]) -> None:
    base = url.removesuffix(".db")
    small, large = [await _work(f"{base}{size}" + ".db" * base.startswith("sqlite"), size, opcodes) for size in SIZES]
    grown = {name: (small[name], large[name]) for name in ACTS if large[name] > 1.5 * small[name] + 100}
    assert not grown, "\n".join(f"{name}: {numbers}" for name, numbers in grown.items())
    if base.startswith("postgres"):
        connection = await connect(url)
        for size in SIZES:
            await connection.execute(f"DROP SCHEMA {base.partition('?board=')[2]}{size} CASCADE")
        await connection.close()


# A PostgreSQL that has no statistics of a table yet chooses its indexes by the table's size alone.
BACKLOG = (
    """INSERT INTO tasks (id, root_id, depth, scope, key, title, body, lane, priority, state, open_needs, put_by,
         put_at)
       SELECT n, n, 0, 0, 'backlog ' || n, 'task ' || n, '', 'coder', 0, 'ready', 0, 'human', 0
       FROM generate_series(1000001, 1060000) AS n""",
    "INSERT INTO budgets (root_id) SELECT generate_series(1000001, 1060000)",
)


async def test_a_large_backlog_costs_no_more_before_it_has_statistics(postgres: str) -> None:
    stage = Stage()
    stage.url = url = f"{postgres}?board=backlog"
    read: dict[str, int] = {}
    try:
        async with await open_board(url, limits=LIMITS) as board:
            for table in GROWS:
                await run(url, f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
            await stage.set(board)
            for statement in BACKLOG:
                await run(url, statement)
        for name, act in ACTS.items():
            before = await _rows(url)
            async with await open_board(url, limits=LIMITS) as board:
                await act(board, stage)
            read[name] = await _rows(url) - before
    finally:
        await run(url, "DROP SCHEMA backlog CASCADE")
    assert max(read.values()) < 3_000, {name: rows for name, rows in read.items() if rows >= 3_000}


CROWD = (
    "ALTER TABLE teammates SET (autovacuum_enabled = off)",
    "ALTER TABLE hosts SET (autovacuum_enabled = off)",
    """INSERT INTO teammates (name, roles, lead, prompt, model, state, host_id, spawned_at)
       SELECT 'other' || n, '[]', 0, '', '', 'seated', id, 0 FROM hosts, generate_series(1, 1000) AS n""",
    "INSERT INTO hosts (id, label, lease_until, started_at) SELECT n, 'h', 2^50, 1 FROM generate_series(1, 1000) AS n",
)


async def test_a_claim_reads_no_seat_but_those_of_who_asks(postgres: str) -> None:
    """With many teammates at a host, and many hosts, before the server has statistics of them."""
    url = f"{postgres}?board=seats"
    try:
        async with await open_board(url, limits=LIMITS) as board:
            host, mates = await board.start_host("one"), [f"mate{n}" for n in range(4)]
            for name in mates:
                await board.spawn(name, host=host)
            await board.put_many([NewTask(title=f"task {n}") for n in range(20)])
        for statement in CROWD:
            await run(url, statement)
        before = await _rows(url)
        async with await open_board(url, limits=LIMITS) as board:
            for _ in range(3):
                assert all(await asyncio.gather(*(board.claim(name, host) for name in mates)))
        assert await _rows(url) - before < 1_000
    finally:
        await run(url, "DROP SCHEMA seats CASCADE")


# Statements that read all of something that grows, and why they may.
WHOLE = {
    "sum_budgets": "one row for each goal; to keep the sums at every turn would cost more than to add them up",
    "read_snapshot": "the page, which shows the board as it ever was",
    "prunable": "adds up what would be deleted",
    "search_notes": "a text is looked for within texts; without words it stops after a page",
    "search_notes_of": "the same, and of one goal",
    "list_tasks": "stops after a page; a role or a teammate that has few tasks is looked for in all of them",
    "newest_ended": "the same",
}
SMALL = re.compile(r"^dump_")  # Only tests and the simulation dump a board.


def _scans_of_sqlite(file: sqlite3.Connection, text: str) -> list[str]:
    """Tables that grow, and whose rows are all read: an index of a part of them is smaller."""
    partial = {
        str(row[0])
        for row in file.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE '% WHERE %'")
    }
    plan = [
        str(row[3]).split()
        for row in file.execute(f"EXPLAIN QUERY PLAN {text}", [None] * len(set(re.findall(r"[?][0-9]+", text))))
    ]
    return [" ".join(line) for line in plan if line[0] == "SCAN" and line[1] in GROWS and not partial & set(line)]


def _scans_of_postgres(plan: dict[str, Any], partial: set[str], limited: bool = False) -> list[str]:
    limited = limited or plan["Node Type"] == "Limit"
    whole = (
        "Scan" in plan["Node Type"]
        and plan.get("Relation Name") in GROWS
        and not {"Index Cond", "TID Cond"} & plan.keys()
    )
    own = (
        [f"{plan['Node Type']} of {plan['Relation Name']}"]
        if whole and not limited and plan.get("Index Name") not in partial
        else []
    )
    return own + [each for below in plan.get("Plans", ()) for each in _scans_of_postgres(below, partial, limited)]


async def test_no_statement_reads_a_whole_table_that_grows(url: str) -> None:
    found: dict[str, list[str]] = {}
    await (await open_board(url)).close()
    await fill_past(url, SIZES[0])
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            file.create_function("now_ms", 0, lambda: 0)
            found = {name: _scans_of_sqlite(file, each.text) for name, each in load("sqlite").items()}
    else:
        connection = await connect(url)
        for name, value in {**_PLANNING, "plan_cache_mode": "force_generic_plan"}.items():
            await connection.execute(f"SET {name} = {value}")
        rows = await connection.fetch("SELECT indexrelid::regclass::text FROM pg_index WHERE indpred IS NOT NULL")
        partial = {str(row[0]) for row in rows}
        for name, each in load("postgres").items():
            await connection.execute(f"PREPARE one AS {each.text}")
            nothing = f"({', '.join(['NULL'] * len(each.parameters))})" * bool(each.parameters)
            (explained,) = await connection.fetch(f"EXPLAIN (FORMAT JSON) EXECUTE one{nothing}")
            found[name] = _scans_of_postgres(json.loads(explained[0])[0]["Plan"], partial)
            await connection.execute("DEALLOCATE one")
        await connection.close()
    scanned = {name: scans for name, scans in found.items() if scans and name not in WHOLE and not SMALL.match(name)}
    assert not scanned, "\n".join(f"{name}: {scans}" for name, scans in scanned.items())
