"""Opening a board: addresses, a place made when it is missing, many at once, and settings that are really in force."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from dugnad.board import open_board
from dugnad.board.open import sqlite_path
from dugnad.board.store.migrations import latest
from dugnad.errors import BadBoardURL, BoardReadOnly, BoardTooNew, BoardUnreachable, DugnadError
from dugnad.settings import Patience
from tests.conftest import Opener

# Opens board after board, each at the parent's signal, and puts a task on each.
OPEN_AND_PUT = """
import asyncio, sys
from dugnad.board import open_board

async def main():
    for url in sys.argv[2:]:
        print("ready", flush=True)
        sys.stdin.readline()
        async with await open_board(url) as board:
            task = await board.put(sys.argv[1])
            print(task.id, flush=True)

asyncio.run(main())
"""
PROCESSES = 10
ROUNDS = {"sqlite": 8, "postgresql": 2}  # Several boards after each other, for the race is a narrow one.


# Addresses.


@pytest.mark.parametrize(
    "address",
    [
        "",
        "board.db",
        "mysql://localhost/board",
        "sqlite:board.db",
        "sqlite://board.db",
        "sqlite://",
        "sqlite:///",
        "http://127.0.0.1/board",
    ],
)
async def test_an_address_that_is_no_boards_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(BadBoardURL, match="sqlite:///"):
        await open_board(address)


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:////tmp/a\0b/board.db",
        "postgresql://127.0.0.1:port/postgres",
        "postgresql://127.0.0.1:99999/postgres",
        "postgresql://[::1/postgres",
        "postgresql://127.0.0.1/postgres?sslmode=banana",
    ],
)
async def test_a_malformed_address_is_refused_as_bad_not_with_a_drivers_error(address: str) -> None:
    with pytest.raises(BadBoardURL):
        await open_board(address)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Upper",
        "9lives",
        "a-b",
        "a b",
        "blåbær",
        "x" * 42,
        'a";DROP SCHEMA public CASCADE;--',
        "a'; SELECT pg_sleep(10);--",
        "a.b",
        "a%22%3BDROP%20TABLE%20tasks",
        "a%0A",
    ],
)
async def test_a_board_name_that_is_not_plain_is_refused(name: str) -> None:
    """No server is needed to say so: the name is looked at before anything is sent."""
    with pytest.raises(BadBoardURL):
        await open_board(f"postgresql://postgres@127.0.0.1:1/postgres?board={name}")


@pytest.mark.parametrize("name", ["pg_mine", "pg_catalog"])
async def test_a_board_name_the_server_keeps_for_itself_is_refused(postgres: str, name: str) -> None:
    with pytest.raises(BadBoardURL):
        await open_board(f"{postgres}?board={name}")


def test_a_relative_path_is_under_the_working_folder_and_four_slashes_are_absolute() -> None:
    assert sqlite_path("sqlite:///some/board.db") == Path.cwd() / "some" / "board.db"
    assert sqlite_path("sqlite:////some/board.db") == Path("/some/board.db")
    assert sqlite_path("sqlite://:memory:") is None
    assert sqlite_path("sqlite:///:memory:") is None


async def test_a_relative_board_is_found_again_by_its_absolute_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    async with await open_board("sqlite:///board.db") as board:
        task = await board.put("here")
    async with await open_board(f"sqlite:///{folder}/board.db") as again:
        assert (await again.find(task.id)).title == "here"


async def test_the_working_folder_may_change_while_a_board_is_open(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder)
    async with await open_board("sqlite:///board.db") as board:
        monkeypatch.chdir(folder / "elsewhere")
        await board.put("still here")
    assert (folder / "board.db").exists()
    assert not (folder / "elsewhere" / "board.db").exists()


async def test_missing_folders_are_made(folder: Path) -> None:
    path = folder / "a" / "b c" / "blåbær" / "board.db"
    async with await open_board(f"sqlite:///{path}") as board:
        await board.put("deep")
    assert path.is_file()


@pytest.mark.parametrize("threads", [True, False])
async def test_a_board_in_memory_works_and_is_gone_afterwards(threads: bool) -> None:
    async with await open_board("sqlite://:memory:", threads=threads) as board:
        await board.put("short-lived")
        assert await board.count_tasks() == {"ready": 1}
        assert await board.replayed_state() == await board.observed_state()
    async with await open_board("sqlite://:memory:", threads=threads) as board:
        assert await board.count_tasks() == {}


# What is there already.


async def test_an_opened_board_is_opened_again_as_it_was(opener: Opener) -> None:
    first = await opener()
    task = await first.put("kept", body="every word of it")
    again = await opener()
    assert await again.find(task.id) == task
    assert (await again.put("next")).id == task.id + 1


async def test_a_newer_sqlite_board_is_refused_and_unchanged(folder: Path) -> None:
    path = folder / "board.db"
    await (await open_board(f"sqlite:///{path}")).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {latest() + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(BoardTooNew, match="Upgrade"):
        await open_board(f"sqlite:///{path}")
    assert path.read_bytes() == before


async def test_a_newer_postgres_board_is_refused_and_unchanged(schema: tuple[str, str]) -> None:
    url, name = schema
    await (await open_board(url)).close()
    connection = await asyncpg.connect(url.split("?")[0])
    try:
        await connection.execute(f'SET search_path TO "{name}"')
        await connection.execute("INSERT INTO migrations (version) VALUES ($1)", latest() + 1)
        before = await _contents(connection, name)
        with pytest.raises(BoardTooNew, match="Upgrade"):
            await open_board(url)
        assert await _contents(connection, name) == before
    finally:
        await connection.close()


async def _contents(connection: Any, name: str) -> list[Any]:
    """Every column of the board's tables, and its applied migrations."""
    columns = await connection.fetch(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = $1 ORDER BY 1, 2", name
    )
    return [*columns, *await connection.fetch("SELECT * FROM migrations ORDER BY version")]


