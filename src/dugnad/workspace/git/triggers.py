"""Files that make other programs run something when a person next opens, builds or pushes the project.

A change to one of them is no worse than others, but merging it is like running it. So it is named to those who review
or merge. The list is short and goes by names; `docs/operating.md` shows it, and a test compares the two.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from ...errors import ToolError
from ...safe_open import OWN
from ...text import one_line
from ..files.paths import open_regular, read_from

_ENTRIES_MAX = 20_000
_DEPTH_MAX = 60
_FILE_BYTES_MAX = 1024 * 1024
_BYTES_MAX = 64 * 1024 * 1024

# By what runs them. With a slash at its end: all beneath such a folder, wherever it lies. Case does not matter.
TRIGGERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "CI": (
            ".github/workflows/", ".github/actions/", ".gitea/", ".forgejo/", ".gitlab-ci.yml", ".gitlab/", ".ci/",
            ".circleci/", ".buildkite/", ".woodpecker/", ".woodpecker.yml", ".travis.yml", ".drone.yml", ".cirrus.yml",
            "azure-pipelines.yml", "bitbucket-pipelines.yml", "appveyor.yml", "jenkinsfile*", "action.yml",
            "action.yaml",
        ),
        "git": (
            ".githooks/", ".husky/", ".pre-commit-config.yaml", ".pre-commit-hooks.yaml", "lefthook.*", ".lefthook.*",
            ".lefthook/", ".gitattributes", ".gitmodules", ".gitconfig", ".lintstagedrc*",
        ),
        "editor": (
            ".vscode/", ".idea/", ".zed/", ".vs/", ".fleet/", "*.code-workspace", ".nvim.lua", ".nvimrc", ".exrc",
            ".vimrc", ".dir-locals.el", ".dir-locals-2.el",
        ),
        "agent": (
            "agents.md", "claude.md", "claude.local.md", "gemini.md", "skill.md", ".claude/", ".cursor/",
            ".cursorrules", ".codex/", ".gemini/", ".agents/", ".continue/", ".windsurf/", ".windsurfrules",
            ".clinerules*", ".aider*", ".opencode/", ".mcp.json", ".github/copilot-instructions.md",
            ".github/instructions/", "dugnad.toml",
        ),
        "shell": (
            ".envrc", ".env", ".env.*", ".bashrc", ".profile", ".zshrc", ".mise.toml", "mise.toml", ".tool-versions",
            "flake.nix", "shell.nix", "default.nix", "devbox.json",
        ),
        "package": (
            "package.json", ".npmrc", ".yarnrc*", ".pnpmfile.cjs", "setup.py", "setup.cfg", "pyproject.toml",
            "conftest.py", "sitecustomize.py", "usercustomize.py", "*.pth", "tox.ini", "noxfile.py", "composer.json",
            "gemfile", "*.gemspec", "cargo.toml", ".cargo/", "mix.exs",
        ),
        "build": (
            "makefile", "makefile.*", "gnumakefile", "*.mk", "justfile", ".justfile", "taskfile.y*ml", "rakefile",
            "cmakelists.txt", "*.cmake", "meson.build", "build.rs", "build.zig", "configure", "configure.ac",
            "*.gradle.kts", "gradlew*", "gradle/", "pom.xml", ".mvn/", "mvnw*", "build.xml", "build.bazel", ".bazelrc",
            "*.csproj", "directory.build.*", "binding.gyp", "gulpfile.*", "gruntfile.*", "*.config.js", "*.config.ts",
            "*.config.mjs", "*.config.cjs", "autogen.sh", "*.gradle", ".eslintrc*", ".babelrc*",
        ),
        "container": (
            "dockerfile*", "*.dockerfile", "containerfile*", "docker-compose*", "compose.y*ml", ".devcontainer/",
            ".devcontainer.json", "vagrantfile", ".gitpod.yml", "procfile", "tiltfile",
        ),
    }
)  # fmt: skip


def triggers(paths: Iterable[str]) -> dict[str, str]:
    """The paths that make something run, with what runs them."""
    found = {path: _kind(path.casefold()) for path in paths}
    return {path: kind for path, kind in found.items() if kind}


def named_triggers(runs: Mapping[str, str], most: int = 20) -> str:
    """One line that names the first of them and counts the rest."""
    named = [f"{one_line(path, 100)} ({kind})" for path, kind in list(runs.items())[:most]]
    return ", ".join(named) + (f" and {len(runs) - most} more" if len(runs) > most else "")


def _kind(path: str) -> str:
    name = path.rpartition("/")[2]
    for kind, patterns in TRIGGERS.items():
        for each in patterns:
            # A link or a nested repository stands in a folder's place under the folder's own name.
            beneath = each.endswith("/") and f"/{each}" in f"/{path}/"
            exact = "/" in each and f"/{path}".endswith(f"/{each}")
            # No folder is named by itself, so this is a link that brings all that is in the folder.
            above = "/" in each[:-1] and f"/{path}".endswith(f"/{each[:-1].rpartition('/')[0]}")
            if beneath or exact or above or ("/" not in each and fnmatchcase(name, each)):
                return kind
    return ""


def changed_triggers(tree: Path, base: Path) -> dict[str, str]:
    """The files in a folder that make something run and that are not the same in `base`, with what runs them.

    No link is followed. A file that cannot be compared is named too. So is a repository that was made in the folder:
    git runs what its settings say.
    """
    found, whole = _fingerprints(tree, lambda path: bool(_kind(path.casefold())) or f"/{path}".endswith("/.git"))
    known, _ = _fingerprints(base, found.__contains__)
    changed = [path for path, mark in found.items() if not mark or known.get(path) != mark]
    runs = {path: _kind(path.casefold()) or "git" for path in sorted(changed)}
    return runs if whole else {**runs, "files that were not looked at": "too many, too deep or not readable"}


def _fingerprints(root: Path, wanted: Callable[[str], bool]) -> tuple[dict[str, str], bool]:
    """The wanted paths beneath a folder, each with its fingerprint; and whether everything was looked at."""
    found: dict[str, str] = {}
    missed: list[OSError] = []
    entries, left = 0, _BYTES_MAX
    for folder, folders, files, held in os.fwalk(root, onerror=missed.append):
        here = os.path.relpath(folder, root)
        entries += len(folders) + len(files)
        if entries > _ENTRIES_MAX or here.count("/") >= _DEPTH_MAX:
            return found, False
        for name in (*folders, *files):
            path = os.path.normpath(f"{here}/{name}")
            if wanted(path) and (mark := _fingerprint(name, held, min(left, _FILE_BYTES_MAX))) is not None:
                found[path] = mark[0]
                left -= mark[1]
        folders[:] = [name for name in folders if name not in (OWN, ".git")]
    return found, not missed


def _fingerprint(name: str, folder: int, most: int) -> tuple[str, int] | None:
    """A text that is the same only for the same thing, and how many bytes were read for it. An empty text: it cannot
    be compared. None: it is a folder, which runs nothing by itself."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            return f"link to {os.readlink(name, dir_fd=folder)}", 0
        if stat.S_ISDIR(mode):
            return ("", 0) if name == ".git" else None
        data = read_from(open_regular(name, folder=folder), most + 1)
    except (OSError, ToolError):
        return "", 0
    mark = f"{mode & 0o111:o} {hashlib.sha256(data).hexdigest()}" if len(data) <= most else ""
    return mark, len(data)
