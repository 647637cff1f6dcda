"""Every sentence a model reads stands in the text files beside this one; code fills the slots.

A file is Markdown. Under `#` stands what engineers should know; each `##` begins a prompt and names it. Its
lines are joined as Markdown joins them: an empty line ends a paragraph, "- " begins a list item, and a backslash keeps
a line break. `text.fill` says what a slot may look like. A file is read when one of its prompts is first used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from ..text import Told, fill

_HEADING = re.compile(r"^(#{1,2}) +(.+)$\n", re.MULTILINE)
_JOINED = re.compile(r"(?<![\\\n])\n(?!\n|- ) *")  # A line break inside a paragraph or a list item.


def tell(prompt: str, /, **slots: object) -> Told:
    """The prompt of this name, such as "packet.task", with its slots filled."""
    file, _, name = prompt.partition(".")
    return fill(load(file)[name], slots)


def tool_prompt(name: str) -> tuple[str, Mapping[str, str]]:
    """The description of a tool of ours, and what is said of each argument. It stands in `tools.md`, unless the name
    begins with another file's, as in "mcp_tools.finish"."""
    file, _, own = name.rpartition(".")
    description, *items = re.split(r"\n+- ", load(file or "tools")[own])
    return description, dict(item.split(": ", 1) for item in items)


@cache
def load(file: str) -> Mapping[str, str]:
    """The prompts of one file, by name."""
    _, *parts = _HEADING.split(files(__name__).joinpath(f"{file}.md").read_text("utf-8"))
    found: dict[str, str] = {}
    for level, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if level == "##" and name in found:
            raise ValueError(f"{file}.md has two prompts named {name}")
        if level == "##":
            found[name] = _JOINED.sub(" ", text.strip()).replace("\\\n", "\n")
    return found
