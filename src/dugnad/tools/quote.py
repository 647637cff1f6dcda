"""Other people's words, marked as theirs.

Every line of them starts with "> ", whatever kind of line break made it, so no text can close its own quotation and go
on in the runtime's voice.
"""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]")
_BREAKS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in _BREAKS.split(text))


def clean(text: str) -> str:
    """As a database can keep it: no NUL, no half of a surrogate pair."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def one_line(text: str, most: int = 120) -> str:
    """On one line, and with nothing in it that a terminal would obey."""
    flat = " ".join(_CONTROLS.sub("\ufffd", _BREAKS.sub(" ", text)).split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def shorten(text: str, most: int, where: str = "") -> str:
    """The beginning and the end of a long text; the middle is named, with where the whole is."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    left_out = len(text) - head - tail
    note = f"[… {left_out:,} characters left out{f'; {where}' if where else ''} …]"
    return f"{text[:head]}\n{note}\n{cut_from(text, len(text) - tail)}"


def cut_from(text: str, start: int) -> str:
    """A text from somewhere on. What was inside a quotation stays marked as one."""
    line = _BREAKS.split(text[:start])[-1] + text[start : start + 2]
    return f"> {text[start:]}" if line.startswith("> ") and len(line) > 2 else text[start:]


def within_bytes(text: str, most: int) -> str:
    """Shortened until it is no longer than so many bytes."""
    size = len(text.encode())
    return text if size <= most else shorten(text, int(len(text) * max(0, most - 200) / size))
