"""The one way to a terminal: whatever was forgotten before, nothing it would obey gets through."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ..text import plain


class SafeConsole(Console):
    """rich's console. Its own codes are added behind this step, so all that is text here is somebody's."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for each in super().render(renderable, options):
            yield each if each.control else Segment(plain(each.text), each.style)
