"""A host dies while somebody else's agent works, or just after: nothing acknowledged is lost, nothing is run twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from dugnad.board import Board
from dugnad.settings import Limits
from dugnad.types import Amount, Budget, Done
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.stage_agent import TITLE, Crash, Stage
from tests.agent.standin import asked, block, prompts, script, stand_in
from tests.agent.test_external import stage_of

ROOT = Path(__file__).parents[2]


class Dies:
    """A real board; the process dies before the first call of one verb that `where` picks, or right after it."""

    def __init__(self, board: Board, verb: str, where: Callable[..., bool], *, after: bool = False) -> None:
        self._board, self._verb, self._where, self._after, self._died = board, verb, where, after, False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._board, name)
        if name != self._verb or self._died:
            return found

        async def once(*given: Any, **fields: Any) -> Any:
            dies = not self._died and self._where(*given)
            self._died = self._died or dies
            if dies and not self._after:
                raise Crash
            answer = await found(*given, **fields)
            if dies:
                raise Crash
            return answer

        return once


async def dies_and_goes_on(stage: Stage, dying: Any, **fields: Any) -> Any:
    """The task is begun on the dying board, its host is lost, and another goes on."""
    claim = await stage.begin(**fields)
    stage.agent.board = dying
    with pytest.raises(Crash):
        await stage.agent.work(claim)
    stage.agent.board = stage.board
    await stage.lose()
    return await stage.go_on(await stage.claim_when_due())


@pytest.mark.parametrize(
    ("verb", "kind", "after"),
    [
        ("record", "reply", True),
        ("follow_ups", "", False),
        ("follow_ups", "", True),
        ("record", "tool", False),
        ("record", "tool", True),
        ("write_note", "", True),
    ],
)
async def test_after_the_answer_is_recorded_a_crash_does_not_run_it_again(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, verb: str, kind: str, after: bool
) -> None:
    wishes = {"follow_ups": [{"title": "A"}, {"title": "B"}], "notes": [{"title": "n", "text": "once"}]}
    script(tree, {"say": block(result="r", **wishes), "write": {"out": "x"}})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    dying = Dies(board, verb, lambda *given: not kind or given[1].kind == kind, after=after)
    outcome = await dies_and_goes_on(stage, dying, budget=Budget(tokens=10**8, dollars=50.0))
    assert outcome == Done("r")
    assert len(asked(tree)) == 1
    assert [task.title for task in await board.list_tasks()] == [TITLE, "A", "B"]
    assert [note.text for note in await board.search_notes(root=1)] == ["once"]
    account = await board.budget(1)
    assert (account.spent.tokens, account.spent.microdollars, account.reserved) == (370, 12_300, Amount())


async def test_a_run_whose_answer_was_never_recorded_is_reported_as_interrupted(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    subprocess.run(["git", "init", "-q", str(tree)], check=True)  # noqa: ASYNC221
    script(tree, {"say": "r", "write": {"half.txt": "half"}, "answer": {"result": "stale"}}, {"say": "whole"})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    dying = Dies(board, "record", lambda claim, turn: turn.kind == "reply")
    outcome = await dies_and_goes_on(stage, dying, budget=Budget(tokens=10**8))
    assert outcome == Done("whole")  # And not what lay in the file.
    first, second = prompts(tree)
    assert "interrupted" not in first
    assert "was interrupted" in second
    assert "> ?? half.txt" in second
    assert (await board.budget(1)).spent.tokens == 2_000_000 + 370  # What nobody knows counts as spent.


async def test_a_message_shown_to_a_run_that_was_cut_off_is_shown_again(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": "r"})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    await board.tell("human", "alice", "Use tabs.")
    await dies_and_goes_on(stage, Dies(board, "record", lambda claim, turn: turn.kind == "reply"))
    assert all("> Use tabs." in prompt for prompt in prompts(tree))
    assert not await board.has_unread("alice")


@asynccontextmanager
async def killed_host(url: str, folder: Path, tree: Path, **order: Any) -> AsyncIterator[None]:
    """A host in a process of its own, which is killed at the end, once the program hangs. The program dies with it."""
    given = {"url": url, "folder": str(folder), "tree": str(tree), **order}
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.agent.external_worker", json.dumps(given), cwd=ROOT
    )  # fmt: skip
    try:
        async with asyncio.timeout(120):
            while not (tree / ".hangs").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        hanging = [each for each in psutil.process_iter() if any(str(folder / "programs") in at for at in _words(each))]
        assert hanging
        yield
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        await worker.wait()
    async with asyncio.timeout(120):
        while any(each.is_running() and each.status() != "zombie" for each in hanging):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def taken_over(board: Board, stage: Stage) -> Any:
    """What comes of the task at another host of this machine, which finds out at once."""
    for host in await board.hosts():
        await board.stop_host(host.id)
    stage.host = await board.start_host("another")
    assert await board.take_back() == [1]
    await board.seat(stage.host, name="alice")
    return await stage.go_on(await stage.claim_when_due())


async def test_killed_in_the_middle_of_a_run_the_command_dies_too_and_another_host_takes_over(
    url: str, opener: Any, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    board: Board = await opener(limits=Limits(lease_seconds=60, backoff_seconds=0.01))
    script(tree, {"hang": "600", "write": {"half.txt": "half"}}, {"say": "whole"})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    await board.put(TITLE)
    await board.stop_host(stage.host)
    async with killed_host(url, folder, tree):
        pass
    assert await taken_over(board, stage) == Done("whole")
    assert "was interrupted" in prompts(tree)[1]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()  # type: ignore[no-any-return]
    except psutil.Error:
        return []
