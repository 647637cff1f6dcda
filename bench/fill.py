"""Fills a board with a million tasks in seconds, past the verbs.

`fill`: most tasks are ended or blocked, and some hundreds are ready, whatever the size. `fill_past`: a board that has
worked for long. Half of its tasks are under one goal, and with them grow attempts, turns, events, messages, notes,
needs, stored answers and hosts that have stopped.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import asyncpg

from dugnad.board.store.pool import split_url

READY = 500  # Enough for every sample at every size.

NUMBERS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})",
    "postgres": "WITH n(i) AS (SELECT generate_series({first}, {last}))",
}
COLUMNS = "id, root_id, depth, scope, key, title, body, lane, priority, chain, state, open_needs, epoch, put_by, put_at"
TASKS = """
INSERT INTO tasks ({columns})
{numbers}
SELECT i, i, 0, 0, 'fill' || i, 'task ' || i, '', '', 0, 0,
  CASE WHEN i % {every} = 0 THEN 'ready' WHEN i % 2 = 0 THEN 'done' ELSE 'blocked' END,
  CASE WHEN i % {every} = 0 THEN 0 ELSE i % 2 END, 0, 'human', 0
FROM n
"""
BUDGETS = "INSERT INTO budgets (root_id, tasks) {numbers} SELECT i, 1 FROM n"
PAST = (
    # Of ten tasks five are done, two are blocked, one is ready, one failed and one is for later.
    """
    INSERT INTO tasks ({columns}, parent_id, due_at, ended_at, teammate, kind)
    {numbers}
    SELECT i, CASE WHEN i % 2 = 1 THEN 1 ELSE i END, i % 2, i % 2, 'fill' || i, 'task ' || i, '', 'past', 0, 0,
      CASE i / 2 % 10 WHEN 5 THEN 'blocked' WHEN 6 THEN 'blocked' WHEN 7 THEN 'ready' WHEN 8 THEN 'failed'
        WHEN 9 THEN 'scheduled' ELSE 'done' END,
      CASE WHEN i / 2 % 10 IN (5, 6) THEN 1 ELSE 0 END, 2, 'human', now_ms() - 1000000,
      CASE WHEN i % 2 = 1 AND i > 1 THEN 1 END, CASE WHEN i / 2 % 10 = 9 THEN now_ms() + 1000000000 + i END,
      CASE WHEN i / 2 % 10 IN (0, 1, 2, 3, 4, 8) THEN now_ms() - 1000 END, 'past', 'work'
    FROM n
    """,
    "INSERT INTO budgets (root_id, tasks) {numbers} SELECT i, 1 FROM n WHERE i % 2 = 0 OR i = 1",
    "INSERT INTO needs (task_id, needs_id, state) {numbers} SELECT i, i - 2, 'open' FROM n WHERE i / 2 % 10 IN (5, 6)",
    """
    INSERT INTO attempts (task_id, epoch, number, claim_key, teammate, host_id, claimed_at, ended_at, ended_as)
    {numbers} SELECT i, 1, 1, 'past' || i, 'past', 'past', now_ms() - 900000, now_ms() - 800000, 'done' FROM n
    WHERE i / 2 % 10 IN (0, 1, 2, 3, 4, 8)
    """,
    """
    INSERT INTO turns (task_id, epoch, number, kind, body, tokens, microdollars, milliseconds, at)
    {numbers} SELECT i, 1, 1, 'reply', '{{}}', 9, 0, 10, now_ms() - 850000 FROM n WHERE i / 2 % 10 IN (0, 1, 2, 3, 4, 8)
    """,
    """
    INSERT INTO reservations (key, root_id, task_id, epoch, tokens, microdollars, milliseconds, state)
    {numbers} SELECT 'past' || i, i, i, 1, 9, 0, 0, 'settled' FROM n
    """,
    "INSERT INTO snapshot (entity, id, state) {numbers} SELECT 'cooldown', 'past' || i, '{{}}' FROM n",
    """
    INSERT INTO events (seq, at, kind, task_id, actor, data)
    {numbers} SELECT i, now_ms() - 900000, 'steered', i, 'human', '{{}}' FROM n
    """,
    """
    INSERT INTO messages (key, sender, recipient, kind, text, request, task_id, rank, shown_at, sent_at)
    {numbers} SELECT 'past' || i, 'past', 'human', CASE WHEN i % 8 = 0 THEN 'question' ELSE 'notice' END, 'past',
      CASE WHEN i % 8 = 0 THEN 'past' || i END, i, 3, CASE WHEN i % 16 > 0 THEN 1 END, 1 FROM n WHERE i % 4 = 0
    """,
    """
    INSERT INTO notes (key, author, title, text, folded, root_id, at)
    {numbers} SELECT 'past' || i, 'past', 'past', '', 'past', i, 1 FROM n WHERE i % 4 = 0
    """,
    "INSERT INTO calls (key, verb, answer, at) {numbers} SELECT 'past' || i, 'claim', '1', now_ms() FROM n",
    """
    INSERT INTO hosts (id, label, lease_until, stopped_at, started_at)
    {numbers} SELECT 'past' || i, 'past', 1, now_ms(), 1 FROM n WHERE i % 20 = 0
    """,
)
# On PostgreSQL what comes later begins behind what was filled in.
AFTER = (
    "UPDATE head SET seq = {size}",
    "SELECT setval(pg_get_serial_sequence('tasks', 'id'), {size})",
    "VACUUM ANALYZE",
)


def statements(kind: str, size: int) -> list[str]:
    numbers = NUMBERS[kind].format(first=1, last=size)
    # The same number of ready tasks whatever the size, so that only the board around them grows.
    every = size // READY
    return [TASKS.format(numbers=numbers, every=every, columns=COLUMNS), BUDGETS.format(numbers=numbers)]


async def fill(url: str, size: int) -> None:
    kind = "sqlite" if url.startswith("sqlite") else "postgres"
    await run(url, [*statements(kind, size), *(["ANALYZE tasks; ANALYZE budgets; CHECKPOINT"] * (kind == "postgres"))])


async def fill_past(url: str, size: int) -> None:
    kind = "sqlite" if url.startswith("sqlite") else "postgres"
    numbers = NUMBERS[kind].format(first=1, last=size)
    after = [each.format(size=size) for each in AFTER] if kind == "postgres" else []
    await run(url, [*(each.format(numbers=numbers, columns=COLUMNS) for each in PAST), *after])


async def run(url: str, texts: list[str]) -> None:
    if url.startswith("sqlite"):
        connection = sqlite3.connect(Path(url.removeprefix("sqlite:///")), timeout=30)
        now = int(connection.execute("SELECT unixepoch()").fetchone()[0]) * 1_000
        connection.create_function("now_ms", 0, lambda: now)
        for text in texts:
            connection.execute(text)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return
    address, schema = split_url(url)
    server = await asyncpg.connect(address, server_settings={"search_path": schema, "synchronous_commit": "off"})
    for text in texts:
        await server.execute(text)
    await server.close()
