"""A command that is shown for pasting does what it says, whatever names are on the board or in the project."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.board import open_board
from dugnad.board.store.migrations import latest
from dugnad.cli.tracked import refuse_tracked
from dugnad.cli.unaccepted import NotAccepted
from dugnad.config.project import read_project
from dugnad.errors import NotReady
from dugnad.rehearsal.plan import Estimate, PlannedTask, RehearsalPlan
from dugnad.rehearsal.warnings import cautions
from dugnad.team.report import Report
from dugnad.team.requests import find_request
from tests.cli.stranger import git
from tests.cli.test_doctor import claimed_by_nobody, found
from tests.proof import every
from tests.workspace.repository import new_repository

NAMES = [
    "x; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "x' ; touch pwned ; '",
    'x" && touch pwned "',
    "a|touch pwned",
]


def words_of(command: str, folder: Path) -> list[str]:
    """What a shell makes of a command, with programs that only tell what they are given."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("dugnad", "git", "sqlite3"):
        (programs / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (programs / name).chmod(0o755)
    ran = subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, env={"PATH": f"{programs}:{os.defpath}"}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert not list(folder.rglob("pwned"))
    return ran.stdout.splitlines()


def change(path: Path, statement: str, *values: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


@pytest.mark.parametrize("name", every(3, NAMES))
async def test_names_on_a_board_are_one_word_each(folder: Path, name: str) -> None:
    path, url = folder / "board.db", f"sqlite:///{folder}/board.db"
    async with await open_board(url) as board:
        await claimed_by_nobody(board)
        task = await board.put("Review it", role="reviewer")
        await board.spawn("zoe")
        message = await board.tell("zoe", "human", "Hello")
        change(path, "UPDATE tasks SET role = ? WHERE id = ?", name, str(task.id))
        change(path, "UPDATE messages SET sender = ?", name)
        with pytest.raises(NotReady) as met:
            await find_request(board, f"m{message.id}")
        told = re.fullmatch(r".*?; `(dugnad tell .*) TEXT` writes back\.", str(met.value))
        assert told is not None
        assert words_of(told[1], folder) == ["tell", name]
        mend = (await found(folder, url))["roles"].mend
        assert words_of(mend, folder) == ["spawn", "NAME", "--role", name]
        shut_out = replace(await board.find(task.id), not_for="zoe")
        (step,) = Report(tasks=[shut_out]).next_steps()
        assert words_of(step.partition("    ")[0], folder) == ["spawn", "NAME", "--role", name]
        change(path, "UPDATE tasks SET assignee = ? WHERE id = ?", name, str(task.id))
        mend = (await found(folder, url))["roles"].mend
        assert words_of(mend, folder) == ["spawn", name]
        change(path, "UPDATE teammates SET name = ? WHERE name = 'bob'", name)
        mend = (await found(folder, url))["teammates"].mend
        assert words_of(mend, folder) == ["spawn", name]


@pytest.mark.parametrize("name", every(3, NAMES))
def test_names_in_a_plan_are_one_word_each(folder: Path, name: str) -> None:
    task = PlannedTask(id=1, name="it", assignee=name, estimate=Estimate(seconds=1), root=1)
    (said,) = cautions(RehearsalPlan(name="plan", tasks=(task,), accounts={}), [], [])
    told = re.fullmatch(r".*?; `(dugnad spawn .*)` changes that\.", said)
    assert told is not None
    assert words_of(told[1], folder) == ["spawn", name]


@pytest.mark.parametrize("name", every(3, NAMES))
async def test_the_name_of_a_board_is_one_word(folder: Path, name: str) -> None:
    root = new_repository(folder / "project")
    path = root / name / "-b.db"
    path.parent.mkdir()
    await (await open_board(f"sqlite:///{path}")).close()
    change(path, f"PRAGMA user_version = {latest() - 1}")
    mend = (await found(root, f"sqlite:///{path}"))["board"].mend
    assert words_of(mend, folder) == [str(path), "VACUUM INTO 'backup.db'"]
    path = path.rename(root / f"-{name}")
    git(root, "add", "--force", "--", path.name)
    with pytest.raises(NotAccepted) as met:
        await refuse_tracked(read_project(root, environment={}), f"sqlite:///{path}")
    command = str(met.value).partition("Remove it from the repository and commit that: ")[2]
    assert words_of(command, folder) == ["rm", "-r", "--cached", "--", path.name]
