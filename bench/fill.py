"""Fills a board with a million tasks in seconds, past the verbs: most ended or blocked, some hundreds ready."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import asyncpg

from dugnad.board.store.postgres import split_url

READY = 500  # Enough for every sample at every size.

NUMBERS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})",
    "postgres": "WITH n(i) AS (SELECT generate_series({first}, {last}))",
}
TASKS = """
INSERT INTO tasks (id, root_id, depth, scope, key, title, body, lane, priority, chain, state, open_needs, epoch,
  put_by, put_at)
{numbers}
SELECT i, i, 0, 0, 'fill' || i, 'task ' || i, '', '', 0, 0,
  CASE WHEN i % {every} = 0 THEN 'ready' WHEN i % 2 = 0 THEN 'done' ELSE 'blocked' END,
  CASE WHEN i % {every} = 0 THEN 0 ELSE i % 2 END, 0, 'human', 0
FROM n
"""
BUDGETS = "INSERT INTO budgets (root_id, tasks) {numbers} SELECT i, 1 FROM n"


def statements(kind: str, size: int) -> list[str]:
    numbers = NUMBERS[kind].format(first=1, last=size)
    # The same number of ready tasks whatever the size, so that only the board around them grows.
    every = size // READY
    return [TASKS.format(numbers=numbers, every=every), BUDGETS.format(numbers=numbers)]


async def fill(url: str, size: int) -> None:
    if url.startswith("sqlite"):
        connection = sqlite3.connect(Path(url.removeprefix("sqlite:///")), timeout=30)
        for statement in statements("sqlite", size):
            connection.execute(statement)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return
    address, schema = split_url(url)
    server = await asyncpg.connect(address, server_settings={"search_path": schema, "synchronous_commit": "off"})
    for statement in statements("postgres", size):
        await server.execute(statement)
    await server.execute("ANALYZE tasks; ANALYZE budgets; CHECKPOINT")
    await server.close()
