"""Git is asked, and nothing that a tree or its settings name is run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dugnad.workspace.git.git import Git
from dugnad.workspace.git.merge_queue import Conflict, Merged
from dugnad.workspace.git.ownership import GitTrouble
from tests.workspace.repository import attempt, finish, git, new_repository, trees_of

PROGRAMS = {
    "core.hooksPath": "hooks", "core.fsmonitor": "{run} fsmonitor", "core.pager": "{run} pager",
    "core.editor": "{run} editor", "filter.evil.clean": "{run} clean", "filter.evil.smudge": "{run} smudge",
    "filter.slow.process": "{run} process", "filter.slow.required": "true", "merge.mine.driver": "{run} merge",
    "diff.external": "{run} diff", "diff.evil.textconv": "{run} textconv", "gpg.program": "{run} gpg",
    "commit.gpgSign": "true", "core.sshCommand": "{run} ssh", "core.alternateRefsCommand": "{run} alternate",
}  # fmt: skip
HOOKS = (
    "post-checkout",
    "pre-commit",
    "reference-transaction",
    "post-index-change",
    "post-merge",
    "prepare-commit-msg",
)


def booby_trapped(where: Path) -> tuple[Path, Path]:
    """A project whose every program writes its name down, and where it does so."""
    told = where.parent / "told"
    run = where.parent / "run"
    run.write_text(f'#!/bin/sh\necho "$1" >> {told}\ncat 2>/dev/null\n')
    run.chmod(0o755)
    attributes = "*.txt filter=evil diff=evil\n*.bin filter=slow\n*.py merge=mine\n"
    root = new_repository(where, {"a.txt": "a\n", "b.bin": "b\n", "c.py": "c\n", ".gitattributes": attributes})
    (root / "hooks").mkdir()
    for hook in HOOKS:
        (root / "hooks" / hook).write_text(f"#!/bin/sh\necho {hook} >> {told}\n")
        (root / "hooks" / hook).chmod(0o755)
    for name, value in PROGRAMS.items():
        with (root / ".git" / "config").open("a") as file:
            section, _, key = name.rpartition(".")
            first, _, rest = section.partition(".")
            head = f'[{first} "{rest}"]' if rest else f"[{first}]"
            said = str(root / "hooks") if value == "hooks" else value.format(run=run)
            file.write(f'{head}\n\t{key} = "{said}"\n')
    return root, told


async def test_hooks_filters_monitors_and_merge_programs_of_a_project_are_not_run(tmp_path: Path) -> None:
    root, told = booby_trapped(tmp_path / "p")
    trees = await trees_of(root)
    first, second = await trees.begin(attempt(1)), await trees.begin(attempt(2))
    for tree in (first, second):
        (tree.path / "a.txt").write_text("changed\n")
        (tree.path / "c.py").write_text(f"by {tree.name}\n")
    assert isinstance(await finish(trees, first), Merged)
    assert isinstance(await finish(trees, second), Conflict)  # The merge program would have had a say.
    await trees.put_away(second, keep=True)
    assert await trees.git.is_dirty() is False
    await trees.remove(first)
    assert not told.exists(), told.read_text()
    assert git(root, "show", "dugnad/main:a.txt")


def test_in_the_persons_own_hands_they_do_run(tmp_path: Path) -> None:
    """The control: without the care that is taken, a plain git would have run them."""
    root, told = booby_trapped(tmp_path / "p")
    (root / "a.txt").write_text("changed\n")
    mild = ("-c", "commit.gpgSign=false", "-c", "filter.slow.process=", "-c", "filter.slow.required=false")
    git(root, *mild, "add", "a.txt")
    git(root, *mild, "commit", "-m", "x")
    assert {"clean", "pre-commit", "post-index-change", "reference-transaction"} <= set(told.read_text().split())


async def test_what_the_user_and_the_environment_say_is_not_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = new_repository(tmp_path / "p")
    told = tmp_path / "told"
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".gitconfig").write_text(f"[core]\n\tfsmonitor = touch {told}\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", f"touch {told}")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tree.path / "a").write_text("a\n")
    assert isinstance(await finish(trees, tree), Merged)
    assert not told.exists()


async def test_without_git_or_outside_a_repository_there_is_none(tmp_path: Path) -> None:
    assert await Git.find(tmp_path, path=os.environ["PATH"]) is None
    assert await Git.find(new_repository(tmp_path / "p"), path="/nonexistent") is None


async def test_an_old_git_is_told_of(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text("#!/bin/sh\necho git version 2.30.2\n")
    (tmp_path / "bin" / "git").chmod(0o755)
    with pytest.raises(GitTrouble, match=r"need git 2\.38 or newer"):
        await Git.find(root, path=str(tmp_path / "bin"))


async def test_a_damaged_repository_is_told_of_and_not_repaired(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nonexistent\n")
    with pytest.raises(GitTrouble, match="cannot be asked as a git repository"):
        await Git.find(tmp_path, path=os.environ["PATH"])
