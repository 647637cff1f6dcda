"""A task of a dozen turns, each of which does something else, for a model that thinks only of what it was told.

The script goes by the conversation alone: a tool's result is a fact, the first thing that is no fact yet is done next,
and what was interrupted is looked at before it is done again. So it behaves the same in any process, and ends with a
result made of all that it heard.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from dugnad.models.port import Message, Reply, Request, Said, ToolResult, Usage
from dugnad.models.scripted import Step
from dugnad.settings import AgentLimits, Limits, Patience
from dugnad.tools.context import Context
from dugnad.tools.tool import Tool, tool
from dugnad.types import Budget

LIMITS = Limits(backoff_seconds=0.01)
PATIENCE = Patience(busy_seconds=20, reconnect_seconds=20, poll_seconds=0.5)
AGENT_LIMITS = AgentLimits(
    output_tokens_max=1_000, summary_tokens_max=200, model_seconds_max=60, tool_seconds_max=20, retry_seconds=0.01
)  # fmt: skip
WINDOW_TOKENS = 6_000  # So small that making room leaves something out.
BUDGET = Budget(tasks=30, tokens=400_000, seconds=10_000)

WORKER = "alice"
ERRAND, CHILD, FOLLOW_UP = "The errand", "Help along", "Check it"
LINE = "first"
HINT = "The human says hello."
QUESTION, ANSWER = "May I go on?", "Do go on"

# What a reply costs, by what it is for: the sums tell what was asked how often.
TOKENS = {ERRAND: 100, CHILD: 30, FOLLOW_UP: 20, "(consult)": 7, "(summary)": 5}
NOT_KEYED = frozenset({"append", "look", "weigh", "consult"})

Calls = tuple[tuple[str, dict[str, object]], ...]
# The turns before the last, in order, with what their first tries meet.
TURNS: tuple[tuple[Calls, tuple[str, ...]], ...] = (
    ((("append", {"line": LINE}),), ()),
    ((("stamp", {"word": "second"}),), ()),
    ((("schedule_followup", {"title": FOLLOW_UP, "body": "look"}),), ()),
    ((("note", {"title": "a fact", "text": "it is so"}),), ("rate_limited",)),
    ((("send_message", {"to": "bob", "text": "hello"}),), ()),
    ((("todo", {"items": ["[x] begin", "[ ] end"]}),), ("timeout",)),
    ((("delegate", {"task": CHILD, "body": "please"}),), ()),
    ((("ask_human", {"question": QUESTION}),), ()),
    ((("consult", {"prompt": "What is the answer?"}),), ()),
    ((("weigh", {}), ("read_notes", {})), ()),
    ((("compact", {}),), ()),
)
REPLIES = len(TURNS) + 1

_FACT = re.compile(r"^(?:> )?fact (\w+) = (.*)$", re.MULTILINE)
_TOLD = re.compile(r"^\[(told|said|called \w+|\w+ gave)\] ?", re.MULTILINE)
_NUMBER = re.compile(r"#\d+|Note \d+")


def script(request: Request) -> Step:
    usage = Usage(input_tokens=TOKENS[request.title] - 1, output_tokens=1)
    if request.title == "(summary)":
        in_place = any(isinstance(each, Reply) for each in request.messages)
        facts = known(_heard(request.messages) if in_place else _told(request.messages))
        lines = [f"fact {name} = {json.dumps(text)}" for name, text in facts.items()]
        return Step(say="\n".join(lines), usage=usage)
    if request.title == "(consult)":
        return Step(calls=(("read_notes", {}),), usage=usage) if request.turn == 1 else Step(say="42", usage=usage)
    if request.title == CHILD:
        return Step(say="helped", usage=usage)
    if request.title == FOLLOW_UP:
        return _follow_up(request, usage)
    return _next(known(_heard(request.messages)), usage)


def _follow_up(request: Request, usage: Usage) -> Step:
    """Given back once, with a word for the next attempt; done when that word is seen."""
    first = request.messages[0]
    if isinstance(first, Said) and "not my day" in first.text:
        return Step(calls=(("finish", {"result": "checked"}),), usage=usage)
    return Step(say="This is not my day.", calls=(("release", {"reason": "tired"}),), usage=usage)


def _next(facts: dict[str, str], usage: Usage) -> Step:
    if "doubt" in facts:
        return Step(calls=(("look", {}),), usage=usage)
    for calls, faults in TURNS:
        if missing := tuple(call for call in calls if call[0] not in facts):
            return Step(calls=missing, faults=faults, usage=usage)
    return Step(calls=(("finish", {"result": json.dumps(facts, indent=1, sort_keys=True)}),), usage=usage)


def known(heard: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What is certain after all that was heard. "doubt" stands for a line that may or may not be in the file."""
    facts: dict[str, str] = {}
    for name, text in heard:
        if name == "summary":
            facts.update({fact: json.loads(value) for fact, value in _FACT.findall(text)})
        elif text.startswith("Interrupted"):
            if name == "append":
                facts["doubt"] = ""
        elif name == "look":
            facts.pop("doubt", None)
            if LINE in text.split("\n"):
                facts["append"] = f"{LINE} is written"
        else:
            # Of a follow-up only that it is there: its state and the budget are those of the moment.
            facts[name] = _NUMBER.sub("#", text.partition(" (")[0])
    return facts


def _heard(messages: Iterable[Message]) -> Iterable[tuple[str, str]]:
    for message in messages:
        if isinstance(message, ToolResult):
            yield message.name, message.text
        elif isinstance(message, Said):
            yield "summary", message.text


def _told(messages: Iterable[Message]) -> Iterable[tuple[str, str]]:
    """The same from a request for a summary, in which the conversation is quoted."""
    for message in messages:
        assert not isinstance(message, Reply)
        quoted = message.text.partition("is to be summarised:\n")[2]
        parts = _TOLD.split("\n".join(line.removeprefix("> ") for line in quoted.split("\n")))
        for what, text in zip(parts[1::2], parts[2::2], strict=True):
            if what.endswith(" gave"):
                yield what.removesuffix(" gave"), text.removesuffix("\n")


def append_line(path: Path, text: str) -> None:
    """One line at the end, whole and on disk."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, f"{text}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def tools(folder: Callable[[], Path], reached: Callable[[str], None]) -> list[Tool]:
    """Tools with effects outside the board. `reached` hears of each call when it has begun and when it has acted."""

    @tool
    def append(context: Context, line: str) -> str:
        """Append a line to the file."""
        reached(f"begun append {context.key}")
        append_line(folder() / "file", line)
        reached(f"acted append {context.key}")
        return f"{line} is written"

    @tool(keyed=True)
    async def stamp(context: Context, word: str) -> str:
        """Stamp a word, once for each call."""
        reached(f"begun stamp {context.key}")
        if not any(line.startswith(f"{context.key} ") for line in lines_of(folder() / "stamps")):
            append_line(folder() / "stamps", f"{context.key} {word}")
        reached(f"acted stamp {context.key}")
        return f"{word} is stamped"

    @tool(safe=True)
    async def look(context: Context) -> str:
        """What is in the file."""
        reached(f"begun look {context.key}")
        return "\n".join(lines_of(folder() / "file")) or "It is empty."

    @tool(safe=True)
    async def weigh(context: Context) -> str:
        """How many lines are in the file."""
        reached(f"begun weigh {context.key}")
        return f"{len(lines_of(folder() / 'file'))} lines"

    return [append, stamp, look, weigh]
