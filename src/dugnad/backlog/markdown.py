"""A Markdown checklist: each item with a box is a piece of work. Pure.

An item waits for the items nested in it: it is done when they are. Text below an item is its body, and the headings
above it say what it is about. A comment at the end of an item, which `dugnad export` writes, holds what the text cannot
say. What a reader of the page does not see, such as other comments, is not read either.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import BadInput
from ..text import one_line
from .rows import ROWS_MAX, NeededRow, Row, RowsRead, short_hash, shown, text_of

_ITEM = re.compile(r"( *)(?:[-*+]|\d{1,9}[.)]) +\[(.)\](?: +(.*))?")
_HEADING = re.compile(r" {0,3}(#{1,6})(?!#)(|[ \t].*)\Z")
_FENCE = re.compile(r" *(`{3,}|~{3,})")
_BULLET = re.compile(r" *(?:[-*+]|\d{1,9}[.)]) ")
_OWN_BEGINS, _OWN_ENDS = "<!-- dugnad {", "} -->"
_ENDED = "xX-"
_DEPTH_MAX = 32  # Of items in items.
_ABOUT_CHARS_MAX = 200  # Of a heading or an item above.


@dataclass(slots=True)
class _Item:
    """An item while it is read."""

    line: int
    indent: int
    box: str
    title: str
    about: tuple[str, ...]  # The headings above it.
    above: _Item | None
    depth: int = 1
    facts: dict[str, Any] | None = None  # From its comment.
    lines: list[str] = field(default_factory=list)
    whole: bool = False  # What follows is no part of the body.
    key: str = ""

    def keep(self, line: str) -> None:
        """Take a line below it into the body. Of what an export wrote, only the first quotation is the body; the rest
        is for people."""
        text = line.lstrip(" ")
        if self.facts is None:
            self.lines.append(line)
        elif text.startswith(">") and not self.whole:
            self.lines.append(text[1:].removeprefix(" "))
        elif text or self.lines:
            self.whole = True

    def body(self) -> str:
        if self.facts is not None:
            return "\n".join(self.lines)
        text = textwrap.dedent("\n".join(self.lines)).strip()
        about = " > ".join([*self.about, *(one_line(each.title, _ABOUT_CHARS_MAX) for each in _line_of(self.above))])
        return "\n\n".join(filter(None, (about, text)))


def read_markdown(text: str, name: str) -> RowsRead:
    found = RowsRead()
    items = []
    for item in _items(text):
        if isinstance(item, str):
            found.wrong.append(f"{name} {item}")
        elif item.depth > _DEPTH_MAX:
            found.refuse(f"{name} line {item.line}", f"it is nested more than {_DEPTH_MAX} deep")
        elif item.box not in f" {_ENDED}":
            found.refuse(f"{name} line {item.line}", f"the box holds {shown(item.box)}; write [ ] or [x]")
        elif not item.title:
            found.refuse(f"{name} line {item.line}", "the item is empty; say behind the box what to do")
        else:
            items.append(item)
    seen: Counter[str] = Counter()
    for item in items:
        own = short_hash(*item.about, *(each.title for each in _line_of(item)))
        seen[own] += 1
        item.key = text_of((item.facts or {}).get("key")) or f"markdown:{own}{f'-{seen[own]}' if seen[own] > 1 else ''}"
    nested: dict[str, list[NeededRow]] = {}
    for item in items:
        if item.above is not None and item.facts is None and item.above.key:
            nested.setdefault(item.above.key, []).append(NeededRow(key=item.key, says=shown(item.title)))
    for item in items:
        found.add(_row(item, f"{name} line {item.line}", nested.get(item.key, [])))
    return found


def _line_of(item: _Item | None) -> list[_Item]:
    """The item and those it is nested in, the outermost first."""
    found: list[_Item] = []
    while item is not None:
        found.insert(0, item)
        item = item.above
    return found


def _row(item: _Item, where: str, nested: list[NeededRow]) -> Row:
    facts = item.facts or {}
    priority = facts.get("priority")
    needs = [each for each in facts.get("needs", ()) if isinstance(each, list) and len(each) == 2]
    said = [NeededRow(key=text_of(key), outcome=text_of(outcome) or None, says=shown(key)) for key, outcome in needs]
    return Row(
        where=where, key=item.key, title=text_of(facts.get("title")) or item.title, body=item.body(),
        ended=item.box in _ENDED or "kind" in facts, needs=(*said, *nested),
        role=text_of(facts.get("role")) or None, priority=priority if isinstance(priority, int) else 0,
        check=text_of(facts.get("check")) or None, review=text_of(facts.get("review")) or None,
        plan=facts.get("plan") is True, under=text_of(facts.get("under")) or None,
    )  # fmt: skip


def _items(text: str) -> list[_Item | str]:
    """The items in their order; a text is a sentence about a line that is wrong."""
    headings: list[tuple[int, str]] = []
    stack: list[_Item] = []
    made: list[_Item | str] = []
    after_blank = True
    for number, (line, fence) in enumerate(_seen_lines(text), start=1):
        indent = len(line) - len(line.lstrip(" "))
        heading, box = _HEADING.match(line), _ITEM.fullmatch(line)
        if not fence and heading:
            level, words = len(heading[1]), one_line(heading[2].rstrip(" #"), _ABOUT_CHARS_MAX)
            headings = [each for each in headings if each[0] < level] + [(level, words)]
            stack.clear()
        elif not fence and box and (box[2] in _ENDED or not box[2].isalnum()):
            _close(stack, indent)
            about = tuple(words for _, words in headings if words)
            above = stack[-1] if stack else None
            item = _Item(number, indent, box[2], (box[3] or "").strip(), about, above, len(stack) + 1)
            if len(made) > ROWS_MAX:
                raise BadInput(f"There are more than {ROWS_MAX:,} items; split the file.")
            try:
                _take_comment(item)
            except (ValueError, RecursionError):
                made.append(f"line {number}: its comment of dugnad was changed, and is no JSON any more")
            made.append(item)
            stack.append(item)
        else:
            # A line that is not indented ends an item, unless it only goes on with a paragraph.
            if fence != "in" and line.strip() and (after_blank or fence or _BULLET.match(line)):
                _close(stack, indent)
            if stack:
                stack[-1].keep(line)
        after_blank = not line.strip()
    return made


def _close(stack: list[_Item], indent: int) -> None:
    while stack and stack[-1].indent >= indent:
        stack.pop()


def _take_comment(item: _Item) -> None:
    item.title, own = _split_own(item.title)
    if own:
        facts = json.loads(own.strip()[len(_OWN_BEGINS) - 1 : 1 - len(_OWN_ENDS)])
        if not isinstance(facts, dict) or not isinstance(facts.get("needs", []), list):
            raise ValueError
        item.facts = facts


def _split_own(line: str) -> tuple[str, str]:
    """A line, and the comment of ours that it ends with."""
    at = line.rfind(_OWN_BEGINS) if line.rstrip().endswith(_OWN_ENDS) else -1
    return (line, "") if at < 0 or "-->" in line[at:].rstrip()[:-3] else (line[:at].rstrip(), f" {line[at:]}")


def _without_comments(line: str) -> tuple[str, bool]:
    """A line as a page shows it, and whether a comment that begins in it goes on."""
    parts, at = [], 0
    while (begins := line.find("<!--", at)) >= 0:
        parts.append(line[at:begins])
        if (ends := line.find("-->", begins + 4)) < 0:
            return "".join(parts), True
        at = ends + 3
    return "".join([*parts, line[at:]]), False


def _seen_lines(text: str) -> Iterator[tuple[str, Literal["", "begins", "in"]]]:
    """The lines, with whether they are code; without what a page does not show: comments, except our own."""
    hidden, fence = False, ""
    for whole in text.replace("\r\n", "\n").split("\n"):
        lead = len(whole) - len(whole.lstrip(" \t"))
        line = whole[:lead].expandtabs(4) + whole[lead:]
        if hidden:
            _, found, line = line.partition("-->")
            hidden = not found
        mark = _FENCE.match(line)
        if fence:
            yield line, "in"
            fence = "" if mark and mark[1].startswith(fence) and not line.strip(" `~") else fence
        elif mark:
            yield line, "begins"
            fence = mark[1]
        elif line.lstrip().startswith(">"):
            yield line, ""
        else:
            line, own = _split_own(line)
            line, opens = _without_comments(line)
            hidden = opens and not own  # The end of ours is the end of a comment around it too.
            yield line + ("" if opens else own), ""
