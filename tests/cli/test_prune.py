"""`dugnad prune`: what is old goes, what open work needs stays, and it says what it does before it does it."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pexpect
import pytest

from dugnad.board import Board, open_board
from dugnad.types import Done, NewTurn
from tests.board import raw
from tests.cli.shell import Shell, claimed, environment, run

DAY = 86_400


async def worked(board: Board, title: str, *, done: bool, turns: int = 3) -> int:
    """A task with a transcript, ended or still held."""
    task = await board.put(title)
    name = f"mate{task.id}"
    claim = await claimed(board, name, task=task.id)
    for number in range(1, turns + 1):
        await board.record(claim, NewTurn(number=number, kind="reply", body=json.dumps("word " * 500)))
    if done:
        await board.settle(claim, Done("a result"))
    return task.id


def grown(shell: Shell, url: str) -> tuple[int, int]:
    """A board on which all is forty days old: one task ended, one is held."""

    async def work(board: Board) -> tuple[int, int]:
        ended, held = await worked(board, "old", done=True), await worked(board, "held", done=False)
        question = await board.tell("mate1", "human", "May I?", kind="question")
        assert question.request is not None
        await board.reply(question.request, "human", "always")
        await board.write_note("human", "a note", "to be kept")
        await raw.grow_old(url, 40 * DAY)
        return ended, held

    return shell.on_board(work)


@pytest.fixture
def shell(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(folder)
    return Shell(url)


def state(shell: Shell) -> object:
    return shell.on_board(lambda board: board.observed_state())


def replays(shell: Shell) -> bool:
    async def look(board: Board) -> bool:
        return await board.replayed_state() == await board.observed_state()

    return shell.on_board(look)


def test_it_says_what_would_go_and_then_that_it_went(shell: Shell, url: str) -> None:
    ended, held = grown(shell, url)
    before = state(shell)
    would = shell.json("prune", "--dry-run")
    assert (would["dry_run"], would["turns"], would["bytes_after"]) == (True, 3, None)
    assert would["events"] > 10
    assert state(shell) == before
    assert "3 turns" in shell.says("prune", "--dry-run")
    gone = shell.json("prune", "--yes")
    assert {name: gone[name] for name in ("events", "turns", "answers", "hosts")} == {
        name: would[name] for name in ("events", "turns", "answers", "hosts")
    }
    assert shell.json("show", str(ended), "--transcript")["transcript"] == []
    assert shell.json("show", str(ended))["task"]["result"] == "a result"
    assert len(shell.json("show", str(held), "--transcript")["transcript"]) == 3
    assert shell.json("inbox", "mate1", "--all")["messages"] != []
    assert replays(shell)
    assert shell.says("prune", "--yes").startswith("Nothing is that old.")


def test_without_a_terminal_it_asks_to_be_told(shell: Shell, url: str) -> None:
    grown(shell, url)
    before = state(shell)
    assert "try --dry-run first, then --yes" in shell.fails(2, "prune")
    for age in ("soon", "-1", "nan", "1e400"):
        assert shell("prune", "--yes", "--older", age).exit_code == 2
    assert state(shell) == before


@pytest.mark.parametrize(("said", "code", "left"), [("n", 130, True), ("y", 0, False)])
def test_on_a_terminal_it_asks_first(folder: Path, said: str, code: int, left: bool) -> None:
    run("add", "one", folder=folder)
    asyncio.run(raw.grow_old(f"sqlite:///{folder}/.dugnad/board.db", 40 * DAY))
    seen = pexpect.spawn(
        sys.executable, ["-m", "dugnad", "prune"], cwd=str(folder), env=environment(HOME=str(folder)), timeout=120
    )
    seen.expect("Delete them\\?")
    seen.sendline(said)
    seen.expect(pexpect.EOF)
    seen.close()
    assert seen.exitstatus == code
    assert bool(run("log", "--after", "0", folder=folder).stdout) == left


def test_what_was_not_old_stays(shell: Shell, url: str) -> None:
    grown(shell, url)
    shell.on_board(lambda board: worked(board, "new", done=True))
    assert shell.json("prune", "--yes")["turns"] == 3
    assert shell.json("prune", "--dry-run", "--older", "0")["turns"] == 3


def test_an_answer_is_kept_for_as_long_as_a_call_may_be_repeated(shell: Shell, url: str) -> None:
    async def cancelled(board: Board) -> list[int]:
        return await board.cancel(1, key="mine")

    shell.says("add", "one")
    first = shell.on_board(cancelled)
    asyncio.run(raw.grow_old(url, DAY // 2))
    assert shell.json("prune", "--yes", "--older", "1h")["answers"] == 0
    assert shell.on_board(cancelled) == first, "the same call, answered and not done again"
    asyncio.run(raw.grow_old(url, DAY))
    assert shell.json("prune", "--yes", "--older", "1h")["answers"] >= 1


def test_a_large_log_is_folded_in_short_steps(shell: Shell, url: str) -> None:
    async def fill(board: Board) -> None:
        for _ in range(5):
            await asyncio.gather(*(board.put("filler") for _ in range(500)))
        await raw.grow_old(url, 40 * DAY)

    shell.on_board(fill)
    before = state(shell)
    assert shell.json("prune", "--yes")["events"] == 2_500
    steps = asyncio.run(raw.run(url, "SELECT count(*) AS n FROM calls WHERE verb = 'prune'"))[0]["n"]
    assert steps >= 3, "no transaction takes more than a thousand events"
    assert state(shell) == before
    assert replays(shell)


async def test_it_is_safe_beside_teammates_at_work(url: str, opener: Callable[..., Awaitable[Board]]) -> None:
    ours, theirs = await opener(), await opener()
    for number in range(30):
        await worked(ours, f"old {number}", done=True, turns=1)
    await raw.grow_old(url, 40 * DAY)

    async def prune() -> None:
        for _ in range(5):
            await ours.prune(30 * DAY)
            await ours.shrink()

    async def work() -> None:
        for number in range(20):
            await worked(theirs, f"new {number}", done=number % 2 == 0, turns=1)

    await asyncio.gather(prune(), work())
    assert await ours.replayed_state() == await ours.observed_state()
    assert (await ours.events())[0].seq > 100


async def test_what_a_host_folds_from_a_snapshot_of_an_older_release_still_replays(
    url: str, opener: Callable[..., Awaitable[Board]]
) -> None:
    """Folded once as a whole, then in parts: needs that were met, hosts that were forgotten, tasks opened again."""
    board = await opener()
    for _ in range(3):
        ended = await worked(board, "first", done=True)
        behind = await board.put("behind", needs=[ended])
        broken = await board.put("broken")
        waiting = await board.put("waits for broken", needs=[broken.id])
        await board.cancel(broken.id)
        await board.retry(broken.id)
        await board.stop_host(await board.start_host("short"))
        await raw.grow_old(url, 40 * DAY)
        assert (await board.prune(DAY)).events
        assert await board.replayed_state() == await board.observed_state()
        assert (await board.find(behind.id)).state == "ready"
        assert (await board.find(waiting.id)).state == "blocked"


# The disk.


def test_the_file_really_gets_smaller(folder: Path) -> None:
    url, path = f"sqlite:///{folder}/board.db", folder / "board.db"
    shell = Shell(url)

    async def fill(board: Board) -> None:
        for number in range(20):
            await worked(board, f"t{number}", done=True, turns=20)
        await raw.grow_old(url, 40 * DAY)
        for host in await board.hosts():
            await board.stop_host(host.id)

    shell.on_board(fill)
    before = path.stat().st_size
    said = shell.json("prune", "--yes")
    assert said["bytes_after"] < said["bytes_before"] / 2
    assert path.stat().st_size == said["bytes_after"] < before / 2


def test_a_board_of_before_gets_smaller_when_no_host_runs(folder: Path) -> None:
    url, path = f"sqlite:///{folder}/board.db", folder / "board.db"
    shell = Shell(url)

    async def fill(board: Board) -> None:
        for number in range(20):
            await worked(board, f"t{number}", done=True, turns=20)
        await raw.grow_old(url, 40 * DAY)

    shell.on_board(fill)
    with closing(sqlite3.connect(path)) as connection:
        for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA auto_vacuum = NONE", "VACUUM"):
            connection.execute(statement)
    before = path.stat().st_size

    async def alive(board: Board) -> None:
        await board.start_host("alive")

    shell.on_board(alive)
    assert "prune when no host is running" in shell.says("prune", "--yes")
    assert path.stat().st_size >= before

    async def stop(board: Board) -> None:
        for host in await board.hosts():
            await board.stop_host(host.id)
        await board.shrink()

    shell.on_board(stop)
    assert path.stat().st_size < before / 2


def test_outputs_of_tasks_that_ended_go_and_others_stay(folder: Path) -> None:
    url = f"sqlite:///{folder}/.dugnad/board.db"
    (folder / ".dugnad").mkdir()
    shell = Shell(url)
    ended, held = grown(shell, url)
    outputs, outside = folder / ".dugnad" / "output", folder / "outside"
    for name in (str(ended), str(held), "99", "strange"):
        (outputs / name).mkdir(parents=True)
        for file in ("1.log", "new.log"):
            (outputs / name / file).write_text("x" * 100)
        old = time.time() - 40 * DAY
        os.utime(outputs / name / "1.log", (old, old))
    outside.mkdir()
    (outside / "1.log").write_text("mine")
    os.utime(outside / "1.log", (old, old))
    assert run("trust", "--yes", folder=folder).returncode == 0  # The board was not made by a command.
    said = json.loads(run("prune", "--yes", "--json", folder=folder).stdout)
    assert (said.get("outputs"), said.get("outputs_bytes")) == (1, 100), said
    left = sorted(str(path.relative_to(outputs)) for path in outputs.rglob("*.log"))
    assert f"{ended}/1.log" not in left
    assert len(left) == 7
    (outputs / str(ended) / "new.log").unlink()
    (outputs / str(ended)).rmdir()
    (outputs / str(ended)).symlink_to(outside)
    run("prune", "--yes", "--older", "1d", folder=folder)
    assert (outside / "1.log").read_text() == "mine"
    other = run("--board", f"sqlite:///{folder}/other.db", "add", "one", folder=folder)
    assert other.returncode == 0
    asyncio.run(raw.grow_old(f"sqlite:///{folder}/other.db", 40 * DAY))
    run("--board", f"sqlite:///{folder}/other.db", "prune", "--yes", folder=folder)
    assert (outputs / "99" / "1.log").exists()


async def test_the_doctor_says_when_a_board_is_large(url: str, folder: Path) -> None:
    from dugnad.cli.checks import Scene
    from dugnad.cli.doctor import examine

    async with await open_board(url) as board:
        await board.put("one")
    for limit, level in ((1_000, "warning"), (10**12, "ok")):
        given = {"HOME": str(folder), "PATH": os.environ["PATH"], "DUGNAD_MODEL": "scripted"}
        scene = Scene(start=folder, environment=given, board_given=url, online=False, board_bytes_large=limit)
        findings = await examine(scene)
        (size,) = [each for each in findings if each.name == "size"]
        assert (size.level, size.mend) == (level, "dugnad prune" if level == "warning" else "")