@pytest.fixture
async def schema(postgres: str) -> AsyncIterator[tuple[str, str]]:
    """The address and the name of a PostgreSQL board that does not exist yet."""
    name = "opening_of_one"
    yield f"{postgres}?board={name}", name
    connection = await asyncpg.connect(postgres)
    await connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
    await connection.close()


async def test_two_boards_in_one_database_do_not_see_each_other(postgres: str, schema: tuple[str, str]) -> None:
    url, name = schema
    other_name = name + "_more"
    try:
        async with await open_board(url) as one, await open_board(f"{postgres}?board={other_name}") as other:
            await one.put("for one", key="same key")
            with one.watch(["log"]) as watch:
                await other.put("for the other", key="same key")
                assert not await watch.wait(0.3)
            assert [task.title for task in await one.list_tasks()] == ["for one"]
            assert [task.title for task in await other.list_tasks()] == ["for the other"]
            assert [event.seq for event in await other.events()] == [1]
    finally:
        connection = await asyncpg.connect(postgres)
        await connection.execute(f'DROP SCHEMA IF EXISTS "{other_name}" CASCADE')
        await connection.close()


# Many at once.


def _start(name: str, addresses: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OPEN_AND_PUT, name, *addresses],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _open_together(addresses: list[str]) -> list[list[int]]:
    """Ten processes open each of these at the same moment; the ids of what they put on each."""
    processes = [_start(f"process {number}", addresses) for number in range(PROCESSES)]
    answers: list[list[int]] = []
    try:
        for _ in addresses:
            for each in processes:
                assert each.stdout is not None
                assert each.stdout.readline() == "ready\n", each.communicate(timeout=120)[1]
            for each in processes:
                assert each.stdin is not None
                each.stdin.write("\n")
                each.stdin.flush()
            lines = [each.stdout.readline() for each in processes if each.stdout]
            for each, line in zip(processes, lines, strict=True):
                assert line, each.communicate(timeout=120)[1]
            answers.append([int(line) for line in lines])
        for each in processes:
            assert each.wait(120) == 0
    finally:
        for each in processes:
            each.kill()
            each.communicate()
    return answers


async def test_ten_processes_open_a_new_board_at_once_and_share_one_schema(url: str, folder: Path) -> None:
    rounds = range(ROUNDS[url.split(":", maxsplit=1)[0]])
    if url.startswith("sqlite"):
        addresses = [f"sqlite:///{folder}/{number}/board.db" for number in rounds]
    else:
        addresses = [f"{url}_{number}" for number in rounds]
    try:
        for address, ids in zip(addresses, await asyncio.to_thread(_open_together, addresses), strict=True):
            assert len(set(ids)) == PROCESSES
            async with await open_board(address) as board:
                assert await board.count_tasks() == {"ready": PROCESSES}
                assert await board.replayed_state() == await board.observed_state()
    finally:
        if not url.startswith("sqlite"):
            connection = await asyncpg.connect(url.split("?", maxsplit=1)[0])
            for address in addresses:
                await connection.execute(f'DROP SCHEMA IF EXISTS "{address.split("=")[1]}" CASCADE')
            await connection.close()


