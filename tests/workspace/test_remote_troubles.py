"""Lost answers of a push, and a remote that is away, refuses, or was rewritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from dugnad.workspace.git.merge_queue import Merged, Work, merge, prepare_target
from dugnad.workspace.git.ownership import GitTrouble
from dugnad.workspace.git.remote import RemoteAway
from tests.workspace.remotes import (
    TARGET,
    at_once,
    begun,
    done,
    replaced,
    root_of,
    ssh_script,
    two,
    unanswered,
)
from tests.workspace.repository import at, finish, git, green, subjects

# A push whose answer is lost.


async def test_a_push_that_took_effect_without_an_answer_is_settled_by_looking(tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("a\n")
    await unanswered(here, remote, ssh_script(tmp_path, before=_losing_an_answer(tmp_path)))
    came = await finish(here, tree)
    assert isinstance(came, Merged)
    assert (tmp_path / "cut").exists()
    assert git(remote, "rev-parse", "dugnad/main") == came.commit
    assert subjects(remote) == ["Some work", "Begin"]


def _losing_an_answer(folder: Path) -> str:
    """The first push arrives, and its answer does not: only the names that the other side has are passed on."""
    return (
        f'case "$command" in *receive-pack*) if [ ! -e {folder}/cut ]; then touch {folder}/cut; '
        f'sh -c "$command" | python3 -c "import sys, os\n'
        "while True:\n"
        "    head = os.read(0, 4)\n"
        "    if len(head) < 4: break\n"
        "    length = int(head, 16)\n"
        "    body = b'' if length < 5 else sys.stdin.buffer.raw.read(length - 4)\n"
        "    os.write(1, head + body)\n"
        "    if length == 0: break\n"
        'sys.stdin.buffer.raw.readall()"; exit 255; fi;; esac'
    )


@pytest.mark.parametrize("moved", ["the fence", "the target"])
async def test_only_the_target_says_that_work_has_landed(moved: str, tmp_path: Path) -> None:
    """A server moves the names of a push one after another: if it is killed between two, only one has moved."""
    remote, here, _ = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("a\n")
    back = TARGET if moved == "the fence" else tree.fence_name
    undo = f"git -C {remote} update-ref {back} {git(remote, 'rev-parse', back)}"
    script = _losing_an_answer(tmp_path).replace("exit 255", f"{undo}; exit 255")
    await unanswered(here, remote, ssh_script(tmp_path, before=script))
    came = await finish(here, tree)
    assert isinstance(came, Merged)
    assert (tmp_path / "cut").exists()
    assert git(remote, "rev-parse", "dugnad/main") == came.commit
    assert subjects(remote) == ["Some work", "Begin"]
    assert at(remote, "dugnad/main", "a.py") == "a"


async def test_a_push_that_never_arrived_is_made_again(tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("a\n")
    away = (
        f'case "$command" in *receive-pack*) if [ ! -e {tmp_path}/cut ]; then touch {tmp_path}/cut; exit 255; fi;; esac'
    )
    await unanswered(here, remote, ssh_script(tmp_path, before=away))
    came = await finish(here, tree)
    assert isinstance(came, Merged)
    assert subjects(remote) == ["Some work", "Begin"]


async def test_a_push_that_lands_late_is_found_and_not_made_twice(tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("a\n")
    tip = await tree.commit("Some work", "alice")
    work = Work(tip=tip, message="Some work", author="alice")
    landed: list[str] = []

    async def arrives() -> None:
        """What an earlier push of this very attempt sent is carried out only now."""
        if not landed:
            head, assumed = await here.target_head(), f"Some work, as sent before\n\nDugnad-Tip: {tip}\n"
            landed.append(await tree.git_commit(await here.git.tree_of(tip), [head], assumed, "alice"))
            fence = await here.git.blob(f"1 {landed[0]}\n")
            assert here.shared is not None
            moves = [(TARGET, head, landed[0]), (tree.fence_name, tree.fence, fence)]
            assert await here.shared.remote.push(here.git, moves)

    assert await merge(here, tree, work, check=green, is_ours=arrives) == Merged(commit=landed[0])
    assert subjects(remote) == ["Some work, as sent before", "Begin"]


# Trouble at the remote.


async def test_a_remote_that_is_away_is_waited_for_and_the_person_is_told(tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("a\n")
    away = (
        f"if [ -e {tmp_path}/away ]; then echo 'ssh: connect to host here port 22: No route to host' >&2; exit 255; fi"
    )
    await unanswered(here, remote, ssh_script(tmp_path, before=away))
    (tmp_path / "away").touch()
    told: list[str] = []

    def tell(words: str) -> None:
        told.append(words)
        (tmp_path / "away").unlink(missing_ok=True)

    assert here.shared is not None
    object.__setattr__(here.shared.git, "tell", tell)
    assert isinstance(await finish(here, tree), Merged)
    assert told[0].startswith(f"Waiting: here:{remote} cannot be reached: ssh: connect to host")
    assert told[-1] == ""


async def test_a_remote_that_stays_away_is_told_and_the_work_stays(tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("a\n")
    await unanswered(here, remote, ssh_script(tmp_path))
    replaced(here, ssh_script(tmp_path, before="echo 'ssh: Could not resolve hostname here' >&2; exit 255"))
    at_once(here)
    with pytest.raises(RemoteAway, match=r"^here:\S+ cannot be reached: ssh: Could not resolve hostname here"):
        await finish(here, tree)
    assert at(root_of(here), tree.branch, "a.py") == "a"
    assert subjects(remote) == ["Begin"]


async def test_a_remote_that_never_answers_is_away(tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    await unanswered(here, remote, ssh_script(tmp_path))
    replaced(here, {**ssh_script(tmp_path, before="exec sleep 600")})
    at_once(here, seconds=2.0)
    with pytest.raises(RemoteAway, match="did not answer within"):
        await here.bring()


async def test_a_remote_that_has_no_end_of_things_to_say_is_stopped(tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    await unanswered(here, remote, ssh_script(tmp_path))
    replaced(here, ssh_script(tmp_path, before="yes 'remote: and another thing' >&2"))
    with pytest.raises(GitTrouble, match="has more to say than"):
        await here.bring()


@pytest.mark.parametrize(
    "said",
    [
        "git@host: Permission denied (publickey).",
        "remote: Repository not found.",
        "Host key verification failed.",
        "@@@@@ " * 100 + "\nHost key verification failed.",
    ],
)
async def test_what_only_a_person_can_mend_is_not_tried_again(said: str, tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    await unanswered(here, remote, ssh_script(tmp_path))
    replaced(here, ssh_script(tmp_path, before=f"echo '{said}' >&2; exit 255"))
    with pytest.raises(GitTrouble, match="cannot be used as the remote") as refused:
        await here.bring()
    assert not isinstance(refused.value, RemoteAway)
    assert said.rpartition("\n")[2].partition("(")[0] in str(refused.value)


async def test_a_remote_that_refuses_our_names_says_which_it_must_allow(tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    git(remote, "config", "transfer.hideRefs", "refs/dugnad")
    with pytest.raises(GitTrouble, match=r"a push to refs/dugnad/fence/\S+: deny updating a hidden ref.*: allow that"):
        await begun(here, 1)
    git(remote, "config", "--unset", "transfer.hideRefs")
    assert isinstance(await done(here, 1), Merged)


async def test_a_target_that_was_rewritten_at_the_remote_is_not_followed_and_nothing_is_lost(tmp_path: Path) -> None:
    remote, here, there = await two(tmp_path)
    tree = await begun(here, 1)
    (tree.path / "a.py").write_text("a\n")
    await done(here, 2)
    lost = git(remote, "rev-parse", "dugnad/main")
    git(remote, "update-ref", TARGET, "main")
    with pytest.raises(GitTrouble, match=rf"dugnad/main was rewritten at .*: it lacks {lost[:12]}") as told:
        await finish(here, tree)
    await there.bring()  # This machine never saw what was taken back.
    assert git(root_of(here), "rev-parse", "dugnad/main") == lost
    command = str(told.value).split("`")[1]
    git(root_of(here), *command.split()[1:])
    assert isinstance(await finish(here, tree), Merged)
    assert subjects(remote) == ["Some work", "Some work", "Begin"]


async def test_a_rewritten_target_that_was_meant_is_taken_over(tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    await done(here, 2)
    git(remote, "update-ref", TARGET, "main")
    with pytest.raises(GitTrouble) as told:
        await here.bring()
    git(root_of(here), *str(told.value).split("`")[3].split()[1:])
    assert isinstance(await done(here, 1), Merged)
    assert subjects(remote) == ["Some work", "Begin"]


async def test_a_target_that_is_gone_at_the_remote_is_told_and_comes_back_with_a_new_run(tmp_path: Path) -> None:
    remote, here, _ = await two(tmp_path)
    await done(here, 1)
    git(remote, "update-ref", "-d", TARGET)
    with pytest.raises(GitTrouble, match=r"dugnad/main is gone at .* `git push \S+ dugnad/main` brings it back"):
        await here.bring()
    await prepare_target(here, "refs/heads/main")
    assert subjects(remote) == ["Some work", "Begin"]


async def test_a_target_that_is_checked_out_here_is_not_moved_by_what_others_merged(tmp_path: Path) -> None:
    _, here, there = await two(tmp_path)
    git(root_of(here), "switch", "--quiet", "dugnad/main")
    await done(there, 1)
    with pytest.raises(GitTrouble, match="is checked out in"):
        await here.bring()
    assert git(root_of(here), "status", "--porcelain") == ""
