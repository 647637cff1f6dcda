"""The files of a workspace as tools: `Team.open(..., tools=file_tools(Files(root)))`.

They act on the world outside the board, so they are not marked as our own: a host that lost its lease runs none of
them. A tool that only reads may run again after a crash. One that writes may not: another attempt may have gone on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..workspace.files.edit import Edit
from ..workspace.files.files import Files
from .tool import Tool


def file_tools(files: Files) -> tuple[Tool, ...]:
    """All six, for one tree. Plain functions, which the runtime calls in threads."""

    def edit_file(path: str, edits: Sequence[Edit] = (), old: str = "", new: str = "", every: bool = False) -> str:
        # A call in the form of earlier versions has one edit, without the list.
        return files.edit_all(path, edits or [Edit(old, new, every)])

    reading: dict[str, Callable[..., str]] = {
        "read_file": files.read, "list_dir": files.list_dir, "glob": files.glob, "grep": files.grep,
    }  # fmt: skip
    return (
        *(Tool(function, name=name, prompt=name, safe=True, keyed=True) for name, function in reading.items()),
        Tool(files.write, name="write_file", prompt="write_file"),
        Tool(edit_file, prompt="edit_file", required=("edits",)),
    )
