"""Trees on several machines: each has its own clone, and a remote holds what they share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dugnad.errors import StaleClaim
from dugnad.workspace.git.merge_queue import Conflict, Merged, prepare_target
from tests.workspace.remotes import (
    TARGET,
    bare,
    begun,
    done,
    handed_on,
    machines,
    names_at,
    root_of,
    sharing,
    ssh_script,
    two,
    unanswered,
)
from tests.workspace.repository import at, attempt, finish, git, new_repository, subjects, trees_of


async def test_what_one_machine_merged_is_there_for_every_other(tmp_path: Path) -> None:
    remote, here, there = await two(tmp_path)
    first = await done(here, 1)
    assert isinstance(first, Merged)
    second = await done(there, 2)
    assert isinstance(second, Merged)
    assert subjects(remote) == ["Some work", "Some work", "Begin"]
    assert git(remote, "rev-list", "dugnad/main").split()[:2] == [second.commit, first.commit]
    await here.bring()
    assert git(root_of(here), "rev-parse", "dugnad/main") == second.commit
    # Nothing else stays, and no checkout was touched.
    assert names_at(remote) == [TARGET, "refs/heads/main"]
    for trees in (here, there):
        assert git(root_of(trees), "status", "--porcelain") == ""
        assert git(root_of(trees), "for-each-ref", "refs/dugnad") == ""


async def test_both_land_where_one_was_merged_while_the_other_was_checked(tmp_path: Path) -> None:
    remote, here, there = await two(tmp_path)
    mine, theirs = await begun(here, 1), await begun(there, 2)
    (mine.path / "a.py").write_text("a\n")
    (theirs.path / "b.py").write_text("b\n")
    await done(there, 3)  # So that there is something to check together with.
    seen: list[list[str]] = []

    async def look() -> str | None:
        seen.append(sorted(each.name for each in mine.path.iterdir() if each.suffix in (".py", ".txt")))
        if len(seen) == 1:
            assert isinstance(await finish(there, theirs), Merged)
        return None

    came = await finish(here, mine, look)
    assert isinstance(came, Merged)
    assert seen == [["3.txt", "a.py"], ["3.txt", "a.py", "b.py"]]
    assert git(remote, "rev-parse", "dugnad/main") == came.commit
    assert git(remote, "ls-tree", "--name-only", "dugnad/main").split() == ["3.txt", "README.md", "a.py", "b.py"]
    assert git(remote, "rev-list", "--merges", "dugnad/main") == ""


async def test_a_conflict_with_another_machines_work_is_told_and_nothing_lands(tmp_path: Path) -> None:
    remote, here, there = await two(tmp_path)
    mine = await begun(here, 1)
    (mine.path / "2.txt").write_text("mine\n")
    await done(there, 2, "theirs\n")
    before = git(remote, "rev-parse", "dugnad/main")
    came = await finish(here, mine)
    assert isinstance(came, Conflict)
    assert came.files == ("2.txt",)
    assert git(remote, "rev-parse", "dugnad/main") == before


# Who may land.


async def test_an_attempt_that_was_overtaken_on_another_machine_cannot_land(tmp_path: Path) -> None:
    remote, here, there = await two(tmp_path)
    late = await begun(here, 1)
    (late.path / "a.py").write_text("late\n")
    await begun(there, 1, epoch=2)  # It asked nobody on the other machine.
    with pytest.raises(StaleClaim):
        await finish(here, late)
    with pytest.raises(StaleClaim):
        await begun(here, 1)
    assert subjects(remote) == ["Begin"]


async def test_an_attempt_overtaken_between_its_check_and_its_push_cannot_land(tmp_path: Path) -> None:
    remote, here, there = await two(tmp_path)
    late = await begun(here, 1)
    (late.path / "a.py").write_text("late\n")

    async def overtaken() -> None:
        await begun(there, 1, epoch=2)

    with pytest.raises(StaleClaim):
        await finish(here, late, is_ours=overtaken)
    assert subjects(remote) == ["Begin"]


async def test_an_attempt_cannot_land_when_its_task_is_over(tmp_path: Path) -> None:
    remote, here, there = await two(tmp_path)
    late = await begun(here, 1)
    (late.path / "a.py").write_text("late\n")
    await begun(there, 1, epoch=2)
    await there.forget(attempt(1).mark)
    with pytest.raises(StaleClaim):
        await finish(here, late)
    assert subjects(remote) == ["Begin"]


@pytest.mark.parametrize("changes", [True, False], ids=["changed", "unchanged"])
async def test_the_server_refuses_an_overtaken_push_only_because_the_fence_is_changed(
    tmp_path: Path, changes: bool
) -> None:
    """It is overtaken while the server has its push already. Of a name that stays as it is, git sends nothing."""
    remote, here, _ = await two(tmp_path)
    late = await begun(here, 1)
    (late.path / "a.py").write_text("late\n")
    tip, head = await late.commit("Late work", "alice"), await here.target_head()
    (tmp_path / "later").write_text("2\n")
    later = git(remote, "hash-object", "-w", str(tmp_path / "later"))
    overtakes = f"#!/bin/sh\nexec env -u GIT_QUARANTINE_PATH git update-ref {late.fence_name} {later}\n"
    (remote / "hooks" / "pre-receive").write_text(overtakes)
    (remote / "hooks" / "pre-receive").chmod(0o755)
    await unanswered(here, remote, ssh_script(tmp_path))  # By ssh, the server's own hooks run.
    assert here.shared is not None
    if changes:
        with pytest.raises(StaleClaim):
            await here.shared.land(late.fence_name, late.fence, head, tip)
    else:
        moves = [("refs/heads/dugnad/main", head, tip), (late.fence_name, late.fence, late.fence)]
        assert await here.shared.remote.push(here.git, moves)
    assert subjects(remote) == (["Begin"] if changes else ["Late work", "Begin"])


async def test_names_move_together_or_not_at_all(tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    assert here.shared is not None
    link, head = here.shared.remote, await here.target_head()
    tip = git(root_of(here), "commit-tree", "-m", "More", "-p", head, f"{head}^{{tree}}")
    before = git(remote, "for-each-ref")
    other = git(root_of(here), "commit-tree", "-m", "Other", "-p", head, f"{head}^{{tree}}")
    assert not await link.push(here.git, [(TARGET, tip, other), ("refs/dugnad/new", "", tip)])
    assert not await link.push(here.git, [(TARGET, head, tip), ("refs/heads/main", "", tip)])
    assert git(remote, "for-each-ref") == before
    assert await link.push(here.git, [(TARGET, head, tip), ("refs/dugnad/new", "", tip)])
    assert await link.look(here.git, TARGET, "refs/dugnad/*") == {TARGET: tip, "refs/dugnad/new": tip}
    assert await link.push(here.git, [("refs/dugnad/new", tip, "")])
    assert await link.look(here.git, TARGET, "refs/dugnad/*") == {TARGET: tip}


# Going on elsewhere.


async def test_what_was_put_down_on_one_machine_is_gone_on_with_on_another(tmp_path: Path) -> None:
    remote, here, there = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("half\n")
    await handed_on(here, tree)
    tree.let_go()
    taken = await begun(there, 1, epoch=2, born=1)
    assert (taken.carried_over, (taken.path / "a.py").read_text()) == (True, "half\n")
    (taken.path / "a.py").write_text("whole\n")
    await handed_on(there, taken)
    taken.let_go()
    back = await begun(here, 1, epoch=3, born=1)  # Its own tree of the first attempt is older.
    assert (back.path / "a.py").read_text() == "whole\n"
    came = await finish(here, back)
    assert isinstance(came, Merged)
    assert at(remote, "dugnad/main", "a.py") == "whole"
    await here.remove(back)
    await here.forget(back.attempt.mark)
    assert names_at(remote) == [TARGET, "refs/heads/main"]


@pytest.mark.parametrize("during", ["a check", "a merge"])
async def test_what_was_put_down_during_a_check_or_a_merge_is_handed_on_whole(tmp_path: Path, during: str) -> None:
    _, here, there = await two(tmp_path)
    assert isinstance(await done(there, 2), Merged)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("half\n")
    if during == "a check":
        await tree.checking().__aenter__()
    else:
        await tree.commit("Some work", "alice")
        await here.bring()
        await tree.show(await here.target_head())
    (tree.path / "left.txt").write_text("of the check\n")
    await handed_on(here, tree)
    tree.let_go()
    taken = await begun(there, 1, epoch=2, born=1)
    assert (taken.carried_over, taken.older, (taken.path / "a.py").read_text()) == (True, False, "half\n")
    assert not (taken.path / "left.txt").exists()


async def test_on_the_same_machine_the_tree_itself_is_taken_over(tmp_path: Path) -> None:
    _, here, _ = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("half\n")
    await handed_on(here, tree)
    tree.let_go()
    taken = await begun(here, 1, epoch=2, born=1)
    assert (taken.path, taken.carried_over) == (tree.path, False)
    (taken.path / "a.py").write_text("whole\n")
    await handed_on(here, taken)
    taken.let_go()


async def test_what_was_kept_at_the_remote_outlives_the_machine(tmp_path: Path) -> None:
    _, here, there = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("done\n")
    await here.keep(tree, await tree.commit("Some work", "alice"))
    shutil.rmtree(root_of(here))
    taken = await begun(there, 1, epoch=2, born=1, in_order=False)
    assert (taken.path / "a.py").read_text() == "done\n"


async def test_a_merge_that_nobody_could_tell_of_is_found_on_another_machine(tmp_path: Path) -> None:
    remote, here, there = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("done\n")
    tip = await tree.commit("Some work", "alice")
    await here.keep(tree, tip)
    first = await finish(here, tree)
    await done(there, 2)
    again = await begun(there, 1, epoch=2, born=1, in_order=False)
    assert await finish(there, again) == first
    assert subjects(remote) == ["Some work", "Some work", "Begin"]


async def test_what_a_failed_attempt_left_is_at_the_remote_too(tmp_path: Path) -> None:
    remote, here, there = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("not good enough\n")
    branch = await here.put_away(tree, keep=True)
    assert branch is not None
    assert at(remote, branch, "a.py") == "not good enough"
    # Another machine sweeps after the task has ended: the work stays, the fence goes.
    await there.bring()
    await there.sweep({attempt(1).mark: True}.get)
    assert names_at(remote) == [TARGET, f"refs/heads/{branch}", "refs/heads/main"]
    await there.sweep({attempt(1).mark: False}.get)
    assert names_at(remote) == [TARGET, "refs/heads/main"]


# How a run begins.


async def test_a_target_follows_the_persons_branch_at_the_remote_too(tmp_path: Path) -> None:
    remote, here, there = await two(tmp_path)
    root = root_of(here)
    git(root, "commit", "--quiet", "--allow-empty", "--message", "By the person")
    await prepare_target(here, "refs/heads/main")
    assert subjects(remote) == ["By the person", "Begin"]
    await there.bring()
    assert subjects(root_of(there)) == ["By the person", "Begin"]
    # A machine whose person has fetched nothing yet moves nothing back.
    assert await prepare_target(there, "refs/heads/main") == ""
    assert subjects(remote) == ["By the person", "Begin"]


async def test_work_that_was_merged_before_there_was_a_remote_goes_there_first(tmp_path: Path) -> None:
    root = new_repository(tmp_path / "p")
    alone = await trees_of(root)
    tree = await alone.begin(attempt(1))
    (tree.path / "a.py").write_text("a\n")
    await finish(alone, tree)
    remote = bare(tmp_path / "remote.git")
    await sharing(root, remote)
    assert subjects(remote) == ["Some work", "Begin"]


async def test_two_machines_that_begin_at_once_agree_on_one_target(tmp_path: Path) -> None:
    remote, (first, second) = machines(tmp_path)
    git(second, "commit", "--quiet", "--allow-empty", "--message", "By another person")
    await sharing(first, remote)
    there = await sharing(second, remote)
    assert subjects(remote) == ["By another person", "Begin"]
    assert isinstance(await done(there, 1), Merged)


# What may be older than the conversation.


async def test_a_tree_that_another_machine_may_have_changed_since_is_not_taken_for_the_last(tmp_path: Path) -> None:
    _, here, there = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("half\n")
    await handed_on(here, tree)
    tree.let_go()
    lost = await begun(there, 1, epoch=2, born=1)
    assert (lost.carried_over, lost.older) == (True, False)
    (lost.path / "a.py").write_text("whole, and never pushed\n")
    again = await begun(here, 1, epoch=3, born=1, in_order=False)
    assert (again.carried_over, again.older, (again.path / "a.py").read_text()) == (True, True, "half\n")
    assert again.path != tree.path


async def test_what_was_pushed_before_the_last_change_is_not_taken_for_the_last(tmp_path: Path) -> None:
    _, here, there = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("first\n")
    await here.keep(tree, await tree.commit("Some work", "alice"))
    (tree.path / "a.py").write_text("second\n")  # And its host is lost.
    taken = await begun(there, 1, epoch=2, born=1, in_order=False)
    assert (taken.older, (taken.path / "a.py").read_text()) == (True, "first\n")
    # The machine itself has it all.
    mine = await begun(here, 1, epoch=3, born=1, in_order=False)
    assert mine.older


@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize("in_order", [False, True])
async def test_a_tree_that_lacks_work_is_not_taken_for_the_last_until_its_mind_has_looked(
    tmp_path: Path, looked: bool, in_order: bool
) -> None:
    _, here, there = await two(tmp_path)
    lost = await begun(here, 1)
    (lost.path / "a.py").write_text("never pushed\n")
    tree = await begun(there, 1, epoch=2, born=1, in_order=False)
    assert (tree.anew, tree.lacks_work) == (True, True)
    if looked:
        tree.hold()
    await handed_on(there, tree)
    tree.let_go()
    again = await begun(there, 1, epoch=3, born=1, in_order=in_order)
    assert (again.older, again.lacks_work) == (not looked, not looked)
    again.let_go()
    elsewhere = await begun(here, 1, epoch=4, born=1)  # The third attempt handed nothing on.
    assert elsewhere.older


async def test_a_host_that_comes_back_on_its_own_machine_has_it_all(tmp_path: Path) -> None:
    _, here, _ = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("all\n")
    again = await begun(here, 1, epoch=2, born=1, in_order=False)
    assert (again.carried_over, again.older, (again.path / "a.py").read_text()) == (True, False, "all\n")
