"""Machines that share their work over real ssh: Debian's sshd on loopback, with keys of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.workspace.git.merge_queue import Merged
from dugnad.workspace.git.ownership import GitTrouble
from dugnad.workspace.git.remote import RemoteAway
from tests.agent.stage_agent import all_told
from tests.team.stage_team import hosting, until_ended
from tests.team.stage_trees import finish as finishes
from tests.team.stage_trees import has_no_trees, shell, worktrees, write
from tests.workspace.remotes import at_once, begun, machines, names_at, replaced, sharing
from tests.workspace.repository import at, finish, git, subjects
from tests.workspace.ssh_server import SshServer, ssh_server

pytestmark = pytest.mark.proof
NOTHING_LEFT = ["refs/heads/dugnad/main", "refs/heads/main"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with ssh_server(tmp_path / "server") as found:
        yield found


def environment(server: SshServer, **which: str) -> dict[str, str]:
    return {**os.environ, "GIT_SSH_COMMAND": server.client(**which)}


async def test_a_team_works_over_ssh_from_clone_to_landing_and_its_commands_see_no_key(
    board: Board, tmp_path: Path, server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, (first,) = machines(tmp_path, 1)
    address = server.address(remote)
    monkeypatch.setenv("GIT_SSH_COMMAND", server.client())
    monkeypatch.setenv("SSH_AUTH_SOCK", str(server.folder / "agent"))
    git(tmp_path, "-c", f"core.sshCommand={server.client()}", "clone", "--quiet", address, "m2")
    second = tmp_path / "m2"
    (second / ".dugnad").mkdir()
    (second / ".dugnad" / ".gitignore").write_text("*\n")
    look = f"env; cat {server.folder}/key; ls {server.folder}; cat .git/config; ls {remote}"
    model = ScriptedModel(
        {
            "Write a": [write("a", "1\n"), shell(look), finishes()],
            "Write b": [shell("cat a && echo 2 > b"), finishes()],
        }
    )
    await board.spawn("alice")
    for clone, title in ((first, "Write a"), (second, "Write b")):
        async with worktrees(board, clone, remote=address) as places, hosting(board, model, workspaces=places):
            (done,) = await until_ended(board, await board.put(title))
            assert done.state == "done"
        assert has_no_trees(clone)
    assert (at(remote, "dugnad/main", "a"), at(remote, "dugnad/main", "b")) == ("1", "2")
    assert names_at(remote) == NOTHING_LEFT
    seen = all_told(next(each for each in model.asked if each.title == "Write a" and each.turn == 3))
    assert "PATH=" in seen
    for secret in ("PRIVATE KEY", "SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "authorized", "packed-refs"):
        assert secret not in seen.replace(look, "")


@pytest.mark.parametrize(
    ("which", "why"),
    [({"key": "other_key"}, "Permission denied"), ({"key": "missing"}, "Permission denied"),
     ({"known": "wrongly_known"}, "Host key verification failed"), ({"known": "none"}, "Host key verification failed")],
)  # fmt: skip
async def test_a_wrong_key_of_either_side_is_told_at_once_and_nothing_is_sent(
    which: dict[str, str], why: str, tmp_path: Path, server: SshServer
) -> None:
    remote, (root,) = machines(tmp_path, 1)
    trees = await sharing(root, server.address(remote), environment(server))
    tree = await begun(trees, 1)
    (tree.path / "a.py").write_text("a\n")
    before = names_at(remote)
    at_once(trees)
    assert trees.shared is not None
    replaced(trees, {**trees.shared.remote.environment, "GIT_SSH_COMMAND": server.client(**which)})
    with pytest.raises(GitTrouble, match=f"cannot be used as the remote: .*{why}") as told:
        await finish(trees, tree)
    assert not isinstance(told.value, RemoteAway)
    assert names_at(remote) == before


@pytest.mark.parametrize("when", ["before the names move", "after the names moved"])
async def test_a_server_that_dies_in_the_middle_of_a_landing_loses_nothing_and_lands_once(
    when: str, tmp_path: Path, server: SshServer
) -> None:
    remote, (root,) = machines(tmp_path, 1)
    trees = await sharing(root, server.address(remote), environment(server))
    tree = await begun(trees, 1)
    (tree.path / "a.py").write_text("a\n")
    hook = remote / "hooks" / ("pre-receive" if when.startswith("before") else "post-receive")
    hook.write_text(f"#!/bin/sh\ngrep -q dugnad/main && touch {tmp_path}/reached && exec sleep 600\nexit 0\n")
    hook.chmod(0o755)
    landing = asyncio.create_task(finish(trees, tree))
    for _ in range(2_400):
        if (tmp_path / "reached").exists() or landing.done():
            break
        await asyncio.sleep(0.05)
    server.kill()
    hook.unlink()
    server.start()
    assert isinstance(await landing, Merged)
    assert subjects(remote) == ["Some work", "Begin"]
    assert at(remote, "dugnad/main", "a.py") == "a"


async def test_a_server_that_is_gone_is_away_and_the_work_stays(tmp_path: Path, server: SshServer) -> None:
    remote, (root,) = machines(tmp_path, 1)
    trees = await sharing(root, server.address(remote), environment(server))
    tree = await begun(trees, 1)
    (tree.path / "a.py").write_text("a\n")
    server.kill()
    at_once(trees)
    with pytest.raises(RemoteAway, match=r"cannot be reached: .*Connection refused"):
        await finish(trees, tree)
    assert at(root, tree.branch, "a.py") == "a"
