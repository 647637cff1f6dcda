"""Replacing one text by another. It must be in the file exactly once; if not, the error shows what is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from ...errors import ToolError
from .content import Text

PLACES_MAX = 10  # That are named.
_NEAR_CHARS_MAX = 1_000  # Of the text, when the nearest match is looked for.
_NEAR_LINES_MAX = 10_000  # Of the file.
_NEAR_TRIES_MAX = 20  # Exact comparisons, which are slow.
_NEAR_RATIO_MIN = 0.5
_SHARED_CHARS_MIN = 5
_SHOWN_LINES_MAX = 20


@dataclass(frozen=True, slots=True)
class Edit:
    """One text to replace by another: the only one of its kind in the file, or every one."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (not a field)

    old: str
    new: str
    every: bool = False


@dataclass(frozen=True, slots=True)
class Edited:
    """A changed text, how often it was changed, and the first lines where it was."""

    text: Text
    count: int
    lines: tuple[int, ...]


def replace_texts(whole: Text, edits: Sequence[Edit], *, path: str) -> Edited:
    """Make all edits, one after the other, or none. Each finds the text as the ones before it left it."""
    count, lines = 0, dict[int, None]()
    for number, each in enumerate(edits, 1):
        try:
            edited = replace_text(whole, each.old, each.new, every=each.every, path=path)
        except ToolError as wrong:
            if len(edits) == 1:
                raise
            raise ToolError(f"Edit {number} of {len(edits)} cannot be made, so none was made. {wrong}") from None
        whole, count = edited.text, count + edited.count
        lines |= dict.fromkeys(edited.lines)
    return Edited(whole, count, tuple(lines))


def replace_text(whole: Text, old: str, new: str, *, every: bool, path: str) -> Edited:
    """Replace one text by another. The ends of lines stay as the file has them."""
    if not old:
        raise ToolError("The old text is empty. Give the text to replace, or use write_file to make a file.")
    if whole.line_end == "\r\n":
        old, new = _with_crlf(old), _with_crlf(new)
    if old == new:
        raise ToolError("The old and the new text are the same; there is nothing to change.")
    # 'aa' is in 'aaa' twice, and nobody knows which was meant. To change them all, only the first of the two counts.
    places = _places(whole.text, old, step=len(old) if every else 1)
    if not places:
        raise ToolError(_not_found(whole, old, path))
    lines = tuple(sorted({whole.text.count("\n", 0, at) + 1 for at in places}))
    if len(places) > 1 and not every:
        more = " and more" if len(places) == PLACES_MAX else ""
        raise ToolError(
            f"The old text is in {path} more than once: at line {', '.join(map(str, lines))}{more}. Give more of the "
            "text around the one you mean, or set every to change them all."
        )
    return Edited(replace(whole, text=whole.text.replace(old, new)), whole.text.count(old), lines)


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _places(text: str, old: str, *, step: int) -> list[int]:
    found: list[int] = []
    at = text.find(old)
    while at >= 0 and len(found) < PLACES_MAX:
        found.append(at)
        at = text.find(old, at + step)
    return found


def _not_found(whole: Text, old: str, path: str) -> str:
    lines = whole.lines
    wanted = Text(old).lines
    near = _nearest(lines, wanted) or (_most_shared(lines, wanted[0]) if len(wanted) == 1 else None)
    if near is None:
        return f"The old text is not in {path}, nor anything like it. Read the file again."
    first, ratio = near
    last = min(first + len(wanted), len(lines))
    found = lines[first:last]
    rows = [f"{number:>6}\t{line[:200]}" for number, line in enumerate(found[:_SHOWN_LINES_MAX], first + 1)]
    same = [line.split() for line in found] == [line.split() for line in wanted]
    how = "It differs only in white space" if same else f"It is {ratio:.0%} alike"
    where = f"line {first + 1:,}" if last == first + 1 else f"lines {first + 1:,} to {last:,}"
    return "\n".join(
        (f"The old text is not in {path} exactly. The nearest is at {where}. {how}; copy it from here:", *rows)
    )


def _nearest(lines: list[str], wanted: list[str]) -> tuple[int, float] | None:
    """The first of the lines that are most like the wanted ones, and how much. Cheap comparisons come first."""
    wanted = [line.strip()[:_NEAR_CHARS_MAX] for line in wanted[:_SHOWN_LINES_MAX]]
    stripped = [line.strip()[:_NEAR_CHARS_MAX] for line in lines[:_NEAR_LINES_MAX]]
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2("\n".join(wanted)[:_NEAR_CHARS_MAX])

    def look_at(first: int) -> None:
        matcher.set_seq1("\n".join(stripped[first : first + len(wanted)])[:_NEAR_CHARS_MAX])

    guesses: list[tuple[float, int]] = []
    for first in range(max(1, len(stripped) - len(wanted) + 1)):
        look_at(first)
        if matcher.real_quick_ratio() >= _NEAR_RATIO_MIN and (guess := matcher.quick_ratio()) >= _NEAR_RATIO_MIN:
            guesses.append((-guess, first))
    best: tuple[int, float] | None = None
    for guess, first in sorted(guesses)[:_NEAR_TRIES_MAX]:
        if best is not None and -guess <= best[1]:
            break  # No exact comparison gives more than its guess.
        look_at(first)
        if (ratio := matcher.ratio()) >= _NEAR_RATIO_MIN and (best is None or ratio > best[1]):
            best = first, ratio
    return best


def _most_shared(lines: list[str], wanted: str) -> tuple[int, float] | None:
    """The line that has the longest piece of the wanted one in it. This finds a slip in a part of a long line."""
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[:_NEAR_CHARS_MAX])
    best, where = 0, 0
    for number, line in enumerate(lines[:_NEAR_LINES_MAX]):
        matcher.set_seq1(line[:_NEAR_CHARS_MAX])
        if (size := matcher.find_longest_match().size) > best:
            best, where = size, number
    share = best / max(1, len(wanted))
    return (where, share) if best >= _SHARED_CHARS_MIN and share >= _NEAR_RATIO_MIN else None
