"""`dugnad doctor` in a project that nobody has accepted looks, and does nothing else."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from dugnad.board import open_board
from dugnad.board.store.migrations import latest
from dugnad.cli.accepted import Accepted
from dugnad.cli.checks import Finding, Scene
from dugnad.cli.doctor import examine
from dugnad.cli.unaccepted import flat, where_of
from dugnad.config.project import read_project
from tests.cli.stranger import Stranger, git
from tests.cli.test_doctor import found
from tests.models.provider_server import Answer, ProviderServer

CHECK = 'check = "echo ran; true"\n'


@pytest.fixture
def it(folder: Path) -> Stranger:
    return Stranger(folder)


def accept(it: Stranger) -> None:
    settings = flat(read_project(it.clone, environment={}).given)
    Accepted({"XDG_STATE_HOME": str(it.home)}).add_settings(it.clone.resolve(), settings)


async def checked(it: Stranger, url: str | None = None) -> dict[str, Finding]:
    given = {name: str(it.home) for name in ("HOME", "XDG_STATE_HOME")}
    environment = {**given, "DUGNAD_MODEL": "scripted", "PATH": os.environ["PATH"]}
    findings = await examine(Scene(start=it.clone, environment=environment, board_given=url, runs_check=True))
    return {each.name: each for each in findings}


def publish(it: Stranger, settings: str) -> None:
    it.publish(lambda project, _: (project / "dugnad.toml").write_text(settings) and None)


async def test_the_check_is_not_run_and_nothing_is_made_before_the_project_is_accepted(it: Stranger) -> None:
    publish(it, CHECK)
    said = (await checked(it))["check"]
    assert (said.level, said.mend) == ("warning", "dugnad trust")
    assert not (it.clone / ".dugnad").exists()
    assert "dugnad" not in git(it.clone, "branch", "--all")
    accept(it)
    assert "succeeds on" in (await checked(it))["check"].says


async def test_the_check_is_not_run_with_a_board_that_nobody_looked_into(it: Stranger) -> None:
    """One of an old version is not opened, so nobody knows whose it is; and it is not brought up to date by this."""
    publish(it, CHECK)
    accept(it)
    board = it.clone / ".dugnad" / "board.db"
    board.parent.mkdir()
    await (await open_board(f"sqlite:///{board}")).close()
    with closing(sqlite3.connect(board)) as connection:
        connection.execute(f"PRAGMA user_version = {latest() - 1}")
    before = board.read_bytes()
    assert (await checked(it))["check"].level == "warning"
    assert board.read_bytes() == before


async def test_the_check_is_not_run_with_a_board_that_git_tracks(it: Stranger) -> None:
    publish(it, CHECK)
    accept(it)
    (it.clone / ".dugnad").mkdir()
    async with await open_board(url := f"sqlite:///{it.clone}/.dugnad/board.db") as board:
        Accepted({"XDG_STATE_HOME": str(it.home)}).add_board(where_of(url), await board.identity())
    git(it.clone, "add", "--force", ".dugnad/board.db")
    assert "Git tracks" in (await checked(it))["check"].says


async def test_the_model_is_not_asked_where_nobody_knows_whether_the_project_is_accepted(folder: Path) -> None:
    async with ProviderServer([Answer(text="Yes.")]) as server:
        local = {"DUGNAD_MODEL": "openai:llama-here", "DUGNAD_BASE_URL": f"{server.url}/v1"}
        (folder / "dugnad.toml").write_text("[team\n")
        findings = await found(folder, **local, online=True)
        assert findings["project"].level == "wrong"
        assert (findings["online"].level, findings["online"].mend) == ("warning", "dugnad trust")
        assert not server.seen


async def schemas(server: str) -> set[str]:
    connection = await asyncpg.connect(server)
    try:
        return {f"{row[0]}.{row[1]}" for row in await connection.fetch("SELECT schemaname, tablename FROM pg_tables")}
    finally:
        await connection.close()


@pytest.mark.parametrize("name", ["public", "none_made_this", ""])
async def test_no_board_is_made_on_a_server(it: Stranger, postgres: str, name: str) -> None:
    option = f"?board={name}" if name else ""
    address = f"{postgres}{option}"
    before = await schemas(postgres)
    publish(it, f"board = {json.dumps(address)}\n")
    findings = await checked(it, address)
    assert findings["board"].level == "ok"
    assert "There is no board" in findings["board"].says
    assert await schemas(postgres) == before
