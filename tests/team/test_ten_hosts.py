"""Ten hosts on one PostgreSQL board, as docs/operating.md describes them: connections, health, and the work itself."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest

from tests.board.raw import count
from tests.team.test_two_versions import ROOT, SECONDS, Version

HOSTS, TASKS, CONNECTIONS_EACH = 10, 40, 6
OPEN = "SELECT count(*) AS n FROM tasks WHERE state <> 'done'"
USED = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


@pytest.mark.proof
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_ten_hosts_share_the_work_within_the_documented_connections(
    url: str, folder: Path, postgres: str
) -> None:  # fmt: skip
    here = Version(ROOT / "src", folder, url)
    assert (await here.run("spawn", "lead", "--lead"))[0] == 0  # Makes the board.
    connection = await asyncpg.connect(postgres)
    before = await connection.fetchval(USED)
    most = 0
    async with AsyncExitStack() as hosts:
        for _ in range(HOSTS):
            await hosts.enter_async_context(here.host("coder", follow_ups_for="coder"))
        backlog = folder / "tasks.txt"
        backlog.write_text("".join(f"task {each}\n" for each in range(TASKS)))
        assert (await here.run("add", "--file", str(backlog), "--role", "coder"))[0] == 0
        async with asyncio.timeout(SECONDS * 2):
            while await count(url, OPEN):
                most = max(most, await connection.fetchval(USED) - before)
                await asyncio.sleep(0.05)
        code, out, _ = await here.run("status", "--json")
        assert (code, json.loads(out)["status"]["hosts"]["alive"]) == (0, HOSTS)
        assert json.loads(out)["status"]["tasks"]["ended"] >= 2 * TASKS
    assert most <= HOSTS * CONNECTIONS_EACH + CONNECTIONS_EACH + 1
    print(f"{most} connections")
    await connection.close()
