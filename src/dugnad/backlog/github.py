"""GitHub issues, as `gh issue list --json ...` or the API prints them. Pure.

What an issue says is other people's words: it becomes a title and a body, which models are shown as quotations. From
the words of a body only one thing is read: which issues it is blocked by.
"""

from __future__ import annotations

import re
from typing import Any

from .rows import NeededRow, Row, RowsRead, json_values, shown, text_of

_PLACE = re.compile(r"https?://[^/\s]+/(?:repos/)?([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)")
_BLOCKED = re.compile(r"(?im)^[ \t>*_-]*(?:blocked +by|depends +on|requires)\b(.*)$")
_REFERENCE = re.compile(r"(?:https?://[^/\s]+/)?([\w.-]+/[\w.-]+)?(?:#|/issues/|/pull/)(\d{1,9})\b")
_LINKS = ("blockedBy", "blocked_by", "subIssues", "sub_issues")
_LINE_CHARS_MAX = 2_000  # Of a line that says what an issue is blocked by.
_REFERENCES_MAX = 100  # Of one issue.


def read_github(text: str, name: str) -> RowsRead:
    found = RowsRead(open_ended=True)
    for line, value in json_values(text, name):
        where = f"{name} line {line}"
        number = value.get("number") if isinstance(value, dict) else None
        if not isinstance(number, int) or isinstance(number, bool) or not text_of(value.get("title")).strip():
            found.refuse(where, "this is no issue; it has no number or no title")
        else:
            found.add(_row(value, f"{where} (#{number})", number))
    return found


def _row(issue: dict[str, Any], where: str, number: int) -> Row:
    url = text_of(issue.get("html_url") or issue.get("url"))
    place = _PLACE.match(url)
    repository = place[1].lower() if place else ""
    body = text_of(issue.get("body")).replace("\r\n", "\n").strip()
    state = text_of(issue.get("state")).lower()
    ended = state in ("closed", "merged") or issue.get("closed") is True or "pull_request" in issue
    linked = [each for key in _LINKS for each in _listed(issue.get(key))]
    return Row(
        where=where, key=_key(repository, number), title=issue["title"], ended=ended,
        body=f"{url}\n\n{body}".strip() if place else body,
        needs=tuple(each for each in _needs(body, linked, repository) if each.key != _key(repository, number)),
        labels=tuple(_label(each) for each in _listed(issue.get("labels"))),
    )  # fmt: skip


def _listed(value: Any) -> list[Any]:
    """A list, which newer versions of gh print as {"nodes": [...]}."""
    value = value.get("nodes") if isinstance(value, dict) else value
    return value[:_REFERENCES_MAX] if isinstance(value, list) else []


def _label(value: Any) -> str:
    return text_of(value.get("name")) if isinstance(value, dict) else text_of(value)


def _needs(body: str, linked: list[Any], repository: str) -> list[NeededRow]:
    """The issues that it is linked to as blocked by, or as its parts, and those that its text names."""
    found: dict[str, NeededRow] = {}
    for each in linked:
        number = each.get("number") if isinstance(each, dict) else each
        place = _PLACE.match(text_of(each.get("url"))) if isinstance(each, dict) else None
        closed = isinstance(each, dict) and text_of(each.get("state")).lower() == "closed"
        if isinstance(number, int) and not closed:
            key = _key(place[1].lower() if place else repository, number)
            found[key] = NeededRow(key=key, says=f"#{number}")
    for line in _BLOCKED.findall(body):
        for where, number in _REFERENCE.findall(line[:_LINE_CHARS_MAX])[:_REFERENCES_MAX]:
            key = _key(where.lower() or repository, int(number))
            found[key] = NeededRow(key=key, says=shown(f"{where}#{number}")[1:-1])
    return list(found.values())[:_REFERENCES_MAX]


def _key(repository: str, number: int) -> str:
    return f"github:{repository}#{number}"
