"""A board that somebody planted or that is damaged: one sentence from every command, before anything of it is worked
out, and never a traceback."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from dugnad.board import open_board
from dugnad.board.store import migrations
from dugnad.board.store.queries import load_setup
from dugnad.cli import main
from dugnad.errors import BoardUnreachable, DugnadError

COMMANDS = (
    ("tasks",), ("show", "1"), ("log",), ("log", "--after", "0"), ("team",), ("inbox",), ("notes",), ("budget",),
    ("trust",), ("add", "x"), ("doctor",),
)  # fmt: skip
BIG = "length(hex(zeroblob(900000000)))"
SCHEMAS = {
    "a generated column": [f"ALTER TABLE tasks ADD COLUMN boom AS ({BIG}) VIRTUAL"],
    "a check": ["ALTER TABLE tasks RENAME TO t", f"CREATE TABLE tasks (id INTEGER PRIMARY KEY, CHECK ({BIG} > 0))"],
    "an index over an expression": [f"CREATE INDEX boom ON notes (length(title) + {BIG.replace('9', '1')})"],
    "a partial index": ["CREATE INDEX boom ON notes (title) WHERE title LIKE 'a'"],
    "a virtual table": ["CREATE VIRTUAL TABLE zz USING fts5(a)"],
    "another table": ["CREATE TABLE other (a)"],
    "a column too few": ["ALTER TABLE tasks DROP COLUMN triggers"],
    "a column too many": ["ALTER TABLE tasks ADD COLUMN more text"],
    "an index too few": ["DROP INDEX tasks_key"],
    "an earlier version": ["PRAGMA user_version = 3"],
    "a version below zero": ["PRAGMA user_version = -5"],
}
CONTENTS = {
    "text that is not UTF-8": "UPDATE tasks SET title = CAST(x'ff80' AS text)",
    "bytes for text": "UPDATE tasks SET title = x'ff80', body = x'ff'",
    "an unknown state": "UPDATE tasks SET state = 'weird', priority = 'abc', put_at = 'x'",
    "a huge number": "UPDATE tasks SET id = 9223372036854775807, root_id = 9223372036854775807",
    "no identity": "DELETE FROM identity",
    "events that are no JSON": "UPDATE events SET data = '{'",
    "events of another shape": "UPDATE events SET data = '[]', kind = 'nonsense', at = 'x'",
    "roles that are no JSON": "UPDATE teammates SET roles = '{'",
    "roles of another shape": "UPDATE teammates SET roles = '17', spawned_at = 'x'",
    "times far away": "UPDATE tasks SET put_at = 9223372036854775807, ended_at = -9223372036854775807",
    "odd budgets": "UPDATE budgets SET tokens_max = 'many'",
}


def plant(path: Path, *statements: str) -> None:
    async def make() -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        async with await open_board(f"sqlite:///{path}") as board:
            await board.put("One")
            await board.spawn("alice", roles=["coder"])
            await board.tell("alice", "human", "Hello.")

    asyncio.run(make())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.create_function("now_ms", 0, lambda: 1)
        for statement in statements:
            connection.execute(statement)


def said_by(words: tuple[str, ...]) -> str:
    ran = CliRunner().invoke(main, [*words])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise AssertionError(f"{words}: {ran.exception!r}") from ran.exception
    return ran.output


@pytest.mark.parametrize("statements", SCHEMAS.values(), ids=SCHEMAS)
async def test_a_file_with_anything_but_our_tables_is_refused_in_one_sentence(
    folder: Path, statements: list[str]
) -> None:
    path = folder / "board.db"
    await asyncio.to_thread(plant, path, *statements)
    with pytest.raises(
        BoardUnreachable, match=r"^The board at .* is damaged: .*; restore a back-up or make a new board\.$"
    ):
        await open_board(f"sqlite:///{path}")


@pytest.mark.parametrize("statement", CONTENTS.values(), ids=CONTENTS)
def test_odd_contents_of_a_board_that_is_not_accepted_give_no_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    plant(folder / ".dugnad" / "board.db", statement)
    monkeypatch.chdir(folder)
    for words in COMMANDS:
        said_by(words)


def test_a_bug_on_the_users_own_board_is_not_hidden(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    said_by(("add", "One"))
    with closing(sqlite3.connect(".dugnad/board.db", isolation_level=None)) as connection:
        connection.execute("UPDATE events SET at = 'x'")
    assert isinstance(CliRunner().invoke(main, ["log"]).exception, ValueError | TypeError)


async def test_one_value_cannot_take_all_memory(folder: Path) -> None:
    async with await open_board(f"sqlite:///{folder}/board.db") as board:
        store = board._store  # type: ignore[attr-defined]
        with pytest.raises(sqlite3.DataError):
            store.writer.execute("SELECT hex(zeroblob(60000000))")


@pytest.mark.parametrize("version", range(1, migrations.latest() + 1))
async def test_a_board_of_every_earlier_version_still_opens(folder: Path, version: int) -> None:
    """Also one whose tables were written down with comments and other spaces, as an earlier loader may have."""
    path = folder / "board.db"
    texts = sorted(migrations._numbered().items())[:version]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for _, text in texts:
            for statement in migrations._statements(text, "sqlite"):
                connection.execute(
                    statement.replace(",\n", ", -- it's so\n", 1).replace("TABLE ", "TABLE  /* x */ ", 1)
                )
        connection.execute(load_setup("sqlite")["set_version"].replace("VERSION", str(version)))
    async with await open_board(f"sqlite:///{path}") as board:
        assert await board.identity()


def test_the_troubles_have_names() -> None:
    assert issubclass(BoardUnreachable, DugnadError)
