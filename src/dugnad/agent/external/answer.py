"""What another agent hands back besides plain text: a small JSON object, strictly parsed, in our own tools' terms.

Each thing it asks for becomes a call of the tool that a teammate of ours would call. So it is recorded, keyed, fenced
and bounded in the same way, and asked again after a crash or a wait in the same way.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...models.port import ToolCall
from ...text import NOTHING, Told, clean, joined, tell
from ...tools import BUILT_IN, BadCall

FILE = ".dugnad-answer.json"
_FENCE = "```dugnad"
_NOT_ITS_OWN = "?"  # Behind the fence of a block that has not the word of its run.
_BYTES_MAX = 256 * 1024
_ENTRIES_MAX = 100  # Of one kind.
_TOOLS = {"follow_ups": "add_task", "notes": "note", "messages": "send_message", "responses": "respond"}
_ALONE = {"question": ("ask_human", "question"), "failure": ("give_up", "reason")}  # A tool, and its one argument.
_WORDS = ("result", "outcome", *_ALONE)
_BY_KEY = {**_TOOLS, **{key: tool for key, (tool, _) in _ALONE.items()}}
TOOLS = {each.name: each for each in BUILT_IN if each.name in _BY_KEY.values()}

_PROTOCOL = """\
How to hand back what came of it. Change files only in the folder you are in, and leave them there: the runtime takes \
them from there. End with plain text, and it is your result: others work on with just this. To say more than that, end \
your text with a block like this. The word in its first line is for this run and for you alone; nothing counts without \
it.{file}

{fence} {word}
{{"result": "what was done and where it is", "outcome": "approved"}}
```

It is one JSON object with these keys, all optional, and no others:
{keys}"""
_IN_A_FILE = """ You can also write the object into the file {name} in that folder, with the word as another key, \
"word"; what your text says comes before that."""
_KEYS = {
    "result": "text. The task is done. Without it, your text before the block is the result.",
    "outcome": "one word that tasks waiting for this one may ask for, like approved or changes-requested.",
    "follow_ups": 'what you discovered and is not part of this task, a list of {"title", "body", "needs", "role", '
    '"assignee", "priority", "check"}, of which only the title must be there. "needs" are numbers of tasks that must '
    'end first, as texts, each alone or with an outcome, like "12" or "12:approved".',
    "notes": 'what you found out and others will need, a list of {"title", "text"}.',
    "messages": 'what to tell one teammate, or "human", a list of {"to", "text"}.',
    "responses": 'answers to requests in your inbox, a list of {"request", "accept", "text"}.',
    "question": "text, instead of a result. Only a person can decide this; you are started again with the answer.",
    "failure": "text, instead of a result. Nobody can do this task; say why, and what was tried.",
}


def protocol(word: str, *, file: bool, denied: Container[str] = ()) -> Told:
    """How an agent hands back. What the policy denies is not offered."""
    offered = {key: says for key, says in _KEYS.items() if _BY_KEY.get(key) not in denied}
    keys = joined((tell('- "{key}": {says:1000}', key=key, says=says) for key, says in offered.items()), "\n")
    in_a_file = tell(_IN_A_FILE, name=FILE) if file else NOTHING
    return tell(_PROTOCOL, file=in_a_file, fence=_FENCE, word=word, keys=keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAnswer:
    """`wrong` says what is wrong with it; then nothing of it is done."""

    result: str = ""
    outcome: str | None = None
    question: str = ""
    failure: str = ""
    calls: tuple[ToolCall, ...] = ()
    wrong: str = ""


def read_answer(text: str) -> AgentAnswer:
    """What a final text says: plain text is the result, a block at its end says more."""
    before, fence, block = f"\n{text}".rpartition(f"\n{_FENCE}")
    if not fence:
        return AgentAnswer(result=text.strip()) if text.strip() else AgentAnswer(wrong="You ended without a word.")
    block = block.strip()
    if block.startswith(_NOT_ITS_OWN):
        return AgentAnswer(
            wrong=f"The block at the end must begin with the line {_FENCE} and the word of this run, as below."
        )
    if not block.endswith("```"):
        return AgentAnswer(
            wrong=f"The block that begins with {_FENCE} must be closed with ```, and be the last you say."
        )
    try:
        given = _parsed(block.removesuffix("```"))
        calls = _calls(given)
    except (ValueError, BadCall) as wrong:
        return AgentAnswer(wrong=f"What you handed back was not understood, and nothing of it was done: {wrong}")
    result = given.get("result") or ("" if given.get("question") or given.get("failure") else before.strip())
    if not (result or given.get("question") or given.get("failure")):
        return AgentAnswer(
            wrong='What you handed back has no "result", "question" or "failure"; nothing of it was done.'
        )
    words = {word: given[word] for word in ("outcome", "question", "failure") if word in given}
    return AgentAnswer(result=result, calls=calls, **words)


