"""The files of a workspace as tools: `Team.open(..., tools=file_tools(Files(root)))`.

They act on the world outside the board, so they are not marked as our own: a host that lost its lease runs none. What
only reads may be run again after a crash. What writes may not: by then somebody else may have gone on from it.
"""

from __future__ import annotations

from collections.abc import Callable

from ..workspace.files.files import Files
from .tool import Tool


def file_tools(files: Files) -> tuple[Tool, ...]:
    """All six, for one tree. Plain functions, which the runtime calls in threads."""
    reading: tuple[tuple[str, Callable[..., str]], ...] = (
        ("read_file", files.read),
        ("list_dir", files.list_dir),
        ("glob", files.glob),
        ("grep", files.grep),
    )
    return (
        *(Tool(function, name=name, prompt=name, safe=True, keyed=True) for name, function in reading),
        Tool(files.write, name="write_file", prompt="write_file"),
        Tool(files.edit, name="edit_file", prompt="edit_file"),
    )
