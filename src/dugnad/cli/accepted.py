"""What the user has accepted: settings of a project, by what they say and where; a board, by its identity and where.

One small file for each, in the user's state folder. A file's name is what counts, so no two processes are in each
other's way; what is in it is for people, and to tell what changed since.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..config.servers import replace_file
from ..errors import BadInput
from ..safe_open import held, user_state

Settings = Mapping[str, Any]  # By their names: {"team.agents": 5, "roles.coder.prompt": "..."}.


class Accepted:
    """The user's own. A process that can write there acts as the user."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.folder = user_state(environment, "accepted")

    def has_settings(self, root: Path, settings: Settings) -> bool:
        return self._has(_settings_name(root, settings))

    def last_settings(self, root: Path) -> Settings | None:
        """Those of this project that were accepted last; None: none were."""
        found = self._of(_settings_name(root))
        if not found:
            return None
        try:
            kept = json.loads(max(found, key=lambda each: each.stat().st_mtime_ns).read_text())["settings"]
        except (OSError, ValueError, KeyError):
            return {}
        return kept if isinstance(kept, dict) else {}

    def add_settings(self, root: Path, settings: Settings) -> None:
        self._add(_settings_name(root, settings), {"project": str(root), "settings": dict(settings)})

    def has_board(self, where: str, identity: str) -> bool:
        return self._has(_board_name(where, identity))

    def add_board(self, where: str, identity: str) -> None:
        if not self.has_board(where, identity):
            self._add(_board_name(where, identity), {"board": where, "identity": identity})

    def forget(self, root: Path, where: str) -> int:
        """How many things of this project and of its board were accepted, and are not any more."""
        found = [*self._of(_settings_name(root)), *self._of(_board_name(where))]
        for each in found:
            each.unlink(missing_ok=True)
        return len(found)

    def _has(self, name: str) -> bool:
        try:
            with held(self.folder) as inside:
                os.stat(f"{name}.json", dir_fd=inside, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _of(self, beginning: str) -> list[Path]:
        try:
            with held(self.folder) as inside:
                names = os.listdir(inside)
        except OSError:
            return []
        return [self.folder / name for name in names if name.startswith(f"{beginning}-")]

    def _add(self, name: str, content: Mapping[str, Any]) -> None:
        try:
            with held(self.folder, make=True) as inside:
                os.chmod(".", 0o700, dir_fd=inside)
            replace_file(self.folder / f"{name}.json", json.dumps(content, indent=1, sort_keys=True) + "\n")
        except OSError as trouble:
            raise BadInput(
                f"What you accepted cannot be kept in {self.folder}: {trouble.strerror}. Set XDG_STATE_HOME to a "
                "folder of yours that can be written."
            ) from None


def _settings_name(root: Path, settings: Settings | None = None) -> str:
    beginning = f"project-{_digest(os.path.realpath(root))}"
    return beginning if settings is None else f"{beginning}-{_digest(json.dumps(settings, sort_keys=True))}"


def _board_name(where: str, identity: str | None = None) -> str:
    return f"board-{_digest(where)}" + ("" if identity is None else f"-{_digest(identity)}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:40]
