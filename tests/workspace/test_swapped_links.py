"""Something in a tree swaps folders for links while our git is at work: nothing outside is written or taken in."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from dugnad.workspace.git.command import GitCall, ask
from dugnad.workspace.git.git import ENVIRONMENT, GitTrouble
from tests.workspace.repository import attempt, git, new_repository, trees_of


async def test_what_swaps_folders_for_links_while_git_writes_gets_nothing_written_outside(tmp_path: Path) -> None:
    """As something that is left of a lost host might, in a tree that another takes over."""
    root = new_repository(tmp_path / "p", {f"one/{name}": "ours\n" for name in "abcdefgh"})
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("a", "new"):
        (outside / name).write_text("theirs\n")
    one, aside, over = tree.path / "one", tree.path / "aside", threading.Event()

    def swap() -> None:
        while not over.is_set():
            with suppress(OSError):
                one.rename(aside)
            with suppress(OSError):
                one.symlink_to(outside)
            with suppress(OSError):
                one.unlink()
            with suppress(OSError):
                aside.rename(one)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(10):
            for asked in (tree.restore, tree.stage, tree.back_to_branch):
                with suppress(GitTrouble):
                    await asked()
            with suppress(GitTrouble):
                await tree.commit_whatever("Whatever", "alice")
    finally:
        over.set()
        swapping.join()
    assert {each.name: each.read_text() for each in outside.iterdir()} == {"a": "theirs\n", "new": "theirs\n"}
    assert "theirs" not in git(root, "log", "--all", "--patch", "--format=")


async def test_what_is_taken_down_comes_from_the_tree_alone(tmp_path: Path) -> None:
    """The kernel holds it, not a look at links before: here git is told that a folder outside is its tree."""
    root = new_repository(tmp_path / "p")
    trees = await trees_of(root)
    tree = await trees.begin(attempt(1))
    (tmp_path / "secret").write_text("theirs\n")
    for readable, code in (((tree.path, root / ".git"), 128), ((tmp_path,), 0)):
        call = GitCall(
            argv=(trees.git.program, "update-index", "--add", "secret"), folder=tmp_path, readable=readable,
            environment={**ENVIRONMENT, "GIT_DIR": str(tree.own), "GIT_WORK_TREE": str(tmp_path)},
            writable=(tree.own, root / ".git" / "objects"),
        )  # fmt: skip
        assert (await ask(call, seconds=30.0))[0] == code
