"""Files that make other programs run something when a person next opens, builds or pushes the project. Pure.

A change to one of them is no worse than others, but merging it is like running it. So it is named to whoever reviews or
merges. The list is short and goes by names; `docs/operating.md` shows it, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

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
    """Of these paths the ones that make something run, with what runs them."""
    found = {path: _kind(path.casefold()) for path in paths}
    return {path: kind for path, kind in found.items() if kind}


def _kind(path: str) -> str:
    name = path.rpartition("/")[2]
    for kind, patterns in TRIGGERS.items():
        for each in patterns:
            # A link or a nested repository stands in a folder's place under the folder's own name.
            beneath = each.endswith("/") and f"/{each}" in f"/{path}/"
            exact = "/" in each and f"/{path}".endswith(f"/{each}")
            if beneath or exact or ("/" not in each and fnmatchcase(name, each)):
                return kind
    return ""