def _parsed(block: str) -> dict[str, Any]:
    if len(block.encode()) > _BYTES_MAX:
        raise ValueError(f"it has more than {_BYTES_MAX // 1024} KiB.")
    try:
        given = json.loads(block, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as trouble:
        raise ValueError(f"it is not JSON ({trouble}).") from None
    except RecursionError:
        raise ValueError("it is nested too deeply.") from None
    if not isinstance(given, dict):
        raise ValueError("it must be one JSON object.")
    given.pop("word", None)
    if unknown := given.keys() - {*_WORDS, *_TOOLS}:
        raise ValueError(f"it has no key {sorted(unknown)[0]!r}; there are {', '.join((*_WORDS, *_TOOLS))}.")
    for word in _WORDS:
        if word in given and (not isinstance(given[word], str) or not given[word].strip()):
            raise ValueError(f"{word!r} must be text.")
    ends = [word for word in ("result", "question", "failure") if word in given]
    if len(ends) > 1:
        raise ValueError(f"it has {' and '.join(ends)}; keep one of them.")
    return given


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice.")
    return found


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number.")


def _calls(given: dict[str, Any]) -> tuple[ToolCall, ...]:
    """Each entry as a call, looked at by the tool before any of them is made. A question waits, so it is last."""
    wanted: list[tuple[str, dict[str, Any]]] = []
    for word, tool in _TOOLS.items():
        entries = given.get(word, [])
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise ValueError(f"{word!r} must be a list of objects.")
        if len(entries) > _ENTRIES_MAX:
            raise ValueError(f"{word!r} has more than {_ENTRIES_MAX} entries.")
        wanted += [(tool, each) for each in entries]
    wanted += [(tool, {argument: given[key]}) for key, (tool, argument) in _ALONE.items() if key in given]
    calls = []
    for place, (tool, arguments) in enumerate(wanted):
        written = clean(json.dumps(arguments))
        TOOLS[tool].check(written)
        calls.append(ToolCall(f"call-{place}", tool, written))
    return tuple(calls)


# Whose words they are.


def own_words(text: str, word: str) -> str:
    """The final text as it is recorded: a block with the word of the run as a block, any other marked as none. What an
    agent ran may have printed one, and an agent may repeat what it read."""
    before, fence, block = f"\n{text}".rpartition(f"\n{_FENCE} {word}\n")
    before, block = (each.replace(f"\n{_FENCE}", f"\n{_FENCE}{_NOT_ITS_OWN}") for each in (before, f"\n{block}"))
    return f"{before}\n{_FENCE}{block}"[1:] if fence else block[2:]


def with_file(text: str, tree: Path, word: str) -> str:
    """The final text, with what is in the file as its block where it has none of its own. Everything that runs in the
    tree can write the file, so it counts only with the word of the run."""
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
    """It is no part of the work. A folder of that name is somebody's own."""
    try:
        os.unlink(tree / FILE)
    except OSError:
        pass
