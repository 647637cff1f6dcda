"""Places for a host on a real repository: git trees, a real sandbox, and a scripted model that uses them."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dugnad.models.scripted import Step
from dugnad.team.workspaces.workspace import Workshop
from dugnad.team.workspaces.worktrees import Worktrees
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.workspace.remotes import sharing
from tests.workspace.repository import trees_of
from tests.workspace.running import strict_here

OWN = tuple(dict.fromkeys(Path(each) for each in (sys.prefix, sys.base_prefix) if not each.startswith("/usr")))
PATH = ":".join([*(str(each / "bin") for each in OWN), "/usr/bin", "/bin"])


@asynccontextmanager
async def worktrees(board: Any, root: Path, *checks: str, remote: str | None = None) -> AsyncIterator[Worktrees]:
    sandbox = Sandbox(strict_here(), readable=OWN)
    try:
        shop = Workshop(
            board=board,
            outputs=root / ".dugnad" / "output",
            sandbox=sandbox,
            environment={"PATH": PATH},
            project_checks=checks,
        )
        trees = await trees_of(root) if remote is None else await sharing(root, remote)
        yield Worktrees(board=board, trees=trees, shop=shop, own_branch="main")
    finally:
        await sandbox.close()


def write(path: str, text: str) -> Step:
    return Step(calls=(("write_file", {"path": path, "text": text}),))


def shell(command: str) -> Step:
    return Step(calls=(("bash", {"command": command}),))


def finish(result: str = "Built.", **fields: str) -> Step:
    return Step(calls=(("finish", {"result": result, **fields}),))


def has_no_trees(root: Path) -> bool:
    trees = root / ".dugnad" / "trees"
    return not trees.exists() or os.listdir(trees) == []


@asynccontextmanager
async def workshop(board: Any, *checks: str) -> AsyncIterator[Workshop]:
    """What commands run with where there is no repository."""
    sandbox = Sandbox(strict_here(), readable=OWN)
    try:
        with TemporaryDirectory() as kept:
            yield Workshop(
                board=board, sandbox=sandbox, outputs=Path(kept), environment={"PATH": PATH}, project_checks=checks
            )
    finally:
        await sandbox.close()
