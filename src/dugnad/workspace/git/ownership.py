"""Who owns a file: what belongs neither to the user nor to root is not trusted. Git itself has the same rule."""

from __future__ import annotations

import os
import pwd
import shlex
from pathlib import Path

from ...errors import ToolError
from ...safe_open import owners


class GitTrouble(ToolError):
    """Git could not do what was asked, or the repository cannot be trusted with it."""


class GitTooSlow(GitTrouble):
    """Git took longer than it may."""


def refuse_strangers(*paths: Path) -> None:
    """GitTrouble: one of these belongs to somebody else. What is not there belongs to nobody."""
    ours = owners()
    for path in paths:
        try:
            owner = os.lstat(path).st_uid
        except OSError:
            continue
        if owner not in ours:
            raise GitTrouble(
                f"{path} belongs to {_name(owner)}, not to you, so nothing in it is believed. Work in a copy of your "
                f"own; or if it should be yours: sudo chown -R {os.geteuid()} {shlex.quote(str(path))}"
            )


def _name(owner: int) -> str:
    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:
        return f"user {owner}"
