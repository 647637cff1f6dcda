"""A board in a PostgreSQL schema: one writing connection, a small pool of readers, one listener.

Lost connections are made again. Work whose commit was not answered runs again with `repeated` set, so that each call
first looks for its own answer by key.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import asyncpg
import orjson

from ...clock import Sources
from ...errors import BadBoardURL, BoardBusy, BoardFull, BoardReadOnly, BoardTrouble, BoardUnreachable
from ...settings import Limits, Patience
from . import migrations
from .composed import script_procedure, together
from .pool import Connection, Readers, Writer, split_url
from .queries import load, load_setup
from .seam import STEPS, Asked, BaseStore, Row, Script, Topics, TryAgain, Tx, Work, as_json, topics_json, urgent

_VERSION_MIN = 140_000
_COLLISIONS_MAX, _READERS_MAX, _READERS_SOON = 10, 3, 2
_NAP_SECONDS_MAX, _PAUSE_SECONDS = 1.0, 0.02  # Between tries to connect, at most; before a push that can wait.
_TOGETHER_MAX = 20  # Statements that are read as one.
# Statements must use an index, and read no more of it than they need. A planner that takes the tables for empty would
# scan them, and one that expects few rows would gather them all before the first.
_PLANNING = {f"enable_{each}": "off" for each in ("seqscan", "bitmapscan", "hashjoin", "mergejoin")}
_NOT_ENOUGH = "DG001"  # The state that a script ends with when a step does not find what it must.

_GONE = (
    OSError, TimeoutError, asyncpg.PostgresConnectionError, asyncpg.InternalClientError, asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError, asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)  # fmt: skip
# Two processes that use a key at one moment; or another has upgraded the board. Run again, it finds what there is now.
_COLLIDED = (
    asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.UniqueViolationError, TryAgain,
    asyncpg.InvalidCachedStatementError,
)  # fmt: skip


def _is_gone(trouble: BaseException) -> bool:
    # The driver has one class for "connection is closed" and for "wrong number of arguments"; the second is a bug.
    return isinstance(trouble, _GONE) or (isinstance(trouble, asyncpg.InterfaceError) and "clos" in str(trouble))


class PostgresTx(Tx):
    """One open transaction on the writing connection."""

    def __init__(self, store: PostgresStore, connection: Any, repeated: bool) -> None:
        super().__init__(store.limits, store.sources, repeated=repeated)
        self._connection = connection
        self._queries = store.queries

    async def fetch(self, name: str, /, **arguments: object) -> Sequence[Row]:
        query = self._queries[name]
        return cast(Sequence[Row], await self._connection.fetch(query.text, *query.arguments(arguments)))

    async def execute(self, *statements: str) -> None:
        await self._connection.execute("; ".join(statements))

    def is_lost(self, trouble: BaseException) -> bool:
        return _is_gone(trouble) or isinstance(trouble, _COLLIDED)


class PostgresStore(BaseStore):
    over_a_wire = True

    def __init__(self, url: str, *, limits: Limits, patience: Patience, sources: Sources) -> None:
        super().__init__(limits, patience, sources)
        self.queries = load("postgres")
        self._address, self._board = split_url(url)
        self._channel = f"dugnad_{self._board}"
        self._writers = (Writer(), Writer())
        self._listener: Any = None
        self._readers = Readers(lambda: self._connect(_PLANNING), _READERS_MAX)
        self._owed, self._heard_since = Topics(), 0  # What others are not told yet; how often they pushed since.
        self._chores: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self, *, make: bool) -> None:
        """Reach the server once, without retries: a wrong address must be reported now, not after half a minute."""
        try:
            await self._migrate(make)
            await self._listen()
        except (asyncpg.InvalidPasswordError, asyncpg.InsufficientPrivilegeError) as trouble:
            raise BoardUnreachable(f"{self._where()} refuses this user: {trouble}.") from trouble
        except asyncpg.DuplicateTableError as trouble:
            raise BoardUnreachable(
                f"{self._where()} holds other tables in the schema {self._board}; choose another board name."
            ) from trouble
        except (asyncpg.ClientConfigurationError, ValueError) as trouble:
            raise BadBoardURL(f"The board's address cannot be used: {trouble}.") from trouble
        except (
            *_GONE, asyncpg.InvalidCatalogNameError, asyncpg.InvalidAuthorizationSpecificationError,
            asyncpg.InterfaceError,  # The connection was lost while it was opened.
        ) as trouble:  # fmt: skip
            raise BoardUnreachable(
                f"{self._where()} cannot be used: {trouble or type(trouble).__name__}. "
                "Check that the server runs and that the address is right."
            ) from trouble

    async def write(self, work: Work, *, alone: bool = False, script: Script | None = None) -> bool:
        writer = self._free()
        async with writer.lock:
            topics, by_script = await self._again(lambda repeated: self._write(writer, work, script, repeated))
        self.tell(topics)
        self._owe(topics)
        return bool(by_script)

    async def snapshot(self, asks: Sequence[Asked]) -> Sequence[Sequence[Row]]:
        queries = [(self.queries[name].text, self.queries[name].arguments(given)) for name, given in asks]
        if 1 < len(asks) <= _TOGETHER_MAX:  # One statement sees the board at one moment, and takes one round trip.
            text = together(tuple(name for name, _ in asks))
            queries = [(text, tuple(each for _, given in queries for each in given))]

        async def fetch(_: bool) -> Sequence[Sequence[Row]]:
            return await self._readers.fetch(queries)

        found = cast(Sequence[Sequence[Row]], await self._again(fetch))
        return found if len(queries) == len(asks) else [orjson.loads(rows) for rows in found[0][0].values()]

    async def shrink(self, *, whole: bool) -> bool:
        return True  # The server does so by itself (autovacuum).

    def get_ready(self) -> None:
        self._do_meanwhile(self._get_ready())

    async def _get_ready(self) -> None:
        """Connect, and let the server plan the steps of scripts, so that the first calls do not wait for it."""
        empty = Script()
        empty.given = {name: [] for name in STEPS}
        with contextlib.suppress(BoardTrouble, *_GONE, asyncpg.PostgresError, asyncpg.InterfaceError):
            for writer in reversed(self._writers):  # The first one is in use by now.
                async with writer.lock:
                    await self._reach(writer)
                    if writer.has_scripts:
                        await self._is_enough(writer, empty)
            await asyncio.gather(*(self.read("read_identity") for _ in range(_READERS_SOON)))  # One for each.

    async def close(self) -> None:
        await self._push()
        self._closed = True
        for chore in (chores := list(self._chores)):
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        for connection in (*(writer.connection for writer in self._writers), self._listener):
            if connection is not None and not connection.is_closed():
                with contextlib.suppress(*_GONE):
                    await connection.close(timeout=2)
        self._readers.terminate()

    def _free(self) -> Writer:
        """The first writer that is free. The second is connected only when two transactions go on at once."""
        return min(self._writers, key=lambda writer: writer.lock.locked())

    async def _write(self, writer: Writer, work: Work, script: Script | None, repeated: bool) -> tuple[Topics, bool]:
        await self._reach(writer)
        if script is not None and not repeated and writer.has_scripts and await self._is_enough(writer, script):
            return {**script.topics, "log": 1}, True
        return await self._transact(writer, work, repeated), False

    async def _reach(self, writer: Writer) -> None:
        if not writer.is_open():
            writer.connection = await self._connect({**_PLANNING, "plan_cache_mode": "force_generic_plan"})
            writer.has_scripts = False
            with contextlib.suppress(asyncpg.InsufficientPrivilegeError):  # Then every statement takes a round trip.
                await writer.connection.execute(script_procedure())
                writer.has_scripts = True

    async def _is_enough(self, writer: Writer, script: Script) -> bool:
        """Run a script, as a transaction of its own."""
        steps, lists, rows = zip(*((name, as_json(given), count) for name, given, count in script.steps), strict=True)
        told = as_json(script.events), len(script.events), self._channel, urgent(script.topics)
        given = steps, lists, rows, script.tells, *told
        try:
            script.told(orjson.loads(await writer.connection.fetchval(load_setup("postgres")["run_script"], *given)))
            return True
        except BaseException as trouble:
            if isinstance(trouble, _COLLIDED) or getattr(trouble, "sqlstate", None) == _NOT_ENOUGH:
                return False
            await self._roll_back(writer, trouble)
            raise

    async def _transact(self, writer: Writer, work: Work, repeated: bool) -> Topics:
        tx = PostgresTx(self, writer.connection, repeated)
        await writer.connection.execute("BEGIN")
        try:
            await work(tx)
            if tx.events:
                # This locks the row of the log, so it comes last: numbers appear in the order of commits.
                told = {"channel": self._channel, "topics": urgent(tx.topics)}
                await tx.fetch("append_events", events=as_json(tx.events), count=len(tx.events), **told)
            how = "commit_then_flush" if tx.events else "commit_after_flush"
            await writer.connection.execute(load_setup("postgres")[how])
        except BaseException as trouble:
            await self._roll_back(writer, trouble)
            raise
        return {**tx.topics, "log": 1} if tx.events else {}

    async def _roll_back(self, writer: Writer, trouble: BaseException) -> None:
        """Roll back, or drop the connection if its state is not known for sure."""
        if not _is_gone(trouble) and not isinstance(trouble, asyncio.CancelledError):
            with contextlib.suppress(*_GONE, asyncpg.InterfaceError):
                await writer.connection.execute("ROLLBACK")
                return
        writer.connection.terminate()
        writer.connection = None

    async def _again(self, work: Callable[[bool], Awaitable[Any]]) -> Any:
        """Run `work` until the server answers: after a lost connection for a while, after a collision a few times."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience.reconnect_seconds
        repeated, tries, nap = False, 0, 0.05
        while True:
            try:
                return await work(repeated)
            except _COLLIDED as trouble:
                tries += 1
                if tries > _COLLISIONS_MAX:
                    raise BoardBusy(f"Other processes got in the way {tries} times; nothing was changed.") from trouble
                await asyncio.sleep(0.01 * self.sources.chance())
            except Exception as trouble:
                if not _is_gone(trouble):
                    if (named := self._named(trouble)) is None:
                        raise
                    raise named from trouble
                if self._closed or loop.time() + nap > deadline:
                    raise BoardUnreachable(
                        f"{self._where()} went away and did not come back in "
                        f"{self._patience.reconnect_seconds:g} seconds ({trouble or type(trouble).__name__}). "
                        "Whether the last call took effect is not known: repeat it with the same key."
                    ) from trouble
                repeated = True
                await asyncio.sleep(nap * (0.5 + self.sources.chance()))
                nap = min(nap * 2, _NAP_SECONDS_MAX)

    def _named(self, trouble: Exception) -> BoardTrouble | None:
        """Turn the server's errors about its state into ours. Its errors about a statement are bugs and pass."""
        if isinstance(trouble, asyncpg.DiskFullError | asyncpg.OutOfMemoryError):
            return BoardFull(f"{self._where()} is out of space ({trouble}); nothing was changed.")
        if isinstance(trouble, asyncpg.ReadOnlySQLTransactionError | asyncpg.InsufficientPrivilegeError):
            return BoardReadOnly(f"{self._where()} does not let this user write ({trouble}); nothing was changed.")
        if isinstance(trouble, asyncpg.QueryCanceledError):
            return BoardBusy(
                f"{self._where()} did not answer within {self._patience.statement_seconds:g} seconds; "
                "nothing was changed. Try again."
            )
        return None

    async def _connect(self, settings: dict[str, str]) -> Any:
        patience = self._patience
        milliseconds = str(int(patience.statement_seconds * 1000))
        connection = await asyncpg.connect(
            self._address,
            timeout=patience.network_seconds,
            # Later than the server's own limit, which gives the better answer.
            command_timeout=patience.statement_seconds + patience.network_seconds,
            statement_cache_size=512,
            connection_class=Connection,
            server_settings={
                "application_name": "dugnad", "search_path": self._board, "synchronous_commit": "on",
                "default_transaction_isolation": "read committed", "statement_timeout": milliseconds,
                "idle_in_transaction_session_timeout": milliseconds, "jit": "off", **settings,
            },
        )  # fmt: skip
        # Both ends of the wire notice when the other falls silent.
        connection.notice_silence(patience.network_seconds)
        try:
            await connection.execute(
                f"SET tcp_user_timeout = {int(patience.network_seconds * 1000)}; "
                "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3"
            )
        except BaseException as trouble:
            if not isinstance(trouble, asyncpg.PostgresError):  # The server's system may not have these settings.
                connection.terminate()  # Nobody else knows of it yet.
                raise
        return connection

    async def _listen(self) -> None:
        self._listener = await self._connect({})
        self._listener.add_termination_listener(lambda _: self._closed or self._do_meanwhile(self._listen_again()))
        await self._listener.add_listener(self._channel, self._heard)

    def _owe(self, topics: Topics) -> None:
        """Tell others a moment later what can wait: a push wakes every process. The more push, the longer it waits."""
        if urgent(topics) is None:
            if topics and not self._owed:
                self._do_meanwhile(self._push(min(_PAUSE_SECONDS * (1 + self._heard_since), _NAP_SECONDS_MAX)))
            self._owed |= topics

    async def _push(self, pause: float = 0.0) -> None:
        await asyncio.sleep(pause)
        topics, self._owed, self._heard_since = self._owed, {}, 0
        writer = self._writers[0]  # Always this one, so that the end waits for the push before it.
        async with writer.lock:
            with contextlib.suppress(*_GONE, asyncpg.PostgresError, asyncpg.InterfaceError):
                if topics and writer.is_open():
                    await writer.connection.execute(load_setup("postgres")["push"], self._channel, topics_json(topics))

    def _heard(self, _connection: object, pid: int, _channel: str, payload: object) -> None:
        if any(writer.is_open() and pid == writer.connection.get_server_pid() for writer in self._writers):
            return  # A commit of this process, whose listeners were called at once.
        self._heard_since += 1
        self.tell(json.loads(str(payload)))

    def _do_meanwhile(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        chore = asyncio.get_running_loop().create_task(work)
        self._chores.add(chore)
        chore.add_done_callback(self._chores.discard)
        return chore

    async def _listen_again(self) -> None:
        nap = 0.05
        while not self._closed:
            try:
                await self._listen()
                self.tell({"?": 1})  # Pushes were lost in the meantime.
                return
            except (*_GONE, asyncpg.PostgresError, asyncpg.InterfaceError):
                await asyncio.sleep(nap)
                nap = min(nap * 2, _NAP_SECONDS_MAX)

    def _where(self) -> str:
        parts = urlsplit(self._address)
        return f"PostgreSQL at {parts.hostname or 'the local socket'}{parts.path}"

    async def _migrate(self, make: bool) -> None:
        setup = {
            name: text.replace("SCHEMA SCHEMA", f'SCHEMA "{self._board}"').replace("SCHEMA.", f"{self._board}.")
            for name, text in load_setup("postgres").items()
        }
        connection = await self._connect({})
        try:
            server = await connection.fetchrow(setup["encoding"])
            if server["encoding"] != "UTF8":
                raise BoardUnreachable(
                    f"{self._where()} stores {server['encoding']}, and a board needs a database with UTF8: "
                    "createdb --encoding UTF8 --template template0."
                )
            if server["version"] < _VERSION_MIN:
                raise BoardUnreachable(f"{self._where()} is too old: dugnad needs PostgreSQL 14 or newer.")
            there = await connection.fetchval(setup["migrations_exist"])
            if not there and not make:
                raise BoardUnreachable(
                    f"There is no board {self._board!r} at {self._where()} yet; `dugnad add` or `dugnad run` makes one."
                )
            if not there or migrations.missing(await connection.fetchval(setup["version"]), "postgres"):
                async with connection.transaction():
                    await _apply(connection, setup, self._board)
        finally:
            await connection.close()


async def _apply(connection: Any, setup: dict[str, str], board: str) -> None:
    await connection.execute(setup["lock_board"], board)
    if not await connection.fetchval(setup["schema_exists"], board):
        await connection.execute(setup["create_schema"])
    await connection.execute(setup["create_migrations"])
    for number, statements in migrations.missing(await connection.fetchval(setup["version"]), "postgres"):
        for statement in statements:
            await connection.execute(statement)
        await connection.execute(setup["set_version"], number)
