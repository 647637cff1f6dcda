"""Texts: marked as our own or as other people's, made harmless, and shortened. Pure.

`Told` is what the runtime says to a model in its own voice. `fill` makes it from a template of `prompts/`. The text in
a slot becomes one line, or is quoted line by line, so it cannot begin a line of ours. A request takes only this type,
so no other text can get into it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from string import Formatter
from typing import TypeVar

_BREAKS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SHOWN_BREAKS = re.compile(r"\r\n|[\v\f\x85\u2028\u2029]")  # A lone carriage return would hide what is before it.
# C0 without tab and newline, DEL, C1, halves of surrogate pairs, what changes the direction of text, and characters
# that nobody sees: fillers, blanks that are no spaces, tags. The two joiners and the selectors of a character's form
# stay: scripts and pictures need them.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d159"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_CONTROLS = re.compile(f"[{_HIDDEN}]")
_UNSEEN = re.compile(f"[{_HIDDEN}\u200c\u200d\ufe00-\ufe0f]")
_PICTURES = 0x2400  # Unicode has a picture for each of the first 32 control characters, and one for DEL.
_OUR_TAGS = re.compile(r"<(?=\s*/?\s*inbox\b)", re.IGNORECASE)
_INLINE_CHARS = 200
T = TypeVar("T", bound=str)


class Told(str):
    """A text in the runtime's own voice. Other people's words in it are marked as theirs."""

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
    """Our own words, with other people's words in the slots. {x} and {x:80}: on one line, with at most 80 characters;
    {x:q}: the same in quotation marks; {x:quoted}: quoted line by line. Numbers and Told stay as they are."""
    return Told(_Filling().vformat(template, (), slots))


def joined(parts: Iterable[Told | None], between: str = "\n\n") -> Told:
    """The parts that are not empty, one after another. Our words never share a line with quoted ones."""
    whole = ""
    for part in filter(None, parts):
        breaks = "\n" in between or not (part.startswith("> ") or whole.rpartition("\n")[2].startswith("> "))
        whole += (between if breaks else "\n") + part if whole else part
    return Told(whole)


def persons(text: str) -> Told:
    """What the user wrote for a mind, such as a role's prompt. It is trusted, so it is not quoted."""
    return Told(plain(text).strip())


def recorded(text: str) -> Told:
    """A text that the runtime wrote and kept on the board, such as the order of a review: it is marked already."""
    return Told(text)


def quote(text: object) -> Told:
    """Other people's words: every line starts with "> ", after any kind of line break."""
    return Told("\n".join(f"> {_CONTROLS.sub(_mark, line)}" for line in _BREAKS.split(str(text))))


def pasted(branch: str) -> str:
    """A branch's name in a command that a person may paste into a shell."""
    return shlex.quote(f"refs/heads/{branch}" if branch.startswith("-") else branch)


def clean(text: str) -> str:
    """Without what a database cannot keep: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def plain(text: object) -> str:
    """Without characters that a terminal would obey or a person could not see. Its lines stay lines."""
    return _CONTROLS.sub(_mark, _SHOWN_BREAKS.sub("\n", str(text)).replace("\t", "    "))


def revealed(text: object) -> str:
    """For a text that a person must see exactly: each character that does not show is written as its number."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def shows(character: str) -> bool:
    """Whether a person sees it. Python calls some blanks and fillers printable."""
    return character.isprintable() and not _UNSEEN.match(character)


def one_line(text: object, most: int = 120) -> str:
    """The same, on one line with at most this many characters."""
    flat = " ".join(plain(_BREAKS.sub(" ", str(text))).split())
    return flat if len(flat) <= most else flat[: max(0, most - 1)].rstrip() + "…"


def _mark(found: re.Match[str]) -> str:
    return chr(_PICTURES + code) if (code := ord(found[0])) < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def counted(count: int, noun: str) -> str:
    """1 task, 2 tasks."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shorten(text: T, most: int, where: str = "") -> T:
    """The beginning and the end of a long text. In between stands how much is left out, and where the whole text is."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    note = f"[… {len(text) - head - tail:,} characters left out{f'; {where}' if where else ''} …]"
    return type(text)(f"{text[:head]}\n{note}\n{cut_from(text, len(text) - tail)}")


def cut_from(text: str, start: int) -> str:
    """The text from `start` on. The rest of a quoted line stays quoted, and the rest of a line of ours is marked."""
    line = _BREAKS.split(text[:start])[-1] + text[start : start + 2]
    if line.startswith("> ") and len(line) > 2:
        return f"> {text[start:]}"
    return f"…{text[start:]}" if isinstance(text, Told) and len(line) > 2 else text[start:]


def within_bytes(text: T, most: int) -> T:
    """Shortened to at most this many bytes."""
    size = len(text.encode())
    return text if size <= most else shorten(text, int(len(text) * max(0, most - 200) / size))


def length(milliseconds: float) -> str:
    """A duration in its two largest units: 4m 10s, 2h 14m."""
    seconds = round(milliseconds / 1000)
    parts = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        if seconds >= size:
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
        elif parts:
            break
    return " ".join(parts[:2]) or "0s"
