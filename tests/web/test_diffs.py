"""The diff of a task: any bytes, any size, and a sentence where there is none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from dugnad.board import Board
from dugnad.team.workspaces.workspace import mark_of
from dugnad.types import Task
from dugnad.web import diffs
from dugnad.web.diffs import task_diff
from tests.workspace.repository import git, new_repository

TARGET = "dugnad/main"


@pytest.fixture
def project(folder: Path) -> Path:
    root = folder / "project"
    new_repository(root, {"a.txt": "one\ntwo\nthree\n", "gone.txt": "x\n"})
    git(root, "branch", TARGET)
    return root


@pytest.fixture
async def task(board: Board) -> Task:
    return await board.put("work")


def commit(root: Path) -> str:
    git(root, "add", "--all")
    git(root, "commit", "-q", "-m", "change")
    return git(root, "rev-parse", "HEAD").strip()


async def shown(root: Path, task: Task, tip: str) -> dict[str, Any]:
    found = await task_diff(root, task, merge=(TARGET, tip), into=None)
    orjson.dumps(found)  # Whatever the bytes were, it can be sent.
    return found


async def test_lines_are_numbered_on_both_sides(project: Path, task: Task) -> None:
    (project / "a.txt").write_text("one\n2\nthree\nfour")
    (project / "gone.txt").unlink()
    diff = await shown(project, task, commit(project))
    assert diff["says"] is None
    changed, gone = diff["files"]
    assert [(line["kind"], line["old"], line["new"], line["text"]) for line in changed["lines"]] == [
        ("@", 1, 1, "@@ -1,3 +1,4 @@"), (" ", 1, 1, "one"), ("-", 2, None, "two"), ("+", None, 2, "2"),
        (" ", 3, 3, "three"), ("+", None, 4, "four"),
    ]  # fmt: skip
    assert (changed["path"], changed["added"], changed["removed"], changed["cut"]) == ("a.txt", 2, 1, False)
    assert (gone["path"], gone["removed"], [line["kind"] for line in gone["lines"]]) == ("gone.txt", 1, ["@", "-"])


async def test_names_and_contents_may_be_any_bytes(project: Path, task: Task) -> None:
    names = [b'"quoted".txt', b"new\nline.txt", b"tab\there.txt", b"\xff\xfe.txt", "ståle.txt".encode(), b"-dash.txt"]
    for name in names:
        content = b"diff --git a/x b/x\n@@ -1 +1 @@\n\xff\xfe\r\n+++ b/y\n\x1b[31m\n"
        (project / os.fsdecode(name)).write_bytes(content)
    diff = await shown(project, task, commit(project))
    assert len(diff["files"]) == len(names)
    for file in diff["files"]:
        assert [line["text"] for line in file["lines"] if line["kind"] == "+"] == [
            "diff --git a/x b/x", "@@ -1 +1 @@", "??\r", "+++ b/y", "\x1b[31m",
        ]  # fmt: skip
    assert {file["path"] for file in diff["files"]} >= {'"quoted".txt', "new\nline.txt", "ståle.txt", "??.txt"}


async def test_what_is_no_text_or_too_large_is_named_and_not_shown(project: Path, task: Task) -> None:
    (project / "binary").write_bytes(bytes(range(256)) * 10)
    (project / "large.txt").write_text("x\n" * 1_000_000)
    (project / "wide.txt").write_text("y" * 900_000 + "\n")
    diff = await shown(project, task, commit(project))
    binary, large, wide = diff["files"]
    assert (binary["binary"], binary["lines"]) == (True, [])
    assert (large["binary"], large["lines"]) == (True, [])
    assert [len(line["text"]) for line in wide["lines"]] == [len("@@ -0,0 +1 @@"), diffs.LINE_CHARS_MAX]


async def test_a_file_that_becomes_a_link_a_program_or_empty(project: Path, task: Task) -> None:
    (project / "a.txt").unlink()
    (project / "a.txt").symlink_to("elsewhere")
    (project / "empty").touch()
    (project / "gone.txt").chmod(0o755)
    (project / "z.txt").write_text("last\n")
    diff = await shown(project, task, commit(project))
    texts = {each["path"]: [line["text"] for line in each["lines"] if line["kind"] in "+-"] for each in diff["files"]}
    assert texts == {"a.txt": ["one", "two", "three", "elsewhere"], "empty": [], "gone.txt": [], "z.txt": ["last"]}


async def test_many_files_and_many_lines_are_cut(project: Path, task: Task) -> None:
    for number in range(diffs.FILES_MAX + 30):
        (project / f"{number:04}.txt").write_text("line\n" * 100)
    diff = await shown(project, task, commit(project))
    assert (len(diff["files"]), diff["more_files"]) == (diffs.FILES_MAX, 30)
    assert sum(len(each["lines"]) for each in diff["files"]) == diffs.LINES_MAX
    assert (diff["files"][0]["cut"], diff["files"][-1]["cut"]) == (False, True)
    assert diff["files"][-1]["added"] == 100


async def test_the_first_commit_of_a_repository_is_shown_whole(project: Path, task: Task) -> None:
    first = git(project, "rev-list", "--max-parents=0", "HEAD").strip()
    assert {each["path"] for each in (await shown(project, task, first))["files"]} == {"a.txt", "gone.txt"}


async def test_work_that_is_not_merged_is_compared_with_where_it_began(project: Path, task: Task) -> None:
    git(project, "checkout", "-q", "-b", f"dugnad/task-{mark_of(task)}.3")
    (project / "a.txt").write_text("mine\n")
    tip = commit(project)
    git(project, "branch", f"dugnad/task-{mark_of(task)}.2", "HEAD^")
    git(project, "checkout", "-q", TARGET)
    (project / "other.txt").write_text("of others\n")
    commit(project)
    git(project, "checkout", "-q", "main")
    diff = await task_diff(project, task, merge=(None, None), into=TARGET)
    assert (diff["commit"], diff["merged"], diff["into"]) == (tip, False, TARGET)
    assert [each["path"] for each in diff["files"]] == ["a.txt"]


@pytest.mark.parametrize(
    ("merge", "says"),
    [
        ((None, None), "No work of this task is in the repository"),
        ((TARGET, None), f"Nothing was merged: {TARGET} had all of it before."),
        ((TARGET, "0" * 40), "is not in this repository; it may be on another machine."),
        ((TARGET, "--output=/tmp/x"), "The commit --output=/tmp/x is not in this repository"),
        ((TARGET, "HEAD"), "The commit HEAD is not in this repository"),
    ],
)
async def test_where_there_is_none_a_sentence_says_why(
    project: Path, task: Task, merge: tuple[str | None, str | None], says: str
) -> None:
    diff = await task_diff(project, task, merge=merge, into=None)
    assert (diff["files"], says in diff["says"]) == ([], True)


async def test_outside_of_git_a_sentence_says_so(folder: Path, task: Task) -> None:
    diff = await task_diff(folder, task, merge=(None, None), into=None)
    assert diff["says"] == "The project is not in git, so nothing is merged."
