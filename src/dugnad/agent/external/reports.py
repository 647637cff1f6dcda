"""What external agents print when they are done, read strictly. Pure.

What an agent says it did is a result like any other, and what it says it cost is counted. If it does not report the
cost, all that was reserved counts.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...models.port import ToolCall, Usage
from ...text import clean, one_line
from ...types import Amount
from ...workspace.sandbox.sandbox import CommandResult
from .command import Reads

Ending = Literal[
    "well",
    "looked",  # Well, but what it said is only a report: the first run of a review.
    "asked",  # It asked something that has to be answered before it can go on.
    "cut",  # It reached a limit of its own, and can continue from there.
    "late",  # It took too long and was ended.
    "busy",  # Its provider has no room now.
    "refused",  # Its provider refused the key: a person has to act.
    "failed",
]
# By the HTTP status that it reports of its provider. Its words decide nothing: an agent may say "authentication"
# because it worked on that.
_BY_STATUS: dict[Any, Ending] = {401: "refused", 402: "refused", 403: "refused", 429: "busy", 503: "busy", 529: "busy"}
# The version of Codex that was tried reports a status only so, at the very beginning of its own error.
_STATUS_OF_CODEX = re.compile(r"(?:unexpected status|exceeded retry limit, last status:) ([0-9]{3}) ")
_NUMBER_MAX = 2**53
_RESETS = re.compile(
    r"usage limit reached\|([0-9]{10})\b"
)  # What `claude` says of a subscription, in seconds since 1970.


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """How a run ended, what it said, and what it says it cost; None: it does not say."""

    ended: Ending
    text: str = ""
    trouble: str = ""
    microdollars: int | None = None
    usage: Usage | None = None
    cut_off: Amount = field(default_factory=Amount)  # What an answer can have cost that was cut off and is not counted.
    calls: tuple[ToolCall, ...] = ()  # What it asked, if it ended with that.

    def used(self, most: Amount, seconds: float) -> Amount:
        """What it says it cost, or the most that it can have cost."""
        tokens = None if self.usage is None else self.usage.tokens
        return Amount(
            tokens=_counted(tokens, self.cut_off.tokens, most.tokens),
            microdollars=_counted(self.microdollars, self.cut_off.microdollars, most.microdollars),
            milliseconds=min(int(seconds * 1000), most.milliseconds),
        )


def _counted(said: int | None, cut_off: int, most: int) -> int:
    return most if said is None else max(said, min(said + cut_off, most))


def read_report(reads: Reads, ran: CommandResult) -> AgentReport:
    output = clean(ran.output.decode(errors="replace"))
    found = _with_its_end(_READERS[reads](output), ran, output)
    if found.trouble and ran.refused:
        return replace(found, trouble=f"{found.trouble} (network: {ran.refused[0]})")
    return found


def _with_its_end(found: AgentReport, ran: CommandResult, output: str) -> AgentReport:
    if ran.timed_out:
        why = f"it was ended after {ran.seconds:.0f} seconds, which is its limit"
        return replace(found, ended="late", trouble=why)
    if found.ended == "well" and ran.code != 0:
        return replace(found, ended="failed", trouble=f"it ended with exit code {ran.code}: {_tail(output)}")
    if found.ended != "well" and ran.code != 0:
        return replace(found, trouble=f"{found.trouble} (exit code {ran.code})")
    return found


def resets_in(report: AgentReport, now_ms: int) -> float | None:
    """The seconds until a subscription has more again, if its provider has no room now and the agent says when."""
    found = _RESETS.search(report.trouble) if report.ended == "busy" else None
    return None if found is None else max(1.0, int(found[1]) - now_ms / 1000)


def _tail(output: str) -> str:
    return one_line(output.strip()[-500:], 500) or "it said nothing"


# The output of `claude -p --output-format json`: one object, or with --verbose a list that ends with it.


def _claude(output: str) -> AgentReport:
    found = next((each for each in reversed(_objects(output)) if each.get("type") == "result"), None)
    if found is None:
        return AgentReport(ended="failed", trouble=f"it printed no result: {_tail(output)}")
    subtype, said = found.get("subtype"), found.get("result")
    cost, used = found.get("total_cost_usd"), found.get("usage")
    text = said if isinstance(said, str) else ""
    fields: dict[str, Any] = {
        "text": text,
        "microdollars": math.ceil(cost * 1e6) if _is_number(cost) else None,
        "usage": _claude_usage(used) if _says(used) else None,
    }
    if subtype == "success" and found.get("is_error") is False:
        return AgentReport(ended="well", **fields)
    if subtype in ("error_max_turns", "error_max_budget_usd"):
        what = "turns" if subtype == "error_max_turns" else "dollars"
        return AgentReport(ended="cut", trouble=f"it reached its limit of {what}", **fields)
    errors = found.get("errors")
    told = "; ".join(map(str, errors)) if isinstance(errors, list) else ""
    ended = by_status(found.get("api_error_status"))
    return AgentReport(ended=ended, trouble=one_line(told or text or str(subtype), 500), **fields)


def by_status(status: Any) -> Ending:
    return _BY_STATUS.get(status, "failed") if isinstance(status, int) else "failed"


def _claude_usage(used: Any) -> Usage:
    read, written = _count(used, "cache_read_input_tokens"), _count(used, "cache_creation_input_tokens")
    fresh, output = _count(used, "input_tokens"), _count(used, "output_tokens")
    return Usage(
        input_tokens=fresh + read + written, output_tokens=output, cache_read_tokens=read, cache_write_tokens=written
    )


# The output of `codex exec --json`: an event a line.


def _codex(output: str) -> AgentReport:
    text = trouble = ""
    ended: Ending = "failed"
    usage = None
    for event in _objects(output):
        kind, item = event.get("type"), event.get("item")
        if kind == "item.completed" and isinstance(item, dict) and item.get("type") == "agent_message":
            text = str(item.get("text") or "")
        elif kind == "turn.completed":
            ended, trouble = "well", ""
            used = event.get("usage")
            usage = _codex_usage(used) if _says(used) else usage
        elif kind in ("turn.failed", "error"):  # It prints "error" also before it tries again, so it may end well.
            told = event.get("error") if kind == "turn.failed" else event
            fields = told if isinstance(told, dict) else {"message": told}
            trouble = one_line(fields.get("message"), 500)
            says = _STATUS_OF_CODEX.match(trouble)
            ended = by_status(int(says[1]) if says else fields.get("httpStatusCode"))
    if ended != "well" and not trouble:
        trouble = f"it ended before its turn did: {_tail(output)}"
    return AgentReport(ended=ended, text=text, trouble=trouble, usage=usage)


def _codex_usage(used: Any) -> Usage:
    given, output = _count(used, "input_tokens"), _count(used, "output_tokens")
    cached = min(given, _count(used, "cached_input_tokens"))
    return Usage(input_tokens=given, output_tokens=output, cache_read_tokens=cached)


# The output of `opencode run --format json`: an event a line, with what each step cost.


def _opencode(output: str) -> AgentReport:
    texts: dict[str, str] = {}  # By message; the last one is the result.
    steps: list[dict[str, Any]] = []
    ended: Ending = "failed"
    trouble = ""
    for event in _objects(output):
        kind, part, error = event.get("type"), _object(event.get("part")), _object(event.get("error"))
        if kind == "text":
            message = str(part.get("messageID"))
            texts[message] = f"{texts.get(message, '')}{part.get('text') or ''}"
        elif kind == "step_finish":
            steps.append(part)
            ended, trouble = _STEPS.get(str(part.get("reason")), ("failed", ""))
        elif kind == "error":
            told = _object(error.get("data"))
            trouble = one_line(told.get("message") or error.get("name") or "it does not say why", 500)
            ended = by_status(told.get("statusCode"))
    if ended != "well" and not trouble:
        trouble = f"it ended before its work did: {_tail(output)}"
    dollars = sum(step["cost"] for step in steps if _is_number(step.get("cost")))
    return AgentReport(
        ended=ended, text=["", *texts.values()][-1], trouble=trouble,
        usage=_opencode_usage([_object(step.get("tokens")) for step in steps]) if steps else None,
        microdollars=math.ceil(dollars * 1e6) or None,  # It says 0 if it does not know the price.
    )  # fmt: skip


_STEPS: dict[str, tuple[Ending, str]] = {"stop": ("well", ""), "length": ("cut", "it reached its limit of output")}


def _opencode_usage(steps: list[dict[str, Any]]) -> Usage:
    caches = [_object(step.get("cache")) for step in steps]
    read, written = (sum(_count(each, name) for each in caches) for name in ("read", "write"))
    fresh, output, thought = (sum(_count(each, name) for each in steps) for name in ("input", "output", "reasoning"))
    return Usage(
        input_tokens=fresh + read + written, output_tokens=output + thought,
        cache_read_tokens=read, cache_write_tokens=written,
    )  # fmt: skip


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(output: str) -> AgentReport:
    return AgentReport(ended="well", text=output.strip())


_READERS = {"claude-json": _claude, "codex-jsonl": _codex, "opencode-jsonl": _opencode, "text": _text}


def _objects(output: str) -> list[dict[str, Any]]:
    """The JSON objects among the lines. Other lines are ignored."""
    found: list[dict[str, Any]] = []
    for line in output.splitlines():
        if not line.lstrip().startswith(("{", "[")):
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        found += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _NUMBER_MAX


def _count(used: dict[str, Any], name: str) -> int:
    value: Any = used.get(name)
    return int(value) if _is_number(value) else 0


def _says(used: Any) -> bool:
    """Whether it counts at all; zero is an answer too."""
    return isinstance(used, dict) and _is_number(used.get("input_tokens")) and _is_number(used.get("output_tokens"))
