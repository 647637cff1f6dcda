"""Tables as CSV: the first line names the columns. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter

from ..errors import BadInput
from ..text import one_line
from .rows import NeededRow, Row, RowsRead, short_hash, shown

# What other programs call the columns.
_COLUMNS = {
    "title": ("title", "name", "subject", "summary", "task"),
    "body": ("body", "description", "details", "text"),
    "id": ("id", "key", "number", "#", "issue key"),
    "needs": ("needs", "blocked by", "depends on", "dependencies", "blockedby", "dependson"),
    "role": ("role",),
    "labels": ("labels", "label", "tags"),
    "priority": ("priority",),
    "status": ("status", "state", "done", "completed"),
}
_ENDED = frozenset(
    ("done", "closed", "completed", "complete", "resolved", "cancelled", "canceled", "x", "yes", "true", "1")
)
_PRIORITIES = {
    "highest": 2, "urgent": 2, "critical": 2, "high": 1, "medium": 0, "normal": 0, "none": 0, "": 0, "low": -1,
    "lowest": -2,
}  # fmt: skip


def read_csv(text: str, name: str) -> RowsRead:
    """`name` is the file's. It is part of each key, so that row 1 of two files is two tasks."""
    found = RowsRead()
    first = text.lstrip("\ufeff").partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    lines = csv.reader(io.StringIO(text.lstrip("\ufeff"), newline=""), delimiter=delimiter, strict=True)
    columns: dict[str, int] | None = None
    seen: Counter[str] = Counter()
    begins = 1
    while True:
        try:
            cells = next(lines)
        except StopIteration:
            break
        except csv.Error as trouble:
            raise BadInput(f"{name} line {lines.line_num}: {trouble}; correct the quotation marks.") from None
        where, begins = f"{name} line {begins}", lines.line_num + 1
        if not any(cell.strip() for cell in cells):
            continue
        if columns is None:
            columns = _columns(cells, name, found)
        else:
            row = {field: cells[at].strip() for field, at in columns.items() if at < len(cells)}
            _read_row(found, row, where, name, seen)
    return found


def _columns(cells: list[str], name: str, found: RowsRead) -> dict[str, int]:
    columns: dict[str, int] = {}
    unused = []
    for at, cell in enumerate(cells):
        word = re.sub(r"[\s_-]+", " ", cell.strip().casefold())
        field = next((field for field, words in _COLUMNS.items() if word in words and field not in columns), None)
        if field is not None:
            columns[field] = at
        elif word:
            unused.append(one_line(cell, 30))
    if "title" not in columns:
        raise BadInput(f"{name}: the first line names no column `title`; name the columns there.")
    if unused:
        found.notes.append(f"{name}: these columns are not used: {', '.join(unused[:20])}.")
    return columns


def _read_row(found: RowsRead, row: dict[str, str], where: str, name: str, seen: Counter[str]) -> None:
    title, priority = row.get("title", ""), row.get("priority", "").casefold()
    if not title:
        found.refuse(where, "the title is empty")
        return
    if priority not in _PRIORITIES and not re.fullmatch(r"[+-]?\d{1,7}", priority):
        found.refuse(where, f"the priority {shown(priority)} is neither a whole number nor a word such as high")
        return
    seen[title] += 1
    own = row.get("id") or short_hash(title, *([str(seen[title])] if seen[title] > 1 else []))
    needs = [each.strip() for each in re.split(r"[;,\s]+", row.get("needs", "")) if each.strip()]
    found.add(
        Row(
            where=where, key=_key(name, own), title=title, body=row.get("body", ""),
            ended=row.get("status", "").casefold() in _ENDED, role=row.get("role") or None,
            priority=_PRIORITIES[priority] if priority in _PRIORITIES else int(priority),
            labels=tuple(each.strip() for each in re.split(r"[;,]", row.get("labels", "")) if each.strip()),
            needs=tuple(NeededRow(key=_key(name, each), says=each) for each in dict.fromkeys(needs)),
        )
    )  # fmt: skip


def _key(name: str, number: str) -> str:
    return f"csv:{name}:{number.removeprefix('#')}"
