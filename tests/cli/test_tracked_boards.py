"""A board that git can change is refused, however the path leads to it: by the real file and by every repository."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from dugnad.board import open_board
from dugnad.cli.tracked import refuse_tracked
from dugnad.cli.unaccepted import NotAccepted
from dugnad.config.project import read_project
from tests.workspace.repository import git, new_repository

Layout = Callable[[Path], str]


def commit(where: Path) -> None:
    git(where, "add", "--all", "--force")
    git(where, "commit", "--quiet", "--message", "Board")


def link_to_folder(root: Path) -> str:
    (root / "real").mkdir()
    (root / "real" / "board.db").touch()
    (root / "link").symlink_to("real")
    commit(root)
    return "link/board.db"


def up_through_a_link(root: Path) -> str:
    (root / "deep" / "folder").mkdir(parents=True)
    (root / "deep" / "folder" / "kept").touch()
    (root / "x").symlink_to("deep/folder")
    (root / "deep" / "board.db").touch()
    commit(root)
    return "x/../board.db"


def tracked_link_to_an_ignored_folder(root: Path) -> str:
    (root / "link").symlink_to("ignored")
    commit(root)
    (root / "ignored").mkdir()
    (root / "ignored" / "board.db").touch()
    return "link/board.db"


def link_for_the_file(root: Path) -> str:
    (root / "real.db").touch()
    (root / "board.db").symlink_to("real.db")
    commit(root)
    return "board.db"


def link_out_and_back(root: Path) -> str:
    (root / "real").mkdir()
    (root / "real" / "board.db").touch()
    commit(root)
    (root.parent / "out").symlink_to(root)
    return "../out/real/board.db"


def submodule(root: Path) -> str:
    other = new_repository(root.parent / "other", {"board.db": ""})
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "sub")
    commit(root)
    return "sub/board.db"


def untracked_in_a_submodule(root: Path) -> str:
    submodule(root)
    (root / "sub" / "own.db").touch()
    return "sub/own.db"


def other_clone(root: Path) -> str:
    new_repository(root.parent / "other", {"board.db": ""})
    return "../other/board.db"


def journal_beside_it(root: Path) -> str:
    (root / "data").mkdir()
    (root / "data" / "board.db-wal").touch()
    commit(root)
    (root / "data" / "board.db").touch()
    return "data/board.db"


LAYOUTS: tuple[Layout, ...] = (
    link_to_folder, up_through_a_link, tracked_link_to_an_ignored_folder, link_for_the_file, link_out_and_back,
    submodule, untracked_in_a_submodule, other_clone, journal_beside_it,
)  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda each: each.__name__)
async def test_a_board_that_git_can_change_is_refused(folder: Path, layout: Layout) -> None:
    root = new_repository(folder / "project")
    place = layout(root)
    with pytest.raises(NotAccepted, match=r"^Git tracks .* git .*rm -r --cached -- "):
        await refuse_tracked(read_project(root, environment={}), f"sqlite:///{root}/{place}")


async def test_a_project_below_the_top_of_its_repository_is_asked_about_all_of_it(folder: Path) -> None:
    top = new_repository(folder / "top", {"project/a": "", "boards/board.db": ""})
    with pytest.raises(NotAccepted, match=r"^Git tracks .*boards/board\.db"):
        await refuse_tracked(
            read_project(top / "project", environment={}), f"sqlite:///{top}/project/../boards/board.db"
        )


async def test_boards_that_git_does_not_track_are_used_also_through_links_of_the_users_own(folder: Path) -> None:
    root = new_repository(folder / "project", {"a": "", "data/a": ""})
    (folder / "links").symlink_to(root)
    for place in (root / ".dugnad", root / "data", folder / "links" / "data", folder / "elsewhere"):
        await refuse_tracked(read_project(root, environment={}), f"sqlite:///{place}/board.db")


async def test_a_repository_further_out_that_cannot_be_asked_does_not_stand_in_the_way(folder: Path) -> None:
    (folder / ".git").write_text("gitdir: nowhere\n")
    root = new_repository(folder / "project")
    async with await open_board(f"sqlite:///{root}/.dugnad/board.db"):
        await asyncio.wait_for(
            refuse_tracked(read_project(root, environment={}), f"sqlite:///{root}/.dugnad/board.db"), 60
        )
