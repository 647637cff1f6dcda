"""A board in a SQLite file: one writing connection per process, and one for reading beside it.

The writer and the reader each have a thread, so the event loop does not wait for the disk; only a lone call, on a disk
that answers within milliseconds, runs on the event loop. With `threads=False` (simulation) everything runs inline on
one connection, with the clock that was passed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from ...clock import Sources
from ...errors import BoardBusy, BoardFull, BoardReadOnly, BoardTrouble, BoardUnreachable
from ...settings import Limits, Patience
from . import migrations
from .disk import check_place, shrink
from .queries import Query, load, load_setup, of_entries
from .seam import Asked, BaseStore, Noting, Row, Script, Topics, Tx, Work, as_json, topics_json
from .thread import DatabaseThread
from .wakeup import Nudge

T = TypeVar("T")

_SQLITE_MIN = (3, 38, 0)  # The first with ->> for JSON.
_NAP_SECONDS = 0.002
_CHECKPOINT_PAGES = 4_000
_VALUE_BYTES_MAX = 64 * 1024**2  # Of one text or blob; nothing of ours is near it.
_OTHER_PATH = "Choose another path."
# What SQLite says of text that is not UTF-8, and of text that should be JSON.
_DAMAGES = ("Could not decode to UTF-8", "malformed JSON", "string or blob too big")
_QUICK_SECONDS = 0.05  # A lone call may hold the event loop up for this long ...
_CAREFUL_SECONDS = 10.0  # ... and if one took longer, all go to the thread for a while.
# These read a row or two by key: the way to the thread and back would cost more than the read.
_READ_AT_ONCE = frozenset({"read_budget", "first_unread"})
# Of the parts in which a list is written. Each is a statement of its own, which SQLite prepares once.
_SIZES = (64, 8, 1)


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that never suspends to its end."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise AssertionError("a verb suspended on SQLite, where every step is immediate")


class SqliteTx(Tx):
    """One open transaction on the writing connection."""

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store.limits, store.sources)
        self._store, self._connection = store, store.writer

    async def fetch(self, name: str, /, **arguments: object) -> Sequence[Row]:
        query = self._store.queries[name]
        if query.fields:
            return self._store.write_list(query, cast(list[Any], arguments[query.parameters[0]]), told=True)[1]
        return _rows(self._connection.execute(query.text, query.arguments(arguments)))

    async def execute(self, *statements: str) -> None:
        for statement in statements:
            self._connection.execute(statement)

    def is_lost(self, trouble: BaseException) -> bool:
        return not self._connection.in_transaction  # A full disk ends the whole transaction.


class SqliteStore(BaseStore):
    over_a_wire = False  # Every statement is immediate.

    def __init__(
        self, path: Path | None, *, limits: Limits, patience: Patience, sources: Sources, threads: bool
    ) -> None:
        super().__init__(limits, patience, sources)
        self.queries = load("sqlite")
        self._path = path
        self._threads_until = 0.0
        if path is not None:
            with _named_troubles(path):
                check_place(path)
        self.writer = _connect(path, sources, patience)
        with _named_troubles(path):
            _migrate(self.writer, patience)
        self.writer.execute("PRAGMA busy_timeout = 0")  # The writer takes its own, shorter naps.
        self._nudge: Nudge | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Without threads, or with a board in memory, readers use the writer's connection.
        self._reader = self._quick_reader = self.writer
        self._write_thread: DatabaseThread | None = None
        self._read_thread: DatabaseThread | None = None
        if threads:
            self._write_thread = DatabaseThread("dugnad board writer")
            self._read_thread = self._write_thread
        if threads and path is not None:
            self._reader = _connect(path, sources, patience, known=True)
            self._quick_reader = _connect(path, sources, patience, known=True)
            for reader in (self._reader, self._quick_reader):
                reader.execute(load_setup("sqlite")["reading"])
            self._read_thread = DatabaseThread("dugnad board reader")
            self._listen(path)

    def _listen(self, path: Path) -> None:
        """Hear of other processes' commits."""
        # Without the folder (on a read-only disk) the slow sweep must be enough.
        with contextlib.suppress(OSError):
            self._nudge = Nudge(path.with_name(path.name + ".wake"), self.sources.new_id())
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._nudge.socket, self._nudge.drain, self._heard)

    async def write(self, work: Work, *, alone: bool = False, script: Script | None = None) -> bool:
        # On a quick disk, the way to the thread and back costs more than one call.
        if self._write_thread is None or (alone and time.monotonic() > self._threads_until and self._begin_at_once()):
            begun = self._write_thread is not None
            before = time.monotonic()
            topics, by_script = self._transact(work, script, begun)
            if time.monotonic() - before > _QUICK_SECONDS:
                self._threads_until = time.monotonic() + _CAREFUL_SECONDS
        else:
            topics, by_script = await self._write_thread.ask(lambda: self._transact(work, script))
        self.tell(topics)
        return by_script

    async def snapshot(self, asks: Sequence[Asked]) -> Sequence[Sequence[Row]]:
        if _READ_AT_ONCE.issuperset(name for name, _ in asks) and time.monotonic() > self._threads_until:
            return self._fetch_all(self._quick_reader, asks)
        if self._read_thread is None:
            return self._fetch_all(self._reader, asks)
        return await self._read_thread.ask(lambda: self._fetch_all(self._reader, asks))

    def _fetch_all(self, reader: sqlite3.Connection, asks: Sequence[Asked]) -> Sequence[Sequence[Row]]:
        with _named_troubles(self._path):
            if len(asks) == 1:
                return [self._fetch(reader, *asks[0])]
            reader.execute("BEGIN")
            try:
                return [self._fetch(reader, *ask) for ask in asks]
            finally:
                reader.execute("COMMIT")

    def _fetch(self, reader: sqlite3.Connection, name: str, given: Mapping[str, object]) -> Sequence[Row]:
        query = self.queries[name]
        return _rows(reader.execute(query.text, query.arguments(given)))

    def get_ready(self) -> None: ...  # Nothing has to be connected.

    async def shrink(self, *, whole: bool) -> bool:
        connection = _connect(self._path, self.sources, self._patience, known=True)
        with contextlib.closing(connection), _named_troubles(self._path):
            return await asyncio.to_thread(shrink, connection, whole)

    async def close(self) -> None:
        if self._nudge is not None and self._loop is not None:
            self._loop.remove_reader(self._nudge.socket)
        for thread in {self._read_thread, self._write_thread}:
            if thread is not None:
                await asyncio.to_thread(thread.stop)
        if self._nudge is not None:
            self._nudge.close()
        for connection in {self._reader, self._quick_reader, self.writer}:
            connection.close()

    def _begin_at_once(self) -> bool:
        try:
            self.writer.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:  # Most likely busy. The thread can wait.
            return False
        return True

    def _transact(self, work: Work, script: Script | None, begun: bool = False) -> tuple[Topics, bool]:
        tx: Noting = SqliteTx(self)
        with _named_troubles(self._path):
            if not begun:
                _patiently(self.writer, "BEGIN IMMEDIATE", self._patience.busy_seconds)
            try:
                if script is not None and self._is_enough(script):
                    tx = script
                else:
                    run_now(cast(Coroutine[Any, Any, None], work(cast(Tx, tx))))
                if tx.events:
                    at, last = self.sources.now_ms(), self.writer.execute(self.queries["last_seq"].text).fetchone()[0]
                    told = enumerate(tx.events, last + 1)
                    rows = [{**each, "data": as_json(each["data"]), "at": at, "seq": seq} for seq, each in told]
                    self.write_list(self.queries["append_events"], rows)
                self.writer.execute("COMMIT")
            except BaseException:
                if self.writer.in_transaction:
                    self.writer.execute("ROLLBACK")
                raise
        if not tx.events:
            return {}, tx is script
        if self._nudge is not None:
            self._nudge.send(lambda: topics_json(tx.topics))
        return {**tx.topics, "log": 1}, tx is script

    def _is_enough(self, script: Script) -> bool:
        """Run a script; none tells rows here. If it is not enough, the transaction begins again."""
        with contextlib.suppress(sqlite3.IntegrityError):  # A key was used before, so the verb has to find its answer.
            for name, given, rows in script.steps:
                query = self.queries[name]
                if query.fields:
                    found = self.write_list(query, given)[0]
                else:
                    found = len(self.writer.execute(query.text, (as_json(given),)).fetchall())
                if found != rows:
                    break
            else:
                return True
        self.writer.execute("ROLLBACK")
        _patiently(self.writer, "BEGIN IMMEDIATE", self._patience.busy_seconds)
        return False

    def write_list(self, query: Query, entries: Sequence[Row], *, told: bool = False) -> tuple[int, list[Row]]:
        """Run a statement with these entries, some at once: how many rows it changed, and those that it tells."""
        begin, changed, rows = 0, 0, list[Row]()
        for size in _SIZES:
            while len(entries) - begin >= size:
                values = [each.get(field) for each in entries[begin : begin + size] for field in query.fields]
                cursor = self.writer.execute(of_entries(query, size, told=told), values)
                rows += _rows(cursor)
                changed += cursor.rowcount
                begin += size
        return changed, rows

    def _heard(self, payload: str) -> None:
        self.tell({"?": 1} if payload == "?" else json.loads(payload))


