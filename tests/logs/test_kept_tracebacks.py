"""A teammate's bug keeps its traceback: in the log, and on the board, where everybody can read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.errors import StaleClaim
from dugnad.logs import traceback_text
from dugnad.logs.handlers import start_logging
from dugnad.models import ScriptedModel
from dugnad.models.scripted import Step
from dugnad.team.report import report
from dugnad.types import Failed
from tests.board.crew import crew
from tests.cli.shell import Shell, claimed
from tests.team.stage_team import AnswerLost, Raising, busy, hosting, until_ended, until_status


async def test_a_bug_is_logged_and_kept_with_the_attempt(board: Board, capsys: pytest.CaptureFixture[str]) -> None:
    await board.spawn("alice")
    task = await board.put("Bake", assignee="alice")
    start_logging("info", keeps=False, screen=False, folder=Path("/nowhere"))
    try:
        async with hosting(board, Raising(ValueError("half a loaf"))):
            await until_status(board, "alice", "failed")
    finally:
        start_logging(None, keeps=False, screen=False, folder=Path("/nowhere"))
    (traceback,) = (await board.tracebacks(task.id)).values()
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert "in ask\n" in traceback
    assert traceback.endswith("ValueError: half a loaf\n")
    (logged,) = [each for each in capsys.readouterr().err.splitlines() if "event=bug" in each]
    assert f" level=error logger=dugnad.team.worker task={task.id} attempt=1 teammate=alice event=bug " in logged
    assert r"ValueError: half a loaf" in logged
    ended = await report(board, [task.id])
    assert f"dugnad show {task.id} --trouble    shows the traceback of a bug" in ended.next_steps()


async def test_the_traceback_is_kept_although_the_answer_of_the_board_was_lost(board: Board) -> None:
    await board.spawn("alice")
    task = await board.put("Bake", assignee="alice")
    flaky = AnswerLost(board, "keep_traceback", busy)
    async with hosting(flaky, Raising(ValueError("half a loaf"))):
        await until_status(board, "alice", "failed")
    assert flaky.happened == 1
    assert len(await board.tracebacks(task.id)) == 1


async def test_the_next_attempt_is_not_told_of_it(board: Board) -> None:
    await board.spawn("alice")
    await board.spawn("bob")
    task = await board.put("Bake", assignee="alice")
    model = ScriptedModel({"Bake": [Step(say="Done.")]})
    async with hosting(board, {"alice": Raising(ValueError("half a loaf")), "bob": model}):
        await until_status(board, "alice", "failed")
        await board.assign(task.id, None)
        await until_ended(board, task)
    assert len(model.asked) == 1
    assert "Traceback" not in str(model.asked[0].messages)


async def test_it_is_refused_to_one_who_lost_the_task(board: Board) -> None:
    host = await crew(board, "alice", "bob")
    task = await board.put("Bake")
    claim = await host.must_claim("alice")
    await board.release(task.id)
    with pytest.raises(StaleClaim):
        await board.keep_traceback(claim, "too late")
    assert await board.tracebacks(task.id) == {}


def test_show_names_it_and_shows_it(folder: Path) -> None:
    shell = Shell(f"sqlite:///{folder}/board.db")
    shell.says("add", "Bake")
    assert "--trouble" not in shell.says("show", "1")
    assert "No bug of a teammate ended an attempt." in shell.says("show", "1", "--trouble")

    async def fail(board: Board) -> None:
        claim = await claimed(board, "alice")
        try:
            raise ValueError("half a \x1b[31mloaf")
        except ValueError as bug:
            await board.keep_traceback(claim, traceback_text(bug))
        await board.settle(claim, Failed("alice failed", retry=False))

    shell.on_board(fail)
    assert "A teammate's bug: dugnad show 1 --trouble shows the traceback." in shell.says("show", "1")
    said = shell.says("show", "1", "--trouble")
    assert "attempt 1, ended by a bug\n  Traceback (most recent call last):" in said
    assert "ValueError: half a ␛[31mloaf" in said
    assert "a bug ended the attempt" in shell.says("show", "1", "--transcript")
    shape = shell.json("show", "1", "--trouble")
    assert shape["tracebacks"]["1"].endswith("loaf\n")
    assert "tracebacks" not in json.dumps(shell.json("show", "1"))
