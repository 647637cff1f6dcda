"""The task lists of Claude Code: one file for each task, and needs from both sides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dugnad.backlog.claude import read_claude


def task(number: str, **fields: Any) -> tuple[str, str]:
    usual = {"subject": f"Task {number}", "description": "How.", "status": "pending", "blocks": [], "blockedBy": []}
    return f"{number}.json", json.dumps({"id": number, **usual, **fields}, indent=2)


def test_a_task_is_a_row_and_waits_for_what_blocks_it() -> None:
    second, third = task("2", blockedBy=["1"]), task("3", owner="alice", activeForm="Doing")
    found = read_claude([task("1", blocks=["2", "3"]), second, third, task("4", blockedBy=[3])], "list")
    assert [(row.key, row.title, row.body) for row in found.rows[:1]] == [("claude:list:1", "Task 1", "How.")]
    assert [[need.key[-1] for need in row.needs] for row in found.rows] == [[], ["1"], ["1"], ["3"]]
    assert found.open_ended


def test_what_is_completed_deleted_or_internal_is_left_out() -> None:
    files = [
        task("1", status="completed"), task("2", status="deleted"), task("3", status="in_progress"),
        task("4", metadata={"_internal": True}), task("5", metadata={"a": 1}),
    ]  # fmt: skip
    assert [row.ended for row in read_claude(files, "list").rows] == [True, True, False, True, False]


@pytest.mark.parametrize(
    "text", ["{}", "5", '{"id": true, "subject": "x"}', '{"id": "1", "subject": ""}', '{"id": "1"}']
)
def test_what_is_no_task_is_named_with_its_file(text: str) -> None:
    assert read_claude([("9.json", text)], "list").wrong == [
        "9.json line 1: this is no task of Claude Code; it has no id or no subject"
    ]


@pytest.mark.parametrize("fields", [{"blocks": 5}, {"blockedBy": [None, {}]}, {"metadata": []}, {"description": 4}])
def test_fields_of_another_kind_do_no_harm(fields: dict[str, Any]) -> None:
    assert len(read_claude([task("1", **fields)], "list").rows) == 1
