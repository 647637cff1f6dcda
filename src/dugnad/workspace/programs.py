"""Looking for a program that runs outside of the sandbox, or gets keys: never one that the project brought."""

from __future__ import annotations

import os
from pathlib import Path


def find_program(name: str, path: str, *, outside: Path) -> str | None:
    """The first program of that name on the search path. Programs in the project at `outside` or reached through it do
    not count, nor do relative folders. If the project is /, nothing is left out: nobody brought the whole machine."""
    root = os.path.realpath(outside)
    for found in (Path(folder, name) for folder in path.split(os.pathsep) if os.path.isabs(folder)):
        ways = (os.path.realpath(each) for each in (found, *found.parents) if root != "/")
        if found.is_file() and os.access(found, os.X_OK) and not any(Path(each).is_relative_to(root) for each in ways):
            return str(found)
    return None
