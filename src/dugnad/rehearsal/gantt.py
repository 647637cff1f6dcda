"""A rehearsal as an SVG picture: a row for each teammate, a bar for each attempt, the critical path marked."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from ..text import length

_LEFT, _TOP, _WIDTH, _BOTTOM, _RIGHT = 150, 74, 1000, 34, 20
_ROW_MAX, _ROW_MIN = 24, 6
_LETTER = 6.6  # About the width of one, in pixels.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNITS = (1, 60, 3_600, 86_400)  # Seconds.
_ROUND = (1, 2, 5, 10, 15, 20, 30)  # Distances between marks, in any unit,
_ROUND_LONG = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)  # and, in the last one, longer ones.
# White is legible on these.
_COLOURS = ("#4e79a7", "#4f8f45", "#a3832a", "#9a6590", "#3f8a86", "#c05a7c", "#8a6450", "#6b6663")
_STYLE = """
  text { font: 11px sans-serif; fill: #333; }
  .title { font-size: 15px; font-weight: bold; }
  .bar { stroke: #fff; stroke-width: 0.5; }
  .critical { stroke: #c0392b; stroke-width: 2.5; }
  .again { fill-opacity: 0.4; }
  .on { fill: #fff; pointer-events: none; }
  .mark { stroke: #ddd; }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    row: int
    start: int  # Milliseconds.
    end: int
    label: str
    colour: str  # Bars of one word have one colour.
    critical: bool = False
    again: bool = False  # An attempt that failed and was made again.


def gantt(title: str, subtitle: str, rows: Sequence[str], bars: Collection[Drawn]) -> str:
    """The picture. Titles and names are shown as text, also if they look like SVG."""
    span = max((bar.end for bar in bars), default=1)
    height = max(_ROW_MIN, min(_ROW_MAX, 1_600 // max(1, len(rows))))
    bottom = _TOP + height * len(rows)
    full = _LEFT + _WIDTH + _RIGHT
    words = sorted({bar.colour for bar in bars})
    colours = {word: _COLOURS[number % len(_COLOURS)] for number, word in enumerate(words)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full} {bottom + _BOTTOM}" width="{full}" '
        f'height="{bottom + _BOTTOM}" role="img">',
        f"<title>{_text(title)}</title>",
        f"<style>{_STYLE}</style>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text class="title" x="10" y="22">{_text(_fit(title, full - 20, 8.5))}</text>',
        f'<text x="10" y="40">{_text(_fit(subtitle, full - 20))}</text>',
    ]
    x = 10.0
    for word in [each for each in words if each][: len(_COLOURS)]:
        parts.append(f'<rect x="{x:.1f}" y="48" width="9" height="9" fill="{colours[word]}"/>')
        parts.append(f'<text x="{x + 13:.1f}" y="56">{_text(_fit(word, 110))}</text>')
        x += 24 + _LETTER * min(len(word), 16)
    for at in _marks(span):
        x = _LEFT + _WIDTH * at / span
        parts.append(f'<line class="mark" x1="{x:.1f}" y1="{_TOP - 4}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{length(at)}</text>')
    parts.append(f'<text x="{_LEFT + _WIDTH / 2}" y="{bottom + 29}" text-anchor="middle">time from the start</text>')
    if height >= 10:
        for number, name in enumerate(rows):
            y = _TOP + number * height + height / 2 + 4
            parts.append(f'<text x="{_LEFT - 8}" y="{y:.1f}" text-anchor="end">{_text(_fit(name, _LEFT - 16))}</text>')
    for bar in sorted(bars, key=lambda each: each.critical):  # Those of the critical path on top.
        parts += _bar(bar, span, height, colours[bar.colour])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(bar: Drawn, span: int, height: int, colour: str) -> list[str]:
    x, y = _LEFT + _WIDTH * bar.start / span, _TOP + bar.row * height + 1
    width = max(0.5, _WIDTH * (bar.end - bar.start) / span)
    kinds = " ".join(word for word, holds in (("critical", bar.critical), ("again", bar.again)) if holds)
    said = f"{bar.label}, {length(bar.start)} to {length(bar.end)}"
    said += ", tried again" if bar.again else ""
    said += ", on the critical path" if bar.critical else ""
    parts = [
        f'<rect class="bar {kinds}" x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height - 2}" fill="{colour}">'
        f"<title>{_text(said)}</title></rect>"
    ]
    label = _fit(bar.label, width - 6)
    if height >= 14 and len(label) > 2:
        parts.append(f'<text class="on" x="{x + 4:.1f}" y="{y + height / 2 + 3:.1f}">{_text(label)}</text>')
    return parts


def _text(words: str) -> str:
    """Escaped for XML, without characters that XML cannot hold."""
    return escape(_NOT_XML.sub("\ufffd", words), {'"': "&quot;"})


def _fit(words: str, width: float, letter: float = _LETTER) -> str:
    most = max(0, int(width / letter))
    return words if len(words) <= most else words[: most - 1] + "…" if most > 1 else ""


def _marks(span: int) -> list[int]:
    """Round moments, about ten of them."""
    distances = [size * each for size in _UNITS for each in _ROUND]
    distances += [_UNITS[-1] * each for each in _ROUND_LONG]
    step = 1_000 * next((each for each in sorted(distances) if span / (each * 1_000) <= 12), distances[-1])
    return list(range(0, span + 1, step))[:100]
