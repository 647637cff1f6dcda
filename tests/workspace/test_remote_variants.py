"""Remotes that refuse a part, cannot store, or are locked; clones and clocks that are not as one expects."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.workspace.git.merge_queue import Merged
from dugnad.workspace.git.ownership import GitTrouble
from dugnad.workspace.git.remote import RemoteAway, RemoteLocked
from dugnad.workspace.git.worktree import FENCES
from dugnad.workspace.sandbox.probe import find_bwrap
from tests.workspace.remotes import (
    TARGET,
    at_once,
    begun,
    done,
    machines,
    root_of,
    sharing,
    ssh_script,
    two,
    unanswered,
)
from tests.workspace.repository import at, attempt, finish, git, subjects

# A remote that refuses.

HOOKS = {
    "pre-receive": 'while read old new name; do case "$name" in {name}*) echo "GH006: {name} is protected."; exit 1;; '
    "esac; done",
    "update": 'case "$1" in {name}*) echo "GH006: {name} is protected."; exit 1;; esac',
}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("protected", [TARGET, FENCES])
async def test_a_remote_that_protects_one_name_is_told_with_its_own_words(
    protected: str, hook: str, tmp_path: Path
) -> None:
    remote, here, _ = await two(tmp_path)
    await unanswered(here, remote, ssh_script(tmp_path))
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("a\n")
    script = remote / "hooks" / hook
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\n{HOOKS[hook].format(name=protected)}\n")
    script.chmod(0o755)
    with pytest.raises(GitTrouble) as refused:
        await finish(here, tree)
    says = str(refused.value)
    assert says.startswith(f"here:{remote} refuses a push to ")
    assert protected in says.partition("hook declined")[0]
    assert f"hook declined: GH006: {protected} is protected. The team pushes to" in says
    assert says.endswith("allow that there, or name another remote.")
    assert subjects(remote) == ["Begin"]
    script.unlink()
    assert isinstance(await finish(here, tree), Merged)
    assert subjects(remote) == ["Some work", "Begin"]


# A remote that cannot store.

BWRAP = find_bwrap(os.environ["PATH"], outside=Path("/nowhere"))


@pytest.mark.parametrize(
    ("disk", "says"),
    [("full", "No space left on device"), ("read-only", "unable to create temporary object directory")],
)
async def test_a_remote_that_cannot_store_says_why_and_the_work_stays(disk: str, says: str, tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.bin").write_bytes(os.urandom(300_000))
    objects, before = remote / "objects", tmp_path / "objects"
    before.mkdir()
    (tmp_path / "alternates").write_text(f"{before}\n")
    box = {
        "full": f"--bind {objects} {before} --size 200000 --tmpfs {objects} --file 3 {objects}/info/alternates "
        f"3<{tmp_path}/alternates",
        "read-only": f"--ro-bind {objects} {objects}",
    }[disk]
    await unanswered(here, remote, ssh_script(tmp_path, before=f'exec {BWRAP} --dev-bind / / {box} sh -c "$command"'))
    with pytest.raises(GitTrouble) as refused:
        await finish(here, tree)
    assert not isinstance(refused.value, RemoteAway)
    assert f"here:{remote} refuses a push: it could not store the work: " in str(refused.value)
    assert says in str(refused.value)
    assert str(refused.value).endswith("Look at its disk, its rights and its limits, or name another remote.")
    assert subjects(remote) == ["Begin"]
    await unanswered(here, remote, ssh_script(tmp_path))
    assert isinstance(await finish(here, tree), Merged)


# A lock that a git left behind there.


@pytest.mark.parametrize("by", ["folder", "ssh"])
@pytest.mark.parametrize("locked", ["target", "fence"])
async def test_a_lock_at_the_remote_is_named_with_the_file_to_remove(by: str, locked: str, tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    if by == "ssh":
        await unanswered(here, remote, ssh_script(tmp_path))
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("a\n")
    lock = remote / f"{TARGET if locked == 'target' else tree.fence_name}.lock"
    lock.touch()
    at_once(here)
    with pytest.raises(RemoteLocked) as told:
        await finish(here, tree)
    says = "is locked by a git that runs there or has crashed. If none runs there, remove this file:"
    assert f"{remote} {says} {lock}" in str(told.value)
    assert subjects(remote) == ["Begin"]
    lock.unlink()
    assert isinstance(await finish(here, tree), Merged)


async def test_a_lock_that_is_held_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("a\n")
    lock = remote / f"{TARGET}.lock"
    lock.touch()
    told: list[str] = []

    def tell(words: str) -> None:
        told.append(words)
        lock.unlink(missing_ok=True)

    assert here.shared is not None
    object.__setattr__(here.shared.git, "tell", tell)
    assert isinstance(await finish(here, tree), Merged)
    assert told[0].startswith("Waiting: ")
    assert f"remove this file: {lock}" in told[0]
    assert told[-1] == ""


async def test_a_lock_that_stays_is_not_waited_for_as_long_as_a_remote_that_is_away(tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("a\n")
    (remote / f"{TARGET}.lock").touch()
    assert here.shared is not None
    here.shared.remote = replace(here.shared.remote, locked_seconds=1.0)
    with pytest.raises(RemoteLocked):
        await finish(here, tree)


async def test_the_time_for_a_lock_begins_with_the_lock(tmp_path: Path) -> None:
    """The remote was away before, and that counts as what it was."""
    remote, here, _ = await two(tmp_path)
    lock, told = remote / f"{TARGET}.lock", list[str]()
    away = f"if [ -e {tmp_path}/away ]; then echo 'ssh: No route to host' >&2; exit 255; fi"
    await unanswered(here, remote, ssh_script(tmp_path, before=away))
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("a\n")
    assert here.shared is not None
    here.shared.remote = replace(here.shared.remote, locked_seconds=2.5)
    tip = await tree.commit("Some work", "alice")
    (tmp_path / "away").touch()
    lock.touch()

    def tell(words: str) -> None:
        told.append(words)
        if len(told) == 2:
            (tmp_path / "away").unlink()
        if "remove this file" in words:
            lock.unlink()

    object.__setattr__(here.shared.git, "tell", tell)
    assert await here.shared.remote.push(here.shared.git, [(TARGET, await here.target_head(), tip)])
    assert ["No route" in each for each in told[:2]] == [True, True]
    assert any("remove this file" in each for each in told)


# Clones that are not as one expects.


async def test_a_shallow_clone_shares_its_work(tmp_path: Path) -> None:
    remote, (first, _) = machines(tmp_path)
    for number in range(3):
        git(first, "commit", "--quiet", "--allow-empty", "--message", f"More {number}")
    git(first, "push", "--quiet", str(remote), "main")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{remote}", "shallow")
    here, there = await sharing(first, remote), await sharing(tmp_path / "shallow", remote)
    assert isinstance(await done(there, 1), Merged)
    assert isinstance(await done(here, 2), Merged)
    assert isinstance(await done(there, 3), Merged)
    assert subjects(remote) == ["Some work"] * 3 + ["More 2", "More 1", "More 0", "Begin"]
    git(remote, "fsck", "--strict")
    assert git(root_of(there), "rev-parse", "--is-shallow-repository") == "true"


async def test_a_clone_that_is_behind_works_on_what_the_remote_has(tmp_path: Path) -> None:
    remote, (first, second) = machines(tmp_path)
    (first / "new.py").write_text("new\n")
    git(first, "add", "new.py")
    git(first, "commit", "--quiet", "--message", "Newer")
    git(first, "push", "--quiet", str(remote), "main")
    here = await sharing(first, remote)
    there = await sharing(second, remote)
    tree = await begun(there, 1)
    assert (tree.path / "new.py").read_text() == "new\n"
    (tree.path / "a.py").write_text("a\n")
    assert isinstance(await finish(there, tree), Merged)
    assert git(second, "log", "--format=%s", "main").splitlines() == ["Begin"]  # The person's own branch stays.
    await here.bring()
    assert subjects(remote) == ["Some work", "Newer", "Begin"]


@pytest.mark.parametrize("hours", [-9, 9])
async def test_a_machine_whose_clock_is_off_by_hours_changes_nothing(hours: int, tmp_path: Path) -> None:
    """What the one machine brings bears a date of the past or of the future; nothing is decided by it."""
    remote, (first, second) = machines(tmp_path)
    date = f"{int(git(first, 'log', '-1', '--format=%ct')) + hours * 3600} +0000"
    tip = git(first, "commit-tree", "-p", "main", "-m", "Elsewhen", "main^{tree}")
    dated = git(first, "cat-file", "commit", tip).replace(git(first, "log", "-1", "--format=%ct +0000", tip), date)
    (tmp_path / "commit").write_text(f"{dated}\n")
    tip = git(first, "hash-object", "-t", "commit", "-w", str(tmp_path / "commit"))
    git(first, "update-ref", "refs/heads/main", tip)
    git(first, "push", "--quiet", str(remote), "main")
    here, there = await sharing(first, remote), await sharing(second, remote)
    for number, each in enumerate((there, here, there), 1):
        assert isinstance(await done(each, number), Merged)
    assert subjects(remote) == ["Some work"] * 3 + ["Elsewhen", "Begin"]
    assert git(remote, "log", "-1", "--format=%ct +0000", tip) == date


# Two boards.


async def test_two_boards_with_the_same_task_numbers_do_not_disturb_each_other(tmp_path: Path) -> None:
    """A mark has the number of a task and the beginning of its board's identity."""
    remote, here, there = await two(tmp_path)
    ours = await begun(here, 1, 5)
    other = replace(attempt(1, 2), mark="1-ef567890")
    await there.claimed(other.mark, other.epoch)
    theirs = await there.begin(other)
    (ours.path / "a.py").write_text("a\n")
    (theirs.path / "b.py").write_text("b\n")
    assert isinstance(await finish(there, theirs), Merged)
    await there.forget(other.mark)
    assert isinstance(await finish(here, ours), Merged)
    assert (at(remote, "dugnad/main", "a.py"), at(remote, "dugnad/main", "b.py")) == ("a", "b")
