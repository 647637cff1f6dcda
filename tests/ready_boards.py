"""Boards that are made once: on PostgreSQL lent to one test after another, on SQLite copied for each.

To make a board takes sixty milliseconds and to drop it ten; to empty one takes two. A test's board does not exist
before the test opens it: then a board that is ready gets its name. A board of which a test changed more than rows is
dropped, and so is one that has grown: deleted rows keep their room.
To copy a file takes seven milliseconds less than to make a board in it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import asyncpg

from dugnad.board import open_board

_BYTES_MAX = 2_000_000  # Of all tables and indexes; an empty board has a fifth of it.

# What is in a schema, without the rows.
_SHAPE = """
WITH own AS (SELECT oid FROM pg_namespace WHERE nspname = $1),
  tables AS (SELECT pg_class.* FROM pg_class, own WHERE relnamespace = own.oid)
SELECT md5(string_agg(line, '|' ORDER BY line)) FROM (
  SELECT concat_ws(' ', relname, relkind, relacl, relhasrules) FROM tables
  UNION ALL SELECT concat_ws(' ', relname, attname, atttypid, attnotnull, atthasdef)
    FROM tables JOIN pg_attribute ON attrelid = tables.oid WHERE attnum > 0
  UNION ALL SELECT concat_ws(' ', relname, tgname, tgenabled) FROM tables JOIN pg_trigger ON tgrelid = tables.oid
  UNION ALL SELECT concat_ws(' ', relname, conname, contype) FROM tables JOIN pg_constraint ON conrelid = tables.oid
  UNION ALL SELECT concat_ws(' ', proname, proacl, prosrc) FROM pg_proc, own WHERE pronamespace = own.oid
  UNION ALL SELECT 'grown' FROM tables HAVING sum(pg_relation_size(oid)) > $2
) AS parts (line)
"""


class ReadyFile:
    """A new board on SQLite, as bytes."""

    def __init__(self) -> None:
        self._bytes = self._identity = b""

    def copy(self, path: Path) -> None:
        """Put a board with an identity of its own here, unless the test has put something here itself."""
        if os.path.lexists(path):
            return
        if not self._bytes:
            with tempfile.TemporaryDirectory() as made:
                self._identity = asyncio.run(_made(f"sqlite:///{made}/board.db")).encode()
                self._bytes = Path(made, "board.db").read_bytes()
            assert self._bytes.count(self._identity) == 1
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(self._bytes.replace(self._identity, secrets.token_hex(16).encode()))


async def _made(url: str) -> str:
    async with await open_board(url) as board:
        return await board.identity()


class ReadyBoards:
    """Used by one process, between the loops of its tests: it has a loop and a connection of its own."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._prefix = f"test_{os.getpid()}"
        self._numbers = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._connection: asyncpg.Connection | None = None
        self._ready: list[str] = []
        self._lent: set[str] = set()
        self._shape = self._empty = ""

    def address(self) -> str:
        """Of a board that does not exist yet."""
        return f"{self._server}?board={self._prefix}_{next(self._numbers)}"

    def lend(self, url: str) -> None:
        """Give this name to a board that is ready, unless the test has made something there itself."""
        name = url.partition("?board=")[2]
        if name not in self._lent and not self._wait(lambda admin: _exists(admin, name)):
            ready = self._ready.pop() if self._ready else self._make()
            self._wait(lambda admin: admin.execute(f"ALTER SCHEMA {ready} RENAME TO {name}"))
            self._lent.add(name)

    def take_back(self, url: str) -> None:
        name = url.partition("?board=")[2]
        if name in self._lent and self._wait(lambda admin: admin.fetchval(_SHAPE, name, _BYTES_MAX)) == self._shape:
            self._wait(lambda admin: admin.execute(self._empty.format(board=name)))
            self._ready.append(name)
        else:
            self._wait(lambda admin: admin.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE"))
        self._lent.discard(name)

    def close(self) -> None:
        for name in (*self._ready, f"{self._prefix}_seed"):
            self._wait(lambda admin, name=name: admin.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE"))
        if self._connection is not None:
            self._loop.run_until_complete(self._connection.close())
        self._loop.close()

    def _make(self) -> str:
        name = f"{self._prefix}_{next(self._numbers)}"

        async def make() -> None:
            await (await open_board(f"{self._server}?board={name}")).close()

        self._loop.run_until_complete(make())
        if not self._shape:
            self._shape = self._wait(lambda admin: admin.fetchval(_SHAPE, name, _BYTES_MAX))
            self._empty = self._wait(lambda admin: _how_to_empty(admin, name, f"{self._prefix}_seed"))
        return name

    def _wait(self, ask: Callable[[asyncpg.Connection], Coroutine[Any, Any, Any]]) -> Any:
        async def asked() -> Any:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(self._server)
            return await ask(self._connection)

        try:
            return self._loop.run_until_complete(asked())
        except (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError):  # A test has cut all connections.
            self._connection = None
            return self._loop.run_until_complete(asked())


async def _exists(admin: asyncpg.Connection, name: str) -> bool:
    return bool(await admin.fetchval("SELECT true FROM pg_namespace WHERE nspname = $1", name))


async def _how_to_empty(admin: asyncpg.Connection, made: str, seed: str) -> str:
    """Statements that bring any board back to what `made` is now. The rows of a new board are kept in `seed`."""
    tables = [row[0] for row in await admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", made)]
    tables.remove("migrations")
    seeded = [name for name in tables if await admin.fetchval(f"SELECT EXISTS (SELECT FROM {made}.{name})")]  # noqa: S608
    await admin.execute(f"CREATE SCHEMA {seed}")
    for name in seeded:
        await admin.execute(f"CREATE TABLE {seed}.{name} AS TABLE {made}.{name}")
    numbered = [
        row[0] for row in await admin.fetch("SELECT sequencename FROM pg_sequences WHERE schemaname = $1", made)
    ]
    return "; ".join(
        # Waits for what a process of the test still writes. TRUNCATE would too, and take five times as long.
        [f"LOCK TABLE {', '.join(f'{{board}}.{name}' for name in tables)}"]
        + [f"DELETE FROM {{board}}.{name}" for name in tables]  # noqa: S608
        + [f"SELECT setval('{{board}}.{name}', 1, false)" for name in numbered]
        + [f"INSERT INTO {{board}}.{name} OVERRIDING SYSTEM VALUE SELECT * FROM {seed}.{name}" for name in seeded]  # noqa: S608
    )
