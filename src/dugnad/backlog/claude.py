"""The task lists of Claude Code: a folder with one JSON file for each task. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from .rows import NeededRow, Row, RowsRead, json_values, text_of

_ENDED = ("completed", "deleted", "cancelled")


def read_claude(files: Iterable[tuple[str, str]], list_name: str) -> RowsRead:
    """`files`: each file's name and text. A task that others need may be gone: Claude Code removes them."""
    found = RowsRead(open_ended=True)
    behind: dict[str, list[str]] = {}  # What a task blocks: the same as a need, said from the other side.
    for name, text in files:
        for line, value in json_values(text, name):
            where = f"{name} line {line}"
            number = _id(value.get("id")) if isinstance(value, dict) else ""
            if not number or not text_of(value.get("subject")).strip():
                found.refuse(where, "this is no task of Claude Code; it has no id or no subject")
                continue
            key = _key(list_name, number)
            found.add(_row(value, where, key, list_name))
            for each in _ids(value.get("blocks")):
                behind.setdefault(_key(list_name, each), []).append(key)
    for at, row in enumerate(found.rows):
        more = [NeededRow(key=key, says=key.rpartition(":")[2]) for key in behind.get(row.key, ())]
        found.rows[at] = replace(row, needs=tuple({each.key: each for each in (*row.needs, *more)}.values()))
    return found


def _row(task: dict[str, Any], where: str, key: str, list_name: str) -> Row:
    metadata = task.get("metadata")
    internal = isinstance(metadata, dict) and metadata.get("_internal") is True
    return Row(
        where=where, key=key, title=task["subject"], body=text_of(task.get("description")).strip(),
        ended=task.get("status") in _ENDED or internal,
        needs=tuple(NeededRow(key=_key(list_name, each), says=each) for each in _ids(task.get("blockedBy"))),
    )  # fmt: skip


def _id(value: Any) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _ids(value: Any) -> list[str]:
    return [_id(each) for each in value if _id(each)] if isinstance(value, list) else []


def _key(list_name: str, number: str) -> str:
    return f"claude:{list_name}:{number}"
