"""Looking for a program that is started outside of the sandbox, or given keys: never one that the project brought."""

from __future__ import annotations

import os
from pathlib import Path


def find_program(name: str, path: str, *, outside: Path) -> str | None:
    """The first of that name on the search path, without what lies in the project at `outside` or is reached by way of
    it, and without folders that depend on where one is. Nobody brought the whole machine, so / leaves out nothing."""
    root = os.path.realpath(outside)
    for found in (Path(folder, name) for folder in path.split(os.pathsep) if os.path.isabs(folder)):
        ways = (os.path.realpath(each) for each in (found, *found.parents) if root != "/")
        if found.is_file() and os.access(found, os.X_OK) and not any(Path(each).is_relative_to(root) for each in ways):
            return str(found)
    return None
