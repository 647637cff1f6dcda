"""`notify` in config.toml: a command for each new thing that waits for the person."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.cli import notifying as module
from dugnad.cli.notifying import notifying
from dugnad.config.project import read_project
from dugnad.config.user import read_user
from dugnad.errors import BadInput
from dugnad.types import Amount, Budget, Waiting
from tests.board.crew import Crew, crew
from tests.cli.shell import run
from tests.cli.terminal import make_project

SECONDS = 120.0


class Told:
    """A command that writes down what it was told."""

    def __init__(self, folder: Path, then: str = "") -> None:
        self.file, self.folder = folder / "told", folder
        self.script = folder / "bin" / "tell"
        self.script.parent.mkdir(exist_ok=True)
        self.script.write_text(
            f'#!/bin/sh\n{{ for each; do printf "%s\\n" "$each"; done; cat; pwd; echo --; }} >> {self.file}\n{then}\n'
        )
        self.script.chmod(0o755)

    @property
    def times(self) -> list[list[str]]:
        text = self.file.read_text() if self.file.exists() else ""
        return [each.strip("\n").split("\n") for each in text.split("--\n")[:-1]]

    @asynccontextmanager
    async def running(self, board: Board, *, outside: Path | None = None) -> AsyncIterator[None]:
        environment = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(self.folder / "state")}
        project = outside or self.folder / "project"
        async with notifying(
            board, (str(self.script), "--to", "me"), where="here", outside=project, environment=environment
        ):
            yield


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not true():  # noqa: ASYNC110 (another program does it)
            await asyncio.sleep(0.02)


async def ask(board: Board, team: Crew, question: str = "Which?") -> int:
    task = await board.put("asks")
    await board.settle(await team.must_claim(task=task.id), Waiting(on="human", question=question))
    return task.id


async def test_a_question_starts_the_command_with_one_line_and_the_request(board: Board, folder: Path) -> None:
    team, told = await crew(board), Told(folder)
    async with told.running(board):
        task = await ask(board, team, "Which one;\n$(touch x) `y`\x1b[31m?")
        await until(lambda: told.times)
    option, to, text, given, where = told.times[0]
    assert (option, to, where) == ("--to", "me", "/")
    assert text == f"dugnad: alice asks for #{task}: Which one; $(touch x) `y`␛[31m?"
    shape = json.loads(given)
    assert (shape["kind"], shape["sender"], shape["task"], shape["board"]) == ("question", "alice", task, "here")


async def test_what_waits_already_is_told_once_and_never_again(board: Board, folder: Path) -> None:
    team, told = await crew(board), Told(folder)
    await ask(board, team)
    for _ in range(3):
        async with told.running(board):
            await until(lambda: told.times)
            await ask_nothing(board)
    assert len(told.times) == 1


async def ask_nothing(board: Board) -> None:
    """Give a notifier that is wrong the time to start a command again."""
    await board.put("nothing")
    await asyncio.sleep(0.3)


async def test_of_several_processes_one_tells(board: Board, folder: Path) -> None:
    team, told = await crew(board), Told(folder)
    async with told.running(board), told.running(board), told.running(board):
        for number in range(5):
            await ask(board, team, f"question {number}")
        await until(lambda: len(told.times) >= 5)
        await ask_nothing(board)
    assert len(told.times) == 5


async def test_a_goal_that_is_held_is_told(board: Board, folder: Path) -> None:
    team, told = await crew(board), Told(folder)
    goal = await board.put("goal", budget=Budget(dollars=0.01))
    claim = await team.must_claim()
    async with told.running(board):
        await board.settle(claim, Waiting(on="budget", question="x", amount=Amount(microdollars=20_000)))
        await until(lambda: told.times)
    assert told.times[0][2] == f"dugnad: #{goal.id} is held, its cap on dollars is reached: goal"
    assert json.loads(told.times[0][3]) == {
        "kind": "budget", "root": goal.id, "held": "dollars", "title": "goal", "board": "here",
    }  # fmt: skip


async def test_one_command_runs_at_a_time_and_not_for_ever(
    board: Board, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS_MAX", 0.5)
    team, told = await crew(board), Told(folder, then="sleep 1000")
    async with asyncio.timeout(SECONDS), told.running(board):
        started = time.monotonic()
        await ask(board, team, "one")
        await ask(board, team, "two")
        await until(lambda: len(told.times) == 2)
        assert time.monotonic() - started > 0.5


@pytest.mark.parametrize("then", ["exit 7", "kill -9 $$"])
async def test_a_command_that_fails_changes_nothing(board: Board, folder: Path, then: str) -> None:
    team, told = await crew(board), Told(folder, then=then)
    async with told.running(board):
        await ask(board, team, "one")
        await ask(board, team, "two")
        await until(lambda: len(told.times) == 2)


async def test_a_command_that_is_not_there_or_lies_in_the_project_is_not_started(board: Board, folder: Path) -> None:
    team, told = await crew(board), Told(folder)
    async with told.running(board, outside=folder):
        await ask(board, team)
        await ask_nothing(board)
    told.script.unlink()
    async with told.running(board):
        await ask(board, team)
        await ask_nothing(board)
    assert told.times == []


def test_only_the_users_file_can_name_a_command(folder: Path) -> None:
    (folder / "dugnad.toml").write_text('notify = ["evil"]\n')
    with pytest.raises(BadInput, match="has no key 'notify'"):
        read_project(folder, environment={})
    config = folder / "dugnad" / "config.toml"
    config.parent.mkdir()
    environment = {"XDG_CONFIG_HOME": str(folder)}
    config.write_text('notify = ["notify-send", "x"]\n')
    assert read_user(environment).notify == ("notify-send", "x")
    for wrong in ('"notify-send"', "[]", "[1]", '[""]', "{}"):
        config.write_text(f"notify = {wrong}\n")
        with pytest.raises(BadInput, match="notify must be a list of words such as"):
            read_user(environment)


def test_a_run_tells_what_waits_for_you(folder: Path) -> None:
    project = folder / "project"
    project.mkdir()
    make_project(project, '"*": [{calls: [{ask_human: {question: Which one}}]}]')
    told = Told(folder)
    config = folder / "dugnad" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'notify = ["{told.script}"]\n')
    words = ("run", "goal", "--tasks", "2", "--agents", "1", "--model", "scripted:script.yaml")
    run(*words, folder=project, XDG_CONFIG_HOME=str(folder))
    assert [each[0] for each in told.times] == ["dugnad: alice asks for #1: Which one"]
