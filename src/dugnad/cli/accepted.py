"""What the user has accepted: the settings of a project, and boards that somebody else made.

The user's state folder has a small file for each. The name of the file says what was accepted and where, so processes
never write the same file with different contents. The content is for people, and to tell what has changed since.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..config.servers import replace_file
from ..errors import BadInput
from ..safe_open import held, user_state

Settings = Mapping[str, Any]  # By their names: {"team.agents": 5, "roles.coder.prompt": "..."}.


class Accepted:
    """The files of one user. A process that can write there acts as the user."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.folder = user_state(environment, "accepted")

    def has_settings(self, root: Path, settings: Settings) -> bool:
        return self._has(_settings_name(root, settings))

    def last_settings(self, root: Path) -> Settings | None:
        """The settings of this project that were accepted last, or None."""
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

    def has_place(self, where: str) -> bool:
        """Whether any board at this place was accepted."""
        return bool(self._of(_board_name(where)))

    def add_board(self, where: str, identity: str) -> None:
        if not self.has_board(where, identity):
            self._add(_board_name(where, identity), {"board": where, "identity": identity})

    def forget(self, root: Path, where: str) -> int:
        """Remove what was accepted of this project and its board. Returns how many things that were."""
        found = [*self._of(_settings_name(root)), *self._of(_board_name(where))]
        for each in found:
            each.unlink(missing_ok=True)
        return len(found)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One process of the user at a time: it makes a board and accepts it, and no other looks between the two."""
        with ExitStack() as stack:
            with suppress(OSError):  # A folder that cannot be written is named when something is to be kept there.
                fcntl.flock(stack.enter_context(held(self.folder, make=True)), fcntl.LOCK_EX)
            yield

    def _has(self, name: str) -> bool:
        return f"{name}.json" in self._names()

    def _of(self, beginning: str) -> list[Path]:
        return [self.folder / name for name in self._names() if name.startswith(f"{beginning}-")]

    def _names(self) -> list[str]:
        try:
            with held(self.folder) as inside:
                return os.listdir(inside)
        except OSError:
            return []

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
    beginning = f"project-{digest(os.path.realpath(root))}"
    return beginning if settings is None else f"{beginning}-{digest(json.dumps(settings, sort_keys=True))}"


def _board_name(where: str, identity: str | None = None) -> str:
    return f"board-{digest(where)}" + ("" if identity is None else f"-{digest(identity)}")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:40]
