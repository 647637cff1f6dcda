"""Files that make other programs run something: which they are, wherever they lie; and that the document names them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from dugnad.workspace.git.triggers import TRIGGERS, changed_triggers, triggers

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "operating.md"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (".github/workflows/ci.yml", "CI"), ("sub/.GitHub/Workflows/x.yaml", "CI"), (".gitlab-ci.yml", "CI"),
        ("Jenkinsfile", "CI"), ("action.yml", "CI"), (".githooks/pre-commit", "git"), (".husky/pre-push", "git"),
        (".pre-commit-config.yaml", "git"), (".gitattributes", "git"), ("deep/down/.gitattributes", "git"),
        (".gitmodules", "git"), (".vscode/tasks.json", "editor"), (".vscode/settings.json", "editor"),
        (".idea/runConfigurations/x.xml", "editor"), (".idea", "editor"), ("x.code-workspace", "editor"),
        (".claude/settings.json", "agent"), (".claude/skills/a/SKILL.md", "agent"), ("AGENTS.md", "agent"),
        ("pkg/agents.MD", "agent"), ("CLAUDE.md", "agent"), (".mcp.json", "agent"), (".cursor/rules/x.mdc", "agent"),
        (".codex/config.toml", "agent"), (".gemini/settings.json", "agent"), ("dugnad.toml", "agent"),
        (".github/copilot-instructions.md", "agent"), (".envrc", "shell"), (".env.local", "shell"),
        ("flake.nix", "shell"), ("package.json", "package"), ("web/package.json", "package"), ("setup.py", "package"),
        ("pyproject.toml", "package"), ("tests/conftest.py", "package"), ("x.pth", "package"), (".npmrc", "package"),
        ("Makefile", "build"), ("Makefile.am", "build"), ("src/CMakeLists.txt", "build"), ("build.rs", "build"),
        ("vite.config.ts", "build"), ("build.gradle.kts", "build"), ("configure", "build"),
        ("Dockerfile", "container"), ("dev.Dockerfile", "container"), (".devcontainer/devcontainer.json", "container"),
        ("compose.yaml", "container"), (".github", "CI"), ("pkg/.GitHub", "CI"), (".vscode", "editor"),
    ],
)  # fmt: skip
def test_what_makes_something_run_is_known_wherever_it_lies(path: str, kind: str) -> None:
    assert triggers([path, "src/main.py"]) == {path: kind}


@pytest.mark.parametrize(
    "path",
    ["src/main.py", "README.md", "docs/makefile-guide.md", "github/workflows/x.yml", "my.vscode/x", "envrc",
     "agents.py", "Makefile-notes/x.txt", "configure.py", "tests/test_setup.py", "package-lock.json", ".gitignore"],
)  # fmt: skip
def test_other_files_are_not_named(path: str) -> None:
    assert triggers([path]) == {}


def two_folders(where: Path) -> tuple[Path, Path]:
    """A project with a file of each sort, and a copy of it."""
    for root in (where / "task", where / "project"):
        (root / "sub").mkdir(parents=True)
        (root / "Makefile").write_text("all:\n")
        (root / "sub" / "setup.py").write_text("pass\n")
        (root / ".envrc").symlink_to("sub/setup.py")
        (root / "main.py").write_text("pass\n")
    return where / "task", where / "project"


def test_a_copy_that_nobody_changed_names_nothing(tmp_path: Path) -> None:
    task, project = two_folders(tmp_path)
    (task / "main.py").write_text("changed\n")
    assert changed_triggers(task, project) == {}


def test_what_differs_in_content_kind_or_mode_is_named_and_no_link_is_followed(tmp_path: Path) -> None:
    task, project = two_folders(tmp_path)
    (task / "Makefile").chmod(0o755)
    (task / ".envrc").unlink()
    (task / ".envrc").write_text((project / "sub" / "setup.py").read_text())  # As the link reads in the project.
    os.mkfifo(task / "justfile")
    (task / "sub" / "setup.py").unlink()
    (task / "sub").rmdir()
    (task / "sub").symlink_to(project / "sub")
    (task / ".github").symlink_to("/etc")
    (task / ".vscode").symlink_to("/etc")
    assert changed_triggers(task, project) == {
        ".envrc": "shell", ".github": "CI", ".vscode": "editor", "Makefile": "build", "justfile": "build",
    }  # fmt: skip


def test_what_cannot_be_looked_at_is_said(tmp_path: Path) -> None:
    task, project = two_folders(tmp_path)
    for root in (task, project):
        (root / "Dockerfile").write_bytes(b"x" * 1_100_000)
    (task / Path(*["d"] * 70)).mkdir(parents=True)
    assert changed_triggers(task, project) == {
        "Dockerfile": "container", "files that were not looked at": "too many, too deep or not readable",
    }  # fmt: skip


def test_the_document_has_the_whole_list() -> None:
    section = DOCUMENT.read_text().partition("## Files that make other programs run\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| (`.*`) \|$", section, re.MULTILINE)
    assert {kind: tuple(re.findall(r"`([^`]+)`", names)) for kind, names in rows} == dict(TRIGGERS)
