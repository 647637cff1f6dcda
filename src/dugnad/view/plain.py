"""Other people's words made safe for a terminal.

Titles, messages and results come from models and from the files they read. A terminal obeys what it is sent: colours,
a new window title, text that is drawn backwards. Everything of that kind is shown as a mark instead of being obeyed.
"""

from __future__ import annotations

import re

_BREAKS = re.compile(r"\r\n|[\v\f\x85\u2028\u2029]")
# C0 without tab and newline, DEL, C1, halves of surrogate pairs, and what turns the direction of text around.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]")
_PICTURES = 0x2400  # Unicode has a picture for each of the first 32 control characters, and one for DEL.


def plain(text: object) -> str:
    """The text with nothing in it that a terminal would obey. Its lines stay lines."""
    broken = _BREAKS.sub("\n", str(text)).replace("\t", "    ")
    return _CONTROLS.sub(_mark, broken)


def line(text: object, most: int = 80) -> str:
    """The text as one line, shortened to so many characters."""
    flat = " ".join(plain(text).split())
    return flat if len(flat) <= most else flat[: max(0, most - 1)].rstrip() + "…"


def _mark(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(_PICTURES + code)
    return "\u2421" if code == 0x7F else "\ufffd"
