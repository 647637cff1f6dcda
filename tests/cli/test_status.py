"""`dugnad status` for people and for health checks: what it says, and its exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.board.records import Health
from dugnad.telemetry.health import troubles
from dugnad.types import Amount, Budget, Waiting
from dugnad.view.status import status_table
from tests.cli.shell import Shell, claimed, run


@pytest.fixture
def shell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(folder)
    made = Shell(f"sqlite:///{folder}/board.db")
    made.says("spawn", "alice")
    return made


def kinds(shell: Shell) -> list[str]:
    ran = shell("status", "--json")
    found = json.loads(ran.stdout)
    assert ran.exit_code == (1 if found["troubles"] else 0)
    assert found["healthy"] is not bool(found["troubles"])
    return [each["kind"] for each in found["troubles"]]


def test_a_board_without_work_is_healthy(shell: Shell) -> None:
    assert kinds(shell) == []
    assert shell.says("status").splitlines()[0] == "tasks  0 ready"


def test_work_without_a_host_needs_a_person(shell: Shell) -> None:
    shell.says("add", "work")
    assert kinds(shell) == ["no_host"]
    ran = shell("status")
    assert ran.stdout.splitlines()[0] == (
        "needs you  No host runs, and tasks are ready or claimed. To go on: dugnad work"
    )
    assert ran.exit_code == 1


def test_work_for_later_needs_nobody_now(shell: Shell) -> None:
    shell.says("add", "work", "--delay", "1h")
    assert kinds(shell) == []


def test_work_under_a_host_is_healthy_and_a_question_needs_a_person(shell: Shell) -> None:
    shell.says("add", "work")

    async def begin(board: Board) -> None:
        await claimed(board, "alice")

    async def ask(board: Board) -> None:
        claim = await claimed(board, "alice")
        await board.settle(claim, Waiting(on="human", question="Which?"))

    shell.on_board(begin)
    assert kinds(shell) == []
    shell.says("add", "other")
    shell.on_board(ask)
    assert kinds(shell) == ["person"]
    shell.says("answer", "2", "This one.")
    assert kinds(shell) == []


def test_a_held_goal_and_a_failed_teammate_need_a_person(shell: Shell) -> None:
    async def work(board: Board) -> None:
        await board.put("goal", budget=Budget(tokens=10))
        claim = await claimed(board, "alice")
        await board.settle(claim, Waiting(on="budget", question="Too little.", amount=Amount(tokens=20)))
        await board.spawn("bob")
        await board.fail_teammate("bob", by="bob", reason="no key")

    shell.on_board(work)
    assert kinds(shell) == ["budget", "teammate"]
    said = shell("status").stdout
    assert "Held at a cap, with open tasks: #1. To go on: dugnad budget 1" in said
    assert "1 teammate failed. To go on: dugnad team" in said


@pytest.mark.parametrize("address", ["postgresql://127.0.0.1:1/x", "sqlite:////nowhere/board.db"])
def test_a_board_that_is_away_is_one_sentence_and_exit_code_1(folder: Path, address: str) -> None:
    ran = run("status", "--json", "--board", address, folder=folder)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert set(json.loads(ran.stdout)) == {"error"}
    assert run("status", "--board", address, folder=folder).stdout == ""


def test_status_changes_nothing(shell: Shell) -> None:
    shell.says("add", "work")
    before = shell.json("status") if not kinds(shell) else json.loads(shell("status", "--json").stdout)
    after = json.loads(shell("status", "--json").stdout)
    assert after["status"]["last_event"] == before["status"]["last_event"] == 2


def test_many_held_goals_are_not_all_named() -> None:
    quiet = Health(
        now=1, schema=13, last_event=1, tasks={"claimed": 0}, ready={}, ready_since=None, requests=0, asked_at=None,
        hosts={"alive": 1, "lost": 0}, team={}, held=(-2, *range(1, 200)), spent=Amount(), reserved=Amount(),
        cooldowns=(), merging={},
    )  # fmt: skip
    (found,) = troubles(quiet)
    assert (found.says, found.mend) == (
        "Held at a cap, with open tasks: b2, #1, #2, #3, #4 and others.", "dugnad budget b2",
    )  # fmt: skip
    merging = list(status_table(replace(quiet, merging={"dugnad/main": 3}), ()).columns[1].cells)[1]
    assert str(merging) == "1 alive; 3 to merge into dugnad/main"
