"""Where the chat prints: above the prompt of a terminal, or as plain lines.

What rich lays out is turned into text at the width there is; prompt_toolkit or the stream then writes it.
"""

from __future__ import annotations

import os
from io import StringIO
from typing import Protocol, TextIO

from prompt_toolkit.application import get_app_session
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.renderer import print_formatted_text
from prompt_toolkit.styles import default_ui_style
from rich.console import RenderableType
from rich.text import Text

from ..text import plain
from ..view.console import SafeConsole

_UNWRAPPED_COLUMNS = 2_000  # In a pipe lines are not wrapped.


class Screen(Protocol):
    async def show(self, what: RenderableType) -> None: ...


def layout(what: RenderableType, columns: int, *, colours: bool) -> str:
    """Lay it out with rich, and return the text."""
    text = StringIO()
    console = SafeConsole(
        file=text, width=columns, force_terminal=colours, color_system="256" if colours else None, markup=False,
        highlight=False, emoji=False, legacy_windows=False,
    )  # fmt: skip
    console.print(what)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


class PromptScreen:
    """A terminal with a prompt. The line that is being typed stays as it is."""

    def __init__(self) -> None:
        self._output = get_app_session().output

    async def show(self, what: RenderableType) -> None:
        text = layout(what, max(20, self._output.get_size().columns), colours=True)
        async with in_terminal():  # Removes the prompt, and draws it again below the output.
            print_formatted_text(self._output, ANSI(text), default_ui_style())


class LineScreen:
    """A pipe, a file, or a terminal that can only print."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._columns = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else _UNWRAPPED_COLUMNS

    async def show(self, what: RenderableType) -> None:
        try:
            self._stream.write(layout(what, self._columns or 80, colours=False))
            self._stream.flush()
        except OSError:
            # The reader is gone, or the disk is full. From here on output goes to /dev/null, also when the
            # interpreter flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def sentence(error: BaseException) -> Text:
    """An error as one sentence."""
    words = " ".join(plain(error).split()) or type(error).__name__
    return Text(words if words.endswith((".", "!", "?")) else f"{words}.", style="red")


def said(text: str) -> Text:
    """A text of the chat itself."""
    return Text(plain(text), style="dim")
