"""Whatever a repository, a tree or the folder of a remote names, reaching the remote does not have git run it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.errors import StaleClaim
from dugnad.workspace.git.command import NO_WALLS, walls
from dugnad.workspace.git.merge_queue import prepare_target
from dugnad.workspace.git.ownership import GitTrouble
from dugnad.workspace.git.remote import open_remote
from dugnad.workspace.git.sharing import SharedNames
from tests.proof import every
from tests.workspace.git_attacked import Stage
from tests.workspace.git_attacks import ATTACKS, BY_X, FILTER, Attack
from tests.workspace.remotes import begun, handed_on
from tests.workspace.repository import attempt, finish, trees_of
from tests.workspace.test_git_attacks import staged

BARE = "git init -q --bare --initial-branch=main ../remote.git && git push -q ../remote.git main"
PUSH = "git {person} commit -q --allow-empty -m x; git push -q ../remote.git HEAD:refs/heads/new || true"
FETCH = "git fetch -q ../remote.git main || true"


def _hook(name: str, control: str = PUSH, settings: str = "") -> Attack:
    made = f"printf '#!/bin/sh\\n{{run}}\\n' > ../remote.git/hooks/{name} && chmod +x ../remote.git/hooks/{name}"
    return Attack(name=f"the remote's hook {name}", before=f"{BARE} && {made} {settings}", control=control)


def _remote(name: str, value: str, control: str, more: str = "true") -> Attack:
    made = f"git -C ../remote.git config {name} '{value}'"
    return Attack(name=f"the remote's {name}", before=f"{BARE} && {more} && {made}", control=control)


OWN = (
    *(_hook(each) for each in ("pre-receive", "update", "post-receive", "post-update", "reference-transaction")),
    _hook("proc-receive", settings="&& git -C ../remote.git config --add receive.procReceiveRefs refs"),
    _hook(
        "push-to-checkout", control="git push -q ../remote.git +HEAD~0:refs/heads/main; " + PUSH.replace("new", "main"),
        settings="&& mkdir ../tree && git -C ../remote.git config core.bare false && git -C ../remote.git config "
        "core.worktree {root}/../tree && git -C ../remote.git config receive.denyCurrentBranch updateInstead",
    ),
    _remote("core.hooksPath", "{root}/../evil", PUSH,
            "mkdir -p ../evil && printf '#!/bin/sh\\n{run}\\n' > ../evil/pre-receive && chmod +x ../evil/pre-receive"),
    _remote("core.alternateRefsCommand", "{run}", PUSH,
            "git clone -q --bare . ../lent && echo {root}/../lent/objects > ../remote.git/objects/info/alternates"),
    Attack(name="hook pre-push", before=BARE, beside={"hooks/pre-push": "#!/bin/sh\n{run}\n"}, control=PUSH),
    Attack(name="reference-transaction at a fetch", before=BARE,
           beside={"hooks/reference-transaction": "#!/bin/sh\n{run}\n"},
           control="git fetch -q ../remote.git main:refs/heads/new2"),
    Attack(name="remote.uploadpack", before=BARE,
           settings='[remote "o"]\n\turl = ../remote.git\n\tuploadpack = {run}\n', control="git fetch -q o || true"),
    Attack(name="remote.receivepack", before=BARE,
           settings='[remote "o"]\n\turl = ../remote.git\n\treceivepack = {run}\n',
           control="git push -q o main:z || true"),
    Attack(name="url.insteadOf", before=BARE, control=FETCH,
           settings='[protocol "ext"]\n\tallow = always\n[url "ext::{run} "]\n\tinsteadOf = ../remote.git\n'),
    Attack(name="a filter of what is fetched", before=BARE, settings=FILTER, files=BY_X,
           control="rm a.txt; git checkout a.txt || true"),
)  # fmt: skip
REACHING = ("core.sshCommand", "core.gitProxy", "credential.helper", "core.askPass", "remote with ext::",
            "core.alternateRefsCommand", "hook reference-transaction", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT",
            "include.path", "the user's own settings", "gpg.program", "alias")  # fmt: skip
SHARED = (*OWN, *(replace(each, before=f"{BARE}; {each.before}") for each in ATTACKS if each.name in REACHING))
# What a git at the other end that reads all settings, and has no wall, does run.
AT_THE_OTHER_END = tuple(each for each in OWN if each.name.startswith("the remote's"))


async def everything_shared(stage: Stage, behind: object = None) -> None:
    """Every command of ours that reaches a remote."""
    trees = await trees_of(stage.root, prepared=False)
    if behind is not None:
        trees.git = replace(trees.git, behind=behind)  # type: ignore[arg-type]
    remote = await open_remote(str(stage.folder / "remote.git"), trees.git, os.environ)
    trees.shared = SharedNames(git=trees.git, remote=remote.at_once(60), target_name=trees.target_name)
    with suppress(GitTrouble):
        await prepare_target(trees, "refs/heads/main")
    for task in (1, 2):
        with suppress(GitTrouble, StaleClaim):
            tree = await begun(trees, task)
            (tree.path / "a.txt").write_text(f"by {task}\n")
            await handed_on(trees, tree)
            await finish(trees, tree)
            await trees.put_away(tree, keep=task == 1)
            await trees.bring(at_once=True)
            await trees.forget(attempt(task).mark)
    await trees.sweep({attempt(1).mark: False}.get)


@pytest.mark.parametrize("attack", every(6, SHARED), ids=lambda each: each.name)
async def test_reaching_a_remote_runs_nothing_that_plain_git_runs(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = staged(attack, tmp_path, monkeypatch)
    await everything_shared(stage)
    assert not stage.has_run()
    assert stage.control(), "plain git does not run it either, so nothing was shown"


@pytest.mark.parametrize("attack", every(6, AT_THE_OTHER_END), ids=lambda each: each.name)
async def test_what_the_remotes_folder_names_is_not_run_by_either_guard_alone(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our settings at the other end, without a wall; and the wall, without those settings. Without both, it is run; one
    of them alone is met only where a checkout is pushed to."""
    assert walls().files
    stage = staged(attack, tmp_path, monkeypatch)
    await everything_shared(stage, NO_WALLS)
    assert not stage.has_run()
    monkeypatch.setattr("dugnad.workspace.git.remote._PLAIN_END", ())
    await everything_shared(stage)
    assert not stage.has_run()
    await everything_shared(stage, NO_WALLS)
    assert stage.has_run() is ("push-to-checkout" not in attack.name)


async def test_only_git_can_be_run_for_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the program at the other end is somebody else's: without the wall it runs."""
    attack = Attack(name="none", before=BARE, control="true")
    for behind, runs in ((walls(), False), (NO_WALLS, True)):
        stage = staged(attack, tmp_path / str(runs), monkeypatch)
        trees = await trees_of(stage.root)
        trees.git = replace(trees.git, behind=behind)
        remote = await open_remote(str(stage.folder / "remote.git"), trees.git, os.environ)
        monkeypatch.setattr("dugnad.workspace.git.remote._PLAIN_END", (f"alias.upload-pack=!{stage.folder}/run",))
        with suppress(GitTrouble):
            words = ("ls-remote", f"--upload-pack={stage.folder / 'run'}", "--", remote.url)
            await remote._run(trees.git, *words)
        assert stage.has_run() is runs