# Servers that cannot be used.


async def test_a_database_that_does_not_store_utf8_is_refused_with_the_way_to_make_one(postgres: str) -> None:
    connection = await asyncpg.connect(postgres)
    name = "opening_ascii"
    await connection.execute(f"DROP DATABASE IF EXISTS {name}")
    await connection.execute(
        f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    try:
        address = postgres.rsplit("/", 1)[0] + f"/{name}"
        with pytest.raises(BoardUnreachable, match="UTF8"):
            await open_board(address)
        there = await asyncpg.connect(address)
        assert not await there.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = 'dugnad'")
        await there.close()
    finally:
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await connection.close()


def _unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("wrong", ["port", "database", "user"])
async def test_a_wrong_address_is_said_at_once_with_what_to_check(postgres: str, wrong: str) -> None:
    address = {
        "port": f"postgresql://postgres@127.0.0.1:{_unused_port()}/postgres",
        "database": postgres.rsplit("/", 1)[0] + "/nowhere",
        "user": postgres.replace("postgres@", "nobody_known@"),
    }[wrong]
    async with asyncio.timeout(120):  # Far less than the patience with a server that went away later.
        with pytest.raises(BoardUnreachable, match=r"127\.0\.0\.1"):
            await open_board(address, patience=Patience(reconnect_seconds=3_600))


async def test_a_user_who_may_not_make_a_board_is_told_so(postgres: str) -> None:
    connection = await asyncpg.connect(postgres)
    try:
        await connection.execute("CREATE ROLE weak LOGIN")
        with pytest.raises((BoardReadOnly, BoardUnreachable)):
            await open_board(postgres.replace("postgres@", "weak@") + "?board=of_the_weak")
    finally:
        await connection.execute("DROP SCHEMA IF EXISTS of_the_weak CASCADE")
        await connection.execute("DROP ROLE IF EXISTS weak")
        await connection.close()


# Settings.


async def test_postgres_settings_are_in_force_on_the_writing_connection(schema: tuple[str, str]) -> None:
    url, name = schema
    async with await open_board(url, patience=Patience(statement_seconds=7, network_seconds=9)) as board:
        await board.put("so that there is a writer")
        writer = board._store._writers[0].connection  # type: ignore[attr-defined]
        expected = {
            "synchronous_commit": "on",
            "statement_timeout": "7s",
            "idle_in_transaction_session_timeout": "7s",
            "search_path": name,
            "client_encoding": "UTF8",
            "transaction_isolation": "read committed",
            "tcp_user_timeout": "9000",
        }
        found = {setting: await writer.fetchval(f"SHOW {setting}") for setting in expected}
        assert found == expected
        wire = writer._transport.get_extra_info("socket")
        assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 9_000
        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


async def test_sqlite_settings_are_in_force_on_the_writing_connection(folder: Path) -> None:
    async with await open_board(f"sqlite:///{folder}/board.db") as board:
        await board.put("one")
        writer: sqlite3.Connection = board._store.writer  # type: ignore[attr-defined]
        found = [writer.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
        assert found == ["wal", 2]


async def test_readers_of_a_sqlite_board_cannot_write(folder: Path) -> None:
    async with await open_board(f"sqlite:///{folder}/board.db") as board:
        reader: sqlite3.Connection = board._store._reader  # type: ignore[attr-defined]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.execute("DELETE FROM tasks")


async def test_a_closed_board_finishes_what_was_asked_and_refuses_what_comes_after(url: str) -> None:
    """What is asked after `close` is an error with a name: not a hang, and not a write behind the owner's back."""
    board = await open_board(url)
    asked = asyncio.ensure_future(board.put("before the end"))
    await asyncio.sleep(0)
    await board.close()
    assert (await asked).title == "before the end"
    with pytest.raises(DugnadError):
        async with asyncio.timeout(120):
            await board.put("after the end")
    async with await open_board(url) as again:
        assert [task.title for task in await again.list_tasks()] == ["before the end"]
