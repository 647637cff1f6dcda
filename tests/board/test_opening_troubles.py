"""A board whose disk, file or neighbour makes trouble: each trouble has its name, and nothing was changed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dugnad.board import Board, open_board
from dugnad.errors import BoardBusy, BoardFull, BoardUnreachable
from dugnad.settings import Patience
from dugnad.types import Done, NewTurn
from tests.board.crew import crew

NOBODY = 65534

# Opens a board, puts a task, and says how it went. As root, permissions do not bind: so it becomes somebody else, after
# another board has loaded whatever a board needs.
TRY_AS_ANYONE = """
import asyncio, json, os, sys, tempfile
from dugnad.board import open_board
from dugnad.settings import Patience

async def main():
    with tempfile.TemporaryDirectory() as warm:
        async with await open_board(f"sqlite:///{warm}/board.db") as board:
            await board.put("warm")
            await board.count_tasks()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(int(sys.argv[2]))
        os.setuid(int(sys.argv[2]))
    try:
        async with await open_board(sys.argv[1], patience=Patience(busy_seconds=1)) as board:
            await board.put("written")
        print(json.dumps(["", "written"]))
    except BaseException as trouble:
        print(json.dumps([type(trouble).__name__, str(trouble)]))

asyncio.run(main())
"""

# Holds the write lock of a SQLite file until its input ends.
HOLD_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[2])
print("held", flush=True)
sys.stdin.readline()
"""


async def everything(board: Board) -> tuple[Any, int]:
    return await board.observed_state(), await board.last_event()


# Files.


@pytest.mark.parametrize("content", [b"this is not a database, only a text about one" * 30, b"SQLite format 3\0" * 90])
async def test_a_file_that_is_not_a_database_is_refused_and_unchanged(folder: Path, content: bytes) -> None:
    path = folder / "board.db"
    path.write_bytes(content)
    with pytest.raises(BoardUnreachable, match=r"board\.db"):
        await open_board(f"sqlite:///{path}")
    assert path.read_bytes() == content


async def test_another_programs_database_is_refused_and_unchanged(folder: Path) -> None:
    path = folder / "recipes.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE tasks (name text)")
    connection.commit()
    connection.close()
    with pytest.raises(BoardUnreachable, match="not a board"):
        await open_board(f"sqlite:///{path}")
    connection = sqlite3.connect(path)
    assert [row[0] for row in connection.execute("SELECT name FROM sqlite_master")] == ["tasks"]
    connection.close()


async def test_a_folder_in_place_of_the_file_is_refused(folder: Path) -> None:
    (folder / "board.db").mkdir()
    with pytest.raises(BoardUnreachable, match=r"board\.db"):
        await open_board(f"sqlite:///{folder}/board.db")


async def test_a_file_in_place_of_the_folder_is_refused(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(BoardUnreachable, match="file"):
        await open_board(f"sqlite:///{folder}/file/board.db")


def _try_as_anyone(path: Path, folder: Path) -> list[str]:
    folder.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", TRY_AS_ANYONE, f"sqlite:///{path}", str(NOBODY)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: list[str] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("protected", ["file", "folder", "file and folder", "missing folder"])
async def test_what_may_not_be_written_is_named_with_what_to_check(folder: Path, protected: str) -> None:
    place = folder / "place"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    path = place / "board.db"
    await (await open_board(f"sqlite:///{path}")).close()
    path.chmod(0o444 if "file" in protected else 0o666)
    if "folder" in protected:
        place.chmod(0o555)
    before = path.read_bytes()
    target = place / "new" / "board.db" if protected == "missing folder" else path
    name, message = await asyncio.to_thread(_try_as_anyone, target, folder)
    assert name in ("BoardReadOnly", "BoardUnreachable")
    assert str(target) in message
    assert "permission" in message.lower() or "can be written" in message
    assert path.read_bytes() == before


async def test_the_same_try_succeeds_where_writing_is_allowed(folder: Path) -> None:
    """The control: without protection the program above writes."""
    place = folder / "place"
    place.mkdir()
    place.chmod(0o777)
    assert await asyncio.to_thread(_try_as_anyone, place / "board.db", folder) == ["", "written"]


# A full disk.


@contextlib.contextmanager
def _tmpfs(folder: Path) -> Iterator[bool]:
    """A small disk of its own under `folder`; False where this user may not mount one."""
    mounted = (
        os.geteuid() == 0
        and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=False, capture_output=True
        ).returncode
        == 0
    )
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", folder], check=True)


Fill = tuple[Callable[[Board], None], Callable[[Board], None]]  # Use up the space; give some back.


def _ballast(path: Path) -> Fill:
    def fill(_: Board) -> None:
        with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    return fill, lambda _: path.unlink()


def _page_limit() -> Fill:
    def limit(board: Board, pages: int) -> None:
        board._store.writer.execute(f"PRAGMA max_page_count = {pages}")  # type: ignore[attr-defined]

    return lambda board: limit(board, 1), lambda board: limit(board, 1_000_000)


