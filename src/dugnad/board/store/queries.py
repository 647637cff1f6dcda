"""Loads the named statements of `sql/*.sql`.

A file is a list of statements, each under a line `-- name: words_like_this`. A name may stand twice, once as
`-- name: words (sqlite)` and once as `(postgres)`, where the two databases do better with a text of their own. A line
`-- postgres: FOR UPDATE` is a part of the statement on PostgreSQL, and a comment on SQLite, whose writer is alone.
Parameters are written `:name` in the files and become `?1` or `$1`, so callers pass them by name on both.

Many statements write a list that they get as JSON. SQLite makes text of a whole entry again for each of its fields, so
there such a statement also has a text whose parameters are the fields of a few entries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Literal

from .seam import as_json

Dialect = Literal["sqlite", "postgres"]

_HEADER = re.compile(r"^-- name: (?P<name>[a-z_]+)(?: \((?P<dialect>sqlite|postgres)\))?$", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")
_PARAMETER = re.compile(r"(?<![:\w]):(?P<name>[a-z_]+)")
_WRITES = re.compile(r"^(INSERT|UPDATE)\b", re.MULTILINE)
_LIST = re.compile(r"\bFROM json_each\(CAST\(\?1 AS text\)\)(?= WHERE|\n\)|$)")
_FIELD = re.compile(r"CAST\(value ->> '([a-z_]+)' AS bigint\)|value ->> '([a-z_]+)'")


@dataclass(frozen=True, slots=True)
class Query:
    name: str
    text: str
    parameters: tuple[str, ...]
    fields: tuple[str, ...] = ()  # Of an entry of its list, if it writes one on SQLite.

    def arguments(self, given: Mapping[str, object]) -> tuple[object, ...]:
        values = [given[name] for name in self.parameters]
        return tuple([as_json(value) if isinstance(value, list) else value for value in values])


@cache
def of_entries(query: Query, count: int, *, told: bool) -> str:
    """The text that writes so many entries of a list, and returns rows only if they are told. Its parameters are their
    fields, entry after entry."""
    entry = f"({', '.join('?' * len(query.fields))})"
    text = query.text if told else query.text.partition("RETURNING")[0].strip()
    listed = _LIST.sub(f"FROM (VALUES {', '.join([entry] * count)})", text)
    return _FIELD.sub(lambda field: f"column{query.fields.index(field[1] or field[2]) + 1}", listed)


@cache
def load(dialect: Dialect) -> dict[str, Query]:
    """All statements for one database. Both databases have the same names, or loading fails."""
    texts: dict[Dialect, dict[str, str]] = {"sqlite": {}, "postgres": {}}
    for file in sorted(files("dugnad.board.store").joinpath("sql").iterdir(), key=lambda entry: entry.name):
        for name, only, text in _statements(file.read_text("utf-8")):
            for target, known in texts.items():
                if only in (None, target):
                    if name in known:
                        raise ValueError(f"{file.name}: {name} is defined twice for {target}")
                    known[name] = text
    if lone := texts["sqlite"].keys() ^ texts["postgres"].keys():
        raise ValueError(f"these statements exist for one database only: {sorted(lone)}")
    return {name: _with_fields(_prepare(name, text, dialect)) for name, text in texts[dialect].items()}


@cache
def load_setup(dialect: Dialect) -> dict[str, str]:
    """The statements that open a board; each database has its own."""
    source = files("dugnad.board.store").joinpath("setup", f"{dialect}.sql").read_text("utf-8")
    return {name: _COMMENT.sub("", text).strip() for name, _, text in _statements(source)}


def _statements(source: str) -> list[tuple[str, str | None, str]]:
    headers = list(_HEADER.finditer(source))
    ends = [header.start() for header in headers[1:]] + [len(source)]
    return [
        (header["name"], header["dialect"], source[header.end() : end].strip().rstrip(";"))
        for header, end in zip(headers, ends, strict=True)
    ]


def _with_fields(query: Query) -> Query:
    if not _WRITES.search(query.text) or len(query.parameters) != 1 or len(_LIST.findall(query.text)) != 1:
        return query
    return replace(query, fields=tuple(dict.fromkeys(field[1] or field[2] for field in _FIELD.finditer(query.text))))


def _prepare(name: str, text: str, dialect: Dialect) -> Query:
    if dialect == "postgres":
        text = text.replace("-- postgres: ", "")
    bare = _COMMENT.sub("", text)  # A colon in a comment is not a parameter.
    order: list[str] = []

    def place(match: re.Match[str]) -> str:
        if match["name"] not in order:
            order.append(match["name"])
        return ("?" if dialect == "sqlite" else "$") + str(order.index(match["name"]) + 1)

    return Query(name, _PARAMETER.sub(place, bare).strip(), tuple(order))
