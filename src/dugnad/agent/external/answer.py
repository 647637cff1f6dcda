"""What an external agent answers besides plain text: a small JSON object, strictly parsed.

Each thing it asks for becomes a call of one of our own tools. So it is recorded, keyed, fenced and bounded in the same
way, and called again after a crash or a wait in the same way.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...models.port import ToolCall
from ...prompts import tell
from ...text import NOTHING, Told, clean, joined
from ...tools.built_in import BUILT_IN
from ...tools.tool import BadCall, Tool

FILE = ".dugnad-answer.json"
_FENCE = "```dugnad"
_NOT_ITS_OWN = "?"  # Behind the fence of a block without the word of its run.
_BYTES_MAX = 256 * 1024
_ENTRIES_MAX = 100  # Of one kind.
_TOOLS = {"follow_ups": "add_task", "notes": "note", "messages": "send_message", "responses": "respond"}
_ALONE = {"question": ("ask_human", "question"), "failure": ("give_up", "reason")}  # A tool, and its one argument.
_WORDS = ("result", "outcome", *_ALONE)
_BY_KEY = {**_TOOLS, **{key: tool for key, (tool, _) in _ALONE.items()}}
KEYS = {tool: key for key, tool in _BY_KEY.items()}
TOOLS = {each.name: each for each in BUILT_IN if each.name in KEYS}
# What an agent can use while it works, if it takes tools of ours; those that only read come first.
_LOOKS = ("list_tasks", "show_task", "notes", "list_teammates")
_ACTS = ("add_tasks", "note", "send_message", "ask_human")
_BY_NAME = {each.name: each for each in BUILT_IN}


def tools_at_hand(*, look: bool) -> dict[str, Tool]:
    """Tools of ours for one run. In a run that only looks, whatever runs beside the agent could use them."""
    return {name: _BY_NAME[name] for name in (*_LOOKS, *(() if look else _ACTS))}


def protocol(word: str, *, file: bool, denied: Container[str] = ()) -> Told:
    """How an agent answers. What the policy denies is not offered."""
    keys = {
        "result": tell("external.result"), "outcome": tell("external.outcome"),
        "follow_ups": tell("external.follow_ups"), "notes": tell("external.notes"),
        "messages": tell("external.messages"), "responses": tell("external.responses"),
        "question": tell("external.question"), "failure": tell("external.failure"),
    }  # fmt: skip
    offered = [tell("external.key", key=key, says=says) for key, says in keys.items() if _BY_KEY.get(key) not in denied]
    how = joined((tell("external.protocol"), tell("external.in_a_file", name=FILE) if file else None), " ")
    return joined((how, tell("external.block", fence=_FENCE, word=word, keys=joined(offered, "\n"))))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAnswer:
    """`wrong` says what is wrong with it; then no part of it is done."""

    result: str = ""
    outcome: str | None = None
    question: str = ""
    failure: str = ""
    calls: tuple[ToolCall, ...] = ()
    wrong: Told = NOTHING


def read_answer(text: str) -> AgentAnswer:
    """The answer in a final text: plain text is the result, and a block at its end says more."""
    before, fence, block = f"\n{text}".rpartition(f"\n{_FENCE}")
    if not fence:
        return AgentAnswer(result=text.strip()) if text.strip() else AgentAnswer(wrong=tell("external.no_words"))
    block = block.strip()
    if block.startswith(_NOT_ITS_OWN):
        return AgentAnswer(wrong=tell("external.no_word_of_run", fence=_FENCE))
    if not block.endswith("```"):
        return AgentAnswer(wrong=tell("external.not_closed", fence=_FENCE))
    try:
        given = _parsed(block.removesuffix("```"))
        calls = _calls(given)
    except (ValueError, BadCall) as wrong:
        return AgentAnswer(wrong=tell("external.not_understood", why=wrong))
    result = given.get("result") or ("" if given.get("question") or given.get("failure") else before.strip())
    if not (result or given.get("question") or given.get("failure")):
        return AgentAnswer(wrong=tell("external.no_end"))
    words = {word: given[word] for word in ("outcome", "question", "failure") if word in given}
    return AgentAnswer(result=result, calls=calls, **words)


def _parsed(block: str) -> dict[str, Any]:
    if len(block.encode()) > _BYTES_MAX:
        raise ValueError(tell("external.too_long", most=_BYTES_MAX // 1024))
    try:
        given = json.loads(block, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as trouble:
        raise ValueError(tell("external.not_json", trouble=trouble)) from None
    except RecursionError:
        raise ValueError(tell("external.too_deep")) from None
    if not isinstance(given, dict):
        raise ValueError(tell("external.not_an_object"))
    given.pop("word", None)
    if unknown := given.keys() - {*_WORDS, *_TOOLS}:
        raise ValueError(tell("external.unknown_key", key=sorted(unknown)[0], keys=", ".join((*_WORDS, *_TOOLS))))
    for word in _WORDS:
        if word in given and (not isinstance(given[word], str) or not given[word].strip()):
            raise ValueError(tell("external.not_text", key=word))
    ends = [word for word in ("result", "question", "failure") if word in given]
    if len(ends) > 1:
        raise ValueError(tell("external.several_ends", ends=" and ".join(ends)))
    return given


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(tell("external.key_twice"))
    return found


def _no_number(word: str) -> Any:
    raise ValueError(tell("external.no_number", word=word))


def _calls(given: dict[str, Any]) -> tuple[ToolCall, ...]:
    """Each entry as a call. All are checked before the first one is made. A question waits, so it is last."""
    wanted: list[tuple[str, dict[str, Any]]] = []
    for word, tool in _TOOLS.items():
        entries = given.get(word, [])
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise ValueError(tell("external.not_a_list", key=word))
        if len(entries) > _ENTRIES_MAX:
            raise ValueError(tell("external.too_many", key=word, most=_ENTRIES_MAX))
        wanted += [(tool, each) for each in entries]
    wanted += [(tool, {argument: given[key]}) for key, (tool, argument) in _ALONE.items() if key in given]
    calls = []
    for place, (tool, arguments) in enumerate(wanted):
        written = clean(json.dumps(arguments))
        TOOLS[tool].check(written)
        calls.append(ToolCall(f"call-{place}", tool, written))
    return tuple(calls)


def own_words(text: str, word: str) -> str:
    """The final text as it is recorded. Only a block with the word of the run stays a block; others are marked. A
    program that the agent ran may have printed one, and an agent may repeat what it read."""
    before, fence, block = f"\n{text}".rpartition(f"\n{_FENCE} {word}\n")
    before, block = (each.replace(f"\n{_FENCE}", f"\n{_FENCE}{_NOT_ITS_OWN}") for each in (before, f"\n{block}"))
    return f"{before}\n{_FENCE}{block}"[1:] if fence else block[2:]


def has_block(own: str) -> bool:  # Of own words.
    return f"\n{_FENCE}\n" in f"\n{own}"


def without_blocks(text: str) -> str:
    """A text in which no block can be mistaken for an example of how to answer."""
    return text.replace(_FENCE, f"{_FENCE}{_NOT_ITS_OWN}")


def with_file(text: str, tree: Path, word: str) -> str:
    """The final text, with the content of the file as its block if it has none of its own. Every program in the
    workspace can write the file, so it counts only with the word of the run."""
    if f"\n{_FENCE} {word}\n" in f"\n{text}":
        return text
    try:
        # There may be a link or a pipe.
        handle = os.open(tree / FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return text
    try:
        is_file = stat.S_ISREG(os.fstat(handle).st_mode)
        content = clean(os.read(handle, _BYTES_MAX).decode(errors="replace")) if is_file else ""
    finally:
        os.close(handle)
    return f"{text}\n\n{_FENCE} {word}\n{content.strip()}\n```" if f'"{word}"' in content else text


def remove_file(tree: Path) -> None:
    """It is no part of the work. A folder of that name is left alone."""
    with suppress(OSError):
        os.unlink(tree / FILE)
