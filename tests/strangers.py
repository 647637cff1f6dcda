"""Makes a file belong to another user, also if the tests do not run as root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

STRANGER = 12_345


def give_away(path: Path, patch: pytest.MonkeyPatch) -> int:
    """Make a file another user's. Returns the number of that user. Only root can change the owner; anybody else becomes
    a stranger to their own file."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1)
    else:
        patch.setattr(os, "geteuid", lambda: STRANGER)
    return path.stat().st_uid
