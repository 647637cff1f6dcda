"""An upgrade without stopping all hosts: an old and a new version of dugnad work on one board, side by side.

A migration may add tables, indexes, and columns that have a default or may be empty. Then what an older version reads
and writes stays right. A migration that does more fails these tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from dugnad.board import open_board
from dugnad.board.store.migrations import latest
from tests.board.raw import count
from tests.board.test_upgrade import version

ROOT = Path(__file__).parents[2]
MIGRATIONS = "src/dugnad/board/store/migrations"
SECONDS = 120.0
SCRIPT = """
"*":
  - calls:
      - note: {title: Begun, text: for all}
      - add_task: {title: "After it", role: "%s"}
  - say: It is done.
After it:
  - say: That, too.
"""
# What a migration may do, in one file.
NEXT = """
ALTER TABLE tasks ADD COLUMN later text;
ALTER TABLE tasks ADD COLUMN later_count integer NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN later text;
ALTER TABLE teammates ADD COLUMN later integer NOT NULL DEFAULT 1;
ALTER TABLE hosts ADD COLUMN later text;
ALTER TABLE messages ADD COLUMN later text;
ALTER TABLE turns ADD COLUMN later text;
ALTER TABLE budgets ADD COLUMN later bigint;
ALTER TABLE reservations ADD COLUMN later bigint;
ALTER TABLE events ADD COLUMN later text;
ALTER TABLE notes ADD COLUMN later text;
ALTER TABLE cooldowns ADD COLUMN later text;
CREATE TABLE later (id IDENTITY, what text NOT NULL);
CREATE INDEX tasks_later ON tasks (later) WHERE later IS NOT NULL;
DROP INDEX tasks_children;
CREATE INDEX tasks_children ON tasks (parent_id, id, role) WHERE parent_id IS NOT NULL;
"""


@dataclass(frozen=True)
class Version:
    """A dugnad of its own, by its source."""

    source: Path
    folder: Path
    url: str

    def _words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "dugnad", "--board", self.url, *words]

    @property
    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "XDG_STATE_HOME") if name in os.environ}
        return {**kept, "HOME": str(self.folder), "PYTHONPATH": str(self.source)}

    async def run(self, *words: str) -> tuple[int, str, str]:
        def once() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                self._words(*words), cwd=self.folder, env=self._environment, capture_output=True, text=True,
                timeout=SECONDS, check=False,
            )  # fmt: skip

        ran = await asyncio.to_thread(once)
        return ran.returncode, ran.stdout, ran.stderr

    async def put(self, title: str, *words: str) -> int:
        code, out, err = await self.run("add", title, *words, "--json")
        assert code == 0, err
        return int(json.loads(out)["task"]["id"])

    @asynccontextmanager
    async def host(self, role: str, *, follow_ups_for: str) -> AsyncIterator[Process]:
        """A host of this version, whose teammates ask the other version's to go on. It ends in order with the block."""
        (self.folder / f"{role}.yaml").write_text(SCRIPT % follow_ups_for)
        words = self._words("work", "--agents", "2", "--roles", role, "--forever", "--model", f"scripted:{role}.yaml")
        output = self.folder / f"{role}.out"
        with output.open("wb") as file:
            program = await asyncio.create_subprocess_exec(
                *words, cwd=self.folder, env=self._environment, stdout=file, stderr=file
            )
        try:
            yield program
            assert program.returncode is None, output.read_text()
            program.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(program.wait(), SECONDS) == 130, output.read_text()
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()


async def until_done(url: str, role: str, number: int, host: Process) -> None:
    """Wait until so many tasks of a role are done, behind the board's back: opening it here would upgrade it."""
    done = f"SELECT count(*) AS n FROM tasks WHERE state = 'done' AND role = '{role}'"  # noqa: S608
    async with asyncio.timeout(SECONDS):
        while await count(url, done) < number:
            assert host.returncode is None, "The host ended."
            await asyncio.sleep(0.1)


async def side_by_side(url: str, folder: Path, old_source: Path, new_source: Path, newest: int) -> None:
    old, new = Version(old_source, folder, url), Version(new_source, folder, url)
    one = await old.put("before", "--role", "old")
    assert await version(url) < newest
    async with old.host("old", follow_ups_for="old") as first:
        await until_done(url, "old", 2, first)  # It has used the statements that it will use again.
        assert (await new.run("tasks"))[0] == 0  # The first command of the new version upgrades the board.
        assert await version(url) == newest
        async with new.host("new", follow_ups_for="old") as second:
            # Each waits for work of the other, and gives the other work.
            two = await new.put("new", "--role", "new", "--needs", str(one))
            three = await new.put("old again", "--role", "old", "--needs", str(two))
            await new.put("new again", "--role", "new", "--needs", str(three))
            await until_done(url, "new", 2, second)
            await until_done(url, "old", 6, first)  # "before", "old again", and four that were asked for.
        code, _, said = await old.run("tasks")
        assert (code, said.count("\n")) == (1, 1)
        assert f"The board has schema {newest}, and this dugnad knows up to" in said
        assert "Upgrade dugnad on this machine; nothing was changed." in said
    assert await count(url, "SELECT count(*) AS n FROM tasks WHERE state <> 'done'") == 0
    assert await count(url, "SELECT count(*) AS n FROM attempts WHERE ended_as <> 'done'") == 0


async def replays(url: str) -> None:
    async with await open_board(url) as board:
        assert await board.replayed_state() == await board.observed_state()


def earlier_source(folder: Path) -> Path:
    """The source of this repository before its newest migration."""
    newest = max((ROOT / MIGRATIONS).glob("0*.sql"))

    def git(*words: str) -> bytes:
        ran = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
        assert ran.returncode == 0, "This test needs the repository with its history: clone it whole."
        return ran.stdout

    added = git("log", "--format=%H", "--diff-filter=A", "--", str(newest.relative_to(ROOT))).decode().split()
    before = f"{added[-1]}^" if added else "HEAD"
    with tarfile.open(fileobj=BytesIO(git("archive", before, "src"))) as archive:
        archive.extractall(folder / "earlier", filter="data")
    return folder / "earlier" / "src"


def later_source(folder: Path) -> Path:
    """This source with one more migration, which does all that a migration may do."""
    source = folder / "later" / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "later" / MIGRATIONS / f"{latest() + 1:04d}_later.sql").write_text(NEXT)
    return source


async def test_this_version_works_beside_a_later_one_that_has_upgraded_the_board(url: str, folder: Path) -> None:
    await side_by_side(url, folder, ROOT / "src", later_source(folder), latest() + 1)


async def test_this_version_works_beside_the_one_before_its_newest_migration(url: str, folder: Path) -> None:
    await side_by_side(url, folder, earlier_source(folder), ROOT / "src", latest())
    await replays(url)
