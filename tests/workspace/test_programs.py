"""A program that the project brought is never started outside of the sandbox, whatever the search path says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dugnad.config.user import read_user
from dugnad.workspace.git.git import Git
from dugnad.workspace.programs import find_program
from dugnad.workspace.sandbox.sandbox import find_bwrap, probe
from tests.workspace.repository import attempt, new_repository, trees_of


def plant(folder: Path, *names: str) -> Path:
    """Programs that leave a trace when they are started."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\ntouch {folder}/started-{name}\necho git version 9.9\n")
        (folder / name).chmod(0o755)
    return folder


def started(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.glob("started-*"))


def test_the_projects_own_are_passed_over_by_whatever_name_their_folder_has(tmp_path: Path) -> None:
    root = tmp_path / "project"
    inside, other = plant(root / "bin", "tool"), plant(tmp_path / "other", "tool")
    (tmp_path / "alias").symlink_to(root)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "tool").symlink_to(inside / "tool")
    (root / "out").symlink_to(other)
    (root / "linked").mkdir()
    (root / "linked" / "tool").symlink_to(other / "tool")
    for bad in ("bin", "", ".", "./bin", f"{inside}", f"{tmp_path}/alias/bin", f"{tmp_path}/links", f"{root}/out",
                f"{tmp_path}/alias/out", f"{root}/linked", f"{tmp_path}/other/../project/bin"):  # fmt: skip
        assert find_program("tool", bad, outside=root) is None, bad
        assert find_program("tool", f"{bad}:{other}", outside=tmp_path / "alias") == str(other / "tool"), bad


def test_an_empty_or_relative_entry_is_not_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(plant(tmp_path / "here", "tool"))
    for path in ("", ":", ".", "::/nonexistent", "../here"):
        assert find_program("tool", path, outside=tmp_path / "project") is None


def test_what_cannot_be_started_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "tool").touch()
    (tmp_path / "b" / "tool").mkdir(parents=True)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "tool").symlink_to("tool")
    good = plant(tmp_path / "d", "tool")
    path = ":".join(str(tmp_path / each) for each in "abcd")
    assert find_program("tool", path, outside=tmp_path / "project") == str(good / "tool")


async def test_git_and_bubblewrap_are_not_taken_from_the_project(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "project")
    inside = plant(root / ".venv" / "bin", "git", "bwrap")
    assert await Git.find(root, path=str(inside)) is None
    found = await Git.find(root, path=f"{inside}:{os.environ['PATH']}")
    assert found is not None
    assert not Path(found.program).is_relative_to(root)
    assert find_bwrap(str(inside), beside=tmp_path / "python", outside=root) is None
    assert (await probe(str(inside), beside=tmp_path / "python", outside=root)).level == "none"
    assert started(inside) == []


async def test_git_is_not_taken_from_the_repository_around_the_project(tmp_path: Path) -> None:
    top = new_repository(tmp_path / "top", {"sub/a": "a\n"})
    inside = plant(top / "node_modules" / ".bin", "git")
    assert await Git.find(top / "sub", path=str(inside)) is None
    assert started(inside) == []


async def test_a_tree_is_removed_by_the_systems_own_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = new_repository(tmp_path / "project")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    inside = plant(root / "bin", "rm", "chmod")
    monkeypatch.setenv("PATH", f"{inside}:bin::{os.environ['PATH']}")
    await trees.remove(tree)
    assert not tree.path.exists()
    assert started(inside) == []


def test_a_command_that_is_given_keys_is_not_taken_from_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = new_repository(tmp_path / "project", {"sub/dugnad.toml": ""})
    inside, own = plant(root / "node_modules" / ".bin", "mine"), plant(tmp_path / "own", "mine")
    config = tmp_path / "config" / "dugnad"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('[commands.mine]\nrun = ["mine"]\n')
    for here in (root, root / "sub"):
        monkeypatch.chdir(here)
        environment = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path), "PATH": f"{inside}:{own}"}
        assert read_user(environment).commands["mine"].run == (str(own / "mine"),)
        alone = read_user({**environment, "PATH": f"{inside}:."}).commands["mine"]
        assert (alone.run, alone.readable) == (("mine",), ())
