"""Words: whose they are, made harmless, cut to size. Pure.

`Told` is what the runtime says to a model in its own voice. `fill` makes it from a template of `prompts/`. What is put
into a slot becomes one line, or is quoted line by line, so nobody's words can begin a line of ours. A request takes
only this type, so other text cannot get into it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from string import Formatter
from typing import TypeVar

_BREAKS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SHOWN_BREAKS = re.compile(r"\r\n|[\v\f\x85\u2028\u2029]")  # A lone carriage return would hide what is before it.
# C0 without tab and newline, DEL, C1, halves of surrogate pairs, what turns the direction of text around, and what
# nobody sees. The two joiners stay: scripts and pictures need them.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_PICTURES = 0x2400  # Unicode has a picture for each of the first 32 control characters, and one for DEL.
_OUR_TAGS = re.compile(r"<(?=\s*/?\s*(?:inbox|auto-claimed)\b)", re.IGNORECASE)
_INLINE_CHARS = 200
T = TypeVar("T", bound=str)


class Told(str):
    """Said to a mind in the runtime's voice. Everything else in it is marked as other people's."""

    __slots__ = ()


NOTHING = Told()


class _Filling(Formatter):
    def format_field(self, value: object, spec: str) -> str:
        if isinstance(value, Told | int | float):
            return value if isinstance(value, Told) else format(value, spec)
        if spec == "quoted":
            return quote(value)
        flat = _OUR_TAGS.sub("‹", one_line(value, int(spec.removeprefix("q") or _INLINE_CHARS)))
        return repr(flat) if spec.startswith("q") else flat


def fill(template: str, slots: Mapping[str, object]) -> Told:
    """Our own words, with other people's put in. {x} and {x:80}: on one line, of so many characters at most; {x:q}: so
    and in quotation marks; {x:quoted}: as lines of their own. Told, and numbers, stay as they are."""
    return Told(_Filling().vformat(template, (), slots))


def joined(parts: Iterable[Told | None], between: str = "\n\n") -> Told:
    """One after another; what is empty is left out."""
    return Told(between.join(filter(None, parts)))


def persons(text: str) -> Told:
    """What the person the team works for wrote for a mind, such as a role's prompt: it is taken at its word."""
    return Told(plain(text).strip())


def quote(text: object) -> Told:
    """Other people's words: every line starts with "> ", whatever kind of line break made it."""
    return Told("\n".join(f"> {_CONTROLS.sub(_mark, line)}" for line in _BREAKS.split(str(text))))


def pasted(branch: str) -> str:
    """A branch's name in a command that a person may paste into a shell."""
    return shlex.quote(f"refs/heads/{branch}" if branch.startswith("-") else branch)


def clean(text: str) -> str:
    """As a database can keep it: no NUL, no half of a surrogate pair."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def plain(text: object) -> str:
    """With nothing in it that a terminal would obey or nobody would see. Its lines stay lines."""
    return _CONTROLS.sub(_mark, _SHOWN_BREAKS.sub("\n", str(text)).replace("\t", "    "))


def one_line(text: object, most: int = 120) -> str:
    """So, and on one line of so many characters at most."""
    flat = " ".join(plain(_BREAKS.sub(" ", str(text))).split())
    return flat if len(flat) <= most else flat[: max(0, most - 1)].rstrip() + "…"


def _mark(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(_PICTURES + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def shorten(text: T, most: int, where: str = "") -> T:
    """The beginning and the end of a long text; the middle is named, with where the whole is."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    left_out = len(text) - head - tail
    note = f"[… {left_out:,} characters left out{f'; {where}' if where else ''} …]"
    return type(text)(f"{text[:head]}\n{note}\n{cut_from(text, len(text) - tail)}")


def cut_from(text: str, start: int) -> str:
    """A text from somewhere on. What was inside a quotation stays marked as one, and what was inside a line of ours
    does not begin one."""
    line = _BREAKS.split(text[:start])[-1] + text[start : start + 2]
    if line.startswith("> ") and len(line) > 2:
        return f"> {text[start:]}"
    return f"…{text[start:]}" if isinstance(text, Told) and len(line) > 2 else text[start:]


def within_bytes(text: T, most: int) -> T:
    """Shortened until it is no longer than so many bytes."""
    size = len(text.encode())
    return text if size <= most else shorten(text, int(len(text) * max(0, most - 200) / size))
