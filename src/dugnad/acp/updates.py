"""What a session reports while it works, folded into what it comes to. Pure.

Everything in an update was written by the agent, or by what it read. It is kept as text and decides nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from ..models.port import Usage
from ..text import clean, one_line

TEXT_CHARS_MAX = 500_000  # Of its last message; of a longer one the end.
PLAN_ENTRIES_MAX = 100
_TOOLS_MAX = 2_000  # Calls of its own tools that are known at one time.
_TITLE_CHARS = 300
_NUMBER_MAX = 2**53
_OVER = ("completed", "failed")
_MARKS = {"completed": "x", "in_progress": ">"}


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that the session did. `doing` is for people who watch, and `keep` for the transcript; both may be
    empty."""

    doing: str = ""
    keep: str = ""


@dataclass(frozen=True, slots=True)
class OwnCall:
    """A call of one of the agent's own tools, as far as it is known."""

    title: str = ""
    kind: str = "other"
    status: str = "pending"
    given: str = ""  # Its input, as JSON.

    @property
    def line(self) -> str:
        return f"{self.kind}: {self.title}" if self.title else self.kind


_NOTHING = Happening()


@dataclass(slots=True)
class Progress:
    """A session so far."""

    calls: dict[str, OwnCall] = field(default_factory=dict)
    plan: str = ""
    microdollars: int | None = None  # None: it does not say.
    context: tuple[int, int] | None = None  # How many tokens of its window are used.
    _said: list[str] = field(default_factory=list)
    _size: int = 0
    _message: object = None
    _ended: bool = True  # The next words begin a new message.

    @property
    def text(self) -> str:
        """Its last message: what it says before it calls a tool is not its result, unless nothing follows."""
        return clean("".join(self._said))[-TEXT_CHARS_MAX:].strip()

    def apply(self, update: Any) -> Happening:
        if not isinstance(update, dict):
            return _NOTHING
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk":
            self._hear(update)
        elif kind in ("tool_call", "tool_call_update"):
            return self._see_call(update, new=kind == "tool_call")
        elif kind == "plan":
            return self._see_plan(update.get("entries"))
        elif kind == "usage_update":
            self._see_usage(update)
        return _NOTHING

    def _hear(self, update: Mapping[str, Any]) -> None:
        content = update.get("content")
        text = content.get("text") if isinstance(content, dict) and content.get("type") == "text" else None
        if not isinstance(text, str) or not text:
            return
        named = update.get("messageId")
        if (self._ended or (named is not None and named != self._message)) and text.strip():
            self._said, self._size, self._ended, self._message = [], 0, False, named
        self._said.append(text)
        self._size += len(text)
        if self._size > 2 * TEXT_CHARS_MAX:
            self._said = ["".join(self._said)[-TEXT_CHARS_MAX:]]
            self._size = len(self._said[0])

    def see_call(self, update: Mapping[str, Any]) -> OwnCall:
        """The call with what is new of it."""
        name = str(update.get("toolCallId"))[:200]
        before = self.calls.pop(name, OwnCall())
        title, kind, status, given = (update.get(key) for key in ("title", "kind", "status", "rawInput"))
        now = OwnCall(
            title=one_line(clean(title), _TITLE_CHARS) if isinstance(title, str) and title.strip() else before.title,
            kind=kind if isinstance(kind, str) and kind.isidentifier() and len(kind) < 40 else before.kind,
            status=status if isinstance(status, str) else before.status,
            given=clean(json.dumps(given, ensure_ascii=False)) if given else before.given,
        )
        self.calls[name] = now
        while len(self.calls) > _TOOLS_MAX:
            del self.calls[next(iter(self.calls))]
        return now

    def _see_call(self, update: Mapping[str, Any], *, new: bool) -> Happening:
        known = str(update.get("toolCallId"))[:200]
        before = self.calls.get(known)
        self._ended = self._ended or (new and update.get("messageId") is None)
        now = self.see_call(update)
        over = now.status in _OVER and (before is None or before.status not in _OVER)
        failed = now.status == "failed"
        return Happening(doing=now.line, keep=f"{now.line}{' (failed)' if failed else ''}" if over else "")

    def open_calls(self) -> list[str]:
        """Those that began and did not end."""
        return [each.line for each in self.calls.values() if each.status not in _OVER and each.title]

    def _see_plan(self, entries: Any) -> Happening:
        found = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
        lines = [
            f"[{_MARKS.get(str(each.get('status')), ' ')}] {one_line(clean(str(each.get('content'))), _TITLE_CHARS)}"
            for each in found[:PLAN_ENTRIES_MAX]
        ]
        if not lines or (plan := "\n".join(lines)) == self.plan:
            return _NOTHING
        self.plan = plan
        now = next((each for each in lines if each.startswith("[>]")), "")
        return Happening(doing=now.removeprefix("[>] "), keep=f"plan:\n{plan}")

    def _see_usage(self, update: Mapping[str, Any]) -> None:
        used, size, cost = update.get("used"), update.get("size"), update.get("cost")
        if is_count(used) and is_count(size):
            self.context = (int(used), int(size))
        if isinstance(cost, dict) and cost.get("currency") == "USD" and is_count(cost.get("amount")):
            self.microdollars = math.ceil(cost["amount"] * 1e6)


def usage_of(told: Any) -> Usage | None:
    """The tokens of a turn; None: it does not say. Some agents count cached input apart and some do not, so the total
    decides how much of it was input."""
    if not isinstance(told, dict) or not all(is_count(told.get(key)) for key in ("inputTokens", "outputTokens")):
        return None
    output, total = int(told["outputTokens"]), told.get("totalTokens")
    given = max(int(told["inputTokens"]), (int(total) if is_count(total) else 0) - output)
    read, written = (
        int(told[key]) if is_count(told.get(key)) else 0 for key in ("cachedReadTokens", "cachedWriteTokens")
    )
    return Usage(
        input_tokens=given, output_tokens=output, cache_read_tokens=min(read, given),
        cache_write_tokens=min(written, given),
    )  # fmt: skip


def is_count(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _NUMBER_MAX
