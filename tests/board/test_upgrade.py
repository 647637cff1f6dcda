"""A board that an older dugnad made is brought up to date when it is opened, and goes on with what it holds."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dugnad.board import open_board
from dugnad.board.store import migrations
from dugnad.board.store.migrations import latest
from dugnad.errors import CoolingDown
from dugnad.types import Amount, Claim, Pace
from tests.board.crew import crew
from tests.board.raw import connect, count, grow_old, run
from tests.conftest import Opener

TABLES = ("tasks", "attempts", "budgets", "reservations", "hosts", "teammates", "events", "snapshot")
NEW = {  # Columns that came after the first schema.
    "reservations": ("pace", "reserved_at", "tokens_used"),
    "tasks": (
        "asked_in",
        "plan",
        "review",
        "network",
        "not_for",
        "kind",
        "reviews",
        "reviews_commit",
        "merged_into",
        "merged_as",
        "files_in",
        "triggers",
    ),
    "teammates": ("plan", "named", "keep_context"),
    "attempts": ("context", "follows", "merges_into", "merge_place"),
}


async def worked_on(url: str) -> Claim:
    """A board with a claim that has one reservation settled, in a log that was pruned since, and one still open."""
    async with await open_board(url) as board:
        await board.put("task")
        await board.spawn("alice", by="board")  # Earlier versions did not write down who was named.
        claim = await (await crew(board)).must_claim()
        await board.spend(claim, await board.reserve(claim, Amount(tokens=9), key="settled"), Amount(tokens=4))
        await grow_old(url, 3_600)
        assert (await board.prune(1_800)).events
        await board.reserve(claim, Amount(tokens=7), key="open")
        return claim


async def make_first_schema(url: str) -> None:
    if url.startswith("sqlite"):
        file = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        for statement in migrations.missing(0, "sqlite")[0][1]:
            file.execute(statement)
        file.execute("PRAGMA user_version = 1")
        file.close()
        return
    connection = await connect(url)
    name = url.partition("?board=")[2]
    await connection.execute(f"CREATE SCHEMA {name}; CREATE TABLE migrations (version integer, applied_at timestamptz)")
    for statement in migrations.missing(0, "postgres")[0][1]:
        await connection.execute(statement)
    await connection.execute("INSERT INTO migrations VALUES (1)")
    await connection.close()


async def copy_rows(source: str, url: str) -> None:
    for table in TABLES:
        for row in await run(source, f"SELECT * FROM {table}"):  # noqa: S608
            known = {name: value for name, value in row.items() if name not in NEW.get(table, ()) and value is not None}
            places = ", ".join(f"${place}" for place in range(1, len(known) + 1))
            insert = f"INSERT INTO {table} ({', '.join(known)}) VALUES ({places})"  # noqa: S608
            if row.get("name") != "human":  # He is there from the start.
                await run(url, insert, *known.values())
    pruned = (await run(source, "SELECT snapshot_seq FROM head"))[0]["snapshot_seq"]
    await run(url, "UPDATE head SET seq = (SELECT max(seq) FROM events), snapshot_seq = $1", pruned)


async def version(url: str) -> Any:
    if url.startswith("sqlite"):
        return (await run(url, "PRAGMA user_version"))[0]["user_version"]
    return await count(url, "SELECT max(version) AS n FROM migrations")


async def test_a_board_of_the_first_schema_is_upgraded_and_goes_on(url: str, opener: Opener, folder: Path) -> None:
    source = f"sqlite:///{folder}/source.db"
    claim = await worked_on(source)
    await make_first_schema(url)
    await copy_rows(source, url)
    assert await version(url) == 1
    board = await opener()
    assert await version(url) == latest()
    async with await open_board(source) as other:
        assert await board.observed_state() == await board.replayed_state() == await other.observed_state()
    assert await board.reserve(claim, Amount(tokens=9), key="settled") == "settled"
    await board.spend(claim, "open", Amount(tokens=7))
    pace = Pace(key="anthropic:3f9a1c02", requests_per_minute=1)
    await board.reserve(claim, Amount(tokens=1), pace=pace)
    with pytest.raises(CoolingDown):
        await board.reserve(claim, Amount(tokens=1), pace=pace)
    await board.cool_down(pace.key, reason="429", by="alice")
    assert [each.key for each in await board.cooldowns()] == [pace.key]
    await board.release(claim.task.id)
    await board.put("review", review="reviewer", not_for="alice", priority=1)
    assert await board.ready_work() == {"": 1, "!alice": 1}
    again = await board.claim("alice", claim.host)
    assert again is not None
    assert (again.task.id, again.task.review, again.task.not_for) == (claim.task.id, None, None)


KEYS = {  # Of tasks whose kind an earlier version told by their key, and what it is: kind, reviews, reviews_commit.
    "account:1": ("budget", None, None),
    "errand:human:alice:1": ("human_message", None, None),
    "errand:team:alice:2": ("message", None, None),
    "review:1:0123abc": ("review", 1, "0123abc"),
    "review:12:0123abc.4.1": ("review", 12, "0123abc"),
    "review:1:": ("review", 1, None),
    "review:1": ("goal", None, None),
    "review:x:1": ("goal", None, None),
    "review:1x:1": ("goal", None, None),
    "review:1234567890123456789:1": ("goal", None, None),
    "Errand:human:alice:1": ("goal", None, None),
    "mine": ("goal", None, None),
}


async def test_tasks_of_an_earlier_schema_get_their_kind_from_their_key(url: str, opener: Opener, folder: Path) -> None:
    """By the migration, in the log, and in the snapshot of a log that was pruned."""
    source = f"sqlite:///{folder}/source.db"
    async with await open_board(source) as made:
        for number, key in enumerate(KEYS):
            await made.put("task", key=key)
            if number == len(KEYS) // 2:
                await grow_old(source, 3_600)
                assert (await made.prune(1_800)).events
        await made.put("child", parent=1, key="child")
    await run(source, """UPDATE events SET data = json_patch(data, '{"kind": null}')""")
    await run(source, """UPDATE snapshot SET state = json_patch(state, '{"kind": null}') WHERE entity = 'task'""")
    await make_first_schema(url)
    await copy_rows(source, url)
    board = await opener()
    found = {task.key: (task.kind, task.reviews, task.reviews_commit or None) for task in await board.list_tasks()}
    assert found == {**KEYS, "child": ("work", None, None)}
    assert await board.observed_state() == await board.replayed_state()
