"""The one way to a terminal. It removes control characters from every text, also where a caller forgot to."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ..text import plain


class SafeConsole(Console):
    """rich's console. rich adds its own codes after this step, so every text here comes from a person or a model."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for each in super().render(renderable, options):
            yield each if each.control else Segment(plain(each.text), each.style)