@pytest.fixture(params=["page limit", "tmpfs"])
def small_disk(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[Path, Fill]]:
    """A place for a board, and how to fill it. Who may not mount meets the same error by SQLite's own limit."""
    if request.param == "page limit":
        yield folder / "board.db", _page_limit()
        return
    disk = folder / "disk"
    disk.mkdir()
    with _tmpfs(disk) as mounted:
        yield disk / "board.db", _ballast(disk / "ballast") if mounted else _page_limit()


async def test_on_a_full_disk_a_put_changes_nothing_and_the_same_board_works_again_afterwards(
    small_disk: tuple[Path, Fill],
) -> None:
    path, (fill, free) = small_disk
    async with await open_board(f"sqlite:///{path}") as board:
        await board.put("while there was room")
        fill(board)
        before = await everything(board)
        for number in range(3):
            with pytest.raises(BoardFull, match="full"):
                await board.put(f"too much {number}", body="x" * 200_000)
        assert await everything(board) == before
        free(board)
        assert (await board.put("room again", body="x" * 200_000)).state == "ready"
        assert await board.count_tasks() == {"ready": 2}
        assert await board.replayed_state() == await board.observed_state()


async def test_on_a_full_disk_everyone_who_asked_together_is_told(small_disk: tuple[Path, Fill]) -> None:
    path, (fill, free) = small_disk
    async with await open_board(f"sqlite:///{path}") as board:
        team = await crew(board)
        await board.put("held")
        claim = await team.must_claim()
        fill(board)
        before = await everything(board)
        large = "x" * 200_000
        answers = await asyncio.gather(
            *(board.put(f"too much {number}", body=large) for number in range(5)),
            board.record(claim, NewTurn(number=1, kind="reply", body=json.dumps(large))),
            board.settle(claim, Done(large)),
            return_exceptions=True,
        )
        assert {type(answer) for answer in answers} == {BoardFull}
        assert await everything(board) == before
        free(board)
        assert await board.settle(claim, Done(large)) == "done"
        assert await board.replayed_state() == await board.observed_state()


async def test_a_board_that_was_full_can_be_closed_and_opened_again(small_disk: tuple[Path, Fill]) -> None:
    path, (fill, free) = small_disk
    board = await open_board(f"sqlite:///{path}")
    task = await board.put("while there was room")
    fill(board)
    with pytest.raises(BoardFull):
        await board.put("too much", body="x" * 200_000)
    await board.close()
    with contextlib.suppress(sqlite3.ProgrammingError):  # The limit of pages went with its connection.
        free(board)
    async with await open_board(f"sqlite:///{path}") as again:
        assert await again.find(task.id) == task
        await again.put("room again")
        assert await again.replayed_state() == await again.observed_state()


# A neighbour that holds the file.


@contextlib.contextmanager
def _held_by_another(path: Path, statement: str) -> Iterator[None]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, path, statement], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
    finally:
        holder.kill()
        holder.communicate()


async def test_while_another_process_holds_the_write_lock_a_put_is_busy_and_changes_nothing(folder: Path) -> None:
    path = folder / "board.db"
    async with await open_board(f"sqlite:///{path}", patience=Patience(busy_seconds=0.3)) as board:
        await board.put("first")
        before = await everything(board)
        with _held_by_another(path, "BEGIN IMMEDIATE"):
            async with asyncio.timeout(120):
                with pytest.raises(BoardBusy, match="nothing was changed"):
                    await board.put("second")
            assert await everything(board) == before  # Readers are not kept out.
        assert (await board.put("third")).id == 2


async def test_a_board_can_be_opened_and_read_while_another_process_writes(folder: Path) -> None:
    path = folder / "board.db"
    async with await open_board(f"sqlite:///{path}") as board:
        await board.put("first")
    with _held_by_another(path, "BEGIN IMMEDIATE"):
        async with await open_board(f"sqlite:///{path}", patience=Patience(busy_seconds=0.3)) as board:
            assert await board.count_tasks() == {"ready": 1}


async def test_a_file_that_another_process_keeps_for_itself_is_busy_at_opening(folder: Path) -> None:
    path = folder / "board.db"
    with _held_by_another(path, "BEGIN EXCLUSIVE"):
        async with asyncio.timeout(120):
            with pytest.raises(BoardBusy):
                await open_board(f"sqlite:///{path}", patience=Patience(busy_seconds=0.3))


async def test_a_put_waits_for_a_neighbour_that_is_done_in_time(folder: Path) -> None:
    path = folder / "board.db"
    async with await open_board(f"sqlite:///{path}") as board:
        with _held_by_another(path, "BEGIN IMMEDIATE"):
            asked = asyncio.ensure_future(board.put("patient"))
            await asyncio.sleep(0.2)
            assert not asked.done()
        async with asyncio.timeout(120):
            assert (await asked).id == 1
