"""One piece of work as a file describes it, whatever the file is. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import BadInput
from ..text import one_line

ROWS_MAX = 100_000  # Of one file, those that have ended among them.
_SHOWN_CHARS = 60
_BLANK = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededRow:
    """A need, by the key of the row that is needed."""

    key: str
    outcome: str | None = None
    says: str = ""  # What the file calls it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A piece of work, and where it stands. `key` is the same each time that the same work is read."""

    where: str  # File and line.
    key: str
    title: str
    body: str = ""
    ended: bool = False  # It is closed or ticked, or it is nothing to work on.
    needs: tuple[NeededRow, ...] = ()
    labels: tuple[str, ...] = ()
    role: str | None = None
    priority: int = 0
    check: str | None = None
    review: str | None = None
    plan: bool = False
    under: str | None = None  # The key of the row that it is a follow-up of.


@dataclass(slots=True)
class RowsRead:
    """What was read: the rows, a sentence for each wrong one, and what a person should know."""

    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    open_ended: bool = False  # The file need not have all that its rows need: what is missing there has ended.

    def refuse(self, where: str, why: str) -> None:
        self._count()
        self.wrong.append(f"{where}: {why}")

    def add(self, row: Row) -> None:
        self._count()
        self.rows.append(row)

    def _count(self) -> None:
        if len(self.rows) + len(self.wrong) >= ROWS_MAX:
            raise BadInput(f"There are more than {ROWS_MAX:,} rows; split the file.")


def short_hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def text_of(value: Any) -> str:
    """A text of a JSON file; everything else that stands in its place is no text."""
    return value if isinstance(value, str) else ""


def shown(text: object) -> str:
    return repr(one_line(text, _SHOWN_CHARS))


def json_values(text: str, name: str) -> Iterator[tuple[int, Any]]:
    """The values of a JSON file with their lines: those of its lists, and those that stand alone, one after another.
    BadInput: it is not JSON."""
    decoder = json.JSONDecoder()
    at, line, counted_to = 0, 1, 0
    in_list = False
    while (at := _skip(text, at, _BETWEEN if in_list else _BLANK)) < len(text):
        line, counted_to = line + text.count("\n", counted_to, at), at
        if text[at] == "[" and not in_list:
            at, in_list = at + 1, True
        elif text[at] == "]" and in_list:
            at, in_list = at + 1, False
        else:
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                raise BadInput(f"{name} line {line} is not JSON; save it again.") from None
            yield line, value
    if in_list:
        raise BadInput(f"{name} ends in the middle of a list; save it again.")


def _skip(text: str, at: int, blank: re.Pattern[str]) -> int:
    found = blank.match(text, at)
    return at if found is None else found.end()