def _rows(cursor: sqlite3.Cursor) -> Sequence[Row]:
    """Rows as dicts: sqlite3.Row looks a name up by comparing it with every column's, at every access."""
    rows = cursor.fetchall()
    if not rows:
        return rows
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _patiently(connection: sqlite3.Connection, statement: str, busy_seconds: float) -> None:
    """Run a statement that needs the write lock. It waits in many short naps instead of SQLite's growing ones, so that
    no process starves among many writers. SQLite itself does not wait at all when it turns a new file to WAL."""
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as trouble:
            if not isinstance(_name(trouble, None), BoardBusy):
                raise
            if time.monotonic() > deadline:
                raise BoardBusy(
                    f"Another process has held the board for {busy_seconds:g} seconds; nothing was changed. "
                    "See whether it is stopped or stuck, then try again."
                ) from trouble
            time.sleep(_NAP_SECONDS)


def _connect(path: Path | None, sources: Sources, patience: Patience, *, known: bool = False) -> sqlite3.Connection:
    """`known`: this process has looked at the file before."""
    if sqlite3.sqlite_version_info < _SQLITE_MIN:
        raise BoardUnreachable(
            f"This Python carries SQLite {sqlite3.sqlite_version}, and dugnad needs 3.38 or newer: "
            "use a newer Python, or a PostgreSQL board."
        )
    with _named_troubles(path):
        connection = sqlite3.connect(
            ":memory:" if path is None else path, timeout=patience.busy_seconds, isolation_level=None,
            check_same_thread=False, cached_statements=256,
        )  # fmt: skip
        try:
            setup = load_setup("sqlite")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES_MAX)
            connection.execute(setup["wary"])
            if path is not None and not known:
                _refuse_another_programs(connection, path)
            new = path is None or not path.stat().st_size  # On an existing board this setting would be a write.
            for name in (*(("shrinking",) if new else ()), "journal", "durable", "cache"):
                _patiently(connection, setup[name], patience.busy_seconds)
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            # The time does not change within a statement, so SQLite asks once and not for every row.
            connection.create_function("now_ms", 0, sources.now_ms, deterministic=True)
        except BaseException:
            connection.close()
            raise
    return connection


