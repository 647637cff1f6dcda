"""What of a tree no command may change, also where it is not there yet: what makes others run a program later."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..errors import ToolError
from .profile import Policy

# What in a tree can make git or dugnad run a program later, outside; and what stands there while it is missing.
# None: a folder. An empty commondir would be an error to git; one that says "." changes nothing.
_GIT: Mapping[str, str | None] = {
    "hooks": None, "modules": None, "worktrees": None, "dugnad": None, "config": "", "config.worktree": "",
    "commondir": ".",
}  # fmt: skip


def protect(policy: Policy) -> tuple[Policy, tuple[tuple[str, str | None], ...]]:
    """Keep a tree's dangerous paths from the command, also those that are not there yet; and what to hold them with.

    `.git` itself is a mount of its own where it is a repository: otherwise it could be moved away, with all that is
    protected in it, and made anew.
    """
    tree = policy.tree
    git, own, settings = tree / ".git", tree / ".dugnad", tree / "dugnad.toml"
    holds: dict[Path, str | None] = {own: None, settings: ""}
    read_only = [settings]
    anchored: tuple[Path, ...] = ()
    if os.path.lexists(git / "HEAD"):
        anchored = (git,)
        holds |= {git / name: content for name, content in _GIT.items()}
        read_only += [git / name for name in _GIT]
    else:
        # A file that points to a repository; or none, or another command's placeholder. None of them is to become one.
        read_only.append(git)
        if not git.is_file():
            holds[git] = None
    for each in (git, *holds):
        if each.is_symlink():
            raise ToolError(
                f"{each} is a symbolic link, so the sandbox cannot protect it; put what it points to there."
            )
    policy = replace(policy, read_only=tuple(read_only), anchored=anchored, hidden=(own,))
    return policy, tuple((str(path), content) for path, content in holds.items())
