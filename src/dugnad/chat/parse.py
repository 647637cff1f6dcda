"""What a typed line means. Pure: it knows no board and no terminal."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BadInput
from ..types import Message

_NUMBER = re.compile(r"#?([0-9]{1,15})")
_MESSAGE = re.compile(r"m([0-9]{1,15})")
_CAPS = ("tasks", "tokens", "dollars", "seconds", "minutes")


class Incomplete(BadInput):
    """An argument is missing. The sentence goes on with how the command is written."""


def read_line(text: str) -> tuple[str | None, str]:
    """The command and its arguments, or None and a text for the lead. A space before the slash makes it a text."""
    if not text.startswith("/"):
        return None, text.strip()
    return first_word(text[1:]) if text[1:2].strip() else ("", text[1:].strip())


def first_word(rest: str) -> tuple[str, str]:
    """The first word, and what follows it."""
    word, *more = rest.split(None, 1)[:2] or [""]
    return word, more[0].strip() if more else ""


def task_number(word: str) -> int:
    found = _NUMBER.fullmatch(word)
    if found is None:
        raise BadInput(f"{word!r} is not the number of a task; write 12 or #12.")
    return int(found[1])


def task_and_words(rest: str) -> tuple[int, str]:
    word, words = first_word(rest)
    if not word:
        raise Incomplete("The task is missing")
    return task_number(word), words


def name_and_words(rest: str) -> tuple[str, str]:
    name, words = first_word(rest)
    if not name:
        raise Incomplete("The teammate's name is missing")
    return name, words


def stop_words(rest: str) -> tuple[str, str, bool]:
    """The teammate to stop, the reason, and whether to stop it at once."""
    words = rest.split()
    name, why = name_and_words(" ".join(word for word in words if word != "--now"))
    return name, why, "--now" in words


def title_and_body(rest: str) -> tuple[str, str]:
    """The first line, and those below it."""
    title, _, body = rest.partition("\n")
    if not title.strip():
        raise BadInput("A task needs a title; write /add TITLE, and its body on more lines.")
    return title.strip(), body.strip()


def request_and_words(rest: str, waiting: Sequence[Message], *, words_needed: bool = True) -> tuple[str, str]:
    """The request, as "m34" or a task's number, and the text for it.

    Without either it is the only request that waits. If a text is needed, a plain number names a task only if a request
    is about that task and a text follows: in "/answer 42", 42 is the answer.
    """
    word, words = first_word(rest)
    if _MESSAGE.fullmatch(word):
        return word, words
    if found := _NUMBER.fullmatch(word):
        about = [message for message in waiting if message.task == int(found[1])]
        if len(about) == 1 and (words or not words_needed):
            return f"m{about[0].id}", words
        if word.startswith("#") or not words_needed:
            return found[1], words
    if not waiting:
        raise BadInput("No such request waits for you; /inbox shows those that do.")
    if len(waiting) > 1:
        named = (f"m{each.id} ({each.sender}{f', #{each.task}' if each.task else ''})" for each in waiting)
        raise Incomplete(f"Several requests wait for you: {', '.join(named)}")
    return f"m{waiting[0].id}", rest


@dataclass(frozen=True, slots=True)
class Caps:
    """A change of a goal's caps: the goal (None: the newest with work left), the caps, and whether to add to them."""

    root: int | None
    caps: dict[str, Any]  # Numbers; None removes the cap.
    add: bool


def caps_words(rest: str) -> Caps:
    """[ID] [tasks=20] [dollars=2.5] ..., "=+5" to add, "=none" to remove a cap."""
    root: int | None = None
    caps: dict[str, float | None] = {}
    added: list[bool] = []
    for place, word in enumerate(rest.split()):
        name, equals, value = word.partition("=")
        if not equals and place == 0:
            root = task_number(word)
            continue
        if name not in _CAPS or not value:
            raise BadInput(f"{word!r} is not a cap; write tasks=20, tokens=500000, dollars=2.50 or minutes=5.")
        number = _cap_number(name, value.removeprefix("+"))
        if number is not None and name == "minutes":
            number *= 60
        caps["seconds" if name == "minutes" else name] = number
        added.append(value.startswith("+"))
    if any(added) and not all(added):
        raise BadInput("Set caps (tasks=20) or add to them (tasks=+5), not both in one line.")
    return Caps(root, caps, any(added))


def _cap_number(name: str, value: str) -> float | None:
    if value == "none":
        return None
    try:
        number = float(value.removeprefix("$").replace("_", "").replace(",", ""))
    except ValueError:
        raise BadInput(f"{value!r} is not a number; write for example {name}=5, or {name}=none for no cap.") from None
    if name in ("tasks", "tokens") and number != number // 1:  # Also refuses nan and infinity.
        raise BadInput(f"A cap on {name} must be a whole number, not {value}.")
    return int(number) if name in ("tasks", "tokens") else number


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    known = list(names)
    begins = [each for each in known if name and each.startswith(name)]
    if len(begins) == 1:
        return begins[0]
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.6)), None)
