"""Work that is taken away around any call of git, by a host that stops or by a person: merged once, or not at all."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dugnad.errors import NotReady
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.settings import Limits
from dugnad.team import Host
from dugnad.workspace.git.git import Git
from tests.conftest import Opener
from tests.proof import every
from tests.team.stage_team import hosting, until_ended, within
from tests.team.stage_trees import finish, has_no_trees, worktrees, write
from tests.workspace.repository import git, new_repository, subjects

CALLS_MAX = 60  # More than one task needs.
EVERY = int(os.environ.get("DROP_EVERY", "4"))  # 1: at each call.
CHECK = "test ! -e litter && touch litter"


class Before:
    """Something happens at the n-th call of git, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        self.happens: Callable[[], Awaitable[object]]
        real = Git.run

        async def run(of: Git, *words: str, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                await self.happens()
            return await real(of, *words, **options)

        monkeypatch.setattr(Git, "run", run)


def moves_the_target(root: Path) -> ScriptedModel:
    """Work that a person overtakes each time, so that it is checked alone, merged, and checked again."""

    def step(request: Request) -> Step:
        if request.turn == 1:
            return write(f"{request.title}.txt", "x\n")
        theirs = git(root, "commit-tree", "dugnad/main^{tree}", "-p", "dugnad/main", "-m", "By hand")
        git(root, "update-ref", "refs/heads/dugnad/main", theirs)
        return finish()

    return ScriptedModel(step)


async def has_nothing_to_do(host: Host) -> None:
    """Not even to clear away what was left."""
    while any(life.claim is not None for life in host.workers.values()):  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("how", every(3, ["dropped", "released", "cancelled"]))
async def test_whenever_work_is_taken_away_it_is_merged_once_or_not_at_all(
    opener: Opener, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    every = EVERY if url.startswith("sqlite") else EVERY * 3
    board = await opener(limits=Limits(backoff_seconds=0.01))
    root = new_repository(tmp_path / "p")
    before = Before(monkeypatch)
    await board.spawn("alice")
    ended = {}
    async with (
        worktrees(board, root, CHECK) as places,
        hosting(board, moves_the_target(root), workspaces=places) as host,
    ):

        async def take_away() -> None:
            life = host.workers["alice"]
            assert life.claim is not None
            with suppress(NotReady):  # It has ended, and is being cleared away.
                if how == "dropped":
                    life.drop("the host stops")
                elif how == "released":
                    await board.release(life.claim.task.id)
                else:
                    await board.cancel(life.claim.task.id)

        before.happens = take_away
        for call in range(1, CALLS_MAX, every):
            before.left = call
            (ended[f"work-{call}"],) = await until_ended(board, await board.put(f"work-{call}"))
            await within(has_nothing_to_do(host))
            if before.left > 0:  # It needs fewer calls than that.
                before.left = 0
                break
        else:
            raise AssertionError("a task needs more calls than were tried")
        await host.stop()
        await places.sweep()
    assert len(ended) > 20 // every
    found = Counter(each for each in subjects(root) if each.startswith("work-"))
    assert set(found.values()) == {1}
    done = {title for title, task in ended.items() if task.state == "done"}
    assert done <= set(found)
    assert how == "cancelled" or done == set(ended)
    # Only whoever was cancelled after the last look at the board is in the target all the same.
    assert len(set(found) - done) <= 2
    files = git(root, "ls-tree", "-r", "--name-only", "dugnad/main").split()
    assert set(files) == {"README.md", *(f"{title}.txt" for title in found)}
    assert has_no_trees(root)
    assert git(root, "for-each-ref", "--format=%(refname)", "refs/dugnad") == ""
    assert git(root, "status", "--porcelain") == ""