def _refuse_another_programs(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that holds anything but what the migrations make: a default, a check, an index or a trigger of
    somebody else's would be worked out by SQLite, whatever it costs. Nothing of the file has run by then."""
    setup = load_setup("sqlite")
    connection.execute("BEGIN")  # One snapshot for both: another process may be making the board.
    version = int(connection.execute(setup["version"]).fetchone()[0])
    found = migrations.plain_schema(connection.execute(setup["schema"]))
    connection.execute("COMMIT")
    if version > migrations.latest() or found == (_made_by(version) if version > 0 else frozenset()):
        return  # A newer board is refused later, with its version.
    if {kind for kind, name, *_ in found if not name.startswith("tasks_counted_")} & {"trigger", "view"}:
        raise BoardUnreachable(f"{path} is not a board: it holds triggers or views of another program. {_OTHER_PATH}")
    if not version:
        raise BoardUnreachable(f"{path} is not a board: it holds another program's tables. {_OTHER_PATH}")
    raise damaged(path, "its tables are not those of a board")


@cache
def _made_by(version: int) -> frozenset[tuple[str, ...]]:
    """What the migrations up to this version make."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for number, statements in migrations.missing(0, "sqlite"):
            for statement in statements if number <= version else ():
                connection.execute(statement)
        return migrations.plain_schema(connection.execute(load_setup("sqlite")["schema"]))


def damaged(path: Path | None, why: str) -> BoardUnreachable:
    return BoardUnreachable(f"The board at {path} is damaged: {why}; restore a back-up or make a new board.")


def _migrate(connection: sqlite3.Connection, patience: Patience) -> None:
    setup = load_setup("sqlite")

    def version() -> int:
        return int(connection.execute(setup["version"]).fetchone()[0])

    if not migrations.missing(version(), "sqlite"):
        return
    _patiently(connection, "BEGIN IMMEDIATE", patience.busy_seconds)
    try:
        for number, statements in migrations.missing(version(), "sqlite"):
            for statement in statements:
                connection.execute(statement)
            connection.execute(setup["set_version"].replace("VERSION", str(number)))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def _named_troubles(path: Path | None) -> Iterator[None]:
    """Turns SQLite's errors about the file into ours. Its errors about a statement are bugs and pass."""
    try:
        yield
    except sqlite3.Error as trouble:
        if named := _name(trouble, path):
            raise named from trouble
        raise
    except OSError as trouble:
        raise BoardUnreachable(f"Cannot use {path} as a board: {trouble.strerror}.") from trouble


def _name(trouble: sqlite3.Error, path: Path | None) -> BoardTrouble | None:
    code = (getattr(trouble, "sqlite_errorcode", None) or 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return BoardFull(f"The disk that holds {path} is full; nothing was changed. Free some space, try again.")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return BoardReadOnly(
            f"{path} cannot be written; nothing was changed. Check its owner, its permissions and its folder's."
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return BoardUnreachable(f"{path} cannot be opened; check that its folder exists and can be written.")
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT) or str(trouble).startswith("no such table"):
        return BoardUnreachable(f"{path} is not a board, or is damaged; restore a back-up or choose another path.")
    if code in (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH) or str(trouble).startswith(_DAMAGES):
        return damaged(path, f"{trouble}"[:200])
    if code == sqlite3.SQLITE_IOERR:
        return BoardUnreachable(f"The disk that holds {path} reports an error ({trouble}); check it, then try again.")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return BoardBusy()
    return None
