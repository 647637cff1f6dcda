"""A project that comes from somebody else, as `git clone` brings it, and what lies outside of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.workspace.repository import CLEAN

SCRIPT = '"*":\n  - {say: "It is done."}\n'


class Stranger:
    """`upstream` is what somebody published, `clone` is what the user has of it, `outside` is the user's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.upstream, self.clone, self.outside = folder / "upstream", folder / "clone", folder / "outside"
        self.home = folder / "home"
        for each in (self.upstream, self.outside, self.home):
            each.mkdir()
        (self.outside / "letter").write_text("dear diary")
        (self.outside / "folder").mkdir()
        (self.outside / "folder" / "photo").write_text("a face")
        (self.upstream / "README").write_text("hello\n")
        git(self.upstream, "init", "-q", "-b", "main")

    def publish(self, make: Callable[[Path, Path], None]) -> None:
        """Commit what `make` puts into the project, ignored or not, and clone it."""
        make(self.upstream, self.outside)
        git(self.upstream, "add", "--all", "--force")
        git(self.upstream, "-c", "user.name=a", "-c", "user.email=a@b.invalid", "commit", "-q", "-m", "it")
        git(self.folder, "clone", "-q", self.upstream.as_uri(), str(self.clone))

    def seen_outside(self) -> dict[str, tuple[int, bytes | str]]:
        """Everything outside the project: modes, links and contents."""
        found: dict[str, tuple[int, bytes | str]] = {}
        for parent, folders, files in os.walk(self.outside):
            for name in (*folders, *files):
                path = Path(parent, name)
                content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
                found[str(path)] = (path.lstat().st_mode, content)
        return found


def git(where: Path, *words: str) -> str:
    made = subprocess.run(["git", *words], cwd=where, env=CLEAN, check=True, capture_output=True, text=True)
    return made.stdout
